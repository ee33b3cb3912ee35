"""A policy: named weights with a version. How it is loaded and saved, what of it learns, how it speaks.

An engine serves a policy's version whatever that is made of (`agents.published`): the module that is being trained, an
adapter on a base that others share, or a folder.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from agents.adapter_config import AdapterSpec, is_adapter, read_adapter
from agents.chat import ChatFrame
from agents.model_config import NO_LIMIT, positions_in
from agents.precision import Precision


@dataclass(frozen=True)
class OnBase:
    """An adapter that is being trained, as an engine serves it."""

    model: Any
    """Model that is trained, on the base's own parameters."""
    base: Any
    folder: Path
    """Folder the base came from."""
    name: str
    """Name of the base, in the adapter's own folder too."""


class NewAdapter(NamedTuple):
    """An adapter that does not exist yet."""

    spec: AdapterSpec
    seed: int
    base: str
    """Name of its base."""


class Bases:
    """The models that adapters stand on, each loaded once; with bfloat16 in the precision in which they compute."""

    def __init__(self, precision: Precision = Precision.FP32) -> None:
        self.precision = precision
        self._loaded: dict[Path, Any] = {}

    def __call__(self, folder: Path) -> Any:
        """A folder's model, frozen."""
        if folder not in self._loaded:
            self._loaded[folder] = load_frozen(folder, self.precision, packed=False)
        return self._loaded[folder]


@dataclass
class Policy:
    """Weights under a name. `version` counts the updates published; a frozen policy stays at 0."""

    name: str
    source: Path
    """The folder its first weights came from."""
    model: Any
    """Model that is trained; None where it is frozen, and an engine alone holds the weights."""
    tokenizer: Any
    frame: ChatFrame
    trained: bool
    version: int = 0
    positions: int = NO_LIMIT
    """Tokens of a context and its reply that the model can hold."""
    base: OnBase | None = None
    """Base of an adapter that is trained."""

    @staticmethod
    def load(
        name: str,
        source: Path,
        folder: Path,
        train: bool,
        adapter: NewAdapter | None = None,
        bases: Callable[[Path], Any] | None = None,
        precision: Precision = Precision.FP32,
    ) -> "Policy":
        """The policy that began as `source`; if it learns, a module with the weights of `folder`.

        It is an adapter where `source` is one, or where a new `adapter` is asked for, which `folder` may hold already;
        then its base comes from `bases`; `precision` says in what numbers whole weights are held. WeightsError
        or ChatError where that cannot be.
        """
        tokenizer, frame = tokenizer_and_frame(source)
        policy = Policy(name, source, None, tokenizer, frame, train, positions=positions_of(source))
        if not train:
            return policy
        if adapter is None and not is_adapter(source):
            policy.model = load_module(folder, bf16_weights=precision.bf16_weights)
            return policy
        from agents.adapter import adapted, load_adapter
        from agents.weights import base_folder

        on = base_folder(source)
        base = (bases or Bases())(on)
        if is_adapter(folder):
            policy.model = load_adapter(base, folder)
        elif adapter is not None:
            policy.model = adapted(base, adapter.spec, adapter.seed)
        called = adapter.base if adapter else read_adapter(source).base
        policy.base = OnBase(policy.model, base, on, called)
        return policy

    def with_weights(self, weights: Any) -> "Policy":
        """The same policy with these weights, to be written; itself where it holds them already."""
        served = weights.served()
        if served is (self.base or self.model):
            return self
        if isinstance(served, OnBase):
            return replace(self, model=served.model, base=served)
        return replace(self, model=load_module(served) if isinstance(served, Path) else served)

    def past(self, name: str, version: int, folder: Path) -> "Policy":
        """An earlier version of it, frozen, under a name of its own."""
        return replace(self, name=name, source=folder, model=None, base=None, trained=False, version=version)

    def save_whole(self, folder: Path) -> None:
        """Write a model in the Hugging Face layout, an adapter merged into its base."""
        if self.base is None:
            self.save(folder)
            return
        from agents.adapter import save_merged

        with TemporaryDirectory(prefix="arena-adapter-") as adapter:
            self.save(Path(adapter))
            save_merged(Path(adapter), folder)

    def save(self, folder: Path) -> None:
        """Write weights and tokenizer in the Hugging Face layout, of an adapter its matrices alone in peft's.

        Under ZeRO-3 the parameters have to be whole.
        """
        if self.base is not None:
            from agents.adapter import save_adapter

            save_adapter(self.model, folder, self.base.name)
            return
        from agents.model_folder import quietly

        with quietly():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def positions_of(folder: Path) -> int:
    """Return the positions of a folder's model, of an adapter those of its base; WeightsError if it has no config."""
    from agents.weights import base_folder

    return positions_in(base_folder(folder))


def tokenizer_and_frame(folder: Path) -> tuple[Any, ChatFrame]:
    """A folder's tokenizer and chat frame, of an adapter those of its base; read once.

    WeightsError or ChatError where there is none.
    """
    from agents.weights import base_folder

    folder = base_folder(folder)
    files = [path for path in folder.glob("*") if path.suffix in (".json", ".jinja")]
    return _speech(folder, max((path.stat().st_mtime_ns for path in files), default=0))


@lru_cache(maxsize=8)
def _speech(folder: Path, changed: int) -> tuple[Any, ChatFrame]:
    from agents.weights import load_tokenizer

    tokenizer = load_tokenizer(folder)
    return tokenizer, ChatFrame(tokenizer)


def trainable(model: Any) -> dict[str, Any]:
    """The parameters that learning may change, by name: all but those that were frozen, as an adapter's base is."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def load_module(folder: Path, frozen: bool = False, bf16_weights: bool = False) -> Any:
    """The folder's model on the device that computes, its weights in float32, or in bfloat16 with `bf16_weights`."""
    import torch

    from agents.weights import load_model

    model = load_model(folder, torch.bfloat16 if bf16_weights else torch.float32)
    model = model.cuda() if torch.cuda.is_available() else model
    return model.requires_grad_(not frozen)


def load_frozen(folder: Path, precision: Precision, packed: bool) -> Any:
    """The folder's model as it computes when it does not learn: with bfloat16 products as `half` makes it.

    What the folder holds in bfloat16 is not made float32 first, which would take three times the memory: its linear
    layers stay as they are, and the rest becomes float32 as it would have been, unless weights are bfloat16 anyway.
    """
    if not precision.bf16_products:
        return load_module(folder, frozen=True)
    import torch

    from agents.half import half
    from agents.model_folder import held_in_bf16

    if precision.bf16_weights or not held_in_bf16(folder):
        return half(load_module(folder, True, precision.bf16_weights), packed, moves=True)
    model = load_module(folder, True, bf16_weights=True)
    if any(buffer.dtype == torch.bfloat16 for buffer in model.buffers()):  # worked out in it, and not what it was
        del model  # or both would be held
        return half(load_module(folder, frozen=True), packed)
    model = half(model, packed, moves=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    return model
