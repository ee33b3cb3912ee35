"""Settings of play: which games, who sits at them, and how the matches of an iteration are played."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from arena.parts.chosen import Chosen
from arena.parts.paths import Folder, GameName, OptionValue, PolicyName, RoleName
from arena.parts.schedules import SCHEDULE, Clock
from arena.parts.spec import Matches, Name, Positive, Spec


class GameSpec(Spec):
    """A game, with its options."""

    name: GameName
    """One of `arena list games`, `openspiel:…`, `pettingzoo:…`, `textarena:…`, or path/to/file.py:Class."""
    options: dict[str, OptionValue] = {}
    """Options of the game, such as `illegal: end`."""


class SeatSpec(Spec):
    """The role and the policy at a seat."""

    role: RoleName
    """A built-in role's name, one from the roles folder, or a path ending in .yaml."""
    policy: PolicyName
    """A name from `policies`, a scripted policy such as `random` or path/to/file.py:function, `endpoint:MODEL` or
    `endpoint@SERVER:MODEL`."""


class TableSpec(Spec):
    """A game and who sits at it."""

    game: GameSpec
    """Which game is played there."""
    seats: dict[str, SeatSpec]
    """By the game's names for its seats."""
    share: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Share of the matches of an iteration, relative to the other tables' shares."""


class LimitsSpec(Spec):
    """Limits of one match, beyond which it is recorded as failed; null is no limit."""

    turns: Positive | None = 100
    """Taken by all seats together."""
    tokens: Positive | None = None
    """Sampled by all seats together."""
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 600.0
    """Wall time of the match."""
    turn_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = 120.0
    """Wall time of one turn."""


class AdaptiveSpec(Spec):
    """Attempts by how a deal went before, for deals that come again (`play.pool`)."""

    above: Annotated[float, Field(ge=-1e9, le=1e9)] = 0.0
    """A match in which the trained seats were paid more than that on average is a success."""
    least: Annotated[int, Field(ge=1, le=10**6)] = 2
    """Number of attempts that every deal of an iteration gets; the others go where outcomes differ."""
    cap: Name | None = None
    """Option of the game, such as `max_turns`, that limits a match's turns: of a deal that was solved before it becomes
    what its longest success needed; null is no cap."""


LONGEST_INSTRUCTION = 500
"""Characters of an instruction."""
Instruction = Annotated[str, Field(min_length=1, max_length=LONGEST_INSTRUCTION)]


class InstructionsSpec(Spec):
    """Instructions of which each deal draws one: it ends the role's system prompt."""

    texts: Annotated[list[Instruction], Field(min_length=1, max_length=100)]
    """Those to begin with, all different."""
    temperature: Annotated[float, Field(gt=0, le=1e6)] = 0.25
    """Of the softmax by which they are drawn, in standard deviations of what a match pays."""
    rate: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of an iteration in the running mean of what an instruction earns; 1 remembers the last alone."""
    every: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Iterations from one new instruction to the next; 0 tries none."""
    size: Annotated[int, Field(ge=1, le=100)] = 8
    """Number of instructions, beyond which the worst goes for each new one."""
    writer: Name | None = None
    """Policy that writes new ones, by reflection on those so far; null crosses two of them."""

    @model_validator(mode="after")
    def _are_different(self) -> Self:
        plain = [" ".join(text.split()) for text in self.texts]
        if len({*plain}) < len(plain) or "" in plain:
            raise ValueError("`texts` must be all different, and none of them blank")
        if len(plain) > self.size:
            raise ValueError(f"there are {len(plain)} `texts`, more than `size`, which is {self.size}: raise it")
        return self


class TreesSpec(Spec):
    """Trees: which of a deal's matches begin at the deal, and at which turns the others part from them."""

    first: Matches | Literal["auto"] = "auto"
    """Number of a deal's `group` that begin at the deal; `auto` goes by the entropy of a first one (AEPO)."""
    trigger: Literal["entropy", "random"] = "entropy"
    """Whether turns are branched where entropy is above that of the seat's first reply, or all alike, as a control."""
    chance: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability that a turn is branched whose entropy is that of the first."""
    weight: Annotated[float, Field(ge=0, le=1e6)] = 0.2
    """How much it grows with the reply's entropy, in units of the log of the vocabulary."""
    chain: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Penalty for each turn just before that was branched, too; AEPO's is 0.05."""
    tokens: Annotated[int, Field(ge=1, le=10**6)] = 20
    """Number of a reply's first tokens whose entropies are added up."""


class PatchSpec(Spec):
    """Acts of an expert in place of a learner's wrong ones, so that it plays on from right ones (UI-S1)."""

    expert: PolicyName
    """A scripted policy, such as `oracle`, or path/to/file.py:function; an act that is not its own is wrong."""
    most: Annotated[int, Field(ge=0, le=10**4)] | None = None
    """Patches of one match at most; at the next wrong act it stops. Null is no limit, 0 stops at the first."""


class StopSpec(Spec):
    """Rules by which a match is cut off from which nothing more is to be expected; 0 is never."""

    repeated: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of times in a row that a learner does the same."""
    illegal: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of a learner's illegal acts in a row."""


class HorizonSpec(Spec):
    """Lengths of matches, by a schedule over the iterations (ScalingInter-RL)."""

    turns: Annotated[Chosen, SCHEDULE]
    """A number or a schedule, such as `steps: {values: [6, 13, 20], every: 100}`; rounded, 1 at least."""
    option: Name | None = None
    """Option of the game, such as `max_turns`, that is set to it; null cuts off after so many acts of a learner."""

    def length(self, clock: Clock) -> int:
        """The number of turns in an iteration."""
        return max(1, round(float(self.turns(clock))))


class PlaySpec(Spec):
    """Settings of play: the matches of an iteration."""

    matches: Matches = 16
    """Number of matches of one iteration, all tables together."""
    group: Matches = 1
    """Number of matches that share a deal, for estimators that compare within one; divides `matches`."""
    pool: Matches | None = None
    """Deals are drawn from so many, as tasks of a training set are: all of them, in a random order, before any comes
    again; null is always new ones."""
    resample: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Rounds in which new deals are played in place of those that `credit.select` dropped, until none is missing."""
    branch: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Number of further matches that part from each one, at turns of its learners drawn at random; they come on top."""
    branch_at: Literal["any", "last"] = "any"
    """At which of these turns: `last` is each match's last one alone, so there is one branch at most."""
    trees: TreesSpec | None = None
    """Some of a `group` as branches of others; null is all from the deal on."""
    patch: PatchSpec | None = None
    """An expert's acts in place of learners' wrong ones; null is none."""
    stop: StopSpec | None = None
    """When matches are cut off; null is never."""
    horizon: HorizonSpec | None = None
    """How long matches are in an iteration; null is as long as the game has it."""
    adaptive: AdaptiveSpec | None = None
    """More attempts for deals whose outcomes differ, fewer for solved ones; null is `group` attempts for each."""
    instructions: dict[Name, InstructionsSpec] = {}
    """By role, instructions that compete for its system prompt, by what they earn (INSPO)."""
    ahead: Annotated[int, Field(ge=0, le=16)] = 0
    """Number of iterations whose matches are played while one is learned, by versions that are older by so many at
    most; 0 plays and learns in turns."""
    enough: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of an iteration's deals after whose end it learns; the matches of the others go on and count for the next.
    """
    in_flight: Positive = 64
    """Number of matches that run at once."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of times that a failing match is tried before it is given up, and its deal with it."""
    limits: LimitsSpec = LimitsSpec()
    """Limits of one match."""

    @property
    def deals(self) -> int:
        """Return the number of deals of an iteration."""
        return self.matches // self.group

    @property
    def overlaps(self) -> bool:
        """Return True if matches are played while policies learn."""
        return self.ahead > 0 or self.enough < 1

    @property
    def lag(self) -> int:
        """Number of versions that a reply may be older than the weights that learn from it."""
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
                "`instructions` are drawn by how those of the iteration before did: set ahead to 0 and enough to 1"
            )
        if self.overlaps and self.resample:
            raise ValueError(
                "`resample` waits for what credit drops, which the weights decide that are then learning: "
                "set it to 0, or ahead to 0 and enough to 1"
            )
        if self.enough < 1 and self.branch:
            raise ValueError("a match that goes on while others are learned has no branches: set enough to 1")
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
            raise ValueError("`adaptive` goes by how a deal went before: set `pool`, so that deals come again")
        if self.horizon and self.horizon.option and self.adaptive.cap:
            raise ValueError("`horizon.option` and `adaptive.cap` both set how long matches are: set one to null")
        if self.adaptive.least > self.group:
            raise ValueError(f"adaptive.least is {self.adaptive.least}, more than the {self.group} of a `group`")
        if self.resample or self.branch:
            raise ValueError("`adaptive` plays groups of different sizes: set resample and branch to 0")
        return self


class SourceSpec(Spec):
    """Matches that were played already, to learn from instead of playing."""

    log: Folder
    """Another run's folder: iteration k learns from that run's k-th, and after its last from its first again."""
    iterations: Positive | None = None
    """The last of them; null is the newest that is committed when this run begins, and then noted in its config."""


def apportion(count: int, shares: Sequence[float]) -> list[int]:
    """Return how many of `count` each share gets, by largest remainder (Hamilton's method); ties go to the earlier."""
    quotas = [count * share / sum(shares) for share in shares]
    counts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - quotas[i])
    for i in by_remainder[: count - sum(counts)]:
        counts[i] += 1
    return counts
