"""Settings of a study: arms beside the recipe, the figure that decides, and the verdict's rule, stated beforehand.

The rule fixes the sample, too: the judged seeds, and the seeds that served tuning.
"""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from agents.names import nearest
from arena.parts.spec import STRICT, Name, Positive
from arena.store.manifest import digest

EVALUATED = "evaluation."
"""Prefix of figures of an evaluation."""
PANEL = "panel."
"""Prefix of figures of a panel."""
TUNING = 1000
"""First seed for trying out, where a recipe judges by the seeds from 0 on."""


Seed = Annotated[int, Field(ge=0, lt=2**62)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def evaluated_figure(figure: str) -> tuple[int, str]:
    """The number of the game that a figure of an evaluation is of, from 1 on, and its name there."""
    number, dot, name = figure.removeprefix(EVALUATED).partition(".")
    numbered = dot and number.isdecimal() and len(number) < 4
    return (int(number), name) if numbered else (1, figure.removeprefix(EVALUATED))


class GaugeSpec(BaseModel):
    """A gauge of the mechanism: a figure that stays at nothing where the mechanism does not act.

    Its mean over all iterations of the first arm's runs is compared with `nothing`, or with the same of another arm.
    """

    model_config = STRICT

    figure: str
    """Name in an iteration's metrics: selection.out_of_loss, learn.shared.clipped."""
    nothing: Finite = 0.0
    """What it is where nothing was done."""
    unlike: Name | None = None
    """Or an arm without the mechanism, in which it would be the same."""
    above: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """How far from that counts as acting: more than this."""


class RoomSpec(BaseModel):
    """The check whether a world can tell arms apart: not where they all reach the best there is, or all end alike."""

    model_config = STRICT

    best: Finite | None = None
    """The figure's ceiling, or its value in theory; null where nobody knows it."""
    within: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """How near to that the arms' means are; without `best`, within how much of 0 the whole interval of each difference
    from an arm that learns lies, so that all have come to the same."""


class RuleSpec(BaseModel):
    """Rule of the verdict: the claim holds if in each comparison the difference's whole interval lies above `by`.

    Contradicted where in one of them it lies below, not shown otherwise.
    """

    model_config = STRICT

    better_than: list[Name]
    """The arms that the first arm has to be better than, seed by seed; none where nothing is claimed, as in a sweep."""
    by: float = 0.0
    """By how much more than this."""
    interval: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Level of the intervals."""
    less_is_better: bool = False
    """Whether the figure is one that should fall, such as a distance."""


CONTROLS = ("zero", "shuffled")
"""Arms that learn nothing from what was earned: who is better than these learns, by whatever mechanism."""


_TOLD = {"replicates", "claim", "published", "family", "minutes", "also", "grid"}
"""What a study says beside its rule."""


class StudySpec(BaseModel):
    """Arms of a recipe, each with many seeds, and what they are to show."""

    model_config = STRICT

    replicates: str
    """The paper or release."""
    claim: str
    """Claim that is put to the test, in one sentence."""
    published: str
    """The published figure, as text."""
    family: str
    """Family of games, for listings."""
    minutes: Annotated[float, Field(gt=0)] | None = None
    """About how long a run takes on one core, where that is known."""
    figure: str
    """Figure that decides: a name in an iteration's metrics or their `report`, such as mean_payoff, deal or
    payoff.opener; evaluation.NAME of the first game that `evaluate` names, evaluation.2.NAME of the second, before and
    after learning; or panel.payoff, panel.valid or panel.deal of the panel that it names, each time that it judges."""
    also: list[str] = []
    """Figures that are reported too and decide nothing."""
    first_seed: Seed = 0
    """The first that is judged."""
    seeds: Positive | None = None
    """How many seeds of each arm are judged, no more and no less; null leaves that to the command."""
    tuned_on: list[Seed] = []
    """Seeds that anybody looked at when the settings were found: none of them may be judged."""
    grid: list[str] = []
    """Values that each arm tries on those seeds before any is judged, as `arena sweep --set` takes them:
    learn.lr=1e-4,3e-4."""
    gauges: list[GaugeSpec] = []
    """Gauges of the mechanism: where one stays at nothing, the verdict is that it did not act."""
    room: RoomSpec | None = None
    """The check whether the world can tell arms apart at all."""
    last: Positive = 1
    """Over how many last iterations the figure is averaged."""
    arm: Name
    """Name of the recipe itself: the first arm."""
    arms: Annotated[dict[Name, list[str]], Field(min_length=1)]
    """The other arms: settings laid over the recipe, as `--set` takes them."""
    each: list[str] = []
    """Settings of every run, the first arm's too, in which {seed} is its seed: `policies.shared.model=nano-{seed}`."""
    warm: list[Name] = []
    """Arms that begin with the weights with which the first arm's imitation of the same seed ended, and need not
    imitate again; by themselves (`--arm`) they do."""
    uneven: list[Name] = []
    """Arms that may play more or fewer matches than the first; all others play as many."""
    verdict: RuleSpec
    """The rule, stated beforehand."""

    @property
    def rule(self) -> str:
        """Return the hash of all that decides: what the runs are and which, the figure, and how they are judged."""
        return digest({name: value for name, value in self.model_dump(mode="json").items() if name not in _TOLD})

    @property
    def names(self) -> list[str]:
        """Names of all arms, the first one first."""
        return [self.arm, *self.arms]

    @property
    def baselines(self) -> list[str]:
        """The compared arms that learn from what was earned; none where the claim is only that something is learned."""
        return [arm for arm in self.verdict.better_than if arm not in CONTROLS]

    def judged(self, seeds: int) -> range:
        """Return so many seeds of those that are judged; ValueError where one of them was tuned on."""
        found = range(self.first_seed, self.first_seed + seeds)
        if seen := sorted(seed for seed in set(self.tuned_on) if seed in found):
            raise ValueError(
                f"seed {seen[0]} is in `tuned_on`: {found[0]} to {found[-1]} cannot be judged, take another first_seed"
            )
        return found

    def seed_for_tuning(self, count: int) -> int:
        """Return the first of `count` seeds for trying out: below those that are judged, or far above them."""
        return 0 if count <= self.first_seed else TUNING

    @model_validator(mode="after")
    def _holds_its_sample(self) -> Self:
        self.judged(self.seeds or 1)
        return self

    @model_validator(mode="after")
    def _names_arms(self) -> Self:
        if self.arm in self.arms:
            raise ValueError(f"`arms` has '{self.arm}', as the recipe itself is called: rename one")
        named = {"verdict.better_than": self.verdict.better_than, "warm": self.warm, "uneven": self.uneven}
        named["gauges.unlike"] = [gauge.unlike for gauge in self.gauges if gauge.unlike]
        for field, names in named.items():
            self._known(field, names)
        return self

    def _known(self, field: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.arms:
                known = f"{nearest(name, self.arms)} (they are {', '.join(self.arms)})"
                raise ValueError(f"`{field}` names '{name}', which is none of `arms`{known}")
