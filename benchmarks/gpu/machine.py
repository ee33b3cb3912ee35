"""Environment of the measurements: the machine, its packages, and what the device can do at most."""

import importlib.util
from functools import partial
from statistics import median

import torch
from models import smollm2_at_hand
from rates import peak_flops
from sheet import Sheet
from size import Size
from timing import seconds_of

PACKAGES = ("deepspeed", "pydantic", "pettingzoo", "pyspiel", "openskill", "gymnasium", "pandas", "pyarrow", "gguf")


def machine(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Names and versions, missing packages, matrix products and copies."""
    sheet.attempt("environment", lambda: _environment(sheet))
    missing = [name for name in PACKAGES if not _there(name)]
    sheet.note("missing", missing)
    if missing:
        sheet.skip("whatever needs what is missing", ", ".join(missing))
    if not smollm2_at_hand():
        sheet.skip("SmolLM2's own weights", "not in ARENA_HOME: random weights of its shape instead")
    if device.type == "cuda":
        sheet.attempt("device", lambda: _device(sheet))
    for dtype in (torch.bfloat16, torch.float32):
        name = f"product of {size.matmul} × {size.matmul} matrices, {str(dtype).removeprefix('torch.')}"
        sheet.attempt(name, partial(_product, sheet, name, device, size.matmul, dtype))
    sheet.attempt("copy on the device", lambda: _copy(sheet, device, size))


def _environment(sheet: Sheet) -> None:
    from arena.doctor import describe_environment

    sheet.note("environment", {name: value for name, value in describe_environment().items() if name != "command"})


def _device(sheet: Sheet) -> None:
    about = torch.cuda.get_device_properties(0)
    sheet.note(
        "cuda",
        {
            "runtime": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "capability": [about.major, about.minor],
            "multiprocessors": about.multi_processor_count,
            "memory_gb": about.total_memory / 1e9,
            "tf32_products": torch.backends.cuda.matmul.allow_tf32,
        },
    )


def _product(sheet: Sheet, name: str, device: torch.device, width: int, dtype: torch.dtype) -> None:
    tflops = peak_flops(device, width, dtype) / 1e12
    sheet.note(name, {"tflops": tflops})
    sheet.claim(name, f"{tflops:.3g} TFLOP/s")


def _copy(sheet: Sheet, device: torch.device, size: Size) -> None:
    source = torch.zeros(size.matmul**2 * (16 if device.type == "cuda" else 1), device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = median(seconds_of(lambda: target.copy_(source))[0] for _ in range(5))
    rate = 2 * source.numel() * source.element_size() / seconds / 1e9
    sheet.note("copy_gb_per_second", rate)
    sheet.claim("copy on the device, bytes read and written", f"{rate:.3g} GB/s")


def _there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
