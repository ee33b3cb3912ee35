"""Plan of a study: every arm with every seed, as one experiment stored in the study's folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from arena.config.arms import check_arms, require_study, with_arm
from arena.config.experiment import Experiment
from arena.config.recipe import (
    R,
    Recipe,
    anchor_recipe,
    compose_recipe,
    experiments_by_stage,
    recipe_to_plain,
    recipe_to_yaml,
    with_study,
)
from arena.config.saved_config import list_differences
from arena.config.sources import Layer, file_layer
from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.record import RESULT, Record, RecordedRun, find_record, index_runs
from arena.store.contents import METRICS
from arena.store.files import make_folder, write_atomic
from arena.store.locks import lock_folder
from arena.store.run import find_foreign_files
from arena.store.stages import find_begun_stages, is_pipeline
from games.plain_files import read_plain

EXPERIMENT = "experiment.yaml"
"""File in a study's folder with the settings that all its runs share."""


class Run(NamedTuple):
    """Planned run of a study: one arm (variant of the settings) with one seed, and its folder."""

    arm: str
    seed: int
    path: Path

    @property
    def log(self) -> Path:
        """File with the run's output, beside its folder."""
        return self.path.with_name(f"{self.path.name}.log")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a study, whose property `runs` lists the run of each arm (variant of the settings) with each seed."""

    folder: Path
    experiment: Recipe
    arms: Sequence[str]
    seeds: int
    recorded: Mapping[tuple[str, int], RecordedRun] = field(default_factory=dict)
    """Finished runs in the study's record, by arm and seed; their own folders may be gone."""
    name: str = RESULT
    """File name of the record."""
    _composed: dict[str, dict[str, Experiment]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Experiments by stage, composed once for each arm whose number of iterations differs."""

    @property
    def record(self) -> Path:
        """Path of the file with the study's results."""
        return self.folder / self.name

    @property
    def spec(self) -> StudySpec:
        """Settings of the study: its arms, figure and rule."""
        return require_study(self.experiment)

    @property
    def runs(self) -> list[Run]:
        """All planned runs, seed by seed, so that a study that is stopped early has all arms of its first seeds."""
        first = self.spec.first_seed
        return [self.run(arm, seed) for seed in range(first, first + self.seeds) for arm in self.arms]

    def run(self, arm: str, seed: int) -> Run:
        """Return the planned run of this arm and seed, with its folder."""
        return Run(arm, seed, self.folder / f"{arm}-{seed}")

    def iterations(self, arm: str) -> int:
        """Return the number of iterations of the arm's runs, in all stages whose number is known before they start."""
        return sum(each.iterations for each in self._experiments(arm).values())

    def count_iterations(self, run: Run) -> int:
        """Return the number of iterations in the run's metrics, of those that `iterations` counts."""
        places = [run.path]
        if is_pipeline(run.path):
            experiments = self._experiments(run.arm)
            places = [stage for stage in find_begun_stages(run.path) if stage.name[len("NN-") :] in experiments]
        return sum(read_plain(path).count(b"\n") for place in places if (path := place / METRICS).exists())

    def _experiments(self, arm: str) -> dict[str, Experiment]:
        varied = arm if arm in self.spec.uneven else ""
        if varied not in self._composed:
            recipe = with_arm(self.experiment, arm) if varied else self.experiment
            stages = experiments_by_stage(recipe)
            # The number of passes over a data set is known when the data is there.
            self._composed[varied] = {n: each for n, each in stages.items() if not (each.source and each.source.data)}
        return self._composed[varied]


def plan(
    experiment: R,
    folder: Path,
    arms: Sequence[str],
    seeds: int,
    fit: Callable[[R], R],
    name: str = RESULT,
) -> Plan:
    """Create or reopen a study's folder, and return the plan of its runs.

    `fit` fixes the settings that depend on the machine, once for all runs of a new folder. `name` is the record's file
    name. Raises ConfigError if an arm is not a valid experiment or has another budget, if the rule does not judge these
    seeds, or if the folder holds something else, such as another experiment or another rule.
    """
    check_arms(experiment)
    _check_sample(require_study(experiment), seeds)
    recipe, place, record = anchor_recipe(experiment), folder / EXPERIMENT, find_record(folder / name)
    recorded = _require_same(_compose_recorded(record), recipe, folder / name) if record else None
    if place.exists():
        stored_recipe = _require_same(compose_recipe([file_layer(place)]), recipe, place)
    elif recorded is None and folder.exists() and (not folder.is_dir() or find_foreign_files(folder)):
        raise ConfigError(
            f"{folder} exists and is no folder of a study or sweep (it has no {EXPERIMENT}): choose another --out"
        )
    else:
        stored_recipe = _store_experiment(place, recorded or fit(recipe), recipe)
    return Plan(folder=folder, experiment=stored_recipe, arms=arms, seeds=seeds, recorded=index_runs(record), name=name)


def _store_experiment(place: Path, fitted_recipe: Recipe, recipe: Recipe) -> Recipe:
    """Write the fitted experiment to `place` and return it, or return the one that another process wrote first."""
    with lock_folder(make_folder(place.parent)):
        if place.exists():
            return _require_same(compose_recipe([file_layer(place)]), recipe, place)
        write_atomic(place, recipe_to_yaml(fitted_recipe))
    return fitted_recipe


def _compose_recorded(record: Record) -> Recipe:
    return compose_recipe([Layer(RESULT, "", {**record.experiment, "study": record.study.model_dump()})])


def _check_sample(spec: StudySpec, seeds: int) -> None:
    """Raise ConfigError for more seeds than the rule judges, or for seeds that served tuning."""
    if spec.seeds and seeds > spec.seeds:
        raise ConfigError(
            f"--seeds {seeds}: the rule judges {spec.seeds} seeds; adding seeds after seeing results would bias it"
        )
    try:
        spec.select_test_seeds(seeds)
    except ValueError as error:
        raise ConfigError(f"study: {error}") from None


AUTO = {"threads": "auto", "precision": "fp32"}
"""Settings that may be `auto`, which a study replaces, with their defaults."""
FREE = ("minutes", "family", "warm")
"""Settings of a study that may change later, because they affect no run and no verdict."""


def _require_same(stored_recipe: Recipe, recipe: Recipe, place: Path) -> Recipe:
    """Return the stored experiment with the wanted values of `FREE`. Raises ConfigError if anything else differs."""
    if stored_recipe.study and recipe.study:
        study = stored_recipe.study.model_copy(update={name: getattr(recipe.study, name) for name in FREE})
        stored_recipe = with_study(stored_recipe, study)
    before, now = recipe_to_plain(stored_recipe), recipe_to_plain(recipe)
    automatic = {name: before[name] for name in AUTO if name in before and now.get(name, AUTO[name]) == "auto"}
    if other := list_differences(before, now | automatic):
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        advice = "give the options it was begun with, restore it, or choose another --out"
        raise ConfigError(f"{place} is another experiment: {other[0]}{more}: {advice}")
    return stored_recipe
