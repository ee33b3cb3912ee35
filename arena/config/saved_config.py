"""The experiment saved in a run folder, and the settings that may change when a run is resumed.

These settings are in `MAY_CHANGE`, such as the number of iterations, checkpoints, trackers, the machine's resources and
the learning rate. Any other change would be a different run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import Layer, require_mapping, text_layer
from arena.credit.rewards.reward_model import WEIGHTS
from arena.errors import ConfigError
from arena.store.files import CONFIG
from arena.store.manifest import digest
from arena.store.reader import ENVIRONMENT, FolderReader, RunReader

MAY_CHANGE = (
    "iterations",
    "checkpoint",
    "tracker",
    "evaluate",
    "study",
    "endpoint",
    "threads",
    "scale",
    "engine.max_batch",
    "engine.cache_mb",
    "play.in_flight",
    "play.attempts",
    "play.limits.seconds",
    "play.limits.turn_seconds",
    "learn.lr",
    "learn.nonfinite",
    "learn.token_budget",
    "learn.gradient_checkpointing",
    "learn.offload_reference",
    "learn.offload_optimizer",
    "learn.gate_tolerance",
)
"""Settings and sections that may change when a run is resumed."""


class Change(NamedTuple):
    """Changed setting: its dotted name, and its values before and now, None if it was not set."""

    field: str
    before: Any
    now: Any

    @property
    def may_change(self) -> bool:
        """True if a run may be resumed with the change."""
        return any(self.field == name or self.field.startswith(f"{name}.") for name in MAY_CHANGE)

    def __str__(self) -> str:
        return f"{self.field} ({_abbreviate(self.before)} → {_abbreviate(self.now)})"


def load_experiment(run: Path, layers: Sequence[Layer] = (), trust: bool = False) -> Experiment:
    """Load the experiment from a run folder's config.yaml, with the overrides `layers`.

    Raises ConfigError if an edit of config.yaml or an override changes a setting that may not change, or if the run
    trained a reward model; without `trust`, also if the folder has code with which no run on this machine was started.
    """
    config = run / CONFIG
    layer = require_mapping(text_layer(str(config), RunReader(run).config()))
    if layer.data.keys() == {WEIGHTS}:
        raise ConfigError(
            f"{run} trained a reward model, which plays no matches: use it as `credit.stages: [{{reward_model: "
            f"{{model: {run}}}}}]` or with `arena eval CONTENDER --game NAME --reward-model {run}`; for its weights, "
            f"`arena export {run} --policy {WEIGHTS} --to FOLDER`"
        )
    own_files.admit_code(run, [layer.data, RunReader(run).environment().get("experiment")], trust)
    saved = compose([layer])
    if changes := [change for change in list_changes(read_recorded(run) or saved, saved) if not change.may_change]:
        raise ConfigError(
            f"{config} was edited since its run began: {_join_changes(changes)}: restore it, or start a new run"
        )
    return with_overrides(layer, layers) if layers else saved


def load_pipeline_settings(folder: Path, trust: bool = False) -> dict[str, Any]:
    """Return a pipeline's settings from its folder, for `read_pipeline`.

    Raises ConfigError if they were edited. Without `trust`, code that they name can be imported only if a run on this
    machine was started with it.
    """
    reader = FolderReader(folder)
    data = text_layer(str(folder / CONFIG), reader.config()).data
    if data != reader.environment().get("experiment"):
        raise ConfigError(f"{folder / CONFIG} was edited since its run began: restore it, or start a new run")
    own_files.admit_code(folder, data, trust)
    return dict(data)


def with_overrides(base: Layer, layers: Sequence[Layer]) -> Experiment:
    """Return the experiment with overrides. Raises ConfigError if they change a setting that may not change."""
    saved, overridden = compose([base]), compose([base, *layers])
    if changes := [change for change in list_changes(saved, overridden) if not change.may_change]:
        may = ", ".join(MAY_CHANGE)
        raise ConfigError(
            f"{_join_changes(changes)} cannot change when a run is resumed: start a new run (these may: {may})"
        )
    return overridden


def read_recorded(run: Path) -> Experiment | None:
    """Return the experiment of the run's latest command, from environment.json; None if it records none."""
    settings = RunReader(run).environment().get("experiment")
    return None if settings is None else compose([Layer(str(run / ENVIRONMENT), "", settings)])


def hash_identity(run: Path) -> str:
    """Return a hash of the recorded settings that may not change, which identifies a run's files."""
    settings = dict(_list_leaves(experiment_to_plain(before))) if (before := read_recorded(run)) else {}
    return digest({name: value for name, value in settings.items() if not Change(name, None, None).may_change})


def list_changes(before: Experiment, now: Experiment) -> list[Change]:
    """Return the settings that differ between two experiments, by dotted name."""
    return list_differences(experiment_to_plain(before), experiment_to_plain(now))


def list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Return the values that differ between two nested mappings, by dotted name. A missing value counts as None."""
    old, new = dict(_list_leaves(before)), dict(_list_leaves(now))
    fields = sorted(old.keys() | new.keys())
    return [Change(name, old.get(name), new.get(name)) for name in fields if old.get(name) != new.get(name)]


def experiment_to_plain(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as plain JSON values, which `compose` reads back."""
    return experiment.model_dump(mode="json", by_alias=True)


def _list_leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _list_leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _join_changes(changes: Iterable[Change]) -> str:
    first, *rest = changes
    texts = [str(change) for change in (first, *rest[:2])]
    return ", ".join(texts) + (f" and {len(rest) - 2} more" if len(rest) > 2 else "")


def _abbreviate(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
