"""What the distribution requires beside what is installed, and one line for what is missing."""

import json
import sys
from pathlib import Path

import pytest

from arena import doctor
from arena.cli.main import run_cli
from arena.fits import installed
from arena.fits.installed import RequirementStatus, list_requirements

LINES = [
    "numpy>=2.2", "rich>=9999", "no-such-package>=1.0", "nonsense of somebody >>", "colorama; sys_platform == 'no'",
    'torch>=2.0; extra == "train"', 'nowhere-at-all[fast]>=3; extra == "chess"', 'faiss-cpu>=9999; extra == "maps"',
    'nobody; extra == "dev"',
]  # fmt: skip


def test_versions_are_held_against_floors_by_extra() -> None:
    found = {one.package: one for one in list_requirements(LINES)}
    assert list(found) == ["numpy", "rich", "no-such-package", "torch", "nowhere-at-all", "faiss-cpu", "nobody"]
    assert found["numpy"].fits and found["numpy"].extra == installed.CORE
    assert not found["rich"].fits and found["rich"].installed != "missing"
    assert found["nowhere-at-all"] == RequirementStatus("nowhere-at-all", "chess", ">=3", "missing", False)
    assert found["torch"].extra == "train" and found["torch"].fits, (
        "a build's own mark, as of 2.13+cpu, does not matter"
    )


def test_the_doctor_names_what_is_missing_for_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "list_requirements", lambda: list_requirements(LINES))
    found = {finding.what: finding for finding in doctor._check_packages()}
    assert list(found) == ["every run", "learning", "extra chess", "extra maps"], "nothing of who works on Arena itself"
    assert (
        not found["every run"].ok
        and "rich" in found["every run"].found
        and "(>=9999 is needed)" in found["every run"].found
    )
    assert "no-such-package missing" in found["every run"].found and "numpy" not in found["every run"].found
    assert found["learning"].ok and found["learning"].found.startswith("torch 2")
    assert found["extra chess"].ok, "nobody has to have it"
    assert "nowhere-at-all (pip install --upgrade 'arena-selfplay[chess]')" in found["extra chess"].found
    assert not found["extra maps"].ok, "there, but too old"


def test_an_extra_that_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "requires", lambda name: ['nowhere-at-all>=3; extra == "chess"'])

    def importing(**settings: object) -> None:
        raise ModuleNotFoundError("No module named 'nowhere_at_all.inner'", name="nowhere_at_all.inner")

    monkeypatch.setattr("arena.cli.main.app", importing)
    assert run_cli() == 2
    assert capsys.readouterr().err == "arena: nowhere-at-all is not installed: pip install 'arena-selfplay[chess]'\n"


def test_a_module_that_no_requirement_brings_is_a_bug_and_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(**settings: object) -> None:
        raise ModuleNotFoundError("No module named 'of_ours'", name="of_ours")

    monkeypatch.setattr("arena.cli.main.app", importing)
    with pytest.raises(ModuleNotFoundError):
        run_cli()


@pytest.mark.slow
def test_what_needs_no_model_loads_without_the_extra_for_learning(tmp_path: Path) -> None:
    """`arena doctor` is for who has not installed it."""
    import subprocess

    barred = "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'tokenizers', 'deepspeed')))\n"
    script = barred + (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "from arena.cli.app import app; app()"
    )
    root = Path(__file__).parents[3]
    for words in (["doctor", "--json"], ["models", "--json"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *words], cwd=tmp_path, env={"PYTHONPATH": str(root), "HOME": str(tmp_path)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert json.loads(done.stdout), done.stderr


def test_pages_that_messages_name_are_found() -> None:
    folder = installed.find_docs()
    assert folder is not None and (folder / "run-folder.md").is_file()
