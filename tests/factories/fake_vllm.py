"""Small stand-in for vLLM 0.32 with the parts that Arena calls, where vLLM is not installed or has no GPU to free.

It keeps vLLM's rules, as its source has them: an update starts, receives and finishes in that order; a layer takes the
tensors of a checkpoint by reference and is filled once it has as many elements as it holds, q, k and v being one layer;
what is asleep cannot be used; a paused scheduler keeps requests; arguments of calls to workers are plain values. It
decodes greedily, remembers replies to prompts as a prefix cache does, and its "GPU" is this process's memory.
"""

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from transformers import AutoModelForCausalLM

TAGS = frozenset({"weights", "kv_cache"})
PACKED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}


def load(folder: Path) -> Any:
    """Load a folder's model; unlike `load_module`, it needs no tokenizer."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).requires_grad_(False).eval()


class Layer:
    """Parameters that are loaded together, and the checkpoint tensors received so far."""

    def __init__(self) -> None:
        self.parameters: dict[str, torch.Tensor] = {}
        self.loaded: list[tuple[str, torch.Tensor]] | None = None

    def process(self) -> None:
        """Replace the parameters by the received tensors; missing elements become NaN."""
        for parameter in self.parameters.values():
            parameter.fill_(float("nan"))
        for name, tensor in self.loaded or ():
            self.parameters[name].copy_(tensor)
        self.loaded = None


class Model:
    """A worker's model, which loads weights layer by layer."""

    def __init__(self, folder: Path) -> None:
        self.module = load(folder)
        self.config, self.lm_head, self.model = self.module.config, self.module.lm_head, self.module.model
        self.layers: dict[str, Layer] = defaultdict(Layer)
        for name, parameter in self.module.named_parameters():
            self._layer(name).parameters[name] = parameter.data

    def _layer(self, name: str) -> Layer:
        *path, last = name.rpartition(".")[0].split(".")
        return self.layers[".".join([*path, PACKED.get(last, last)])]

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Take tensors by reference; fill a layer once it is complete."""
        for name, tensor in weights:
            layer = self._layer(name)
            assert tensor.shape == layer.parameters[name].shape
            if layer.loaded is None:
                continue  # vLLM ignores further tensors of a full layer
            layer.loaded.append((name, tensor))
            if sum(t.numel() for _, t in layer.loaded) >= sum(p.numel() for p in layer.parameters.values()):
                layer.process()


def initialize_layerwise_reload(model: Model) -> None:
    """Start loading all layers that are not being loaded."""
    for layer in model.layers.values():
        layer.loaded = [] if layer.loaded is None else layer.loaded


def finalize_layerwise_reload(model: Model, config: Any) -> None:
    """Fill partly loaded layers; layers without received tensors keep their weights."""
    for layer in model.layers.values():
        if layer.loaded:
            layer.process()
        layer.loaded = None


@dataclass
class WeightTransferInitInfo:
    """As in vLLM."""


@dataclass
class WeightTransferUpdateInfo:
    """As in vLLM."""


@dataclass
class WeightTransferUpdateRequest:
    """As in vLLM."""

    update_info: dict[str, Any] = field(default_factory=dict)


class WeightTransferEngine:
    """As in vLLM, but for draft models."""

    init_info_cls: Any
    update_info_cls: Any

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: Model) -> None:
        self.config, self.parallel_config, self.model_config = config, vllm_config.parallel_config, None
        self.device, self.model = device, model

    def parse_update_info(self, update: dict[str, Any]) -> Any:
        """As in vLLM."""
        try:
            return self.update_info_cls(**update)
        except TypeError as error:
            raise ValueError(f"Invalid update_info for {type(self).__name__}: {error}") from error


class WeightTransferEngineFactory:
    """As in vLLM."""

    registry: ClassVar[dict[str, Any]] = {}

    @classmethod
    def register_engine(cls, name: str, engine: Any) -> None:
        """As in vLLM, for a class."""
        if name in cls.registry:
            raise ValueError(f"Weight transfer engine '{name}' is already registered.")
        cls.registry[name] = engine


@dataclass
class WeightTransferConfig:
    """As in vLLM."""

    backend: str = "nccl"


class BaseWorker:
    """Worker with a model, whose weights alone can sleep."""

    def __init__(self, arguments: "AsyncEngineArgs", rank: int) -> None:
        self.model_runner = SimpleNamespace(model=Model(Path(arguments.model)), reload_weights=self._reload)
        self._active, transfer = False, arguments.weight_transfer_config
        self.weight_transfer_engine: Any = None
        if transfer:
            parallel = SimpleNamespace(rank=rank, world_size=arguments.tensor_parallel_size)
            engine = WeightTransferEngineFactory.registry[transfer.backend]
            config = SimpleNamespace(parallel_config=parallel)
            self.weight_transfer_engine = engine(transfer, config, torch.device("cpu"), self.model_runner.model)

    def _reload(self, weights_path: str) -> None:
        parameters = load(Path(weights_path)).named_parameters()
        initialize_layerwise_reload(self.model_runner.model)
        self.model_runner.model.load_weights((name, tensor.data) for name, tensor in parameters)
        finalize_layerwise_reload(self.model_runner.model, None)

    def start_weight_update(self) -> None:
        """As in vLLM."""
        if self.weight_transfer_engine is None or self._active:
            raise RuntimeError("Weight transfer not configured, or an update is already active.")
        self.weight_transfer_engine.start_weight_update()
        self._active = True

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As in vLLM."""
        if not self._active:
            raise RuntimeError("start_weight_update must be called before update_weights.")
        try:
            self.weight_transfer_engine.update_weights(update_info)
        except BaseException:
            self._active = False
            raise

    def finish_weight_update(self) -> None:
        """As in vLLM."""
        if not self._active:
            raise RuntimeError("finish_weight_update called without a matching start_weight_update.")
        self.weight_transfer_engine.finish_weight_update()
        self._active = False


@dataclass
class AsyncEngineArgs:
    """The arguments that Arena gives."""

    model: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    kv_cache_memory_bytes: int
    skip_tokenizer_init: bool
    logprobs_mode: str
    generation_config: str
    worker_extension_cls: str
    disable_log_stats: bool
    tensor_parallel_size: int
    weight_transfer_config: WeightTransferConfig | None = None
    enable_sleep_mode: bool = False
    sleep_mode_offload_cudagraph: bool = False
    gpu_memory_utilization: float = 0.92
    enforce_eager: bool = False
    enable_chunked_prefill: bool = True
    max_num_batched_tokens: int = 2048


class AsyncLLM:
    """Server with its workers in this process."""

    output_handler = None
    way = speed = 0.0
    """Seconds until the scheduler has a request, and of a reply."""

    def __init__(self, arguments: AsyncEngineArgs) -> None:
        self.arguments, extension = arguments, resolve_name(":".join(arguments.worker_extension_cls.rsplit(".", 1)))
        assert not any(hasattr(BaseWorker, name) for name in dir(extension) if not name.startswith("__"))
        worker = type("Worker", (BaseWorker, extension), {})
        self.workers = [worker(arguments, rank) for rank in range(arguments.tensor_parallel_size)]
        self.asleep, self.paused, self.running = set[str](), False, 0
        self.changed, self.prefixes = asyncio.Condition(), dict[tuple[int, ...], list[int]]()
        self.asleep_during: list[tuple[str, set[str]]] = []
        """Called worker methods, each with the tags asleep at the time."""

    @classmethod
    def from_engine_args(cls, arguments: AsyncEngineArgs) -> "AsyncLLM":
        """As in vLLM."""
        return cls(arguments)

    def shutdown(self) -> None:
        """As in vLLM."""

    async def generate(self, prompt: Any, sampling: Any, key: str, lora_request: Any = None) -> AsyncIterator[Any]:
        """Yield the reply, by the weights that the workers have when it is computed."""
        await asyncio.sleep(self.way)
        await self._state(lambda: not self.paused and not self.asleep)
        self.running += 1
        try:
            await asyncio.sleep(self.speed)
            assert not self.asleep, "illegal memory access"
            ids = list(prompt["prompt_token_ids"])
            reply = self.prefixes.setdefault((*ids, -sampling.max_tokens), self._write(ids, sampling.max_tokens))
        finally:
            self.running -= 1
            await self._state()
        logprobs = [{token: SimpleNamespace(logprob=0.0)} for token in reply]
        yield SimpleNamespace(outputs=[SimpleNamespace(token_ids=reply, logprobs=logprobs)], num_cached_tokens=0)

    def _write(self, ids: list[int], count: int) -> list[int]:
        model, context = self.workers[0].model_runner.model, list(ids)
        assert all(layer.loaded is None for layer in model.layers.values()), "a layer is half loaded"
        for _ in range(count):
            context.append(int(model.module(torch.tensor([context])).logits[0, -1].argmax()))
        return context[len(ids) :]

    async def _state(self, wanted: Callable[[], bool] | None = None) -> None:
        """Announce a change of state, or wait for one."""
        async with self.changed:
            if wanted is None:
                self.changed.notify_all()
            else:
                await self.changed.wait_for(wanted)

    async def pause_generation(self, *, mode: str = "abort", clear_cache: bool = True) -> None:
        """As in vLLM, for replies that are waited for."""
        assert mode == "wait", "replies would be lost"
        self.paused = True
        await self._state(lambda: not self.running)
        if clear_cache:
            self.prefixes.clear()

    async def resume_generation(self) -> None:
        """As in vLLM."""
        self.paused = False
        await self._state()

    async def sleep(self, level: int = 1, mode: str = "abort") -> None:
        """As in vLLM at level 1, which keeps the weights in the host's memory."""
        assert self.arguments.enable_sleep_mode and level == 1
        await self.pause_generation(mode=mode, clear_cache=True)
        self.asleep = self.asleep or {*TAGS}

    async def wake_up(self, tags: list[str] | None = None) -> bool:
        """As in vLLM: scheduling goes on when all is awake."""
        self.asleep -= {*(tags or TAGS)}
        if not self.asleep:
            await self.resume_generation()
        return not self.asleep

    async def reset_prefix_cache(self) -> bool:
        """As in vLLM, where running requests prevent it."""
        if not self.running:
            self.prefixes.clear()
        return not self.running

    async def collective_rpc(self, method: str, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        """Call a method of all workers at once, with plain values."""
        args, kwargs = json.loads(json.dumps([list(args), kwargs or {}]))
        self.asleep_during.append((method, {*self.asleep}))
        assert "weights" not in self.asleep, "illegal memory access"
        assert not self.running, "replies of two versions"
        calls = (asyncio.to_thread(getattr(worker, method), *args, **kwargs) for worker in self.workers)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for error in answers:
            if isinstance(error, BaseException):
                raise Exception(f"Call to collective_rpc method failed: {error}")
        return answers

    async def start_weight_update(self) -> None:
        """As in vLLM."""
        await self.collective_rpc("start_weight_update")

    async def update_weights(self, request: WeightTransferUpdateRequest) -> None:
        """As in vLLM."""
        await self.collective_rpc("update_weights", kwargs={"update_info": request.update_info})

    async def finish_weight_update(self, weight_version: str | None = None) -> None:
        """As in vLLM."""
        await self.collective_rpc("finish_weight_update")


def install(patch: pytest.MonkeyPatch, *, gpu: bool = True) -> type[AsyncLLM]:
    """Make `vllm` this module until the patch ends; return its class of servers. `gpu`: whether it can sleep."""
    llm = type("AsyncLLM", (AsyncLLM,), {"__module__": __name__})
    patch.setattr(WeightTransferEngineFactory, "registry", {})
    platform = SimpleNamespace(is_cpu=lambda: False, is_sleep_mode_available=lambda: gpu)
    base = WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo, WeightTransferUpdateRequest
    reload = initialize_layerwise_reload, finalize_layerwise_reload
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"SamplingParams": SimpleNamespace},
        "vllm.config": {"WeightTransferConfig": WeightTransferConfig},
        "vllm.inputs": {"TokensPrompt": dict},
        "vllm.platforms": {"current_platform": platform},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": AsyncEngineArgs},
        "vllm.v1.engine.async_llm": {"AsyncLLM": llm},
        "vllm.v1.engine.exceptions": {"EngineDeadError": type("EngineDeadError", (Exception,), {})},
        "vllm.distributed.weight_transfer.base": {one.__name__: one for one in base},
        "vllm.distributed.weight_transfer.factory": {"WeightTransferEngineFactory": WeightTransferEngineFactory},
        "vllm.model_executor.model_loader.reload": {one.__name__: one for one in reload},
    }
    for name in [module for module in sys.modules if module == "vllm" or module.startswith("vllm.")]:
        patch.delitem(sys.modules, name)
    transfer = "agents.engines.vllm_transfer"  # which imports vllm
    patch.setitem(sys.modules, transfer, ModuleType(transfer))
    patch.delitem(sys.modules, transfer)
    for path, members in modules.items():
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name not in sys.modules:
                module = ModuleType(name)
                module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []
                patch.setitem(sys.modules, name, module)
        vars(sys.modules[path]).update(members)
    return llm
