"""Policies: named weights with a version, their loading, saving and tokenizer.

What an engine serves depends on the policy (`agents.published`): the module under training, an adapter on a shared
base, or a folder.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agents.adapter_config import AdapterSpec, is_adapter, read_adapter
from agents.chat import ChatFrame, fingerprint
from agents.chat_images import ImageToken
from agents.errors import WeightsError
from agents.layouts import DEFAULT_VISION, VisionSettings, create_vision, is_vision_config
from agents.model_config import NO_LIMIT, read_json, read_positions, read_vocabulary_size
from agents.model_folder import convert_errors, is_bf16, load_model, load_tokenizer, silence_transformers
from agents.precision import Precision

if TYPE_CHECKING:
    from agents.eyes.layout import Vision


@dataclass(frozen=True)
class AdapterOnBase:
    """An adapter under training with its base model; engines serve this object."""

    model: Any
    """The trained model, which shares the base's parameters."""
    base: Any
    folder: Path
    """Folder of the base."""
    name: str
    """Name of the base, as in the adapter's folder."""


class NewAdapter(NamedTuple):
    """Settings of an adapter to create: its shape, the seed of its initial weights and its base."""

    spec: AdapterSpec
    seed: int
    base: str
    """Name of the base."""


@dataclass(frozen=True)
class Origin:
    """Source of a trained policy's weights, from which any process can load them."""

    source: Path
    """Folder of the initial weights."""
    folder: Path
    """Folder of the current weights, such as a checkpoint's."""
    adapter: NewAdapter | None
    """Adapter to create unless the folder has it."""
    precision: Precision
    frozen: bool
    """True to exclude the vision tower from training."""

    @property
    def is_adapter(self) -> bool:
        """True if the trained model is an adapter."""
        return self.adapter is not None or is_adapter(self.source)

    @property
    def base_name(self) -> str:
        """Name of an adapter's base, as in the adapter's folder."""
        return self.adapter.base if self.adapter else read_adapter(self.source).base

    def load(self, bases: Callable[[Path], Any]) -> tuple[Any, AdapterOnBase | None]:
        """Load the model to train onto the device; return it and, if it is an adapter, the adapter with its base.

        `bases` loads an adapter's base model from a folder. Raises WeightsError for invalid weights.
        """
        if not self.is_adapter:
            model = load_module(self.folder, bf16=self.precision.has_bf16_weights)
            if self.frozen:
                freeze_tower(model)
            return model, None
        from agents.adapter import create_adapter, load_adapter
        from agents.weights import resolve_base

        base_folder = resolve_base(self.source)
        base = bases(base_folder)
        if is_adapter(self.folder):
            model = load_adapter(base, self.folder)
        else:
            assert self.adapter is not None
            model = create_adapter(base, self.adapter.spec, self.adapter.seed)
        return model, AdapterOnBase(model, base, base_folder, self.base_name)


class Bases:
    """Cache of adapters' base models, called with a folder. Each is loaded once, frozen, in the run's precision."""

    def __init__(self, precision: Precision = Precision.FP32) -> None:
        self.precision = precision
        self._loaded: dict[Path, Any] = {}

    def __call__(self, folder: Path) -> Any:
        """Return the folder's frozen model, loading it at the first call."""
        if folder not in self._loaded:
            self._loaded[folder] = load_frozen(folder, self.precision, packed=False)
        return self._loaded[folder]


@dataclass(kw_only=True)
class Policy:
    """A model under a name, with tokenizer and chat format; `model` is None for a frozen policy.

    `version` counts the published updates and stays 0 for a frozen policy.
    """

    name: str
    source: Path
    """Folder of the initial weights."""
    model: Any
    """The trained model; None for a frozen policy, whose weights only an engine holds."""
    tokenizer: Any
    frame: ChatFrame
    trained: bool
    version: int = 0
    positions: int = NO_LIMIT
    """Maximum tokens of a context with its reply."""
    vision_settings: VisionSettings = DEFAULT_VISION
    base: AdapterOnBase | None = None
    """Base of a trained adapter."""
    origin: Origin | None = None
    """Origin of the trained weights; None for a frozen policy."""
    bases: Callable[[Path], Any] | None = None
    """Function that loads an adapter's base model from a folder; None to load it for this policy alone."""

    @staticmethod
    def load(
        name: str,
        source: Path,
        folder: Path,
        train: bool,
        adapter: NewAdapter | None = None,
        bases: Callable[[Path], Any] | None = None,
        precision: Precision = Precision.FP32,
        vision_settings: VisionSettings = DEFAULT_VISION,
        empty: bool = False,
    ) -> "Policy":
        """Load a policy's tokenizer and, if `train`, its weights from `folder`. `source` is the folder it started from.

        The policy is an adapter if `source` holds one, or if `adapter` describes a new one, which is created unless
        `folder` holds it. `bases` loads its base model. `precision` sets the dtype of full weights. With `empty`, the
        weights are not loaded: `load_model` does so later, or another process. Raises WeightsError or ChatError.
        """
        tokenizer, frame = load_tokenizer_and_frame(source, vision_settings.max_pixels)
        policy = Policy(
            name=name,
            source=source,
            model=None,
            tokenizer=tokenizer,
            frame=frame,
            trained=train,
            positions=find_positions(source),
            vision_settings=vision_settings,
            origin=Origin(source, folder, adapter, precision, vision_settings.frozen) if train else None,
            bases=bases,
        )
        if not empty:
            policy.load_model()
        return policy

    def load_model(self) -> None:
        """Load the weights of a trained policy into this process, unless they are loaded."""
        if self.origin and self.model is None:
            self.model, self.base = self.origin.load(self.bases or Bases())

    def with_weights(self, weights: Any) -> "Policy":
        """Return a copy of the policy that holds these published weights, for saving, or itself if it holds them."""
        served = weights.unwrap()
        if served is (self.base or self.model):
            return self
        if isinstance(served, AdapterOnBase):
            return replace(self, model=served.model, base=served)
        return replace(self, model=load_module(served) if isinstance(served, Path) else served)

    def freeze_version(self, name: str, version: int, folder: Path) -> "Policy":
        """Return a frozen past version of the policy under a new name. `folder` holds that version's weights."""
        return replace(
            self, name=name, source=folder, model=None, base=None, origin=None, trained=False, version=version
        )

    def save(self, folder: Path) -> None:
        """Save weights and tokenizer in Hugging Face layout; of an adapter, only its matrices in peft's layout.

        Under ZeRO-3 the parameters must be gathered first.
        """
        if self.base is not None:
            from agents.adapter import save_adapter

            save_adapter(self.model, folder, self.base.name)
            return
        with silence_transformers():
            self.model.save_pretrained(folder)
        self.save_companions(folder)

    def save_companions(self, folder: Path) -> None:
        """Save the tokenizer and image processor settings that belong to a full model's weights and config."""
        self.tokenizer.save_pretrained(folder)
        for name in ("preprocessor_config.json", "processor_config.json"):  # other programs need them for images
            if (self.source / name).is_file():
                shutil.copyfile(self.source / name, folder / name)
        if self.vision_settings.max_pixels is not None:
            from agents.eyes.preprocessing import limit_pixels

            limit_pixels(folder, self.vision_settings.max_pixels)


def find_positions(folder: Path) -> int:
    """Return the maximum context in tokens, reply included, of the folder's model or an adapter's base.

    Returns NO_LIMIT if config.json does not state it. Raises WeightsError without config.json.
    """
    from agents.weights import resolve_base

    return read_positions(resolve_base(folder))


def load_tokenizer_and_frame(folder: Path, max_pixels: int | None = None) -> tuple[Any, ChatFrame]:
    """Return the tokenizer and the chat frame of a model folder, or of an adapter's base.

    Images are scaled to at most `max_pixels` pixels, by default the model's own maximum. Cached until the folder's JSON
    or Jinja files change. Raises WeightsError or ChatError.
    """
    from agents.weights import resolve_base

    folder = resolve_base(folder)
    files = [path for path in folder.glob("*") if path.suffix in (".json", ".jinja")]
    return _load_tokenizer_and_frame(folder, max_pixels, max((path.stat().st_mtime_ns for path in files), default=0))


@lru_cache(maxsize=8)
def _load_tokenizer_and_frame(folder: Path, max_pixels: int | None, changed: int) -> tuple[Any, ChatFrame]:
    tokenizer = load_tokenizer(folder)
    return tokenizer, ChatFrame(tokenizer, find_image_token(folder, max_pixels))


def find_image_token(folder: Path, max_pixels: int | None = None) -> ImageToken | None:
    """Return the image placeholder of a folder's model, for images of at most `max_pixels`; None without vision.

    Raises WeightsError if the model does not support this maximum.
    """
    vision = load_vision(folder)
    return vision.make_token(max_pixels) if vision else None


def load_vision(folder: Path) -> "Vision | None":
    """Return the vision of a folder's model; None for a text model. Raises WeightsError for invalid settings."""
    if not (folder / "config.json").exists() or not is_vision_config(read_json(folder, "config.json")):
        return None
    from transformers import AutoConfig

    with convert_errors(folder):
        return create_vision(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False), folder)


def freeze_tower(model: Any) -> None:
    """Exclude a model's vision tower from training. Raises WeightsError if it has none."""
    from agents.vision import get_vision

    vision = get_vision(model)
    if vision is None:
        raise WeightsError("freeze: [vision] needs a model with vision")
    for part in vision.tower(model):
        part.requires_grad_(False)


def trainable_parameters(model: Any) -> dict[str, Any]:
    """Return the model's parameters that require gradients, by name; an adapter's frozen base is left out."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def check_readable(model: Path, policy: Path) -> None:
    """Raise ValueError unless a model can read a policy's streams. Both are given as folders.

    They must have the same tokenizer and chat format, and the model at least the policy's vocabulary and positions.
    """
    from agents.weights import resolve_base

    if fingerprint(*load_tokenizer_and_frame(model)) != fingerprint(*load_tokenizer_and_frame(policy)):
        raise ValueError(f"{model} has another tokenizer or chat template than {policy}")
    base, other = resolve_base(model), resolve_base(policy)
    if read_vocabulary_size(base) < read_vocabulary_size(other):
        raise ValueError(
            f"{model} has a vocabulary of {read_vocabulary_size(base):,} tokens, but {policy} one of "
            f"{read_vocabulary_size(other):,}"
        )
    if read_positions(base) < read_positions(other):
        raise ValueError(f"{model} reads {read_positions(base):,} tokens, but {policy} {read_positions(other):,}")


def load_module(folder: Path, frozen: bool = False, bf16: bool = False) -> Any:
    """Load the folder's model onto the GPU, if any, in float32 or bfloat16; without gradients if `frozen`."""
    import torch

    model = load_model(folder, torch.bfloat16 if bf16 else torch.float32)
    model = model.cuda() if torch.cuda.is_available() else model
    return model.requires_grad_(not frozen)


def load_frozen(folder: Path, precision: Precision, packed: bool) -> Any:
    """Load the folder's model for inference, without gradients. `convert_to_bf16` converts it for bfloat16 products.

    bfloat16 weights are not converted to float32 first, which would take three times the memory. Their linear layers
    stay bfloat16; the rest becomes float32 unless `precision` has bfloat16 weights.
    """
    if not precision.uses_bf16_products:
        return load_module(folder, frozen=True)
    import torch

    from agents.bf16 import convert_to_bf16

    if precision.has_bf16_weights or not is_bf16(folder):
        return convert_to_bf16(load_module(folder, True, precision.has_bf16_weights), packed, may_move=True)
    model = load_module(folder, True, bf16=True)
    if any(buffer.dtype == torch.bfloat16 for buffer in model.buffers()):  # computed in bfloat16: no longer exact
        del model  # so that memory holds only one
        return convert_to_bf16(load_module(folder, frozen=True), packed)
    model = convert_to_bf16(model, packed, may_move=True)
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    return model
