"""Play that is shown to a learner: by brains at its own tables, or by whoever did best in an earlier run.

Either way it comes in the words and tokens of the policy that is to learn it, under its roles: brains' acts are put
into the role's reply format, and matches of a log are played again from their deal, each reply as its text.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from agents.players.brains import make_brain, talking
from agents.players.model import BrainPlayer, ChatPlayer, demonstrator, recalled, spoken
from agents.players.simple import Recital
from arena.credit.credited import Credited
from arena.credit.samples import samples_of
from arena.errors import ConfigError, StoreError
from arena.learn.samples import Sample
from arena.learn.settings import ShownSpec
from arena.parts.chance import generator
from arena.parts.schedules import Clock
from arena.play.contenders import BrainContender, Contender, ModelContender, chance, number, play_one
from arena.play.lineup import Lineup, seatings
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.play.orchestrator import play_all
from arena.play.plans import demonstration_plans
from arena.play.tables import Table
from arena.records import MatchRecord, Trajectory, trajectories
from arena.store.contents import check_newest
from arena.store.reader import RunReader
from games.contracts import Game, MatchId


@dataclass(frozen=True)
class _Demonstrator(ModelContender):
    """A brain that plays in the words and tokens of the policy that is to imitate it."""

    brain: str

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """A player whose replies the brain writes, in the role's format, with words where the game lets it talk."""
        policy, role = self.cast(plan.game, seat)
        place = chance(seed, plan, seat)
        brain = make_brain(talking(self.brain, game), number(place), game)
        writer = demonstrator(brain, role, policy.frame)
        return ChatPlayer(role, policy.frame, policy.name, f"{plan.id}/{seat}", place, writer)


@dataclass(frozen=True)
class _Kept:
    """A match of a log, and the seat in it that is worth imitating."""

    plan: MatchPlan
    seat: str
    row: dict[str, Any]


class Demonstrations:
    """Where a run's shown samples come from; the same ones whenever the same iteration is asked for."""

    def __init__(self, shown: ShownSpec | None, lineup: Lineup, learners: Iterable[str]) -> None:
        """ConfigError when a run that is to be shown has nothing for one of the learners."""
        self.spec, self.lineup = shown, lineup
        self._best = {learner: self._kept(learner) for learner in learners}

    async def samples(self, learner: str, clock: Clock) -> list[Sample]:
        """What `learn.shown` has for a policy in this iteration; none where its weight is 0."""
        if self.spec is None or not self.spec.weight(clock):
            return []
        if self.spec.brains:
            return await self.by_brains(learner, clock.iteration, self.spec.brains, self.spec.matches)
        kept, rng = self._best[learner], generator(self.lineup.seed, clock.iteration, "shown", learner)
        drawn = [kept[i] for i in rng.permutation(len(kept))[: self.spec.matches].tolist()]
        return self._samples(await self._again(drawn))

    async def by_brains(
        self,
        learner: str,
        k: int,
        brains: Sequence[str],
        matches: int,
        against: Sequence[str] = (),
        ended: Callable[[], None] = lambda: None,
    ) -> list[Sample]:
        """Matches between brains, or of one of them `against` others; iteration 0 is the warm start.

        `ended` hears of every match.
        """
        tables, policies = self.lineup.tables, self.lineup.policies
        plans = demonstration_plans(self.lineup.seed, k, learner, matches, tables, policies)
        rng = generator(self.lineup.seed, k, "demonstrations")
        records = await self._demonstrated(plans, learner, brains, against, rng, ended)
        return self._samples([t for record in records for t in trajectories(record) if t.policy == learner])

    async def _demonstrated(
        self,
        plans: list[MatchPlan],
        learner: str,
        brains: Sequence[str],
        against: Sequence[str],
        rng: np.random.Generator,
        ended: Callable[[], None],
    ) -> list[MatchRecord]:
        """Matches between brains, drawn at random for each seat that is not one's already."""

        def drawn(names: Sequence[str]) -> str:
            return names[int(rng.integers(len(names)))]

        async def play(plan: MatchPlan) -> MatchRecord:
            table, contenders = self.lineup.table(plan), dict[str, Contender]()
            own = [seat for seat, seating in plan.seats.items() if seating.policy == learner]
            shown = [drawn(own)] if against else list(plan.seats)
            for seat, seating in plan.seats.items():
                contender: Contender = self.lineup.contender(seating.policy, seat, table)
                if not isinstance(contender, BrainContender):
                    brain = drawn(brains if seat in shown else against)
                    if isinstance(contender, ModelContender) and seat in shown:
                        contender = _Demonstrator(contender.name, contender.engine, contender.cast, brain)
                    else:
                        contender = BrainContender(talking(brain, table.make_game()), seating.role)
                contenders[seat] = contender
            return await play_one(plan, contenders, self.lineup.seed, self.lineup.limits)

        return await play_all(plans, play, lambda record: ended(), 1, 1)

    async def _retold(self, kept: _Kept) -> MatchRecord:
        """A match of a log again, with the replies that it has: its seat in its policy's tokens, the others by acts."""
        table, turns = self.lineup.table(kept.plan), kept.row["turns"]
        role, policy = table.roles[kept.seat], self.lineup.policies[kept.plan.seats[kept.seat].policy]
        brain = kept.row["seats"][kept.seat]["kind"] == "brain"
        replies = {
            turn["index"]: spoken(
                policy.frame,
                role.write(turn["action"]) if brain else turn["raw"],
                "length" if turn["finish"] == "length" else "stop",
            )
            for turn in turns
            if turn["seat"] == kept.seat
        }
        acts = Recital({turn["index"]: turn["action"] for turn in turns})
        players: dict[str, SeatedPlayer] = {seat: BrainPlayer(acts) for seat in kept.plan.seats}
        key = f"{kept.plan.id}/{kept.seat}"
        players[kept.seat] = ChatPlayer(role, policy.frame, policy.name, key, (), recalled(replies))
        return await play_match(kept.plan, table.make_game(), players, Limits())

    async def _again(self, drawn: Sequence[_Kept]) -> list[Trajectory]:
        replayed = []
        for kept in drawn:
            record = await self._retold(kept)
            acts, before = [turn.action for turn in record.turns], [turn["action"] for turn in kept.row["turns"]]
            if (acts, record.payoffs) != (before, kept.row["payoffs"]):
                raise ConfigError(
                    f"learn.shown.run: match {record.id} there comes out otherwise when its replies are played again "
                    f"({record.reason or 'other acts or payoffs'}): its game or a reply format has changed since; "
                    "show a run with those of this one"
                )
            replayed += [t for t in trajectories(record) if t.seat == kept.seat]
        return replayed

    def _kept(self, learner: str) -> list[_Kept]:
        """The matches to draw from for a learner."""
        kept = []
        for table, seat, row in _best_matches(self.spec, self.lineup.tables, learner):
            seats = seatings(table, table.holders, self.lineup.policies)
            game = table.game
            plan = MatchPlan(
                MatchId.parse(row["id"]), game.name, dict(game.options), row["seed"], seats, source="shown"
            )
            kept.append(_Kept(plan, seat, row))
        return kept

    def _samples(self, shown: Sequence[Trajectory]) -> list[Sample]:
        temperatures = {r.role: r.sampling.temperature for table in self.lineup.tables for r in table.roles.values()}
        credited = [Credited(t, np.zeros(len(t.turns)), np.ones(len(t.turns))) for t in shown]
        return [replace(sample, source="shown") for sample in samples_of(credited, temperatures)]


def check_shown(shown: ShownSpec | None, tables: Sequence[Table], learners: Iterable[str]) -> None:
    """ConfigError when a run that is to be shown cannot be read or has nothing for one of the learners."""
    for learner in learners:
        _best_matches(shown, tables, learner)


def _best_matches(
    spec: ShownSpec | None, tables: Sequence[Table], learner: str
) -> list[tuple[Table, str, dict[str, Any]]]:
    """Of each of the learner's seats at each table, the matches of `learn.shown.run` that paid that seat best."""
    if spec is None or spec.run is None:
        return []
    rows, best = _finished(spec.run), []
    for table in tables:
        same = [row for row in rows if (row["game"], row["options"]) == (table.game.name, table.game.options)]
        for seat in (seat for seat, holder in table.holders.items() if holder == learner):
            ranked = sorted(same, key=lambda row, seat=seat: (-row["payoffs"][seat], row["id"]))  # type: ignore[misc]
            best += [(table, seat, row) for row in ranked[: ceil(spec.best * len(same))]]
    if not best:
        games = " or ".join(sorted({f"{t.game.name} {t.game.options or ''}".strip() for t in tables}))
        raise ConfigError(f"learn.shown.run: {spec.run} has no finished match of {games} to show '{learner}'")
    return best


def _finished(run: str) -> list[dict[str, Any]]:
    """The finished matches of a run's log."""
    try:
        check_newest(Path(run))
        return [row for row in RunReader(run).matches(streams=False) if row["status"] == "finished"]
    except StoreError as error:
        raise ConfigError(f"learn.shown.run: {error}") from None
