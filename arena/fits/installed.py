"""Requirements of the installed distribution: versions beside the oldest that will do, by extra, and its pages."""

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

DISTRIBUTION = "arena-selfplay"
CORE = ""
OTHERS = ("dev", "docs", "vllm-cpu")
"""Extras for who works on Arena itself."""
IMPORTED_AS = {"faiss": "faiss-cpu", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Packages whose modules have another name."""
PAGE = "experiments.md"
"""A page that is among them."""


@dataclass(frozen=True)
class Required:
    """A package that an extra, or every run, needs."""

    package: str
    extra: str
    """`CORE` where every run needs it."""
    wanted: str
    """Versions that will do, such as `>=2.13`."""
    installed: str
    """`missing` where there is none."""
    fits: bool


def version_of(package: str) -> str:
    """An installed package's version, or `missing`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def required(lines: list[str] | None = None) -> list[Required]:
    """Everything that the distribution names, in its order; nothing where it is not installed itself."""
    if lines is None:
        try:
            lines = requires(DISTRIBUTION) or []
        except PackageNotFoundError:
            return []
    found = []
    for line in lines:
        try:
            asked = Requirement(line)
        except InvalidRequirement:
            continue
        extra = next((e for e in _extras(lines) if asked.marker and asked.marker.evaluate({"extra": e})), CORE)
        if asked.marker and not asked.marker.evaluate({"extra": extra}):
            continue  # for another system or Python
        here = version_of(asked.name)
        fits = here != "missing" and asked.specifier.contains(here, prereleases=True)
        found.append(Required(asked.name, extra, str(asked.specifier), here, fits))
    return found


def complaint(module: str) -> str:
    """One line for a module that is not there, naming what brings it; nothing where no requirement of ours does."""
    top = module.partition(".")[0]
    package = IMPORTED_AS.get(top, top).replace("_", "-").lower()
    for one in required():
        if one.package.replace("_", "-").lower() == package and one.installed == "missing":
            extra = f"[{one.extra}]" if one.extra else ""
            return f"{one.package} is not installed: pip install '{DISTRIBUTION}{extra}'"
    return ""


def _extras(lines: list[str]) -> list[str]:
    """Names of extras, as the lines' markers say them."""
    told = [line.partition("extra ==")[2].strip(" \"'") for line in lines if "extra ==" in line]
    return list(dict.fromkeys(name for name in told if name))


def pages() -> Path | None:
    """The folder of the pages that messages name as docs/…: the checkout's, or what was installed with the package."""
    own = Path(__file__).resolve().parents[2] / "docs"
    try:
        files = distribution(DISTRIBUTION).files or []
    except PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())).parent for file in files if file.name == PAGE]
    return next((folder.resolve() for folder in (own, *found) if (folder / PAGE).is_file()), None)
