"""Reuse of finished stages: copy leading stages of an earlier run into a new pipeline instead of repeating them.

A stage's result depends on the shared settings, the earlier stages, its own settings, the files that these name, and
the machine. If all of these agree, running the stage again would give the same bytes.
"""

import shutil
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from agents import strict_yaml
from arena.config.pipeline import count_equal_stages
from arena.config.saved_config import list_differences
from arena.config.sources import require_mapping, text_layer
from arena.errors import ConfigError, StoreError
from arena.store.files import CONFIG, STAGES, write_folder
from arena.store.locks import HOLDER, LOCK
from arena.store.reader import ENVIRONMENT, FolderReader
from arena.store.run import write_environment
from arena.store.stages import is_pipeline, read_stage_end, stage_folder

FOLDER, SOURCES = "folder", "sources"
"""Keys of a pipeline's environment: its folder at the start, and SHA-256 by path of the files that its stages name."""
_MUST_MATCH = ("python", "device", "instruction_set", "versions", SOURCES)
"""Keys of the environment that must be equal, because results depend on them."""


def find_reusable_stages(
    source: Path, data: Mapping[str, Any], environment: Mapping[str, Any]
) -> tuple[list[Path], str]:
    """Return the folders of the finished stages of `source` that a new pipeline can copy, and the reason for no more.

    `data` are the new pipeline's settings, and `environment` is its environment. The reason is "" if all stages can be
    copied. Raises ConfigError if `source` is not a pipeline or was edited, and StoreError if a stage was changed.
    """
    if not is_pipeline(source):
        raise ConfigError(f"--reuse: {source} is not a pipeline, so it has no stages to copy")
    source_environment = FolderReader(source).environment()
    saved = _read_settings(source, source_environment)
    for key in _MUST_MATCH:
        before, now = source_environment.get(key) or {}, environment.get(key) or {}
        if before != now:
            return [], f"it ran elsewhere or with other files ({list_differences({key: before}, {key: now})[0]})"
    equal = count_equal_stages(saved, data)
    folders = [stage_folder(source, n + 1, stage["name"]) for n, stage in enumerate(saved[STAGES][:equal])]
    finished = [*takewhile(read_stage_end, folders)]
    if len(finished) < equal:
        return finished, f"{folders[len(finished)].name} has not ended there"
    changes = list_differences(_index_by_stage(saved), _index_by_stage(data))
    return finished, f"settings differ: {changes[0]}" if changes else ""


def _read_settings(source: Path, environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pipeline's settings without loading its code.

    Raises ConfigError if they were edited or are malformed.
    """
    settings: Mapping[str, Any] = require_mapping(text_layer(str(source / CONFIG), FolderReader(source).config())).data
    if settings != environment.get("experiment"):
        raise ConfigError(f"--reuse: {source / CONFIG} was edited since its run began: restore it, or omit --reuse")
    stages = settings.get(STAGES)
    if not isinstance(stages, list) or not all(
        isinstance(s, Mapping) and isinstance(s.get("name"), str) for s in stages
    ):
        raise ConfigError(f"--reuse: {source / CONFIG} is damaged: it has no list of named stages")
    return settings


def copy_stages(stages: Sequence[Path], source: Path, folder: Path) -> None:
    """Copy finished stages of `source` into the pipeline at `folder`, and adapt paths in their settings to it.

    Each copy is atomic: a stage whose copy was interrupted runs like any other. Raises StoreError for a link or a
    special file in a stage.
    """
    before = str(FolderReader(source).environment().get(FOLDER, source.resolve()))
    for stage in stages:
        _require_plain_files(stage)

        def fill(target: Path, stage: Path = stage) -> None:
            shutil.copytree(stage, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(LOCK, HOLDER))
            _relocate(target, f"{before}/{STAGES}/", f"{folder}/{STAGES}/")

        write_folder(folder / STAGES / stage.name, fill)


def _relocate(stage: Path, old_prefix: str, new_prefix: str) -> None:
    """Replace a prefix of the paths in the config and environment of the stage at `stage`."""
    reader = FolderReader(stage)
    config = _replace_prefix(text_layer(CONFIG, reader.config()).data, old_prefix, new_prefix)
    environment = _replace_prefix(reader.environment(), old_prefix, new_prefix)
    (stage / ENVIRONMENT).unlink()
    write_environment(stage, environment)
    (stage / CONFIG).write_text(strict_yaml.dump(config, CONFIG), encoding="utf-8")


def _replace_prefix(value: Any, old_prefix: str, new_prefix: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _replace_prefix(item, old_prefix, new_prefix) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_prefix(item, old_prefix, new_prefix) for item in value]
    return new_prefix + value[len(old_prefix) :] if isinstance(value, str) and value.startswith(old_prefix) else value


def _require_plain_files(stage: Path) -> None:
    for path in sorted(stage.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise StoreError(f"{path} is not a plain file: remove it, or run without --reuse")


def _index_by_stage(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pipeline's settings without `study`, and with its stages by name."""
    stages = {stage["name"]: {key: value for key, value in stage.items() if key != "name"} for stage in data[STAGES]}
    return {key: value for key, value in data.items() if key != "study"} | {STAGES: stages}
