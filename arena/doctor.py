"""Checks whether this machine can run Arena; they need the standard library alone until they are asked."""

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOMS = ("agents", "games", "simulators", "analysis")
PACKAGES = (
    "torch",
    "transformers",
    "deepspeed",
    "safetensors",
    "pettingzoo",
    "pandas",
    "pyarrow",
    "pydantic",
    "openskill",
    "vllm",
)


@dataclass(frozen=True)
class Finding:
    """One thing looked at: how it stands, and what to do if badly."""

    what: str
    ok: bool
    found: str
    fix: str = ""


def shadowed() -> str:
    """A sentence naming a foreign package that hides one of ours, or nothing."""
    here = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        if spec is None or spec.origin is None:
            return f"the package '{room}' of arena-selfplay is missing: install arena-selfplay again"
        if Path(spec.origin).resolve().parent.parent != here:
            return (
                f"'import {room}' finds {spec.origin}, which is not Arena's; uninstall the package it belongs to "
                "(openai-agents has one of that name), or give Arena a virtual environment of its own"
            )
    return ""


def versions() -> dict[str, str]:
    """Installed versions of what Arena is built on; `missing` where there is none."""
    return {name: _version(name) for name in ("arena-selfplay", *PACKAGES)}


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def environment() -> dict[str, Any]:
    """Return what a run notes of the machine it began on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(_memory() / 1e9, 1),
        "device": _device(),
        "instruction_set": instruction_set(),
        "command": sys.argv,
        "versions": versions(),
    }


def examine() -> list[Finding]:
    """All checks, in the order a user would care."""
    installed = versions()
    train = [name for name in ("torch", "transformers", "deepspeed", "safetensors") if installed[name] == "missing"]
    free = shutil.disk_usage(Path.cwd()).free
    memory = _memory()
    clash = shadowed()
    return [
        Finding("python", sys.version_info >= (3, 11), platform.python_version(), "use Python 3.11 or newer"),
        Finding("package names", not clash, clash or "agents, games, simulators, analysis are Arena's", clash),
        Finding(
            "learning",
            not train,
            ", ".join(f"{n} {installed[n]}" for n in ("torch", "transformers", "deepspeed")),
            f"pip install 'arena-selfplay[train]' ({', '.join(train)} missing)",
        ),
        Finding("device", True, _device()),
        Finding("threads", True, _threads()),
        Finding("precision", True, _precision()),
        Finding("same bits", True, _same_bits()),
        Finding(
            "memory",
            memory == 0 or memory > 8e9,
            f"{memory / 1e9:.0f} GB",
            "the default recipe takes 4 GB; use --recipe negotiation-nano",
        ),
        Finding("disk here", free > 5e9, f"{free / 1e9:.0f} GB free", "a run of the default recipe needs up to 5 GB"),
        _home(),
        Finding("vllm", True, installed["vllm"] if installed["vllm"] != "missing" else "not installed (optional)"),
    ]


def as_rows(findings: list[Finding]) -> list[dict[str, Any]]:
    """Findings as plain rows."""
    return [asdict(finding) for finding in findings]


def _home() -> Finding:
    from agents.weights import home

    folder = home()
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    return Finding("ARENA_HOME", os.access(parent, os.W_OK), str(folder), f"{parent} is not writable: set ARENA_HOME")


def _memory() -> int:
    """Bytes of memory, 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _threads() -> str:
    """Return in words how many threads `threads: auto` would take just now, and how they wait for each other."""
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    from arena.learn.machine import threads_of, try_threads
    from arena.process import waiting

    seconds = try_threads()
    tried = ", ".join(f"{count} in {1000 * spent:.0f} ms" for count, spent in seconds.items())
    return f"{threads_of(seconds)} (the same work by {tried}); waiting: {waiting()}"


def _precision() -> str:
    """The precision that `precision: auto` would take."""
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    import torch

    from arena.learn.machine import fastest_precision, precision_of, try_precisions

    if torch.cuda.is_available():
        return f"{fastest_precision()} (as the GPU says)"
    seconds = try_precisions()
    tried = ", ".join(
        f"{str(dtype).removeprefix('torch.')} in {1000 * spent:.0f} ms" for dtype, spent in seconds.items()
    )
    return f"{precision_of(seconds)} (the same work in {tried})"


def instruction_set() -> str:
    """The processor's instructions by which torch chooses its kernels."""
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def _same_bits() -> str:
    """Return in words what has to be the same for a run to be the same again."""
    torch = versions()["torch"]
    return (
        "a seed gives them with the same `threads`, `precision`, "
        f"instruction set ({instruction_set()}) and versions (torch {torch})"
    )


def _device() -> str:
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(0)}"
    return f"CPU, {torch.get_num_threads()} threads"
