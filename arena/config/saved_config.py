"""The experiment that a run folder keeps: read back as it was recorded, and what of it may change when the run goes on.

What may change decides neither what is played nor how it is judged: how long the run goes on, how often it is kept,
where it is shown, what machine and servers it may use, and the learning rate. Anything else would make two runs of one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import Layer, text_layer
from arena.errors import ConfigError
from arena.store.files import CONFIG
from arena.store.manifest import digest
from arena.store.reader import ENVIRONMENT, RunReader

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
"""Settings, or whole sections, that may be another when a run goes on."""


class Change(NamedTuple):
    """A setting that is another than before."""

    field: str
    before: Any
    now: Any

    @property
    def allowed(self) -> bool:
        """Return True if a run may go on with it."""
        return any(self.field == name or self.field.startswith(f"{name}.") for name in MAY_CHANGE)

    def __str__(self) -> str:
        return f"{self.field} ({_abbreviated(self.before)} → {_abbreviated(self.now)})"


def experiment_of(run: Path, layers: Sequence[Layer] = (), trust: bool = False) -> Experiment:
    """The experiment of a run, with other settings laid over it.

    ConfigError, naming the fields, where config.yaml or the layers change what may not change; or where it names code
    in the run's folder that no run was begun with here, without `trust`.
    """
    config = run / CONFIG
    layer = text_layer(str(config), RunReader(run).config())
    own_files.admit_code(run, [layer.data, RunReader(run).environment().get("experiment")], trust)
    kept = compose([layer])
    if refused := [change for change in changes(recorded(run) or kept, kept) if not change.allowed]:
        raise ConfigError(
            f"{config} was edited since its run began: {_listed(refused)}: restore it, or start a new run"
        )
    asked = compose([layer, *layers]) if layers else kept
    if refused := [change for change in changes(kept, asked) if not change.allowed]:
        may = ", ".join(MAY_CHANGE)
        raise ConfigError(f"{_listed(refused)} cannot change when a run goes on: start a new run (these may: {may})")
    return asked


def recorded(run: Path) -> Experiment | None:
    """The experiment of the run's latest command; None in a run of an older Arena."""
    found = RunReader(run).environment().get("experiment")
    return None if found is None else compose([Layer(str(run / ENVIRONMENT), "", found)])


def identity(run: Path) -> str:
    """A hash of what may not change in a run: what was begun with another one is no part of it."""
    settings = dict(_leaves(as_plain(before))) if (before := recorded(run)) else {}
    return digest({name: value for name, value in settings.items() if not Change(name, None, None).allowed})


def changes(before: Experiment, now: Experiment) -> list[Change]:
    """Every setting that is another."""
    old, new = dict(_leaves(as_plain(before))), dict(_leaves(as_plain(now)))
    fields = sorted(old.keys() | new.keys())
    return [Change(name, old.get(name), new.get(name)) for name in fields if old.get(name) != new.get(name)]


def as_plain(experiment: Experiment) -> dict[str, Any]:
    """The experiment as JSON, as `experiment_of` reads it back."""
    return experiment.model_dump(mode="json", by_alias=True)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _listed(changes: Iterable[Change]) -> str:
    first, *rest = changes
    several = [str(change) for change in (first, *rest[:2])]
    return ", ".join(several) + (f" and {len(rest) - 2} more" if len(rest) > 2 else "")


def _abbreviated(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
