"""The recommender: its promises over seeds, that the same is the same, what is paid, and what is refused."""

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import games
from agents.role import BUILT_IN, read_role
from games.base import IllegalAct
from simulators.base import SimulatorFault, is_held_out
from simulators.conformance import check, play, view_of, walk
from simulators.recommender import Recommender, acts, players
from simulators.recommender.page import mark_page
from tests.factories.thorough import count_cases
from tests.simulators.promises import broken, kept_over_many

VARIANTS = [
    {"persona": "mixed"}, {"terse": True, "split": "train"}, {"person": "free"}, {"terse": True, "person": "free"},
    {"person": "render", "persona": "mixed", "split": "test"}, {"ids": "semantic"},
    {"users": 6, "days": 2}, {"candidates": 20, "slate": 5, "illegal": "end", "steepness": 1.0},
    {"days": 1, "pages": 2, "slate": 1, "candidates": 5}, {"catalogue": 60},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS[3:7:3], ids=str)  # all of them over a thousand seeds: below
def test_it_keeps_what_simulators_promise(options):
    assert broken(lambda: Recommender(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_it_does_over_a_thousand_seeds(options, capsys):
    assert kept_over_many(lambda: Recommender(**options), options, capsys, 100 if "users" in options else 1000)


@pytest.mark.slow
def test_scores_are_read_between_chance_and_who_knows():
    """Listening is worth more than deafness, and both lie between the ends of the scale."""
    game, seeds = Recommender(), range(80)
    scores = {name: sum(float(play(game, seed, name)["score"]) for seed in seeds) / len(seeds) for name in game.players}
    assert scores["noop"] == 0 and scores["oracle"] == 1
    assert scores["random"] < 0.25
    assert scores["listening"] > scores["deaf"] + 0.2 and scores["listening"] > scores["popular"] + 0.2


@pytest.mark.parametrize(("topics", "asks"), [(["price"], {"ASK price"}), (["genre"], {"ASK genre"}), ([], set())])
def test_who_hears_of_one_matter_asks_of_that_alone(topics, asks):
    game, asked = Recommender(), set()
    for seed in range(6):
        answer = players.listening_bandit(game, seed, topics=topics)
        game.reset(seed=seed)
        while not game.ended:
            act = answer(view_of(game))
            asked |= {act} if act.startswith("ASK") else set()
            game.step(act)
    assert asked == asks


def test_variety_brings_more_genres_to_a_page():
    game, genres = Recommender(candidates=12), {-1.0: 0, 0.0: 0, 1.0: 0}
    for seed in range(20):
        game.reset(seed=seed)
        called = {name: item for item, name in game.names().items()}
        for variety in genres:
            page = acts.read_act(players.listening_bandit(game, seed, [], variety)(view_of(game)), called, 3, False)
            genres[variety] += len({item.genres[0] for item in game.service.items(page.items)})
    assert genres[-1.0] < genres[0.0] < genres[1.0] <= 60


@pytest.mark.slow
def test_a_leaking_game_is_caught():
    class Leaky(Recommender):
        def private(self, seat):
            return {**super().private(seat), "taste": self.service.visitor.record.taste}

    class Telling(Recommender):
        def private(self, seat):
            favourite = self.shelf.catalogue.genres[self.service.visitor.record.favourite]
            return {**super().private(seat), "note": f"I enjoy {favourite} most."}

    for leak, name in ((Leaky, "secrets"), (Telling, "leaks")):
        findings = {finding.name: finding.ok for finding in check(leak, seeds=4, acts=20)}
        assert findings[name] is False


def test_what_the_user_said_is_no_secret_any_more():
    game = Recommender()
    game.reset(seed=3)
    record = game.service.visitor.record
    assert f"under {record.cap}" in game.hidden()
    game.step("ASK price")
    assert f"under {record.cap}" not in game.hidden()
    assert str(record.cap) in game.observe("recommender")["messages"][-1]["text"]
    assert game.private("recommender")["under"] == record.cap


def test_matches_in_flight_share_one_shelf_and_a_clone_copies_none():
    flights = [Recommender() for _ in range(50)]
    for seed, game in enumerate(flights):
        game.reset(seed=seed)
    assert len({id(game.service.deal.shelf.index) for game in flights}) == 1
    clone = flights[0].clone()
    assert clone.service.deal.shelf is flights[0].service.deal.shelf is flights[0].shelf
    assert clone.service.visitor is not flights[0].service.visitor
    assert len(json.dumps(flights[0].public())) < 100


def test_matches_of_a_deal_are_read_on_one_scale():
    """Measured once: playing the deal through takes most of the time of a reset."""
    one, again, other = (games.make("recommender", candidates=12) for _ in range(3))
    for game, seed in ((one, 11), (again, 11), (other, 12)):
        game.reset(seed=seed)
    assert again.yardstick is one.yardstick and again.service.deal == one.service.deal
    assert other.yardstick is not one.yardstick and other.service.deal != one.service.deal


def test_counterfactuals_are_paired():
    """A question changes the patience it costs, and nothing of what would be clicked."""
    one, two = Recommender(days=1), Recommender(days=1)
    for seed in range(20):
        one.reset(seed=seed)
        two.reset(seed=seed)
        two.step("ASK dislikes")
        one.step("SHOW 1 2 3")
        two.step("SHOW 1 2 3")
        assert one.service.charts[0].seen == two.service.charts[0].seen
        assert one.service.total_joy == two.service.total_joy


def test_every_part_of_the_reward_is_named_and_worth_what_it_says():
    game, parts = Recommender(days=2), set()
    for seed in range(12):
        joy = 0.0
        for _ in walk(game, seed, "listening"):
            rewards = game.infos["recommender"]["rewards"]
            joy += rewards.get("satisfaction", 0.0)
            parts |= rewards.keys()
        totals = game._totals["recommender"]
        report: dict[str, Any] = game.report()
        assert totals["satisfaction"] == pytest.approx(report["joy"])
        assert totals["click"] == pytest.approx(0.1 * report["clicks"])
        assert totals["retention"] == pytest.approx(0.5 * report["returned"] * report["visits"])
        assert totals.get("instruction", 0.0) == pytest.approx(0.1 * report["kept"] * report["instructions"])
    assert {"satisfaction", "click", "retention", "diversity", "instruction"} <= parts


def test_the_log_holds_the_mindset_and_no_view_does():
    game = Recommender()
    for view in walk(game, 5, "popular"):
        assert "patience" not in repr([view.public, view.private, view.messages])
    log = json.loads(str(game.report()["mindset"]))
    assert len(log) == game.report()["pages"]
    assert {"day", "page", "before", "after"} == set(log[0])
    assert log[0]["before"]["satisfaction"] == 0.5 and log[0]["after"] != log[0]["before"]


def test_low_patience_speaks_once_a_visit_and_truly():
    game, said = Recommender(days=1, pages=20, persona="terse"), 0
    for seed in range(60):
        lines = [m.text for view in walk(game, seed, "random") for m in view.messages if m.sender == "user"]
        record, genres = game.service.audience[0].record, game.shelf.catalogue.genres
        told = [line for line in lines if line.startswith(("More", "No ", "At most"))]
        assert len(told) <= 1 + record.volunteers
        for line in told:
            said += 1
            if line.startswith("At most"):
                assert line == f"At most {record.cap}."
            else:
                liked = record.affinity[genres.index(line.split(" ", 1)[1].rstrip("."))]
                assert bool(liked) == line.startswith("More")
    assert said > 30


def test_an_instruction_that_is_kept_is_counted():
    game = Recommender(days=1, pages=20)
    share = {}
    for player in ("listening", "random"):
        reports: list[dict[str, Any]] = [play(game, seed, player) for seed in range(40)]
        kept = sum(report["kept"] * report["instructions"] for report in reports)
        share[player] = kept / sum(report["instructions"] for report in reports)
    assert share["listening"] > share["random"] + 0.2


def test_a_lie_about_a_page_costs_trust_and_the_truth_gains_it():
    game = Recommender()
    game.reset(seed=1)
    items = game.service.items(game.service.candidates)
    genres = game.shelf.catalogue.genres
    there, elsewhere = genres[items[0].genres[0]], next(g for n, g in enumerate(genres) if n not in items[0].genres)
    honest, liar = game.clone(), game.clone()
    honest.step(f"SHOW 1 | some {there} for you")
    liar.step(f"SHOW 1 | some {elsewhere} for you")
    assert honest.service.audience[0].mindset.trust == pytest.approx(0.55)
    assert liar.service.audience[0].mindset.trust == pytest.approx(0.3)


def test_find_brings_what_is_looked_for_and_at_most_twice():
    game = Recommender()
    game.reset(seed=2)
    game.step("FIND haunting ghost story")
    genres = game.shelf.catalogue.genres
    found = game.service.items(game.service.candidates)
    assert sum(genres.index("horror") in item.genres for item in found) >= 7
    game.step("FIND sonnets")
    game.step("FIND farce")
    assert game.infos["recommender"]["valid"] is False


def test_a_search_leaves_as_many_to_choose_from():
    game = Recommender(catalogue=20, days=5, pages=20, candidates=15, slate=5)
    game.reset(seed=0)
    while len(game.service.chart.seen) < 12:
        game.step("SHOW 1 2 3 4 5")
        assert not game.ended
    seen = set(game.service.chart.seen)
    game.step("FIND sonnets")
    chosen = game.service.candidates
    assert len(set(chosen)) == 15 and not {*chosen[: 20 - len(seen)]} & seen
    assert len(game.legal("recommender") or [1]) > 0
    game.step("SHOW 11 12 13 14 15")
    assert game.infos["recommender"]["valid"]


def test_semantic_ids_name_any_item_of_the_catalogue():
    game = Recommender(ids="semantic", catalogue=200)
    game.reset(seed=0)
    outside = next(item for item in range(200) if item not in game.service.candidates)
    code = game.shelf.codes[outside]
    assert game.private("recommender")["candidates"][0].split(" ")[0] == game.shelf.codes[game.service.candidates[0]]
    game.step(f"SHOW {code}")
    assert game.infos["recommender"]["valid"] and outside in game.service.charts[0].seen


def test_train_and_test_share_no_user():
    for split in ("train", "test"):
        game = Recommender(split=split, users=3)
        for seed in range(10):
            game.reset(seed=seed)
            for record in game.service.deal.records:
                assert is_held_out(f"recommender:{record.entity}") == (split == "test")


@pytest.mark.slow
def test_where_knowing_never_pays_is_a_fault_and_no_score():
    game = Recommender(days=1, pages=1, slate=5, candidates=5)  # all that there is, is shown
    with pytest.raises(SimulatorFault, match="it helps to know"):
        for seed in range(30):
            game.reset(seed=seed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"catalogue": 5}, "catalogue must be a whole number from 20 to 100000, not 5"),
        ({"catalogue": "nowhere.csv"}, "nowhere.csv: the catalogue cannot be read"),
        ({"embedding": "bert"}, 'embedding must be "hashed" or "minilm"'),
        ({"ids": "names"}, 'ids must be "numbers" or "semantic"'),
        ({"person": "llm"}, "person must be one of script, render, free"),
        ({"users": 0}, "users must be a whole number from 1"),
        ({"slate": 4, "candidates": 3}, "candidates must be a whole number from 4"),
        ({"terse": True, "candidates": 12}, "candidates must be a whole number from 3 to 9"),
        ({"terse": True, "ids": "semantic"}, "ids must be numbers where terse is true"),
        ({"steepness": 0}, "steepness must be a number from 0.1"),
        ({"persona": "mistaken"}, "persona must be one of cooperative, terse, forgetful, impatient"),
        ({"ratings": "none.csv"}, "none.csv: the ratings cannot be read"),
        ({"ratings": "~nosuch/x.csv"}, "~nosuch/x.csv: the ratings cannot be read (no user of that name)"),
        ({"catalogue": "~nosuch/x.csv"}, "~nosuch/x.csv: the catalogue cannot be read (no user of that name)"),
        ({"ratings": 5}, "ratings must be the name of a CSV file, not 5"),
        ({"ratings": ["a"]}, "ratings must be the name of a CSV file, not ['a']"),
        ({"catalogue": ["a"]}, "catalogue must be a whole number from 20 to 100000, not ['a']"),
    ],
)
def test_bad_options_get_one_clear_line(options, words):
    with pytest.raises(ValueError) as refused:
        Recommender(**options)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@given(st.text(max_size=60))
@settings(max_examples=count_cases(70, 300), deadline=None)
def test_any_text_is_an_act_or_refused(text):
    names = {str(n): n for n in range(1, 10)}
    for terse in (False, True):
        try:
            act = acts.read_act(text, names, 3, terse)
        except IllegalAct:
            continue
        assert act.kind in ("show", "ask", "find") and (act.items or act.words)


def test_acts_are_read_as_they_are_written():
    names = {n: str(n) for n in range(1, 10)}
    called = {name: item for item, name in names.items()}
    rng = random.Random(0)
    for terse in (False, True):
        for _ in range(50):
            act = acts.Act("show", tuple(rng.sample(range(1, 10), 3)), "" if terse else rng.choice(["", "a farce"]))
            assert acts.read_act(acts.format_act(act, names, terse), called, 3, terse) == act
        for topic in ("genre", "price", "dislikes"):
            act = acts.Act("ask", words=topic)
            assert acts.read_act(acts.format_act(act, names, terse), called, 3, terse) == act


def test_importing_it_loads_nothing_heavy():
    heavy = {"torch", "faiss", "sentence_transformers", "networkx", "sklearn"}
    code = f"import sys, simulators.recommender; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_the_roles_show_what_there_is():
    game = Recommender(terse=True)
    game.reset(seed=0)
    view: Any = view_of(game)
    assert read_role(BUILT_IN / "nano_recommender.yaml").render_turn(view, first=True) == mark_page(game.service)
    assert len(mark_page(game.service).split(" ")[1]) == 4 * 9
    game.step("P")
    told, listed = mark_page(game.service).split(" ")
    cap, items = game.service.visitor.record.cap, game.service.items(game.service.candidates)
    assert "P" in told and [listed[4 * n] == "x" for n in range(9)] == [item.price > cap for item in items]
    wordy = games.make("recommender") if "recommender" in games.loading.find_entry_points() else Recommender()
    wordy.reset(seed=0)
    view = view_of(wordy)
    turn = read_role(BUILT_IN / "recommender.yaml").render_turn(view, first=True)
    assert all(line in turn for line in wordy.private("recommender")["candidates"])


def test_a_seed_deals_the_same_users_whatever_their_persona():
    deals = []
    for persona in ("cooperative", "terse", "forgetful", "impatient"):
        game = Recommender(persona=persona, split="test")
        game.reset(seed=11)
        record, visitor = game.service.deal.records[0], game.service.visitor
        deals.append((record.taste, record.cap, record.patience, game.service.deal.key, game.service.candidates))
        assert visitor.mindset.patience == record.patience * (0.75 if persona == "impatient" else 1)
    assert len(set(deals)) == 1


def test_the_order_of_a_page_does_not_matter():
    one = Recommender()
    one.reset(seed=6)
    two = one.clone()
    while not one.ended:
        one.step("SHOW 3 9 4")
        two.step("SHOW 9 4 3")
        assert two.service.candidates == one.service.candidates and two.service.total_joy == one.service.total_joy
