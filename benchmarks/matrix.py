"""Pictures of the saved matrices of agents and persons, without playing (`make matrix` plays them).

python benchmarks/matrix.py --redraw
"""

import argparse
import json
from pathlib import Path

from matplotlib.figure import Figure

from arena.cli.show_evaluate import format_game
from arena.evaluate.crosstable_plot import draw_matrix
from arena.evaluate.matrix import Cell
from arena.play.settings import GameSpec

RESULTS = Path(__file__).parent / "results"


def draw(path: Path) -> Figure:
    """Draw a saved matrix as `arena matrix --plot` does."""
    matrix = json.loads(path.read_text())
    cells = []
    for row in matrix["cells"]:
        assert not row["missing"], "the saved counts must be of all trials"
        cell = Cell(
            agent=row["agent"],
            person=row["person"],
            speaker=row["words"],
            tasks=matrix["tasks"],
            trials=matrix["trials"],
            k=matrix["k"],
        )
        cell.successes |= {
            task: [True] * count + [False] * (matrix["trials"] - count) for task, count in enumerate(row["successes"])
        }
        cells.append(cell)
    game = format_game(GameSpec(name=matrix["game"], options=matrix["options"]))
    return draw_matrix(cells, f"{game}: {matrix['tasks']} tasks × {matrix['trials']} trials, 95 % intervals over tasks")


def main() -> None:
    """Draw all saved matrices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redraw", action="store_true", required=True)
    parser.parse_args()
    for path in sorted(RESULTS.glob("matrix-*.json")):
        draw(path).savefig(path.with_suffix(".png"), dpi=85)


if __name__ == "__main__":
    main()
