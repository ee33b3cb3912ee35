"""Tasks of reasoning-gym: options, isolated randomness, and guarded scorers."""

import random
from typing import Any

import numpy as np
import pytest

from games.families.book import fold
from simulators import conformance
from simulators.base import SimulatorFault
from simulators.confine.code import find_obstacle
from simulators.reasoning import Reasoning, gym
from simulators.reasoning.gym import Task
from tests.factories.thorough import count_cases

FAMILIES = sorted(
    {
        "chain_sum", "gcd", "prime_factorization", "countdown", "n_queens", "number_sorting", "complex_arithmetic",
        "sudoku",
    }
)  # fmt: skip
CODE_INJECTIONS = (
    "__import__('os').system('touch {path}')",
    "[__import__('os').system('touch {path}')]",
    "[open('{path}', 'w').close() or 'A']",
    "().__class__.__base__.__subclasses__()",
)
HOSTILE = (
    *(
        "", " ", "?", "nan", "inf", "-inf", "None", "[]", "{}", "[[", "1/0", "1e999999999", "9**9**9**9", "\x00",
        "\ud800",
    ),
    *("9" * 4000, "(" * 4000, "[" * 4000, "1," * 1900, "1+" * 90 + "1", "x" * 4000, "١", "\n" * 3000, "1/1e-99999"),
)  # fmt: skip


class Scorer:
    """Dataset with a scorer that returns or raises the given outcomes."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = dict(outcomes)

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        outcome = self.outcomes.get(answer, 0.0)
        if isinstance(outcome, Exception):
            raise outcome
        return float(outcome)


def make_task(*outcomes: Any) -> Task:
    return Task("made", "1 + 1?", "2", {"answer": "2"}, Scorer(*outcomes))


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"protocol": "retry", "task": {"chain_sum": {"max_terms": 2, "max_digits": 1}}},
        {"protocol": "correct", "task": ["gcd", "number_sorting"], "answer": "boxed"},
        {"task": {"syllogism": {}, "prime_factorization": {"level": 1}}, "answer": "tag", "split": "test"},
    ],
)
def test_passes_the_conformance_kit(options: dict[str, Any]) -> None:
    findings = conformance.check(lambda: Reasoning(**options), seeds=count_cases(3, 4), acts=count_cases(40, 60))
    assert [finding for finding in findings if finding.ok is False] == []


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["single", "retry", "correct", "units", "code"])
def test_passes_the_conformance_kit_over_many_seeds(protocol: Any) -> None:
    if protocol == "code" and find_obstacle():
        pytest.skip(find_obstacle())
    task = {"chain_sum": {}, "gcd": {}, "products": {"max_digits": 2}, "letter_counting": {}}
    findings = conformance.check(lambda: Reasoning(task=task, protocol=protocol), seeds=1000, acts=20_000)
    assert [finding for finding in findings if finding.ok is False] == []


def test_seed_decides_the_task_and_global_generators_are_untouched() -> None:
    # pool_matrix seeds numpy's global generator, list_functions draws from Python's.
    for family in (*FAMILIES, "pool_matrix", "list_functions"):
        game, questions = Reasoning(task=family), []
        for disturbance in (1, 2):
            random.seed(disturbance)
            np.random.seed(disturbance)
            before = repr((random.getstate(), np.random.get_state(legacy=False)))
            game.reset(seed=5)
            game.step("7")
            assert repr((random.getstate(), np.random.get_state(legacy=False))) == before, family
            questions.append((game.task.question, game.task.answer, game.report()["score"]))
        assert questions[0] == questions[1], family


def test_library_output_is_suppressed(capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        Reasoning(task="bf").reset(seed=seed)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_train_and_test_share_no_question() -> None:
    questions: dict[str, set[str]] = {"train": set(), "test": set()}
    for split, split_questions in questions.items():
        game = Reasoning(task={"chain_sum": {"max_terms": 2, "max_digits": 1}}, split=split)
        for seed in range(400):
            game.reset(seed=seed)
            split_questions.add(game.task.question)
    assert not questions["train"] & questions["test"]
    share = len(questions["test"]) / sum(map(len, questions.values()))
    assert 0.12 < share < 0.28
    assert all(gym.is_test(question) for question in questions["test"])


def test_curriculum_level_with_overriding_settings() -> None:
    settings = gym.read_task_option({"chain_sum": {"level": 2, "max_digits": 1}})["chain_sum"]
    assert (settings["min_terms"], settings["max_terms"], settings["max_digits"]) == (2, 4, 1)
    game = Reasoning(task={"chain_sum": {"level": 0}})
    game.reset(seed=0)
    assert len(game.public()["terse"].split()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "chain_summ"}, "no family 'chain_summ' — did you mean 'chain_sum'"),
        ({"task": "intermediate_integration"}, "executes replies as Python code"),
        ({"task": "knight_swap"}, "string hashing"),
        ({"task": "rush_hour"}, "no known answer"),
        ({"task": "game_of_life_halting"}, "accepts any answer"),
        ({"task": "puzzle24"}, "whether the given numbers were used"),
        ({"task": ["gcd", "lcm"], "stage": 3}, "stage must be a whole number from 1 to 2"),
        ({"task": []}, "a family's name, a list of them"),
        ({"task": 3}, "a family's name, a list of them"),
        ({"task": {"chain_sum": 3}}, "must be names and values"),
        ({"task": {"chain_sum": {"max_term": 3}}}, "no setting 'max_term' — did you mean 'max_terms'"),
        ({"task": {"chain_sum": {"seed": 3}}}, "no setting 'seed'"),
        ({"task": {"chain_sum": {"max_terms": "many"}}}, "chain_sum.max_terms"),
        ({"task": {"chain_sum": {"max_terms": 1}}}, "max_terms must be >= min_terms"),
        ({"task": {"chain_sum": {"level": 99}}}, "from 0 to 10"),
        ({"task": {"acre": {"level": 1}}}, "has no curriculum"),
        ({"task": {"basic_arithmetic": {"allow_parentheses": False}}}, "from left to right"),
        ({"protocol": "twice"}, '"single" or "retry" or "correct" or "units" or "code"'),
        ({"protocol": "single", "max_turns": 3}, "max_turns goes with"),
        ({"protocol": "retry", "partial": True}, "right from wrong only"),
        ({"protocol": "code", "answer": "plain"}, 'answer must be "boxed" or "tag"'),
        ({"protocol": "units", "answer": "plain"}, 'answer must be "boxed" or "tag"'),
        ({"code": "fence"}, 'code goes with protocol "code"'),
        ({"split": "dev"}, "split must be"),
        ({"persona": "terse"}, "no person"),
    ],
)
def test_refuses_invalid_options_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Reasoning(**options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_missing_library_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym.factory", None)
    with pytest.raises(ValueError, match=r"pip install 'arena-selfplay\[simulators\]'"):
        Reasoning()


# Scorers.


def test_always_failing_scorer_is_a_fault() -> None:
    failing_task = make_task(("2", KeyError("numbers")), ("7", KeyError("numbers")))
    with pytest.raises(SimulatorFault, match="the scorer of made fails: KeyError"):
        failing_task.score("7")
    partly_failing_task = make_task(("2", 0.5), ("7", ValueError("?")))
    with pytest.raises(SimulatorFault, match="fails: ValueError"):
        partly_failing_task.score("7")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 1.5])
def test_a_score_out_of_range_is_a_fault(value: float) -> None:
    with pytest.raises(SimulatorFault, match="the scorer of made gave"):
        make_task(("2", value)).score("2")
    assert make_task(("2", 1.0), ("7", value)).score("7") == (0.0, False)


def test_answer_that_breaks_the_scorer_is_wrong() -> None:
    assert make_task(("2", 1.0), ("boom", ValueError("no number"))).score("boom") == (0.0, False)
    game = Reasoning(task="prime_factorization")  # its scorer calls int on every part
    game.reset(seed=0)
    game.step("two and three")
    report = game.report()
    assert (report["score"], report["unreadable"], report["ended"]) == (0.0, 1, "wrong")


def test_scorer_fault_is_raised_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    game = Reasoning()
    game.reset(seed=0)
    monkeypatch.setattr(Task, "_apply_scorer", lambda self, answer: 1 / 0)
    with pytest.raises(SimulatorFault, match="ZeroDivisionError"):
        game.step("12")
    assert not game.ended


def test_task_cache_is_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(seed: int, **settings: Any) -> gym.Task:
        return gym.draw_task("chain_sum", settings, np.random.default_rng(seed))

    first = draw(7)
    assert draw(7) is first
    assert draw(7, max_digits=9).question != first.question
    monkeypatch.setattr(gym, "MAX_CACHED", 3)
    monkeypatch.setattr(gym, "_CACHE", {})
    tasks = [draw(seed) for seed in range(5)]
    assert len(gym._CACHE) == 3 and draw(4) is tasks[4] and draw(0) is not tasks[0]
    assert draw(0).question == tasks[0].question


def test_unsound_tasks_are_detected() -> None:
    assert make_task(("2", 1.0)).is_sound()
    assert not make_task(("2", 0.9)).is_sound()
    assert not make_task(("2", 1.0), ("?", 1.0)).is_sound()
    assert not make_task(("2", 1.0), ("nan", 1.0)).is_sound()


@pytest.mark.parametrize("family", ["string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "countdown"])
def test_evaluating_scorers_receive_no_code(family: str, tmp_path: Any) -> None:
    # In the unguarded library, the first injection runs a command in this process.
    game, path = Reasoning(task=family), tmp_path / "evil"
    game.reset(seed=0)
    for injection in CODE_INJECTIONS:
        assert game.task.score(injection.format(path=path)) == (0.0, False)
    assert not path.exists()
    assert game.task.score(game.task.answer) == (1.0, True)


@pytest.mark.parametrize("family", FAMILIES)
def test_scorers_survive_hostile_replies(family: str) -> None:
    game = Reasoning(task=family)
    game.reset(seed=1)
    for reply in HOSTILE:
        scored = game.task.score(reply)
        assert 0.0 <= scored.value < 1.0


@pytest.mark.slow
def test_every_family_that_is_not_refused_can_be_used(tmp_path: Any) -> None:
    families, _ = gym._import_library()
    for family in sorted(set(families) - set(gym.REFUSED)):
        rng = np.random.default_rng(0)
        for _ in range(3):
            task = gym.draw_task(family, gym.read_task_option(family)[family], rng)
            assert task.is_sound(), family
            assert all(task.score(text).value < 1.0 for text in HOSTILE), family
            assert all(
                task.score(injection.format(path=tmp_path / "evil")).value < 1.0 for injection in CODE_INJECTIONS
            ), family
        assert not (tmp_path / "evil").exists(), family


# Visibility.


@pytest.mark.parametrize("protocol", ["single", "retry", "correct", "units"])
def test_answer_is_never_shown(protocol: Any) -> None:
    game = Reasoning(task="spell_backward", protocol=protocol)
    for seed in range(30):
        game.reset(seed=seed)
        visible_text = game.rules()
        while not game.ended:
            visible_text += repr([game.public(), game.private("solver"), game.observe("solver"), game.infos["solver"]])
            game.step("nonsense")
        assert fold(game.task.answer) not in fold(visible_text + repr(game.observe("solver")))


def test_random_answers_look_like_answers() -> None:
    game = Reasoning(task="gcd")
    for seed in range(20):
        game.reset(seed=seed)
        answer = game.players["random"](game, seed)
        assert answer(conformance.view_of(game)).isdigit()


@pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())
@pytest.mark.parametrize("code", ["fence", "code", "tool_call"])
def test_coder_computes_sums_in_python(code: Any) -> None:
    game = Reasoning(task={"chain_sum": {"min_terms": 2, "max_terms": 2}}, protocol="code", code=code)
    game.reset(seed=1)
    act = game.players["coder"](game, 1)
    first = act(conformance.view_of(game))
    assert game.public()["terse"] in first and game.task.answer not in first, "the coder computed the sum itself"
    game.step(first)
    game.step(act(conformance.view_of(game)))
    assert game.report()["success"] and game.report()["runs"] == 1


def start_game(family: str, **options: Any) -> Reasoning:
    game = Reasoning(task={family: {}}, **options)
    game.reset(seed=1)
    return game


@pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())
@pytest.mark.parametrize("family", ["gcd", "lcm", "products", "basic_arithmetic"])
def test_coder_computes_arithmetic_in_python(family: str) -> None:
    game = start_game(family, protocol="code", code="code")
    act = game.players["coder"](game, 1)
    for _ in range(2):
        game.step(act(conformance.view_of(game)))
    assert game.report()["success"] and game.report()["failed_runs"] == 0
    assert game.public()["family"] == family


def test_reckoner_writes_the_steps_of_sums() -> None:
    sums = {"min_terms": 3, "max_terms": 3, "min_digits": 2, "max_digits": 2}
    for seed in range(20):
        game = Reasoning(task={"chain_sum": sums}, answer="boxed")
        game.reset(seed=seed)
        reply = game.players["reckoner"](game, 1)(conformance.view_of(game))
        steps = reply.splitlines()
        assert len(steps) == 3 and steps[-1] == f"\\boxed{{{game.task.answer}}}"
        for step in steps[:-1]:
            left, right = step.split(" = ")
            first, sign, second = left.split()
            assert int(right) == int(first) + int(second) * (1 if sign == "+" else -1)
        assert steps[1].endswith(f"= {game.task.answer}")
        game.step(reply)
        assert game.report()["success"]
    for game in (start_game("chain_sum"), start_game("gcd", answer="boxed")):
        game.step(game.players["reckoner"](game, 1)(conformance.view_of(game)))
        assert game.report()["success"], "other tasks are answered directly"


def test_a_stage_draws_from_the_first_families() -> None:
    names = ["chain_sum", "products", "gcd"]
    for stage, expected in ((1, {"chain_sum"}), (2, {"chain_sum", "products"}), (3, set(names)), (None, set(names))):
        game, families = Reasoning(task=names, stage=stage), set()
        for seed in range(60):
            game.reset(seed=seed)
            families.add(game.task.family)
        assert families == expected


def test_without_python_the_coder_knows_the_answer() -> None:
    game = Reasoning(protocol="single")
    game.reset(seed=1)
    game.step(game.players["coder"](game, 1)(conformance.view_of(game)))
    assert game.report()["success"]


# Units.


def test_unit_ending_with_wait_continues_and_last_answer_counts() -> None:
    game = Reasoning(protocol="units", max_turns=3, task={"chain_sum": {"min_terms": 2, "max_terms": 2}})
    game.reset(seed=1)
    right, wrong = (f"\\boxed{{{answer}}}" for answer in (game.task.answer, int(game.task.answer) + 1))
    game.step(f"so {right} Wait\n")
    assert not game.terminations["solver"] and game.rewards["solver"] == 0
    assert game.observe("solver")["messages"][-1]["text"] == "Go on."
    game.step(f"no, {wrong}. Wait, {wrong}")
    assert game.terminations["solver"] and game.rewards["solver"] == 0 and game.report()["ended"] == "wrong"
    assert (game.report()["first"], game.report()["score"], game.report()["answers"]) == (1, 0, 2)


def test_last_unit_ends_the_match() -> None:
    game = Reasoning(protocol="units", max_turns=2)
    game.reset(seed=1)
    for _ in range(2):
        game.step(f"\\boxed{{{game.task.answer}}} Wait")
    assert game.report()["success"] and game.report()["ended"] == "right"


def test_a_unit_without_an_answer_is_illegal() -> None:
    game = Reasoning(protocol="units", illegal="end")
    game.reset(seed=1)
    game.step("hm. Wait")
    assert game.report()["ended"] == "illegal"


def test_rethinker_succeeds_after_several_attempts() -> None:
    counts = set()
    for seed in range(40):
        game = Reasoning(protocol="units", task={"chain_sum": {"min_terms": 2, "max_terms": 2, "max_digits": 1}})
        game.reset(seed=seed)
        text = game.players["rethinker"](game, seed)(conformance.view_of(game))
        attempts = text.split(" Wait\n")
        counts.add(len(attempts))
        assert all("\\boxed{" in attempt for attempt in attempts)
        game.step(text)
        assert game.report()["success"]
    assert counts == {2, 3, 4}


def test_swapper_swaps_two_letters_in_half_of_its_replies() -> None:
    game = Reasoning(task={"spell_backward": {"min_word_len": 4, "max_word_len": 5}}, protocol="retry", max_turns=3)
    outcomes = []
    for seed in range(60):
        game.reset(seed=seed)
        word, answer = game.public()["terse"], game.task.answer
        assert answer == word[::-1]
        reply = game.players["swapper"](game, seed)(conformance.view_of(game))
        assert reply in (answer, answer[:-2] + answer[-1] + answer[-2])
        outcomes.append(reply == answer)
    assert 20 <= sum(outcomes) <= 45  # slips that swap equal letters are right


def test_word_tasks_do_not_depend_on_the_cache() -> None:
    settings = gym.read_task_option({"spell_backward": {"min_word_len": 4, "max_word_len": 5}})["spell_backward"]
    questions = [gym.draw_task("spell_backward", settings, np.random.default_rng(seed)).question for seed in range(5)]
    gym._CACHE.clear()
    gym._SHARED.clear()
    assert [
        gym.draw_task("spell_backward", settings, np.random.default_rng(seed)).question for seed in range(5)
    ] == questions
    assert len({*questions}) > 1
