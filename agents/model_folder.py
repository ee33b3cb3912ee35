"""Validation and loading of model folders in Hugging Face layout.

Only safetensors are read: nothing is unpickled, and no code from the folder runs.
"""

import gc
import hashlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from os.path import isdir
from pathlib import Path
from typing import Any

from agents.errors import WeightsError
from agents.layouts import create_vision, is_vision_config
from agents.model_config import check_settings, check_sizes, first_line, read_json

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt",
)  # fmt: skip
"""Tokenizer files; any one of them is enough for transformers."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def check_folder(folder: Path) -> None:
    """Raise WeightsError unless the folder is a complete model: config.json, matching safetensors, and a tokenizer."""
    if not isdir(folder):  # unlike `Path.is_dir`, False for names that are too long
        raise WeightsError(f"{folder} is no model folder: one with config.json and *.safetensors is needed")
    config = read_json(folder, "config.json")
    check_settings(folder)
    if "model_type" not in config:
        raise WeightsError(f"{folder}/config.json names no model_type: it is no transformers model")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = [path.name for path in folder.iterdir() if path.suffix in PICKLES]
        reason = f"only pickled weights ({pickles[0]}), never loaded," if pickles else "no *.safetensors"
        raise WeightsError(f"{folder} has {reason}: save it with save_pretrained(safe_serialization=True)")
    if (folder / "model.safetensors.index.json").exists():
        parts = _read_index(folder)
        missing = sorted(parts - {path.name for path in files})
        if missing:
            raise WeightsError(f"{folder} lacks {missing[0]}, which its index names: fetch the folder again")
    for path in files:
        if not path.is_file():
            raise WeightsError(f"{path} is no regular file: save it with save_pretrained")
        _check_safetensors(path)
    check_sizes(folder, *_count_tensors(folder))
    if not any((folder / file).exists() for file in TOKENIZER_FILES):
        raise WeightsError(f"{folder} has no tokenizer: save it there with tokenizer.save_pretrained")


def _read_index(folder: Path) -> set[str]:
    """Return the names of the weight files in a folder's index. Raises WeightsError if the index is malformed."""
    files = read_json(folder, "model.safetensors.index.json").get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise WeightsError(f"{folder}/model.safetensors.index.json has no weight_map of files: fetch the folder again")
    return set(files.values())


def count_parameters(folder: Path) -> int:
    """Return the number of parameters in the folder's safetensors. Only file headers are read."""
    return _count_tensors(folder)[1]


def is_bf16(folder: Path) -> bool:
    """Return True if all weights of a folder are bfloat16. Raises WeightsError if the folder is invalid."""
    check_folder(folder)
    from safetensors import safe_open

    dtypes = set()
    for path in folder.glob("*.safetensors"):
        with convert_errors(folder), safe_open(path, "np") as file:
            dtypes |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 not a dict
    return dtypes == {"BF16"}


def read_tensor_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a folder's safetensors by name. Only file headers are read."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return shapes


def _count_tensors(folder: Path) -> tuple[int, int]:
    """Return (number of tensors, number of parameters) in a folder's safetensors."""
    shapes = read_tensor_shapes(folder).values()
    return len(shapes), sum(map(math.prod, shapes))


def load_model(path: Path, dtype: Any = None, scores: bool = False) -> Any:
    """Load the folder's language or vision-language model on the CPU in eval mode, in float32 or `dtype`.

    With `scores`, load a reward model: a body with a head of one output. Raises WeightsError if the folder is invalid,
    or weights are missing or not finite.
    """
    check_folder(path)
    # first, because the imports below would import most of transformers without the speed-up
    auto_model = import_auto_scorer() if scores else select_auto_model(read_json(path, "config.json"))
    with _speed_up_imports():
        import torch
        import transformers.modeling_utils  # noqa: F401 imported here, before the model's module imports it

        from agents import attention

    with convert_errors(path), silence_transformers():
        model, info = auto_model.from_pretrained(
            path,
            dtype=dtype or torch.float32,
            attn_implementation=attention.NAME,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **({"num_labels": 1} if scores else {}),
        )
    faults = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
    if faults:
        raise WeightsError(f"{path} lacks weights its config.json asks for ({faults[0]}): fetch it again")
    if not scores and is_vision_config(read_json(path, "config.json")):
        with convert_errors(path):
            model.vision = create_vision(model.config, path)
    for name, parameter in model.named_parameters():
        if not all(end.isfinite() for end in torch.aminmax(parameter.detach())):  # 0.02 s for 135 million numbers
            raise WeightsError(f"{path}: {name} holds numbers that are not finite (NaN or infinite): fetch it again")
        # A memory-mapped tensor would keep its whole file mapped, and be copied page by page at the first update.
        parameter.data = parameter.data.clone()
    return model.eval()


def load_tokenizer(path: Path) -> Any:
    """Load a model folder's transformers tokenizer. Raises WeightsError if the folder is missing or invalid."""
    if not isdir(path):
        raise WeightsError(f"no model folder {path}")
    check_settings(path)
    _, auto_tokenizer = import_auto_classes()
    with convert_errors(path):
        return auto_tokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)


@cache
def import_auto_classes() -> tuple[Any, Any]:
    """Import and return transformers' AutoModelForCausalLM and AutoTokenizer."""
    with _speed_up_imports():
        from transformers import AutoModelForCausalLM, AutoTokenizer
    return AutoModelForCausalLM, AutoTokenizer


def select_auto_model(settings: dict[str, Any]) -> Any:
    """Return transformers' class for loading a model with these settings in its config.json."""
    if not is_vision_config(settings):
        return import_auto_classes()[0]
    with _speed_up_imports():
        from transformers import AutoModelForImageTextToText
    return AutoModelForImageTextToText


@cache
def import_auto_scorer() -> Any:
    """Import and return transformers' AutoModelForSequenceClassification, which loads reward models (one label)."""
    with _speed_up_imports():
        from transformers import AutoModelForSequenceClassification
    return AutoModelForSequenceClassification


@contextmanager
def _speed_up_imports() -> Iterator[None]:
    """Speed up imports of transformers inside the block by a third.

    transformers would import scikit-learn and SciPy, if installed, for features that we do not use, so they are hidden.
    Garbage collection is off, because a library's definitions are never collected.
    """
    blocked = [name for name in ("scipy", "sklearn") if name not in sys.modules]
    sys.modules |= dict.fromkeys(blocked)  # type: ignore[arg-type]  # None makes Python treat a package as missing
    gc.disable()
    try:
        from transformers.utils import is_scipy_available

        is_scipy_available.cache_clear()  # an earlier call may have cached that SciPy is available
        yield
    finally:
        gc.enable()
        for name in blocked:
            del sys.modules[name]
        is_scipy_available.cache_clear()


def _check_safetensors(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError) as error:
        reason = first_line(error)
        raise WeightsError(f"{path} is damaged or not a safetensors file ({reason}): fetch it again") from error


def save_settings(model: Any, folder: Path) -> None:
    """Write config.json and, if the model has one, its generation config, as `save_pretrained` does without weights."""
    model.config.architectures = [type(model).__name__]
    model.config.dtype = str(model.dtype).removeprefix("torch.")
    with silence_transformers():
        model.config.save_pretrained(folder)
        if model.can_generate():
            model.generation_config.save_pretrained(folder)


@contextmanager
def convert_errors(path: Path) -> Iterator[None]:
    """Convert any exception raised in the block into a one-line WeightsError that names `path`."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise WeightsError(f"{path} holds damaged weights ({first_line(error)}): fetch it again") from error
    except Exception as error:
        raise WeightsError(f"{path} cannot be loaded: {first_line(error)}") from error


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Disable transformers' progress bars and warnings in the block, which would garble Arena's live display.

    It also warns about irrelevant defaults in the config of vision models.
    """
    from transformers.utils import logging

    was_enabled, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if was_enabled:
            logging.enable_progress_bar()


def hash_file(path: Path) -> str:
    """Return the file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
