"""The notebooks run, and both halves of each pair say the same."""

import os
from pathlib import Path

import pytest

import analysis
from tests.analysis.made_run import make_run

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")
FOLDER = Path(analysis.__file__).parent / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def test_every_notebook_is_a_pair() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert scripts == set(NOTEBOOKS) == {"first_look"}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_pair_is_in_step_and_holds_no_outputs(name: str) -> None:
    script, notebook = (jupytext.read(FOLDER / f"{name}{kind}") for kind in (".py", ".ipynb"))
    cells = [[(c.cell_type, c.source, c.metadata.get("tags")) for c in n.cells] for n in (script, notebook)]
    assert cells[0] == cells[1], f"jupytext --sync analysis/notebooks/{name}.py"
    assert not any(cell.get("outputs") for cell in notebook.cells)


@pytest.mark.parametrize("live", [True, False])
def test_the_first_look_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool) -> None:
    monkeypatch.setenv("ARENA_RUN", str(make_run(tmp_path / "run", live=live).path))
    root = str(FOLDER.parent.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    notebook = jupytext.read(FOLDER / "first_look.py")
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    said = "".join(output.get("text", "") for output in outputs)
    assert len(pictures) == 2
    assert "12 matches" in said and "match 0002-0002 of negotiation" in said
    assert "iteration 0 to 2: +0.29 per turn" in said  # (27 + 5) / 7 - (27 + 3) / 7
    assert "advantage +0.125" in said or live
