"""Settings of credit assignment."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator

from arena.credit.asking import find_asking_stages
from arena.credit.critics import CRITIC
from arena.credit.estimators import ESTIMATOR
from arena.credit.rewards import STAGE
from arena.credit.rewards.information_gain import find_gold
from arena.credit.selection import SELECTOR
from arena.credit.transforms import TRANSFORM
from arena.parts.part_config import PartConfig
from arena.parts.schedules import SCHEDULE
from arena.parts.spec import Spec


def _check_stages(stages: list[PartConfig]) -> list[PartConfig]:
    find_gold(stages)
    find_asking_stages(stages)
    return stages


class CreditSpec(Spec):
    """Settings of credit assignment, from named rewards to advantages.

    Parts are named as in `arena list`, with their settings if any.
    """

    stages: Annotated[list[Annotated[PartConfig, STAGE]], AfterValidator(_check_stages)] = []
    """Reward stages in order: each adds or changes named rewards."""
    weights: dict[str, Annotated[PartConfig, SCHEDULE]] = {}
    """Weight of each named reward, a number or a schedule; 1 if not given."""
    select: list[Annotated[PartConfig, SELECTOR]] = []
    """Selectors: exclude turns or trajectories from learning or from credit's statistics."""
    estimator: Annotated[PartConfig, ESTIMATOR] = PartConfig(ESTIMATOR, "mars")
    """Advantage estimator: from turn rewards to one advantage per turn."""
    critic: Annotated[PartConfig | None, CRITIC.or_none()] = None
    """Critic that predicts the values for an estimator such as `gae_turn`."""
    transforms: list[Annotated[PartConfig, TRANSFORM]] = []
    """Transforms of advantages after the estimator, in order."""

    @property
    def needs(self) -> frozenset[str]:
        """Names of the measures that models must compute first, such as `entropy`; empty if a match log suffices."""
        return frozenset[str]().union(*(part.needs for _, part in self.parts()))

    @property
    def policies(self) -> frozenset[str]:
        """Names of the policies and endpoints that parts of credit assignment query."""
        return frozenset[str]().union(*(part.policies for _, part in self.parts()))

    def parts(self) -> Iterator[tuple[str, PartConfig]]:
        """Yield (field name, part) for the estimator and every reward stage, selector and transform."""
        yield "estimator", self.estimator
        yield from (("stages", part) for part in self.stages)
        yield from (("select", part) for part in self.select)
        yield from (("transforms", part) for part in self.transforms)
