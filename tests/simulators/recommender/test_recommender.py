"""The recommender: conformance over seeds, reproducibility, rewards, and refusals."""

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.role import BUILT_IN, read_role
from games.base import IllegalAct
from simulators.base import SimulatorFault, is_held_out
from simulators.conformance import check, play, view_of, walk
from simulators.recommender import Recommender, acts, players
from simulators.recommender.page import mark_page
from tests.factories.thorough import count_cases
from tests.simulators.promises import find_failed_checks, passes_over_many_seeds

VARIANTS = [
    {"persona": "mixed"}, {"terse": True, "split": "train"}, {"person": "free"}, {"terse": True, "person": "free"},
    {"person": "render", "persona": "mixed", "split": "test"}, {"ids": "semantic"},
    {"users": 6, "days": 2}, {"candidates": 20, "slate": 5, "illegal": "end", "steepness": 1.0},
    {"days": 1, "pages": 2, "slate": 1, "candidates": 5}, {"catalogue": 60},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS[3:7:3], ids=str)  # the next test runs all variants
def test_passes_the_conformance_kit(options):
    assert find_failed_checks(lambda: Recommender(**options), seeds=3, acts=60) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_passes_the_conformance_kit_over_many_seeds(options, capsys):
    assert passes_over_many_seeds(lambda: Recommender(**options), options, capsys, 100 if "users" in options else 1000)


@pytest.mark.slow
def test_scores_of_scripted_players_are_ordered():
    """Listening earns more than ignoring the user; noop and oracle mark the ends of the scale."""
    game, seeds = Recommender(), range(80)
    scores = {name: sum(float(play(game, seed, name)["score"]) for seed in seeds) / len(seeds) for name in game.players}
    assert scores["noop"] == 0 and scores["oracle"] == 1
    assert scores["random"] < 0.25
    assert scores["listening"] > scores["deaf"] + 0.2 and scores["listening"] > scores["popular"] + 0.2


@pytest.mark.parametrize(
    ("topics", "expected_acts"), [(["price"], {"ASK price"}), (["genre"], {"ASK genre"}), ([], set())]
)
def test_listening_bandit_asks_only_about_its_topics(topics, expected_acts):
    game, ask_acts = Recommender(), set()
    for seed in range(6):
        answer = players.listening_bandit(game, seed, topics=topics)
        game.reset(seed=seed)
        while not game.ended:
            act = answer(view_of(game))
            ask_acts |= {act} if act.startswith("ASK") else set()
            game.step(act)
    assert ask_acts == expected_acts


def test_variety_increases_the_genres_on_a_page():
    game, genres = Recommender(candidates=12), {-1.0: 0, 0.0: 0, 1.0: 0}
    for seed in range(20):
        game.reset(seed=seed)
        ids_by_name = {name: item for item, name in game.names().items()}
        for variety in genres:
            page = acts.read_act(
                players.listening_bandit(game, seed, [], variety)(view_of(game)), ids_by_name, 3, False
            )
            genres[variety] += len({item.genres[0] for item in game.service.items(page.items)})
    assert genres[-1.0] < genres[0.0] < genres[1.0] <= 60


@pytest.mark.slow
def test_conformance_kit_finds_leaks():
    class LeakyTaste(Recommender):
        def private(self, seat):
            return {**super().private(seat), "taste": self.service.visitor.record.taste}

    class LeakyFavourite(Recommender):
        def private(self, seat):
            favourite = self.shelf.catalogue.genres[self.service.visitor.record.favourite]
            return {**super().private(seat), "note": f"I enjoy {favourite} most."}

    for leak, name in ((LeakyTaste, "secrets"), (LeakyFavourite, "leaks")):
        findings = {finding.name: finding.ok for finding in check(leak, seeds=4, acts=20)}
        assert findings[name] is False


def test_stated_facts_are_no_longer_secret():
    game = Recommender()
    game.reset(seed=3)
    record = game.service.visitor.record
    assert f"under {record.cap}" in game.hidden()
    game.step("ASK price")
    assert f"under {record.cap}" not in game.hidden()
    assert str(record.cap) in game.observe("recommender")["messages"][-1]["text"]
    assert game.private("recommender")["under"] == record.cap


def test_matches_and_clones_share_one_shelf():
    matches = [Recommender() for _ in range(50)]
    for seed, game in enumerate(matches):
        game.reset(seed=seed)
    assert len({id(game.service.deal.shelf.index) for game in matches}) == 1
    clone = matches[0].clone()
    assert clone.service.deal.shelf is matches[0].service.deal.shelf is matches[0].shelf
    assert clone.service.visitor is not matches[0].service.visitor
    assert len(json.dumps(matches[0].public())) < 100


def test_equal_deals_share_one_yardstick():
    """The yardstick is cached, as computing it takes most of the time of a reset."""
    first, replayed, other = (Recommender(candidates=12) for _ in range(3))
    for game, seed in ((first, 11), (replayed, 11), (other, 12)):
        game.reset(seed=seed)
    assert replayed.yardstick is first.yardstick and replayed.service.deal == first.service.deal
    assert other.yardstick is not first.yardstick and other.service.deal != first.service.deal


def test_counterfactuals_are_paired():
    """A question costs patience but does not change which items would be clicked."""
    plain, asking = Recommender(days=1), Recommender(days=1)
    for seed in range(20):
        plain.reset(seed=seed)
        asking.reset(seed=seed)
        asking.step("ASK dislikes")
        plain.step("SHOW 1 2 3")
        asking.step("SHOW 1 2 3")
        assert plain.service.histories[0].seen == asking.service.histories[0].seen
        assert plain.service.total_joy == asking.service.total_joy


def test_reward_parts_match_the_report():
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


def test_mindset_is_in_the_log_but_in_no_view():
    game = Recommender()
    for view in walk(game, 5, "popular"):
        assert "patience" not in repr([view.public, view.private, view.messages])
    log = json.loads(str(game.report()["mindset"]))
    assert len(log) == game.report()["pages"]
    assert {"day", "page", "before", "after"} == set(log[0])
    assert log[0]["before"]["satisfaction"] == 0.5 and log[0]["after"] != log[0]["before"]


def test_impatient_user_makes_at_most_one_true_statement():
    game, statement_count = Recommender(days=1, pages=20, persona="terse"), 0
    for seed in range(60):
        lines = [m.text for view in walk(game, seed, "random") for m in view.messages if m.sender == "user"]
        record, genres = game.service.audience[0].record, game.shelf.catalogue.genres
        statements = [line for line in lines if line.startswith(("More", "No ", "At most"))]
        assert len(statements) <= 1 + record.volunteers
        for line in statements:
            statement_count += 1
            if line.startswith("At most"):
                assert line == f"At most {record.cap}."
            else:
                liked = record.affinity[genres.index(line.split(" ", 1)[1].rstrip("."))]
                assert bool(liked) == line.startswith("More")
    assert statement_count > 30


def test_followed_instructions_are_counted():
    game = Recommender(days=1, pages=20)
    kept_share = {}
    for player in ("listening", "random"):
        reports: list[dict[str, Any]] = [play(game, seed, player) for seed in range(40)]
        followed = sum(report["kept"] * report["instructions"] for report in reports)
        kept_share[player] = followed / sum(report["instructions"] for report in reports)
    assert kept_share["listening"] > kept_share["random"] + 0.2


def test_lies_about_a_page_cost_trust_and_truth_gains_it():
    game = Recommender()
    game.reset(seed=1)
    items = game.service.items(game.service.candidates)
    genres = game.shelf.catalogue.genres
    shown_genre, other_genre = (
        genres[items[0].genres[0]],
        next(g for n, g in enumerate(genres) if n not in items[0].genres),
    )
    honest, liar = game.clone(), game.clone()
    honest.step(f"SHOW 1 | some {shown_genre} for you")
    liar.step(f"SHOW 1 | some {other_genre} for you")
    assert honest.service.audience[0].mindset.trust == pytest.approx(0.55)
    assert liar.service.audience[0].mindset.trust == pytest.approx(0.3)


def test_find_adds_matching_items_at_most_twice():
    game = Recommender()
    game.reset(seed=2)
    game.step("FIND haunting ghost story")
    genres = game.shelf.catalogue.genres
    candidates = game.service.items(game.service.candidates)
    assert sum(genres.index("horror") in item.genres for item in candidates) >= 7
    game.step("FIND sonnets")
    game.step("FIND farce")
    assert game.infos["recommender"]["valid"] is False


def test_find_keeps_the_number_of_candidates():
    game = Recommender(catalogue=20, days=5, pages=20, candidates=15, slate=5)
    game.reset(seed=0)
    while len(game.service.history.seen) < 12:
        game.step("SHOW 1 2 3 4 5")
        assert not game.ended
    seen_items = set(game.service.history.seen)
    game.step("FIND sonnets")
    chosen = game.service.candidates
    assert len(set(chosen)) == 15 and not {*chosen[: 20 - len(seen_items)]} & seen_items
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
    assert game.infos["recommender"]["valid"] and outside in game.service.histories[0].seen


def test_train_and_test_share_no_user():
    for split in ("train", "test"):
        game = Recommender(split=split, users=3)
        for seed in range(10):
            game.reset(seed=seed)
            for record in game.service.deal.records:
                assert is_held_out(f"recommender:{record.entity}") == (split == "test")


@pytest.mark.slow
def test_options_that_make_knowledge_useless_are_a_fault():
    game = Recommender(days=1, pages=1, slate=5, candidates=5)  # every candidate is shown
    with pytest.raises(SimulatorFault, match="knowing the users gains too little"):
        for seed in range(30):
            game.reset(seed=seed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"catalogue": 5}, "catalogue must be a whole number from 20 to 100000, not 5"),
        ({"catalogue": "nowhere.csv"}, "nowhere.csv: the catalogue cannot be read"),
        ({"embedding": "bert"}, 'embedding must be "hashed" or "minilm"'),
        ({"ids": "names"}, 'ids must be "numbers" or "semantic"'),
        ({"person": "llm"}, 'person must be "script" or "render" or "free"'),
        ({"users": 0}, "users must be a whole number from 1"),
        ({"slate": 4, "candidates": 3}, "candidates must be a whole number from 4"),
        ({"terse": True, "candidates": 12}, "candidates must be a whole number from 3 to 9"),
        ({"terse": True, "ids": "semantic"}, 'ids must be "numbers" if terse is true'),
        ({"steepness": 0}, "steepness must be a number from 0.1"),
        ({"persona": "mistaken"}, 'persona must be "cooperative" or "terse" or "forgetful" or "impatient"'),
        ({"ratings": "none.csv"}, "none.csv: the ratings cannot be read"),
        ({"ratings": "~nosuch/x.csv"}, "~nosuch/x.csv: the ratings cannot be read (No such file"),
        ({"catalogue": "~nosuch/x.csv"}, "~nosuch/x.csv: the catalogue cannot be read (No such file"),
        ({"ratings": 5}, "ratings must be the name of a CSV file, not 5"),
        ({"ratings": ["a"]}, "ratings must be the name of a CSV file, not ['a']"),
        ({"catalogue": ["a"]}, "catalogue must be a whole number from 20 to 100000, not ['a']"),
    ],
)
def test_refuses_invalid_options_in_one_line(options, message):
    with pytest.raises(ValueError) as refused:
        Recommender(**options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


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


def test_parsing_inverts_formatting_of_acts():
    names = {n: str(n) for n in range(1, 10)}
    ids_by_name = {name: item for item, name in names.items()}
    rng = random.Random(0)
    for terse in (False, True):
        for _ in range(50):
            act = acts.Act("show", tuple(rng.sample(range(1, 10), 3)), "" if terse else rng.choice(["", "a farce"]))
            assert acts.read_act(acts.format_act(act, names, terse), ids_by_name, 3, terse) == act
        for topic in ("genre", "price", "dislikes"):
            act = acts.Act("ask", words=topic)
            assert acts.read_act(acts.format_act(act, names, terse), ids_by_name, 3, terse) == act


def test_import_loads_no_heavy_packages():
    heavy = {"torch", "faiss", "sentence_transformers", "networkx", "sklearn"}
    code = f"import sys, simulators.recommender; print({heavy} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout.strip() == "set()", process.stderr


def test_roles_show_candidates_and_facts():
    game = Recommender(terse=True)
    game.reset(seed=0)
    view: Any = view_of(game)
    assert read_role(BUILT_IN / "nano_recommender.yaml").render_turn(view, first=True) == mark_page(game.service)
    assert len(mark_page(game.service).split(" ")[1]) == 4 * 9
    game.step("P")
    facts, item_marks = mark_page(game.service).split(" ")
    cap, items = game.service.visitor.record.cap, game.service.items(game.service.candidates)
    assert "P" in facts and [item_marks[4 * n] == "x" for n in range(9)] == [item.price > cap for item in items]
    wordy_game = Recommender()
    wordy_game.reset(seed=0)
    view = view_of(wordy_game)
    turn = read_role(BUILT_IN / "recommender.yaml").render_turn(view, first=True)
    assert all(line in turn for line in wordy_game.private("recommender")["candidates"])


def test_users_of_a_seed_do_not_depend_on_the_persona():
    deals = []
    for persona in ("cooperative", "terse", "forgetful", "impatient"):
        game = Recommender(persona=persona, split="test")
        game.reset(seed=11)
        record, visitor = game.service.deal.records[0], game.service.visitor
        deals.append((record.taste, record.cap, record.patience, game.service.deal.key, game.service.candidates))
        assert visitor.mindset.patience == record.patience * (0.75 if persona == "impatient" else 1)
    assert len(set(deals)) == 1


def test_the_order_of_a_page_does_not_matter():
    first = Recommender()
    first.reset(seed=6)
    second = first.clone()
    while not first.ended:
        first.step("SHOW 3 9 4")
        second.step("SHOW 9 4 3")
        assert (
            second.service.candidates == first.service.candidates
            and second.service.total_joy == first.service.total_joy
        )
