"""Plan of a study: every arm with every seed, as one experiment that its folder keeps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from arena.config.arms import check_arms, study_of, with_arm
from arena.config.experiment import Experiment
from arena.config.kept import as_kept, changes
from arena.config.layers import compose, to_yaml
from arena.config.sources import Layer, file_layer
from arena.config.study import StudySpec
from arena.errors import ConfigError
from arena.evaluate.study.record import RESULT, KeptRun, Record, kept_runs, recorded
from arena.parts.paths import anchored
from arena.store.files import make_folder, write_atomic
from arena.store.locks import locked
from arena.store.run import foreign_files

EXPERIMENT = "experiment.yaml"
"""In a study's folder: what all of its runs are, but for their arms and seeds."""


class Run(NamedTuple):
    """One arm with one seed."""

    arm: str
    seed: int
    path: Path

    @property
    def log(self) -> Path:
        """Return the path of the file for its output."""
        return self.path.with_name(f"{self.path.name}.log")


@dataclass(frozen=True)
class Plan:
    """A study's folder, its experiment, and which arms and how many seeds of it are wanted."""

    folder: Path
    experiment: Experiment
    arms: Sequence[str]
    seeds: int
    kept: Mapping[tuple[str, int], KeptRun] = field(default_factory=dict)
    """By arm and seed, runs whose end the folder's record tells: their own folders may be gone."""
    name: str = RESULT
    """File of the record."""

    @property
    def record(self) -> Path:
        """Return the path of the file that keeps what its runs have shown."""
        return self.folder / self.name

    @property
    def spec(self) -> StudySpec:
        """Arms, figure and rule."""
        return study_of(self.experiment)

    @property
    def runs(self) -> list[Run]:
        """All runs, seed by seed: a study that is stopped early has all arms of the first seeds."""
        first = self.spec.first_seed
        return [self.run(arm, seed) for seed in range(first, first + self.seeds) for arm in self.arms]

    def run(self, arm: str, seed: int) -> Run:
        """Return the run of this arm and seed, with its folder."""
        return Run(arm, seed, self.folder / f"{arm}-{seed}")

    def iterations(self, arm: str) -> int:
        """Return the number of iterations of a run of the arm."""
        return with_arm(self.experiment, arm).iterations if arm in self.spec.uneven else self.experiment.iterations


def plan(
    experiment: Experiment,
    folder: Path,
    arms: Sequence[str],
    seeds: int,
    fitted: Callable[[Experiment], Experiment],
    note: Callable[[str], None] = lambda why: None,
    name: str = RESULT,
    new_rule: bool = False,
) -> Plan:
    """A study in its folder, begun or gone on with; `fitted` settles what is left to the machine, once for all runs.

    `note` is called where nobody can tell whether what was recorded is as it was written. With `new_rule` another rule
    of the verdict is accepted there, which marks the study for good. ConfigError where its arms are no experiments or
    not of one budget, where the sample that is asked for is not the rule's, or where the folder has something else.
    """
    check_arms(experiment)
    _check_sample(study_of(experiment), seeds)
    wanted, place, record = anchored(experiment), folder / EXPERIMENT, recorded(folder / name, note)
    told = _same(_whole(record), wanted, folder / name, new_rule) if record else None
    if place.exists():
        layer = file_layer(place)
        begun = _same(compose([as_kept(layer)]), wanted, place, new_rule)
        if as_kept(layer) != layer or new_rule:  # its runs read the file, where old keys are refused
            write_atomic(place, to_yaml(begun))
    elif told is None and folder.exists() and (not folder.is_dir() or foreign_files(folder)):
        kind = f"no folder of a study or sweep (it has no {EXPERIMENT})"
        raise ConfigError(f"{folder} is there and {kind}: choose another --out")
    else:
        begun = _begun(place, told or fitted(wanted), wanted)
    return Plan(folder, begun, arms, seeds, kept_runs(record), name)


def _begun(place: Path, fitted: Experiment, wanted: Experiment) -> Experiment:
    """The experiment that the file keeps from now on: this one, unless another command has begun there meanwhile."""
    with locked(make_folder(place.parent)):
        if place.exists():
            return _same(compose([as_kept(file_layer(place))]), wanted, place)
        write_atomic(place, to_yaml(fitted))
    return fitted


def _whole(record: Record) -> Experiment:
    """The experiment whose runs are recorded."""
    return compose([as_kept(Layer(RESULT, "", {**record.experiment, "study": record.study.model_dump()}))])


def _check_sample(spec: StudySpec, seeds: int) -> None:
    """ConfigError for more seeds than the rule judges, or for one that the settings were found on."""
    if spec.seeds and seeds > spec.seeds:
        raise ConfigError(
            f"--seeds {seeds}: the rule judges {spec.seeds} seeds; more of them, after a look, would be another sample"
        )
    try:
        spec.judged(seeds)
    except ValueError as error:
        raise ConfigError(f"study: {error}") from None


RULE = ("verdict", "first_seed", "seeds", "tuned_on", "looks", "gauges", "room", "last")
"""What of a study may become another rule for runs that are there; what they are may not."""


def _same(kept: Experiment, wanted: Experiment, place: Path, new_rule: bool = False) -> Experiment:
    """The kept experiment; ConfigError where another one is wanted, be it only another rule of the verdict.

    What changes no run and no verdict may be another: the minutes that a run takes, the family in listings, and which
    arms need not imitate again; with `new_rule` the rule may, too.
    """
    if kept.study and wanted.study:
        free = ("minutes", "family", "warm", *(RULE if new_rule else ()))
        told = kept.study.model_copy(update={name: getattr(wanted.study, name) for name in free})
        kept = kept.model_copy(update={"study": told})
    left = {name: getattr(kept, name) for name in ("threads", "precision") if getattr(wanted, name) == "auto"}
    if other := changes(kept, wanted.model_copy(update=left)):
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        again = "give the options it was begun with, restore it, or choose another --out"
        if all(change.field.split(".")[:2] in [["study", part] for part in RULE] for change in other):
            again += "; --new-rule takes the new rule, and marks the study as one whose rule was changed"
        raise ConfigError(f"{place} is another experiment: {other[0]}{more}: {again}")
    return kept
