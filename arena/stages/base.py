"""Interface of kinds of pipeline stages: functions that turn settings into an experiment, or into a loop.

A kind is a function `kind(context, *, settings)` in the table of `arena.stages`. It returns the settings of an
experiment, which are merged over the pipeline's shared settings and run like any other experiment. A kind with a
training loop of its own returns a `StageLoop` instead.

Before the kind is called, `stage:NAME` in its settings is replaced by the path of an earlier stage's weights, or under
the keys `log`, `data` and `run` by that of its run folder. `arena list` loads all kinds, so import torch only when the
stage runs.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from arena.errors import ConfigError
from arena.play.watchers import Watcher
from arena.store import checkpoints
from games.names import nearest


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """Input of a stage's kind: shared settings, seed, and results of earlier stages.

    A kind is also called before the first stage runs, to check its settings. At that time the folders of earlier stages
    are missing or empty, and `weights` has the models from which those stages start. So a kind must not read these
    folders before the stage runs.
    """

    shared: Mapping[str, Any]
    """The pipeline's settings without `stages`, as plain values."""
    seed: int
    """Seed of this stage, derived from the pipeline's seed and the stage's name."""
    folders: Mapping[str, Path]
    """Run folders of the earlier stages by name."""
    weights: Mapping[str, Path]
    """Newest weights folder by policy name, of the policies that earlier stages trained."""
    note: Callable[[str], None]
    """Shows a one-line notice to the user."""


@runtime_checkable
class StageLoop(Protocol):
    """A stage with a training loop of its own, such as a reward model's."""

    async def run(self, folder: Path, watcher: Watcher) -> None:
        """Train to the end in the stage's folder, from its newest checkpoint if it has one.

        The folder exists, and this process holds its lock.
        """

    def weights(self, folder: Path) -> Mapping[str, Path]:
        """Return the folders of the final weights, within `folder`, by policy name. They may not exist before the end.

        They replace the weights of policies of these names in later stages.
        """


Stage = Callable[..., Mapping[str, Any] | StageLoop]
"""(StageContext, *, settings) -> settings of an experiment, or the stage's own loop."""


class TrainingStage:
    """Stage that trains one set of weights and keeps checkpoints of them in its folder."""

    def __init__(
        self,
        context: StageContext,
        name: str,
        settings: Mapping[str, Any],
        train: Callable[[Path, Mapping[str, Any], Watcher], Awaitable[None]],
    ) -> None:
        """Prepare to train the weights `name` by `train(folder, settings, watcher)`.

        `settings` get the stage's seed, the pipeline's precision and its number of checkpoints to keep.
        """
        keep = (context.shared.get("checkpoint") or {}).get("keep", 2)
        bf16 = str(context.shared.get("precision")).startswith("bf16")
        self.settings = {**settings, "seed": context.seed, "bf16": bf16, "keep": keep}
        self.name, self.train = name, train

    async def run(self, folder: Path, watcher: Watcher) -> None:
        """Train to the end in the stage's folder."""
        await self.train(folder, self.settings, watcher)

    def weights(self, folder: Path) -> Mapping[str, Path]:
        """Return the folder of the newest weights by their name."""
        newest = max(checkpoints.iterations(folder), default=0)
        return {self.name: checkpoints.folder_of(folder, newest) / "policies" / self.name}


def require_policy(context: StageContext, name: str) -> Mapping[str, Any]:
    """Return the shared settings of the policy `name`, not validated. Raises ConfigError if there is none."""
    policies: Mapping[str, Mapping[str, Any]] = context.shared.get("policies") or {}
    if name not in policies:
        known = ", ".join(policies) or "none"
        raise ConfigError(f"policy: there is no policy '{name}'{nearest(name, policies)} (policies: {known})")
    return policies[name]
