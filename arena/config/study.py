"""Settings of a study: arms beside the recipe, the figure that decides, and the verdict's rule, stated beforehand."""

from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from agents.names import nearest
from arena.parts.spec import STRICT, Name, Positive

EVALUATED = "evaluation."
"""Prefix of figures of an evaluation."""
PANEL = "panel."
"""Prefix of figures of a panel."""
TUNING = 1000
"""First seed for trying out, where a recipe judges by the seeds from 0 on."""


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
    payoff.opener; evaluation.NAME of the first game that `evaluate` names, before and after learning; or panel.payoff,
    panel.valid or panel.deal of the panel that it names, each time that it judges."""
    also: list[str] = []
    """Figures that are reported too and decide nothing."""
    first_seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """The first that is judged: a recipe is found on seeds below it."""
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
    def names(self) -> list[str]:
        """Names of all arms, the first one first."""
        return [self.arm, *self.arms]

    def seed_for_tuning(self, count: int) -> int:
        """Return the first of `count` seeds for trying out: below those that are judged, or far above them."""
        return 0 if count <= self.first_seed else TUNING

    @model_validator(mode="after")
    def _names_arms(self) -> Self:
        if self.arm in self.arms:
            raise ValueError(f"`arms` has '{self.arm}', as the recipe itself is called: rename one")
        named = {"verdict.better_than": self.verdict.better_than, "warm": self.warm, "uneven": self.uneven}
        for field, names in named.items():
            self._known(field, names)
        return self

    def _known(self, field: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.arms:
                known = f"{nearest(name, self.arms)} (they are {', '.join(self.arms)})"
                raise ValueError(f"`{field}` names '{name}', which is none of `arms`{known}")
