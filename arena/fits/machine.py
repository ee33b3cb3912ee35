"""Main memory and accelerators that this process may use on this machine."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agents.cgroups import find_memory_limits, measure_free_memory, read_meminfo

DRIVERS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Device:
    """Main memory or an accelerator of this machine, with its total and free memory in bytes."""

    name: str
    kind: str
    """`cpu`, `cuda`, another torch backend, which runs do not use, or `unseen` for a GPU that torch does not see."""
    total: int
    """Maximum bytes that this process may use; 0 if unknown."""
    free: int
    note: str = ""
    """Remark for the user, such as why runs do not use the device."""


def find_devices() -> list[Device]:
    """Return the main memory, followed by the accelerators that torch sees.

    If torch sees no CUDA device, the GPUs that only their driver sees follow, with kind `unseen` and 0 bytes.
    """
    devices = [measure_memory()]
    if find_spec("torch"):
        devices += find_accelerators()
    if not any(device.kind == "cuda" for device in devices) and DRIVERS.is_dir():
        note = "its driver is installed, but torch does not see it: install torch's CUDA build"
        devices += [Device(f"NVIDIA GPU {path.name}", "unseen", 0, 0, note) for path in sorted(DRIVERS.iterdir())]
    return devices


def measure_memory() -> Device:
    """Return the main memory as a device. Its total is the control group's limit if that is lower."""
    total, free = read_meminfo("MemTotal"), measure_free_memory()
    limits = [limit for limit, _ in find_memory_limits() if not total or limit < total]
    if not limits:
        return Device("memory", "cpu", total, free)
    return Device("memory", "cpu", min(limits), free, "limit of the control group")


def find_accelerators() -> list[Device]:
    """Return the CUDA, MPS and XPU devices that torch sees. Runs use only the first CUDA device.

    MPS and XPU devices are listed with 0 bytes. A CUDA device whose memory cannot be queried has 0 free bytes.
    """
    import torch

    devices = []
    for k in range(torch.cuda.device_count()):
        try:
            free, total = torch.cuda.mem_get_info(k)
        except RuntimeError as error:  # the GPU is full or in exclusive use
            free, total = 0, torch.cuda.get_device_properties(k).total_memory
            devices.append(Device(f"GPU {k}: {torch.cuda.get_device_name(k)}", "cuda", total, free, str(error)[:80]))
            continue
        note = "" if k == 0 else "not used: a run computes on the first GPU"
        devices.append(Device(f"GPU {k}: {torch.cuda.get_device_name(k)}", "cuda", total, free, note))
    for name in ("mps", "xpu"):
        backend = getattr(torch, name if name == "xpu" else "backends")
        if (backend if name == "xpu" else backend.mps).is_available():
            devices.append(Device(name, name, 0, 0, "not used: Arena computes on CUDA or on the processor"))
    return devices
