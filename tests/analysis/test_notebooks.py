"""The notebooks run on the committed example, and both files of each pair agree."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.make_notebooks import EXAMPLE, FOLDER, ROOT, execute_notebook
from tests.factories.made_run import make_run

jupytext = pytest.importorskip("jupytext")
pytest.importorskip("nbclient")
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
ALL = {"first_look", "fork_a_match", "league", "compare_estimators", "data_to_policy"}


def test_every_notebook_has_a_python_file() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert scripts == set(NOTEBOOKS) == ALL


def read_outputs(notebook: Any) -> tuple[list[str], int]:
    """Return the printed and displayed text, and the number of pictures."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = sum("image/png" in output.get("data", {}) for output in outputs)
    plain = [
        o.get("text") or o.get("data", {}).get("text/plain", "")
        for o in outputs
        if "png" not in str(o.get("data", {}).keys())
    ]
    return "".join(plain).splitlines(), pictures


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_matches_its_python_file_and_has_outputs(name: str) -> None:
    script, notebook = (jupytext.read(FOLDER / f"{name}{kind}") for kind in (".py", ".ipynb"))
    cells = [[(c.cell_type, c.source, c.metadata.get("tags")) for c in n.cells] for n in (script, notebook)]
    assert cells[0] == cells[1], f"python -m tests.analysis.make_notebooks {name}"
    assert len(read_outputs(notebook)[0]) > 5, f"python -m tests.analysis.make_notebooks {name}"
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert "stderr" not in outputs and "Traceback" not in outputs and str(ROOT) not in outputs


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_reproduces_its_outputs(name: str) -> None:
    """The same number of lines and pictures; figures may differ in the last digit between machines."""
    committed = read_outputs(jupytext.read(FOLDER / f"{name}.ipynb"))
    lines, pictures = read_outputs(execute_notebook(name, run=EXAMPLE if name == "first_look" else ""))
    assert pictures == committed[1]
    assert lines[0] == committed[0][0] and len(lines) == len(committed[0])


@pytest.mark.slow
@pytest.mark.parametrize("live", [True, False])
def test_the_first_look_runs(tmp_path: Path, live: bool) -> None:
    notebook = execute_notebook("first_look", tmp_path, str(make_run(tmp_path / "run", live=live).path))
    lines, pictures = read_outputs(notebook)
    output = "\n".join(lines)
    assert pictures == 1
    assert "12 matches" in output and "match 0002-0002 of negotiation" in output
    assert "iteration 0 to 2: +0.29 per turn" in output  # (27 + 5) / 7 - (27 + 3) / 7
    assert "advantage +0.125" in output or live
