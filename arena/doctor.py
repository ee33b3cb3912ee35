"""Checks of this machine and installation. Importing this module does not load torch."""

import importlib.util
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena.errors import ConfigError
from arena.fits.installed import (
    CORE,
    DEVELOPMENT_EXTRAS,
    DISTRIBUTION,
    RequirementStatus,
    find_docs,
    get_version,
    list_requirements,
)
from arena.fits.machine import find_devices, measure_memory
from arena.process import count_cores

if TYPE_CHECKING:
    from arena.scale.settings import ScaleSpec

TOP_PACKAGES = ("agents", "games", "simulators", "analysis")
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
    """Result of one check: `what` was checked, whether it is `ok`, what was `found`, and how to `fix` it."""

    what: str
    ok: bool
    found: str
    fix: str = ""


def find_shadowed_package() -> str:
    """Return an error message if another package hides one of Arena's, or one of Arena's is missing; else ""."""
    root = Path(__file__).resolve().parent.parent
    for package in TOP_PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return f"the package '{package}' of arena-selfplay is missing: install arena-selfplay again"
        if Path(spec.origin).resolve().parent.parent != root:
            return (
                f"'import {package}' finds {spec.origin}, which is not Arena's; uninstall the package it belongs to "
                "(openai-agents has one of that name), or give Arena a virtual environment of its own"
            )
    return ""


def list_versions() -> dict[str, str]:
    """Return the installed versions of Arena and its main dependencies by package name; `missing` if not installed."""
    return {name: get_version(name) for name in (DISTRIBUTION, *PACKAGES)}


def describe_environment() -> dict[str, Any]:
    """Return facts about Python, the machine, the command and package versions, for a run's environment.json."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _read_processor(),
        "cpus": count_cores(),
        "memory_gb": round(measure_memory().total / 1e9, 1),
        "device": _describe_device(),
        "instruction_set": find_instruction_set(),
        "command": sys.argv,
        "versions": list_versions(),
    }


def describe_invocation() -> tuple[str, dict[str, Any]]:
    """Return the `arena` command in shell syntax, and the facts of `describe_environment` without it."""
    machine = describe_environment()
    del machine["command"]
    return shlex.join(["arena", *sys.argv[1:]]), machine


def examine() -> list[Finding]:
    """Check this machine and installation, and return the findings, the most important first."""
    clash = find_shadowed_package()
    return [
        Finding("python", sys.version_info >= (3, 11), platform.python_version(), "use Python 3.11 or newer"),
        Finding("package names", not clash, clash or "agents, games, simulators, analysis are Arena's", clash),
        *_check_packages(),
        *_check_devices(),
        Finding("threads", True, _describe_threads()),
        Finding("precision", True, _describe_precision()),
        Finding("same bits", True, _describe_repeatability()),
        _check_disk(),
        _check_home(),
        _check_pages(),
    ]


async def examine_cluster(spec: "ScaleSpec") -> list[Finding]:
    """Start or join the cluster of `spec`, and return findings about it, each of its nodes, and its capacity."""
    from agents.engines.spec import EngineSpec
    from arena.scale.cluster import check_scale, describe_processes
    from arena.scale.probe import probe, read_versions

    location = spec.address or "started and stopped on this machine"
    try:
        check_scale(spec, EngineSpec())
        nodes, lack = await probe(spec)
    except ConfigError as error:
        fault, _, fix = str(error).rpartition(": ")
        return [Finding("cluster", False, fault, fix)]
    versions, findings = read_versions(), [Finding("cluster", True, f"{location}; Ray {get_version('ray')}")]
    for node in nodes:
        fault = node.trouble or "; ".join(node.find_differences(versions))
        packages = ", ".join(f"{name} {has}" for name, has in node.installed.items() if has != "missing")
        _, _, fix = node.trouble.rpartition(": ")
        fix = fix or "install the same versions there, and set PYTHONPATH where Arena is a checkout"
        findings.append(Finding(f"node {node.address}", not fault, f"{node.resources}; {fault or packages}", fix))
    shortage, _, fix = lack.rpartition(": ")
    return [*findings, Finding("room", not lack, shortage or f"enough for {describe_processes(spec)}", fix)]


def _check_packages() -> list[Finding]:
    """Return one finding each about the core requirements, the extra `train`, and every other extra."""
    by_extra: dict[str, list[RequirementStatus]] = {}
    for requirement in list_requirements():
        if requirement.extra not in DEVELOPMENT_EXTRAS:
            by_extra.setdefault(requirement.extra, []).append(requirement)
    extras = sorted(by_extra, key=lambda name: (name not in (CORE, "train"), name))
    return [_check_extra(name, by_extra[name]) for name in extras]


def _check_extra(name: str, requirements: Sequence[RequirementStatus]) -> Finding:
    """Return a finding about an extra's packages. Wrong versions fail it; missing ones only in the core and `train`."""
    label = {CORE: "every run", "train": "learning"}.get(name, f"extra {name}")
    fix = f"pip install --upgrade '{DISTRIBUTION}[{name}]'" if name else f"pip install --upgrade {DISTRIBUTION}"
    missing = [status for status in requirements if status.installed == "missing"]
    misfits = [status for status in requirements if not status.fits and status not in missing]
    if misfits or (missing and name in (CORE, "train")):
        faults = [
            f"{o.package} {o.installed} ({o.required_version.replace(',', ' ')} is needed)"
            for o in (*missing, *misfits)
        ]
        return Finding(label, False, ", ".join(faults), fix)
    if missing:
        return Finding(label, True, f"not installed: {', '.join(o.package for o in missing)} ({fix})")
    return Finding(label, True, ", ".join(f"{status.package} {status.installed}" for status in requirements))


def _check_devices() -> list[Finding]:
    """Return findings about the main memory and each accelerator, with their total and free gigabytes."""
    findings = []
    for device in find_devices():
        sizes = f"{device.total / 1e9:.1f} GB, {device.free / 1e9:.1f} free" if device.total else ""
        sizes_and_note = "; ".join(part for part in (sizes, device.note) if part) or "size unknown"
        is_small = device.kind == "cpu" and 0 < device.total <= 4e9
        label = device.name if device.kind == "cpu" else f"device {device.name}"
        findings.append(
            Finding(label, not is_small, sizes_and_note, "the default recipe takes 4 GB; use --recipe negotiation-nano")
        )
    return [Finding("device", True, _describe_device()), *findings]


def _check_disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    return Finding("disk here", free > 5e9, f"{free / 1e9:.0f} GB free", "a run of the default recipe needs up to 5 GB")


def _check_pages() -> Finding:
    """Check that the documentation pages to which messages refer are installed."""
    folder = find_docs()
    return Finding("pages", folder is not None, str(folder or "missing"), f"install {DISTRIBUTION} again")


def findings_to_rows(findings: list[Finding]) -> list[dict[str, Any]]:
    """Return the findings as dicts with their fields: what, ok, found, fix."""
    return [asdict(finding) for finding in findings]


def _check_home() -> Finding:
    from agents.weights import home

    folder = home()
    parent = next(p for p in (folder, *folder.parents) if p.exists())
    return Finding("ARENA_HOME", os.access(parent, os.W_OK), str(folder), f"{parent} is not writable: set ARENA_HOME")


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _describe_threads() -> str:
    """Describe the number of threads that `threads: auto` would choose now, with the timings of a trial."""
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    from arena.learn.machine import choose_threads, time_threads
    from arena.process import describe_waiting

    seconds = time_threads()
    timings = ", ".join(f"{count} in {1000 * duration:.0f} ms" for count, duration in seconds.items())
    return f"{choose_threads(seconds)} (time of the same work: {timings}); waiting: {describe_waiting()}"


def _describe_precision() -> str:
    """Describe the precision that `precision: auto` would choose now, with the timings of a trial."""
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    import torch

    from arena.learn.machine import choose_precision, find_fastest_precision, time_precisions

    if torch.cuda.is_available():
        return f"{find_fastest_precision()} (reported by the GPU)"
    seconds = time_precisions()
    timings = ", ".join(
        f"{str(dtype).removeprefix('torch.')} in {1000 * duration:.0f} ms" for dtype, duration in seconds.items()
    )
    return f"{choose_precision(seconds)} (time of the same work: {timings})"


def find_instruction_set() -> str:
    """Return the CPU instruction set that torch's kernels use, or a message if torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def _describe_repeatability() -> str:
    """Describe the conditions under which runs are bit-identical."""
    torch = list_versions()["torch"]
    return (
        "a seed gives the same bits with the same `threads`, `precision`, "
        f"instruction set ({find_instruction_set()}) and versions (torch {torch})"
    )


def _describe_device() -> str:
    if importlib.util.find_spec("torch") is None:
        return "none: torch is not installed"
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name(0)}"
    return f"CPU, {torch.get_num_threads()} threads"
