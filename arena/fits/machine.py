"""Memory of this machine to hold models, as far as this process may take it, and every GPU that is seen."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agents.cgroups import free_memory, meminfo, memory_limits

DRIVERS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Device:
    """A device and its memory in bytes."""

    name: str
    kind: str
    """`cpu`, `cuda`, or another backend of torch's that runs do not use."""
    total: int
    """What this process may take of it at most; 0 where the system does not say."""
    free: int
    note: str = ""


def devices() -> list[Device]:
    """The processor's memory first, then every accelerator that torch sees, then GPUs that only the driver sees."""
    seen = [memory()]
    if find_spec("torch"):
        seen += accelerators()
    if not any(device.kind == "cuda" for device in seen) and DRIVERS.is_dir():
        note = "its driver is here, but torch does not see it: install torch's CUDA build"
        seen += [Device(f"NVIDIA GPU {path.name}", "unseen", 0, 0, note) for path in sorted(DRIVERS.iterdir())]
    return seen


def memory() -> Device:
    """Return the memory of the machine, or less where a control group's limit is lower."""
    total, free = meminfo("MemTotal"), free_memory()
    limits = [limit for limit, _ in memory_limits() if not total or limit < total]
    if not limits:
        return Device("memory", "cpu", total, free)
    return Device("memory", "cpu", min(limits), free, "limit of the control group")


def accelerators() -> list[Device]:
    """Return what torch sees beside the processor; a run computes on CUDA or on the processor."""
    import torch

    found = []
    for k in range(torch.cuda.device_count()):
        try:
            free, total = torch.cuda.mem_get_info(k)
        except RuntimeError as error:  # one that is full, or taken by somebody alone
            free, total = 0, torch.cuda.get_device_properties(k).total_memory
            found.append(Device(f"GPU {k}: {torch.cuda.get_device_name(k)}", "cuda", total, free, str(error)[:80]))
            continue
        note = "" if k == 0 else "not used: a run computes on the first"
        found.append(Device(f"GPU {k}: {torch.cuda.get_device_name(k)}", "cuda", total, free, note))
    for name in ("mps", "xpu"):
        backend = getattr(torch, name if name == "xpu" else "backends")
        if (backend if name == "xpu" else backend.mps).is_available():
            found.append(Device(name, name, 0, 0, "not used: Arena computes on CUDA or on the processor"))
    return found
