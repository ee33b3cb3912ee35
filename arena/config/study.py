"""Settings of a study: arms, deciding metric, and the rule of the verdict, all fixed before any run.

The rule includes the sample: the test seeds and the seeds used for tuning.
"""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from arena.parts.spec import STRICT, Name, Positive
from arena.store.manifest import digest
from games.names import nearest

EVALUATED = "evaluation."
"""Prefix of metrics of an evaluation."""
PANEL = "panel."
"""Prefix of metrics of a panel."""
TUNING = 1000
"""First tuning seed of studies whose test seeds start too low for tuning below them."""


Seed = Annotated[int, Field(ge=0, lt=2**62)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def parse_evaluated_figure(figure: str) -> tuple[int, str]:
    """Split `evaluation.NAME` or `evaluation.2.NAME` into the game's number (1 if absent) and the metric's name."""
    number, dot, name = figure.removeprefix(EVALUATED).partition(".")
    numbered = dot and number.isdecimal() and len(number) < 4
    return (int(number), name) if numbered else (1, figure.removeprefix(EVALUATED))


class GaugeSpec(BaseModel):
    """Check that a mechanism acted: a metric that stays at a known value if the mechanism does nothing.

    The metric's mean over all iterations of the first arm's runs is compared with `nothing`, or with another arm's
    mean.
    """

    model_config = STRICT

    figure: str
    """Metric of an iteration, such as selection.out_of_loss or learn.shared.clipped."""
    nothing: Finite = 0.0
    """Value of the metric if the mechanism does nothing."""
    unlike: Name | None = None
    """Arm without the mechanism to compare with, instead of `nothing`."""
    above: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The mechanism acted if the difference is larger than this."""


class RoomSpec(BaseModel):
    """Check that the environment can separate the arms. It cannot if all arms reach the maximum or end alike."""

    model_config = STRICT

    best: Finite | None = None
    """Maximum or theoretical value of the metric; null if unknown."""
    within: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """The environment cannot separate the arms if all means are this close to `best`. Without `best`: if every interval
    of the first arm's difference from a learning arm lies within this distance of 0."""


class RuleSpec(BaseModel):
    """Rule of the verdict: the claim holds if the whole interval of every difference lies above `by`.

    It is contradicted if the whole interval of one difference lies below, and not shown otherwise.
    """

    model_config = STRICT

    better_than: list[Name]
    """Arms that the first arm has to beat, with differences paired by seed; empty without a claim, as in a sweep."""
    by: float = 0.0
    """Minimum difference."""
    interval: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals."""
    less_is_better: bool = False
    """True if lower values of the metric are better, as for a distance."""


CONTROLS = ("zero", "shuffled")
"""Control arms, which do not learn from reward. An arm that beats them learns."""


_DESCRIPTIVE = {"replicates", "claim", "published", "family", "minutes", "also", "grid"}
"""Fields that are not part of the rule."""


class StudySpec(BaseModel):
    """A study: arms of a recipe with several seeds each, the claim, and the rule of the verdict."""

    model_config = STRICT

    replicates: str
    """Paper or release that the study replicates."""
    claim: str
    """Claim under test, in one sentence."""
    published: str
    """Published result, as text."""
    family: str
    """Family of games, for lists of studies."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """Approximate minutes of one run on one core, if known."""
    figure: str
    """Deciding metric: a metric of an iteration or its `report`, such as mean_payoff, deal or payoff.opener;
    or evaluation.NAME for the first game of `evaluate` and evaluation.2.NAME for the second, measured before and after
    learning; or panel.payoff, panel.valid or panel.deal, measured at every evaluation by the panel."""
    also: list[str] = []
    """Further metrics to report. They do not affect the verdict."""
    first_seed: Seed = 0
    """First test seed."""
    seeds: Positive | None = None
    """Exact number of test seeds per arm; null lets the command decide."""
    tuned_on: list[Seed] = []
    """Seeds used to tune the settings. They must not be test seeds."""
    grid: list[str] = []
    """Values that each arm tries on tuning seeds, in the form of `arena sweep --set`: learn.lr=1e-4,3e-4."""
    gauges: list[GaugeSpec] = []
    """Checks that the mechanism acted. If one fails, the verdict is that it did not act."""
    room: RoomSpec | None = None
    """Check that the environment can separate the arms."""
    last: Positive = 1
    """Number of last iterations over which the metric is averaged."""
    arm: Name
    """Name of the first arm, which is the recipe itself."""
    arms: Annotated[dict[Name, list[str]], Field(min_length=1)]
    """Overrides of the other arms by name, in the form of `--set`."""
    each: list[str] = []
    """Overrides of every run of all arms; {seed} becomes the run's seed: `policies.shared.model=nano-{seed}`."""
    warm: list[Name] = []
    """Arms that start from the first arm's weights after imitation with the same seed, instead of repeating it;
    in a pipeline, from the imitation of the last stage. If an arm runs alone (`--arm`), it imitates."""
    uneven: list[Name] = []
    """Arms whose budget of matches may differ from the first arm's."""
    verdict: RuleSpec
    """Rule of the verdict."""

    @property
    def rule(self) -> str:
        """Hash of all settings that decide the verdict: arms, seeds, metric and rule."""
        return digest({name: value for name, value in self.model_dump(mode="json").items() if name not in _DESCRIPTIVE})

    @property
    def names(self) -> list[str]:
        """Names of all arms, the first one included, in order."""
        return [self.arm, *self.arms]

    @property
    def baselines(self) -> list[str]:
        """Arms to beat that learn from reward; empty if the claim is only that the first arm learns."""
        return [arm for arm in self.verdict.better_than if arm not in CONTROLS]

    def select_test_seeds(self, seeds: int) -> range:
        """Return the first `seeds` test seeds, from `first_seed` on. Raises ValueError if one was used for tuning."""
        test_seeds = range(self.first_seed, self.first_seed + seeds)
        if tuned := sorted(seed for seed in set(self.tuned_on) if seed in test_seeds):
            raise ValueError(
                f"seed {tuned[0]} is in `tuned_on`: {test_seeds[0]} to {test_seeds[-1]} cannot be test seeds, "
                "take another first_seed"
            )
        return test_seeds

    def first_tuning_seed(self, count: int) -> int:
        """Return the first of `count` tuning seeds: 0 if all of them are below the test seeds, else `TUNING`."""
        return 0 if count <= self.first_seed else TUNING

    @model_validator(mode="after")
    def _check_test_seeds(self) -> Self:
        self.select_test_seeds(self.seeds or 1)
        return self

    @model_validator(mode="after")
    def _check_arm_names(self) -> Self:
        if self.arm in self.arms:
            raise ValueError(f"`arms` has '{self.arm}', as the recipe itself is called: rename one")
        arms_by_field = {"verdict.better_than": self.verdict.better_than, "warm": self.warm, "uneven": self.uneven}
        arms_by_field["gauges.unlike"] = [gauge.unlike for gauge in self.gauges if gauge.unlike]
        for field, names in arms_by_field.items():
            self._require_known_arms(field, names)
        return self

    def _require_known_arms(self, field: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.arms:
                known = f"{nearest(name, self.arms)} (they are {', '.join(self.arms)})"
                raise ValueError(f"`{field}` names '{name}', which is none of `arms`{known}")
