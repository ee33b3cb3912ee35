"""Environment of the measurements: machine, packages, and the device's peak rates."""

import importlib.util
from functools import partial

import torch
from models import has_smollm2
from rates import measure_copy_rate, measure_peak_flops
from sheet import Sheet
from size import Size

PACKAGES = ("deepspeed", "pydantic", "pettingzoo", "pyspiel", "openskill", "gymnasium", "pandas", "pyarrow", "gguf")


def measure_machine(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Record names and versions, missing packages, and the rates of matrix products and copies."""
    sheet.attempt("environment", lambda: _note_environment(sheet))
    missing = [name for name in PACKAGES if not _is_installed(name)]
    sheet.note("missing", missing)
    if missing:
        sheet.skip("parts that need missing packages", ", ".join(missing))
    if not has_smollm2():
        sheet.skip("SmolLM2's own weights", "not in ARENA_HOME: random weights of the same shape instead")
    if device.type == "cuda":
        sheet.attempt("device", lambda: _note_device(sheet))
    for dtype in (torch.bfloat16, torch.float32):
        name = f"product of {size.matmul_width} × {size.matmul_width} matrices, {str(dtype).removeprefix('torch.')}"
        sheet.attempt(name, partial(_measure_product, sheet, name, device, size.matmul_width, dtype))
    sheet.attempt("copy on the device", lambda: _measure_copy(sheet, device, size))


def _note_environment(sheet: Sheet) -> None:
    from arena.doctor import describe_environment

    sheet.note("environment", {name: value for name, value in describe_environment().items() if name != "command"})


def _note_device(sheet: Sheet) -> None:
    properties = torch.cuda.get_device_properties(0)
    sheet.note(
        "cuda",
        {
            "runtime": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count,
            "memory_gb": properties.total_memory / 1e9,
            "tf32_products": torch.backends.cuda.matmul.allow_tf32,
        },
    )


def _measure_product(sheet: Sheet, name: str, device: torch.device, width: int, dtype: torch.dtype) -> None:
    tflops = measure_peak_flops(device, width, dtype) / 1e12
    sheet.note(name, {"tflops": tflops})
    sheet.claim(name, f"{tflops:.3g} TFLOP/s")


def _measure_copy(sheet: Sheet, device: torch.device, size: Size) -> None:
    rate = measure_copy_rate(device, size.matmul_width) / 1e9
    sheet.note("copy_gb_per_second", rate)
    sheet.claim("copy on the device, bytes read and written", f"{rate:.3g} GB/s")


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
