"""Settings of play: games, seats, and the matches of an iteration."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from arena.parts.chosen import Chosen
from arena.parts.paths import Folder, GameName, OptionValue, PolicyName, RoleName
from arena.parts.schedules import SCHEDULE, Clock
from arena.parts.spec import Matches, Name, Positive, Spec


class GameSpec(Spec):
    """Game, by name, with its options."""

    name: GameName
    """Name from `arena list games`, `openspiel:…`, `pettingzoo:…`, `textarena:…`, or path/to/file.py:Class."""
    options: dict[str, OptionValue] = {}
    """Options of the game, such as `illegal: end`."""


class SeatSpec(Spec):
    """Role and policy of the player at a seat."""

    role: RoleName
    """Name of a built-in role or of one in the roles folder, or a path ending in .yaml."""
    policy: PolicyName
    """Name from `policies`, a scripted policy such as `random` or path/to/file.py:function, `endpoint:MODEL` or
    `endpoint@SERVER:MODEL`."""


class TableSpec(Spec):
    """Game with the roles and policies at its seats. A run plays one or more of these."""

    game: GameSpec
    """Game of the table."""
    seats: dict[str, SeatSpec]
    """Role and policy by the game's name of the seat."""
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the matches of an iteration, relative to the other tables' shares."""


class LimitsSpec(Spec):
    """Limits of turns, tokens and seconds beyond which a match fails; null is no limit."""

    turns: Positive | None = 100
    """Maximum turns of all seats together."""
    tokens: Positive | None = None
    """Maximum sampled tokens of all seats together."""
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 600.0
    """Maximum wall time of the match."""
    turn_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 120.0
    """Maximum wall time of one turn."""


class AdaptiveSpec(Spec):
    """Allocation of attempts to deals by their earlier outcomes, for deals that repeat (`play.pool`)."""

    above: Annotated[float, Field(ge=-1e9, le=1e9)] = 0.0
    """A match is a success if the mean payoff of its trained seats is above this."""
    least: Annotated[int, Field(ge=1, le=10**6)] = 2
    """Minimum attempts at each deal of an iteration. Further attempts go to deals with varying outcomes."""
    cap: Name | None = None
    """Option of the game that limits turns, such as `max_turns`. For solved deals it is their longest success's length;
    null is no cap."""


LONGEST_INSTRUCTION = 500
"""Maximum characters of an instruction."""
Instruction = Annotated[str, Field(min_length=1, max_length=LONGEST_INSTRUCTION)]


class InstructionsSpec(Spec):
    """Competing instructions for a role. Each deal draws one, which ends the role's system prompt."""

    texts: Annotated[list[Instruction], Field(min_length=1, max_length=100)]
    """Initial instructions, all different."""
    temperature: Annotated[float, Field(gt=0, le=1e6)] = 0.25
    """Temperature of the softmax that draws them, in standard deviations of payoffs."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Weight of an iteration in the running mean of an instruction's scores; 1 uses only the last."""
    every: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Iterations between new instructions; 0 adds none."""
    size: Annotated[int, Field(ge=1, le=100)] = 8
    """Maximum number of instructions. A new one replaces the worst."""
    writer: Name | None = None
    """Policy that writes new instructions by reflection; null crosses two existing ones."""

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        plain = [" ".join(text.split()) for text in self.texts]
        if len({*plain}) < len(plain) or "" in plain:
            raise ValueError("`texts` must all differ, and none may be blank")
        if len(plain) > self.size:
            raise ValueError(f"there are {len(plain)} `texts`, more than `size`, which is {self.size}: raise it")
        return self


class TreesSpec(Spec):
    """Tree rollouts: how many of a deal's matches start at the deal, and at which turns the others branch off."""

    first: Matches | Literal["auto"] = "auto"
    """Number of a deal's matches that start at the deal; `auto` uses the entropies of the first match (AEPO)."""
    trigger: Literal["entropy", "random"] = "entropy"
    """Branch turns by their entropy relative to the seat's first reply, or all with equal probability, as a control."""
    chance: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Branching probability of a turn with the entropy of the first reply."""
    weight: Annotated[float, Field(ge=0, le=1e6)] = 0.2
    """Increase of the probability per unit of entropy, in units of the log of the vocabulary."""
    chain: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Penalty for each consecutive branched turn just before; AEPO's is 0.05."""
    tokens: Annotated[int, Field(ge=1, le=10**6)] = 20
    """Number of a reply's first tokens whose entropies are summed."""


class PatchSpec(Spec):
    """Replacement of a learner's wrong acts by an expert's (UI-S1)."""

    expert: PolicyName
    """Scripted policy, such as `oracle`, or path/to/file.py:function. Other acts than its own are wrong."""
    most: Annotated[int, Field(ge=0, le=10**4)] | None = None
    """Maximum patches of a match, which stops at the next wrong act. Null is no limit, 0 stops at the first."""


class StopSpec(Spec):
    """Rules that end a match early if a learner repeats itself or acts illegally; 0 turns a rule off."""

    repeated: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of equal acts of a learner in a row."""
    illegal: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of illegal acts of a learner in a row."""


class HorizonSpec(Spec):
    """Maximum number of turns of a match, by a schedule over iterations (ScalingInter-RL)."""

    turns: Annotated[Chosen, SCHEDULE]
    """Number or schedule, such as `steps: {values: [6, 13, 20], every: 100}`; rounded, at least 1."""
    option: Name | None = None
    """Option of the game to set, such as `max_turns`; null cuts off a match after that many acts of a learner."""

    def length(self, clock: Clock) -> int:
        """Return the maximum number of turns in the clock's iteration: the schedule's value, rounded and at least 1."""
        return max(1, round(float(self.turns(clock))))


class PlaySpec(Spec):
    """Settings of an iteration's matches: their number, deals, branches, interventions, limits and concurrency."""

    matches: Matches = 16
    """Number of matches per iteration, over all tables."""
    group: Matches = 1
    """Number of matches per deal, for estimators that compare within one. It divides `matches`."""
    pool: Matches | None = None
    """Number of different deals, like tasks of a training set: each pass plays all in a new random order. Null always
    draws new deals."""
    resample: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Maximum rounds of new deals to replace those that `credit.select` dropped."""
    branch: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of additional branches of each match, at random turns of its learners."""
    branch_at: Literal["any", "last"] = "any"
    """Turns that may be branched: any, or only each match's last, with one branch."""
    trees: TreesSpec | None = None
    """Play some matches of a `group` as branches of others; null starts all at the deal."""
    patch: PatchSpec | None = None
    """Replace learners' wrong acts by an expert's; null is off."""
    stop: StopSpec | None = None
    """Cut off hopeless matches; null is off."""
    horizon: HorizonSpec | None = None
    """Maximum length of matches by iteration; null leaves it to the game."""
    adaptive: AdaptiveSpec | None = None
    """More attempts at deals with varying outcomes, fewer at solved ones; null is `group` attempts each."""
    instructions: dict[Name, InstructionsSpec] = {}
    """Competing instructions for a role's system prompt, by role (INSPO)."""
    ahead: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of later iterations played while one is learned. Replies are at most that many versions older than the
    weights that learn from them; 0 alternates play and learning."""
    enough: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of an iteration's deals that its update waits for. The next update learns from the others."""
    in_flight: Positive = 64
    """Number of concurrent matches."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum attempts at a failing match before it and its deal are given up."""
    limits: LimitsSpec = LimitsSpec()
    """Limits of one match."""

    @property
    def deals(self) -> int:
        """Number of deals per iteration: `matches` divided by `group`."""
        return self.matches // self.group

    @property
    def overlaps(self) -> bool:
        """True if matches are played while policies learn: with `ahead` above 0 or `enough` below 1."""
        return self.ahead > 0 or self.enough < 1

    @property
    def lag(self) -> int:
        """Maximum age of replies, in versions before the weights that learn from them."""
        return self.ahead + (self.enough < 1)

    @model_validator(mode="after")
    def _comes_out_even(self) -> Self:
        if self.matches % self.group:
            raise ValueError(
                f"{self.matches} `matches` are not a multiple of `group`, which is {self.group}: change one"
            )
        if self.matches * (1 + self.branch) > 10**6:
            raise ValueError(f"{self.matches:,} `matches` with {self.branch:,} branches each are more than a million")
        if self.branch_at == "last" and self.branch != 1:
            raise ValueError(f"branch_at: last is one branch of each match: set `branch` to 1, not {self.branch}")
        return self

    @model_validator(mode="after")
    def _can_overlap(self) -> Self:
        if self.overlaps and self.instructions:
            raise ValueError(
                "`instructions` depend on the scores of the previous iteration: set ahead to 0 and enough to 1"
            )
        if self.overlaps and self.resample:
            raise ValueError(
                "`resample` needs the credit of the current weights, which are still learning: "
                "set it to 0, or ahead to 0 and enough to 1"
            )
        if self.enough < 1 and self.branch:
            raise ValueError("late matches cannot have branches: set `branch` to 0, or enough to 1")
        return self

    @model_validator(mode="after")
    def _can_grow(self) -> Self:
        if self.trees is None:
            return self
        if self.branch or self.adaptive or self.enough < 1:
            raise ValueError("`trees` plan a deal's matches themselves: set branch to 0, adaptive to null, enough to 1")
        if self.group < 2 or (self.trees.first != "auto" and self.trees.first >= self.group):
            raise ValueError(
                f"`trees` have branches besides the first {self.trees.first}: raise `group`, which is {self.group}"
            )
        return self

    @model_validator(mode="after")
    def _can_adapt(self) -> Self:
        if self.adaptive is None:
            return self
        if not self.pool:
            raise ValueError("`adaptive` needs deals that repeat: set `pool`")
        if self.horizon and self.horizon.option and self.adaptive.cap:
            raise ValueError("`horizon.option` and `adaptive.cap` both limit the length of matches: set one to null")
        if self.adaptive.least > self.group:
            raise ValueError(f"adaptive.least is {self.adaptive.least}, more than the {self.group} of a `group`")
        if self.resample or self.branch:
            raise ValueError("`adaptive` plays groups of different sizes: set resample and branch to 0")
        return self


class SourceSpec(Spec):
    """Logged matches of another run to learn from, without play."""

    log: Folder
    """Folder of another run. Iteration k learns from that run's iteration k, starting over after its last."""
    iterations: Positive | None = None
    """Last iteration to use; null is the newest committed one at the run's start, which is then saved in the config."""


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """Split `count` into whole parts by `shares`, by largest remainder (Hamilton's method); ties go to the earlier."""
    quotas = [count * share / sum(shares) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return counts
