"""Stragglers: an update does not wait for the last matches, and nothing is lost, doubled or length-biased."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.cli.loop import wait
from arena.play.match import MatchPlan
from arena.play.settings import PlaySpec
from arena.play.stragglers import SelectLogged, Stragglers, plan_from_row, plan_to_row
from arena.records import Failure, MatchRecord, Seating
from arena.store.run import RunFolder
from games.contracts import MatchId
from tests.factories.labs import RecordingWatcher, make_warm_experiment, open_lab, reopen_lab, run_lab, stop_lab
from tests.factories.records import make_match_record

SEATS = {"one": Seating("role", "shared", 0, True, "model")}


def make_plans(k: int, count: int, group: int = 1) -> list[MatchPlan]:
    """Return plans in which a deal's number in the run is its seed."""
    return [
        MatchPlan(
            identity=MatchId(k, i),
            game="game",
            options={},
            seed=1000 * k + i // group,
            seats=SEATS,
            draws=(i,),
            group=i // group if group > 1 else -1,
        )
        for i in range(count)
    ]


class FakePlay:
    """Play in which long matches take many loop passes and pay 1, and short ones pay 0."""

    def __init__(self, long: float = 0.3, fails: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.long, self.fails = long, fails
        self.log: list[MatchRecord] = []
        self.steps = 0

    def get_payoff(self, plan: MatchPlan) -> float:
        return float(np.random.default_rng((plan.seed, *plan.draws)).random() < self.long)

    async def play(self, plans: list[MatchPlan], to_log: SelectLogged) -> None:
        async def play_one(plan: MatchPlan) -> None:
            for attempt in range(2):
                for _ in range(40 + 5 * plan.identity.deal if self.get_payoff(plan) else 2):
                    await asyncio.sleep(0)
                identity = replace(plan.identity, attempt=attempt)
                failed = str(identity) in self.fails
                record = make_match_record(
                    identity=identity, seed=plan.seed, seats=SEATS, status="failed" if failed else "finished",
                    reason="broke" * failed, payoffs={"one": self.get_payoff(plan)}, group=plan.group,
                    failure=Failure(kind="game", given_up=attempt == 1) if failed else None,
                )  # fmt: skip
                self.log += to_log(record)
                if not failed:
                    return

        async with asyncio.TaskGroup() as group:
            for plan in plans:
                group.create_task(play_one(plan))


async def run_updates(game: FakePlay, rule: PlaySpec, iterations: int) -> list[list[MatchRecord]]:
    """Return the records that each update learned from."""
    stragglers = Stragglers(rule, iterations, game.play)
    updates = []
    for k in range(1, iterations + 1):
        records, _ = await stragglers.matches(k, make_plans(k, rule.matches, rule.group))
        updates.append(records)
    await stragglers.close()
    return updates


def test_long_matches_are_learned_as_often_as_short_ones() -> None:
    """The mean payoff of learned matches equals that of all matches; without stragglers it would not."""
    rule, iterations = PlaySpec(matches=128, enough=0.95, attempts=2), 20
    updates = asyncio.run(run_updates(FakePlay(0.05), rule, iterations))
    payoffs = [float(FakePlay(0.05).get_payoff(p)) for k in range(1, iterations + 1) for p in make_plans(k, 128)]
    assert np.mean([r.payoffs["one"] for update in updates for r in update]) == np.mean(payoffs)
    own = [r.payoffs["one"] for k, update in enumerate(updates, 1) for r in update if r.identity.deal < 128]
    assert np.mean(own) < 0.6 * np.mean(payoffs), "without the stragglers short matches would be learned"
    means = [np.mean([r.payoffs["one"] for r in update]) for update in updates]
    assert np.mean(means) > 0.95 * np.mean(payoffs), "nor do updates of unequal sizes hide it"


def test_every_match_is_learned_from_once_and_one_update_later_at_most() -> None:
    rule, iterations = PlaySpec(matches=20, enough=0.75, attempts=2), 6
    game = FakePlay()
    updates = asyncio.run(run_updates(game, rule, iterations))
    seeds = [r.seed for update in updates for r in update]
    assert sorted(seeds) == sorted(p.seed for k in range(1, 7) for p in make_plans(k, 20))
    for k, update in enumerate(updates, 1):
        assert {r.seed // 1000 for r in update} <= {k - 1, k} and len(update) >= 15
        assert all(r.iteration == k for r in update), "logged with the iteration that learns from it"
        late = {r.identity.deal - 20: r.seed % 1000 for r in update if r.seed // 1000 == k - 1}
        assert all(deal == seed for deal, seed in late.items())
    assert any(r.seed // 1000 < k for k, update in enumerate(updates, 1) for r in update)
    assert [r.id for r in game.log] and sorted(r.id for r in game.log) == sorted(r.id for u in updates for r in u)


def test_matches_of_a_deal_stay_together() -> None:
    """Credit compares them, so a deal waits for its longest match."""
    rule = PlaySpec(matches=40, group=4, enough=0.5, attempts=2)
    updates = asyncio.run(run_updates(FakePlay(long=0.15), rule, 5))
    for update in updates:
        groups: dict[int, list[int]] = {}
        for record in update:
            groups.setdefault(record.group, []).append(record.seed)
        assert all(len(seeds) == 4 and len(set(seeds)) == 1 for seeds in groups.values())
    assert sum(len(update) for update in updates) == 200
    assert any(record.group >= 10 for update in updates for record in update), "some came over, as groups of their own"


def test_failed_match_is_replayed_and_a_given_up_one_delays_nobody() -> None:
    rule, game = PlaySpec(matches=20, enough=0.75, attempts=2), FakePlay()
    long, short = (
        [p for p in make_plans(1, 20) if game.get_payoff(p)][-1],
        next(p for p in make_plans(1, 20) if not game.get_payoff(p)),
    )
    straggler = f"0002-{20 + long.identity.deal:04d}"
    game.fails = {long.id, short.id, f"{short.id}-r1"}
    updates = asyncio.run(run_updates(game, rule, 3))
    assert f"{straggler}-r1" in {r.id for r in updates[1]}
    assert short.seed not in {r.seed for update in updates for r in update} and sum(map(len, updates)) == 59
    failed = [r.id for r in game.log if r.status == "failed"]
    assert {short.id, f"{short.id}-r1", straggler} == set(failed)


def test_an_error_of_play_reaches_the_update_that_waits() -> None:
    async def fail(plans: list[MatchPlan], to_log: SelectLogged) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk"):
        asyncio.run(Stragglers(PlaySpec(enough=0.5), 3, fail).matches(1, make_plans(1, 16)))


def test_a_plan_survives_the_checkpoint() -> None:
    (plan, *_) = make_plans(3, 4, 2)
    assert plan_from_row(plan_to_row(plan)) == plan


def test_records_are_logged_before_they_are_handed_out(warm: str, tmp_path: Path) -> None:
    """Running matches share the batch, but the iteration is sealed soon."""
    lab = open_lab(tmp_path / "run", make_config(warm))

    async def take_first() -> tuple[list[str], list[str]]:
        records = (await lab.parts.source.matches(1)).records
        logged = [row["id"] for row in RunFolder.open(tmp_path / "run").reader.log.read(1)]
        await lab.close()
        return sorted(record.id for record in records), sorted(logged)

    updates, logged = wait(take_first())
    assert updates == logged and 4 <= len(updates) < 8


# -- in a run ----------------------------------------------------------------------------------------------


def make_config(warm: str, *more: str) -> Any:
    return make_warm_experiment(warm, "iterations=3", "play.matches=8", "play.enough=0.5", "checkpoint.keep=9", *more)


def assert_all_learned_once(folder: Path) -> None:
    """Assert that all deals of the run's three iterations are learned from, each once."""
    run = RunFolder.open(folder)
    rows = [row for row in run.reader.matches() if row["status"] == "finished"]
    assert len(rows) == len({row["id"] for row in rows}) == len({row["seed"] for row in rows}) == 24
    credited = [m for k in (1, 2, 3) for m in dict.fromkeys(row.match for row in run.reader.credit(k))]
    assert sorted(credited) == sorted(row["id"] for row in rows)


def test_run_takes_enough_and_learns_from_all(warm: str, tmp_path: Path) -> None:
    watcher = RecordingWatcher()
    run_lab(tmp_path / "run", make_config(warm), watcher)
    assert_all_learned_once(tmp_path / "run")
    assert {row["matches"] for row in watcher.rows[:1]} != {8}, "the first update did not wait for all"
    assert max(row["learn"]["shared"]["most_lag"] for row in watcher.rows) <= 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("ahead", "enough"), [(0, 0.5), (1, 0.5), (1, 1.0)])
def test_killed_run_replays_its_stragglers(warm: str, tmp_path: Path, ahead: int, enough: float) -> None:
    """Also if it is resumed with `play.enough=1`."""
    folder, config = tmp_path / "run", make_config(warm, f"play.ahead={ahead}")
    stop_lab(folder, config, "phase", (2, "learn"))
    resumed_lab = reopen_lab(folder, make_config(warm, f"play.ahead={ahead}", f"play.enough={enough}"))
    played = RunFolder.open(folder).reader.log.read(1)
    assert resumed_lab.done == 1 and 0 < len(resumed_lab.parts.play.late) == 8 - len(played)
    wait(resumed_lab.run())
    assert_all_learned_once(folder)
