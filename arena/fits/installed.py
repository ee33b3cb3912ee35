"""Requirements of the installed distribution by extra, with installed and required versions, and its documentation."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

DISTRIBUTION = "arena-selfplay"
CORE = ""
DEVELOPMENT_EXTRAS = ("dev", "docs", "vllm-cpu")
"""Extras for development."""
IMPORTED_AS = {"faiss": "faiss-cpu", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Packages by module name, if the names differ."""
PAGE = "experiments.md"
"""One page of the documentation, used to find its folder."""


@dataclass(frozen=True)
class RequirementStatus:
    """Status of a required package: its extra, required versions and installed version."""

    package: str
    extra: str
    """Name of the extra, or `CORE` if every run needs the package."""
    wanted: str
    """Required versions, such as `>=2.13`; "" for any."""
    installed: str
    """Installed version, or `missing`."""
    fits: bool


def get_version(package: str) -> str:
    """Return the version of an installed package, or "missing"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def list_requirements(lines: list[str] | None = None) -> list[RequirementStatus]:
    """Return a row per requirement of Arena's distribution, in order; [] if the distribution is not installed.

    Requirements for other systems or Pythons are left out. `lines` replaces the distribution's requirement lines.
    """
    if lines is None:
        try:
            lines = requires(DISTRIBUTION) or []
        except PackageNotFoundError:
            return []
    requirements = []
    for line in lines:
        try:
            asked = Requirement(line)
        except InvalidRequirement:
            continue
        extra = next((e for e in _list_extras(lines) if asked.marker and asked.marker.evaluate({"extra": e})), CORE)
        if asked.marker and not asked.marker.evaluate({"extra": extra}):
            continue  # for another system or Python
        here = get_version(asked.name)
        fits = here != "missing" and asked.specifier.contains(here, prereleases=True)
        requirements.append(RequirementStatus(asked.name, extra, str(asked.specifier), here, fits))
    return requirements


def explain_missing(module: str) -> str:
    """Return an install hint if a requirement provides the module and is missing, else ""."""
    top = module.partition(".")[0]
    package = IMPORTED_AS.get(top, top).replace("_", "-").lower()
    for one in list_requirements():
        if one.package.replace("_", "-").lower() == package and one.installed == "missing":
            extra = f"[{one.extra}]" if one.extra else ""
            return f"{one.package} is not installed: pip install '{DISTRIBUTION}{extra}'"
    return ""


def _list_extras(lines: list[str]) -> list[str]:
    """Return the names of the extras in the requirement lines' markers, in order."""
    names = [line.partition("extra ==")[2].strip(" \"'") for line in lines if "extra ==" in line]
    return list(dict.fromkeys(filter(None, names)))


def find_docs() -> Path | None:
    """Return the documentation's folder, of the checkout or else of the installation; None if there is none."""
    own = Path(__file__).resolve().parents[2] / "docs"
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())).parent for file in files if file.name == PAGE]
    return next((folder.resolve() for folder in (own, *found) if (folder / PAGE).is_file()), None)
