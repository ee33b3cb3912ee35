"""Requirements of the distribution against installed packages, and one line for missing ones."""

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


def test_versions_are_compared_by_extra() -> None:
    statuses = {status.package: status for status in list_requirements(LINES)}
    assert list(statuses) == ["numpy", "rich", "no-such-package", "torch", "nowhere-at-all", "faiss-cpu", "nobody"]
    assert statuses["numpy"].fits and statuses["numpy"].extra == installed.CORE
    assert not statuses["rich"].fits and statuses["rich"].installed != "missing"
    assert statuses["nowhere-at-all"] == RequirementStatus("nowhere-at-all", "chess", ">=3", "missing", False)
    assert statuses["torch"].extra == "train" and statuses["torch"].fits, (
        "a build's own mark, as of 2.13+cpu, does not matter"
    )


def test_doctor_names_missing_packages_by_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "list_requirements", lambda: list_requirements(LINES))
    findings = {finding.what: finding for finding in doctor._check_packages()}
    assert list(findings) == ["every run", "learning", "extra chess", "extra maps"], (
        "development packages are not listed"
    )
    assert (
        not findings["every run"].ok
        and "rich" in findings["every run"].found
        and "(>=9999 is needed)" in findings["every run"].found
    )
    assert "no-such-package missing" in findings["every run"].found and "numpy" not in findings["every run"].found
    assert findings["learning"].ok and findings["learning"].found.startswith("torch 2")
    assert findings["extra chess"].ok, "the extra is optional"
    assert "nowhere-at-all (pip install --upgrade 'arena-selfplay[chess]')" in findings["extra chess"].found
    assert not findings["extra maps"].ok, "installed but too old"


def test_missing_extra_gives_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(installed, "requires", lambda name: ['nowhere-at-all>=3; extra == "chess"'])

    def fail_import(**settings: object) -> None:
        raise ModuleNotFoundError("No module named 'nowhere_at_all.inner'", name="nowhere_at_all.inner")

    monkeypatch.setattr("arena.cli.main.app", fail_import)
    assert run_cli() == 2
    assert capsys.readouterr().err == "arena: nowhere-at-all is not installed: pip install 'arena-selfplay[chess]'\n"


def test_unknown_missing_module_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_import(**settings: object) -> None:
        raise ModuleNotFoundError("No module named 'of_ours'", name="of_ours")

    monkeypatch.setattr("arena.cli.main.app", fail_import)
    with pytest.raises(ModuleNotFoundError):
        run_cli()


@pytest.mark.slow
def test_model_free_commands_load_without_torch(tmp_path: Path) -> None:
    """`arena doctor` must work without the training packages."""
    import subprocess

    blocked = "import sys; sys.modules.update(dict.fromkeys(('torch', 'transformers', 'tokenizers', 'deepspeed')))\n"
    script = blocked + (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "from arena.cli.app import app; app()"
    )
    root = Path(__file__).parents[3]
    for words in (["doctor", "--json"], ["list", "models", "--json"]):
        result = subprocess.run(
            [sys.executable, "-c", script, *words], cwd=tmp_path, env={"PYTHONPATH": str(root), "HOME": str(tmp_path)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert json.loads(result.stdout), result.stderr


def test_documentation_pages_are_found() -> None:
    folder = installed.find_docs()
    assert folder is not None and (folder / "run-folder.md").is_file()
