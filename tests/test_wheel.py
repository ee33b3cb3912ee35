"""Tests of the wheel: it holds roles, recipes, panels, pages and type markers of the repository."""

import fnmatch
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("arena", "agents", "games", "simulators", "analysis")
BUILT = ("__pycache__", ".ipynb_checkpoints")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def list_files() -> list[str]:
    """Return the tracked files of rooms and pages, or all files if git is not available."""
    result = subprocess.run(["git", "ls-files", *ROOMS, "docs"], cwd=ROOT, capture_output=True, text=True)
    if result.returncode == 0 and result.stdout:
        return [name for name in result.stdout.splitlines() if (ROOT / name).is_file()]
    found = (path for room in (*ROOMS, "docs") for path in (ROOT / room).rglob("*") if path.is_file())
    return [path.relative_to(ROOT).as_posix() for path in found if not set(path.parts) & set(BUILT)]


def test_package_data_covers_every_data_file() -> None:
    globs = PROJECT["tool"]["setuptools"]["package-data"]
    patterns = [
        "*/" * (package == "*")
        + f"{'' if package == '*' else package.replace('.', '/') + '/'}{glob.replace('**/', '')}"
        for package, package_globs in globs.items()
        for glob in package_globs
    ]
    data = [name for name in list_files() if not name.startswith("docs/") and not name.endswith(".py")]
    bare = [name for name in data if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    assert len(data) > 80 and not bare, "pyproject.toml: package-data"
    unused = [pattern for pattern in patterns if not any(fnmatch.fnmatch(name, pattern) for name in data)]
    assert {pattern.rpartition(".")[2] for pattern in unused} <= {"py"}, "unused patterns"


def test_every_folder_with_data_or_modules_is_a_package() -> None:
    """Otherwise the wheel leaves it out."""
    modules = {Path(name).parent for name in list_files() if name.endswith(".py") and not name.startswith("docs/")}
    notebooks = Path("analysis", "notebooks")
    assert not [folder for folder in modules if not (ROOT / folder / "__init__.py").is_file() and folder != notebooks]
    assert all((ROOT / room / "py.typed").is_file() for room in ROOMS)


def list_named_pages() -> set[str]:
    """Return the pages that messages, help texts and docstrings refer to."""
    texts = (path.read_text("utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {name for text in texts for name in re.findall(r"docs/([\w-]+\.md)", text)}


def test_every_page_that_a_message_names_is_installed() -> None:
    globs = PROJECT["tool"]["setuptools"]["data-files"]["share/doc/arena-selfplay"]
    pages = list_named_pages()
    assert len(pages) > 5
    for page in pages:
        assert (ROOT / "docs" / page).is_file() and any(fnmatch.fnmatch(f"docs/{page}", glob) for glob in globs), page


def test_classifiers_say_what_requires_python_allows() -> None:
    project = PROJECT["project"]
    tried = [c.rpartition(" ")[2] for c in project["classifiers"] if re.fullmatch(r".* :: 3\.\d+", c)]
    assert tried == ["3.11", "3.12", "3.13"] and project["requires-python"] == ">=3.11"


@pytest.mark.slow
def test_wheel_holds_every_file_of_the_repository(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in [*list_files(), "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), "."]
    subprocess.run(command, cwd=source, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = set(archive.namelist())
    expected = {name for name in list_files() if not name.startswith("docs/")}
    assert not expected - members, "in the repository and not in the wheel"
    inside = {name.partition("/share/doc/arena-selfplay/")[2] for name in members}
    assert list_named_pages() <= inside and {path.name for path in (ROOT / "docs").glob("*.md")} <= inside
    assert {f"examples/{path.name}" for path in (ROOT / "docs/examples").iterdir()} <= inside, "pages link to them"
    strays = {name for name in members - expected if ".dist-info/" not in name and ".data/" not in name}
    assert not strays, "in the wheel and not in the repository"
