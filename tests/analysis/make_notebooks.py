"""All notebooks, run on the committed example and written with what they show.

python -m tests.analysis.make_notebooks [NAME ...]
"""

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import analysis

FOLDER = Path(analysis.__file__).parent / "notebooks"
ROOT = FOLDER.parent.parent
NOISE = re.compile(r"TqdmWarning|notebook_tqdm|/ld: cannot find|^collect2: ")
EXAMPLE = "analysis/notebooks/example/negotiation"


def execute_notebook(name: str, folder: Path = ROOT, run: str = "") -> Any:
    """Return the notebook after running all cells in `folder`, with another run if one is given."""
    import jupytext
    import nbclient

    notebook = jupytext.read(FOLDER / f"{name}.py")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:02d}"
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), before.get("PYTHONPATH", "")])
    if run:
        os.environ["ARENA_RUN"] = run
    try:
        nbclient.NotebookClient(
            notebook, timeout=900, startup_timeout=300, resources={"metadata": {"path": str(folder)}}
        ).execute()
    finally:
        os.environ.clear()
        os.environ.update(before)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not is_noise(output)]
    notebook.metadata.pop("language_info", None)  # names this machine's Python
    return notebook


def is_noise(output: Any) -> bool:
    """Whether an output is only a library's message on stderr about this machine."""
    lines = str(output.get("text", "")).splitlines()
    return output.get("name") == "stderr" and all(map(NOISE.search, lines))


if __name__ == "__main__":
    import jupytext

    for script in sorted(FOLDER.glob("*.py")):
        if script.stem != "__init__" and (len(sys.argv) == 1 or script.stem in sys.argv):
            began = time.perf_counter()
            made = execute_notebook(script.stem, run=EXAMPLE if script.stem == "first_look" else "")
            jupytext.write(made, script.with_suffix(".ipynb"), fmt="ipynb")
            print(f"{script.stem}: {time.perf_counter() - began:.0f} s", flush=True)
