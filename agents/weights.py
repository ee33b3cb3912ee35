"""Resolve model names to local folders in Hugging Face layout.

SmolLM2-135M-Instruct (fetched and converted once), the same with vision, and nano models (generated) are built in. They
are in the folder `ARENA_HOME` (default ~/.cache/arena), where a model appears complete or not at all. Other names are
local folders or Hugging Face ids. A folder may hold an adapter in peft's layout instead of a model.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from filelock import FileLock

from agents import nano, nano_vlm, smollm2, smollm2_eyes
from agents.adapter_config import is_adapter, read_adapter
from agents.errors import WeightsError
from agents.model_config import first_line, read_json
from agents.model_folder import check_folder, hash_file, silence_transformers

DEFAULT = smollm2.NAME
NANO = "nano"
MANIFEST = "arena-model.json"
LLAMA, SMOLVLM = {"model_type": "llama"}, {"model_type": "smolvlm"}


@dataclass(frozen=True)
class ModelInfo:
    """A built-in model for listings: name, number of parameters, source, folder, and whether it is ready for use."""

    name: str
    parameters: int
    source: str
    path: Path
    state: Literal["ready", "not fetched"]


def home() -> Path:
    """Return the absolute path of Arena's cache folder: $ARENA_HOME, else ~/.cache/arena. It may not exist yet."""
    return Path(os.path.expanduser(os.environ.get("ARENA_HOME") or "~/.cache/arena")).absolute()


def list_models() -> list[ModelInfo]:
    """List the built-in models and those generated so far, without fetching anything."""
    generated = sorted(path.name for path in (home() / "models").glob("[a-z]*-*"))
    names = dict.fromkeys([DEFAULT, *nano.SIZES, nano_vlm.NAME, smollm2_eyes.NAME, *generated])
    return [_describe_model(name, built_in) for name in names if (built_in := find_built_in(name))]


class BuiltIn(NamedTuple):
    """Built-in model: its factory, the source and size that identify it, and its config."""

    source: str
    parameters: int
    make: Callable[[Path], dict[str, str]]
    """Function that writes the model to a folder and returns further entries of its manifest."""
    config: Callable[[], dict[str, Any]]
    """Function that returns the settings in its config that determine its shape."""


def find_built_in(name: str) -> BuiltIn | None:
    """Return the built-in model of this name, such as `nano-7`; None for other names."""
    if name == DEFAULT:
        return BuiltIn(smollm2.SOURCE, smollm2.PARAMETERS, smollm2.fetch, lambda: LLAMA | smollm2.SHAPE)
    if parsed := nano.parse_name(name):
        size, seed = parsed
        return _describe_generated(
            size.recipe, seed, size.parameters, lambda folder: nano.build_nano(folder, seed, size),
            lambda: {**LLAMA, "vocab_size": len(nano.build_nano_tokenizer()), **size.shape},
        )  # fmt: skip
    if (number := nano_vlm.parse_seed(name)) is not None:
        build = partial(nano_vlm.build_nano_vlm, seed=number)
        return _describe_generated(
            nano_vlm.hash_recipe(), number, nano_vlm.PARAMETERS, build, lambda: SMOLVLM | nano_vlm.build_config()
        )
    if (number := smollm2_eyes.parse_seed(name)) is not None:
        recipe = f"{smollm2_eyes.hash_recipe()}, on {smollm2.SOURCE}"
        return _describe_generated(
            recipe, number, smollm2_eyes.PARAMETERS, partial(_build_vision_model, seed=number),
            lambda: SMOLVLM | smollm2_eyes.build_config(LLAMA | smollm2.SHAPE, 0),
        )  # fmt: skip
    return None


def _describe_generated(
    recipe: str, seed: int, parameters: int, build: Callable[[Path], None], config: Callable[[], dict[str, Any]]
) -> BuiltIn:
    def make(folder: Path) -> dict[str, str]:
        with silence_transformers():
            build(folder)
        return {"seed": str(seed)}

    return BuiltIn(f"made here, seed {seed} (recipe {recipe})", parameters, make, config)


def _build_vision_model(folder: Path, seed: int) -> None:
    smollm2_eyes.build_smollm2_eyes(folder, resolve(DEFAULT), seed)


def resolve(name: str) -> Path:
    """Return the local folder of a built-in model, a folder or a Hugging Face id, after checking its files.

    Builds or downloads a model that is missing. Raises WeightsError if the name is unknown or the folder is invalid.
    """
    if built_in := find_built_in(name):
        return _ensure_built(name, built_in)
    folder = Path(os.path.expanduser(name))  # unlike Path.expanduser, it leaves ~nobody as it is
    if os.path.exists(folder):
        check_weights(folder)
        return folder.resolve()
    if re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", name) and not os.path.exists(folder.parent):
        return _download_from_hub(name)
    if name.startswith((".", "~")) or os.sep in name:
        raise WeightsError(f"no model folder {name}: give an existing folder, or one of {DEFAULT}, {NANO}")
    known = [NANO, nano_vlm.NAME, smollm2_eyes.NAME, DEFAULT]
    near = get_close_matches(name.lower(), [*known, "smollm2"], n=1, cutoff=0.4)
    guess = near[0] if near and near[0] in known else DEFAULT
    raise WeightsError(f"unknown model {name!r}: did you mean {guess!r}? (or a folder, or a hub id owner/name)")


def _describe_model(name: str, built_in: BuiltIn) -> ModelInfo:
    path = home() / "models" / name
    state: Literal["ready", "not fetched"] = "ready" if _is_ready(path, built_in.source) else "not fetched"
    return ModelInfo(name, built_in.parameters, built_in.source, path, state)


def _is_ready(folder: Path, source: str) -> bool:
    """Return True if a built-in model's folder has this source and the file sizes in its manifest, written last."""
    try:
        manifest = read_json(folder, MANIFEST)
        sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
        return manifest["source"] == source and all((folder / n).stat().st_size == sizes[n] for n in sizes)
    except (WeightsError, OSError, KeyError, TypeError, AttributeError):
        return False


def _ensure_built(name: str, built_in: BuiltIn) -> Path:
    """Return a built-in model's folder; build it first, under a lock, if it is missing or damaged.

    It is built beside its place and renamed, so that it is complete or absent. Raises WeightsError on failure.
    """
    models, source = home() / "models", built_in.source
    folder = models / name
    if _is_ready(folder, source) and _is_intact(folder):
        return folder
    try:
        models.mkdir(parents=True, exist_ok=True)
        with FileLock(models / f".{name}.lock"):
            damaged = _is_ready(folder, source)
            if not damaged or not _is_intact(folder):
                _build(folder, source, built_in.make)
    except WeightsError as error:
        raise WeightsError(f"{folder} is damaged and could not be replaced: {error}" if damaged else error) from error
    except OSError as error:
        raise WeightsError(f"cannot make {folder} ({first_line(error)}): set ARENA_HOME") from error
    return folder


def _is_intact(folder: Path) -> bool:
    """Return True if the files of a built-in model have the hashes in its manifest.

    Hashing SmolLM2 takes seconds, so hashes are computed only if the folder changed since the last check.
    """
    try:
        hashes = {name: entry["sha256"] for name, entry in read_json(folder, MANIFEST)["files"].items()}
        found = {name: (folder / name).stat() for name in hashes}
        state = {name: [s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in found.items()}
        return _matches_hashes(folder, json.dumps([hashes, state], sort_keys=True))
    except (WeightsError, OSError, KeyError, TypeError, AttributeError):
        return False


@lru_cache(maxsize=64)
def _matches_hashes(folder: Path, state: str) -> bool:
    """Return True if the files have the hashes in `state`, checked by an earlier process in the same state or now.

    `state` is JSON: [hashes by file, file metadata]. Success is recorded in a file beside the folder.
    """
    checked = folder.with_name(f".{folder.name}.checked")
    with suppress(OSError, ValueError):
        if checked.read_text("ascii") == state:
            return True
    hashes, _ = json.loads(state)
    if any(hash_file(folder / name) != known for name, known in hashes.items()):
        return False
    with suppress(OSError):  # if the folder is read-only, each process computes the hashes
        checked.write_text(state, "ascii")
    return True


def _build(folder: Path, source: str, make: Callable[[Path], dict[str, str]]) -> None:
    prefix = f".{folder.name}.making-"
    for leftover in folder.parent.glob(f"{prefix}*"):  # left by a killed process: we hold the lock
        shutil.rmtree(leftover)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        origin = make(temporary)
        files = sorted(temporary.iterdir())
        manifest = {
            "source": source,
            **origin,
            "made": datetime.now(UTC).isoformat(),
            "files": {file.name: {"bytes": file.stat().st_size, "sha256": hash_file(file)} for file in files},
        }
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), encoding="utf-8")
        for path in [*temporary.iterdir(), temporary]:
            _sync(path)
        temporary.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _download_from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = first_line(error)
        raise WeightsError(f"{name!r} is not a local folder, and the hub did not give it ({reason})") from error
    check_weights(folder)
    return folder


def check_weights(folder: Path) -> None:
    """Raise WeightsError if the folder is neither a complete model nor an adapter."""
    if is_adapter(folder):
        read_adapter(folder)
    else:
        check_folder(folder)


def resolve_base(folder: Path) -> Path:
    """Return the local folder of an adapter's base model, or the folder itself for a full model.

    Raises WeightsError if the base cannot be found or is an adapter too.
    """
    if not is_adapter(folder):
        return folder
    base = resolve(read_adapter(folder).base)
    if is_adapter(base):
        raise WeightsError(f"{folder} is an adapter on {base}, which is one, too: merge that into its model first")
    return base
