"""Agents against persons: counts of a cell, equal tasks for all, and the command."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from arena.cli.loop import wait
from arena.errors import ConfigError
from arena.evaluate import matrix as league
from arena.evaluate import specs
from arena.evaluate.crosstable_plot import draw_matrix
from arena.evaluate.evaluation import make_game
from arena.evaluate.matrix import Cell, with_role
from arena.play.contenders import ScriptedContender
from arena.play.settings import GameSpec
from arena.records import MatchRecord, Seating
from arena.statistics import pass_hat_k, rate_ci
from games.contracts import MatchId
from simulators.clinic import Clinic
from simulators.desk import Desk
from tests.factories.commands import arena, get_refusal
from tests.factories.records import make_match_record
from tests.factories.server import Server, reply_with_models
from tests.legible import find_overlaps

FAULTY = """
from simulators.base import SimulatorFault
from simulators.clinic import Clinic


class Faulty(Clinic):
    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        if self.patient.record.disease % 2:
            raise SimulatorFault("the odd ones are out")
"""


def run_matrix(*arguments: str | Path) -> Any:
    result = arena("matrix", *arguments, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


def index_cells(data: Any) -> dict[tuple[str, str], Any]:
    return {(cell["agent"], cell["person"]): cell for cell in data["cells"]}


# -- figures ---------------------------------------------------------------------------------------------


def test_pass_hat_k_by_hand() -> None:
    # Four trials: C(4,2)/C(4,2) = 1, C(2,2)/6 = 1/6, C(1,2)/6 = 0.
    assert [pass_hat_k(won, 4, 2) for won in (4, 2, 1, 0)] == [1, pytest.approx(1 / 6), 0, 0]
    assert pass_hat_k(3, 4, 1) == 0.75 and pass_hat_k(3, 4, 4) == 0 and pass_hat_k(4, 4, 4) == 1
    for wrong in ((1, 4, 5), (1, 4, 0), (5, 4, 1), (-1, 4, 1)):
        with pytest.raises(ValueError, match="no pass"):
            pass_hat_k(*wrong)


def make_record(task: int, trial: int, success: bool, reason: str = "") -> MatchRecord:
    report: dict[str, float | bool | str] = {} if reason else {"success": success, "turns": 3 + task, "ended": "x"}
    return make_match_record(
        identity=MatchId(task, trial), seats={"doctor": Seating("", "a", 0, False, "brain")},
        status="failed" if reason else "finished", reason=reason, report=report,
    )  # fmt: skip


def test_cell_counts() -> None:
    cell = Cell(agent="a", person="terse", speaker="script", tasks=3, trials=2, k=2)
    for task, trial, success in ((0, 0, True), (0, 1, True), (1, 0, True), (1, 1, False), (2, 0, True)):
        cell.add(task, make_record(task, trial, success))
    for _ in range(2):
        cell.add(2, make_record(2, 1, False, "SimulatorFault: odd"))
    assert cell.matches == 5 and cell.reliability(1).estimate == pytest.approx((1 + 0.5 + 1) / 3)
    assert cell.reliability(2).estimate == pytest.approx(0.5), "the task with one finished trial has no pass^2"
    assert cell.fault_rate == rate_ci(2, 7), "faults are no trials and no zeros"
    assert cell.mean("turns").estimate == pytest.approx(4)
    data = cell.to_json()
    assert data["missing"] == 1 and data["successes"] == [2, 1, 1] and data["pass^2"][0] == pytest.approx(0.5)
    assert data["faults"]["reasons"] == {"SimulatorFault: odd": 2} and set(data["figures"]) == {"success", "turns"}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("game", ["clinic", "desk"])
@pytest.mark.parametrize("person", ["script", "render"])
def test_task_is_the_same_for_all_personas(game: str, person: str) -> None:
    def read_hidden_state(persona: str, seed: int) -> object:
        env = make_game(GameSpec(name=game, options={"persona": persona, "person": person}))
        env.reset(seed=seed)
        if isinstance(env, Clinic):
            return env.patient.record.entity, env.budget
        assert isinstance(env, Desk)
        return env.customer.record.person, env.customer.record.goals

    personas = (Clinic if game == "clinic" else Desk)().personas
    tasks = [{str(read_hidden_state(persona, seed)) for persona in personas} for seed in range(20)]
    assert all(len(states) == 1 for states in tasks) and len(set.union(*tasks)) == 20


def test_models_get_the_role_of_their_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(models=reply_with_models("m")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        (endpoint,) = wait(specs.ContenderLoader().load("endpoint:m"))
    assert with_role(endpoint, "clinic", "patient").seating("clinic", "patient").role == "patient"
    assert with_role(endpoint, "desk", "customer").seating("desk", "customer").role == "desk_customer"
    assert with_role(endpoint, "desk", "agent").seating("desk", "agent").role == "desk_agent"
    (nano,) = wait(specs.ContenderLoader().load("nano"))
    assert with_role(nano, "clinic", "patient") is nano, "which can read no sentences"
    assert with_role(nano, "clinic", "doctor", "doctor").seating("clinic", "doctor").role == "doctor", (
        "where it is told"
    )
    (script,) = wait(specs.ContenderLoader().load("asker"))
    assert with_role(script, "clinic", "doctor") is script


# -- command ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_clinic_matrix(tmp_path: Path) -> None:
    picture, out = tmp_path / "m.png", tmp_path / "m.json"
    command = ["oracle", "random", "noop", "--game", "clinic", "--persons", "terse,forgetful+oracle", "--tasks", "8"]
    command += ["--trials", "4", "--k", "3", "--option", "diseases=4"]
    result = arena("matrix", *command, "--plot", picture, "--out", out)
    assert result.code == 0, result.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    title = "clinic (diseases=4, split=test): 8 tasks × 4 trials"
    for words in (title, "pass^1", "pass^3", "turns", "forgetful", "+oracle"):
        assert words in result.out
    assert "pass^4" not in result.out and "pass^2" not in result.out, "the first and the deepest are enough to read"
    narrow = arena("matrix", "oracle", "noop", *command[3:])
    assert "pass^1 to pass^3" in narrow.out and narrow.out.count("pass^1") == 1
    data = json.loads(out.read_text())
    assert data["cells"] == run_matrix(*command)["cells"], "the same seed gives the same cells"
    cells = index_cells(data)
    assert len(cells) == 6 and cells["oracle", "terse"]["words"] == "script"
    assert cells["oracle", "forgetful+oracle"]["words"] == "oracle"
    for person in ("terse", "forgetful+oracle"):
        assert cells["oracle", person]["pass^3"] == pytest.approx(rate_ci(8, 8))
        assert cells["noop", person]["pass^1"] == pytest.approx(rate_ci(0, 8))
    guesses = cells["random", "terse"]
    assert any(0 < won < 4 for won in guesses["successes"]), "trials of a task differ"
    assert guesses["pass^1"][0] >= guesses["pass^2"][0] >= guesses["pass^3"][0]
    other_seed = index_cells(run_matrix(*command, "--seed", "1"))["random", "terse"]
    assert other_seed["successes"] != guesses["successes"]


def test_scripted_pairs_repeat_in_every_trial() -> None:
    command = ["random_asker", "--game", "clinic", "--persons", "mistaken", "--tasks", "6", "--trials", "2"]
    (cell,) = run_matrix(*command, "--option", "budget=9")["cells"]
    assert cell["matches"] == 12 and cell["figures"]["turns"][0] == 10
    (cell,) = run_matrix("asker", *command[1:], "--option", "budget=9")["cells"]
    assert set(cell["successes"]) <= {0, 2} and cell["pass^1"] == cell["pass^2"]


def test_obedient_and_refusing_agents_at_the_desk() -> None:
    command = ["oracle", "obedient", "refuser", "--game", "desk", "--persons", "cooperative", "--tasks", "20"]
    cells = index_cells(run_matrix(*command, "--trials", "1", "--option", "goals=1"))
    oracle, obedient, refuser = (cells[who, "cooperative"] for who in ("oracle", "obedient", "refuser"))
    assert oracle["success"][0] == 1 and oracle["figures"]["breaches"][0] == 0
    assert 0 < obedient["success"][0] < 1 and obedient["figures"]["breaches"][0] > 0
    assert refuser["success"][0] == pytest.approx(1 - obedient["success"][0]), "one goal is denied or done"
    assert refuser["figures"]["breaches"][0] == 0


def test_model_words_what_the_script_decides() -> None:
    command = ["random_asker", "--game", "clinic", "--persons", "cooperative,cooperative+nano", "--tasks", "2"]
    plain, worded = run_matrix(*command, "--trials", "1", "--option", "budget=3")["cells"]
    assert worded["words"].startswith("nano, version 0, role ")
    assert worded["figures"]["render_texts"][0] > 0
    assert worded["successes"] == plain["successes"], "who words it changes nothing of what is said"


def test_simulator_faults_are_counted_separately(tmp_path: Path) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    command = ["oracle", "--game", f"{tmp_path / 'faulty.py'}:Faulty", "--persons", "terse", "--tasks", "12"]
    result = arena("matrix", *command, "--trials", "1")
    assert result.code == 0 and "matches failed" in result.out and "the odd ones are out" in result.out
    (cell,) = run_matrix(*command, "--trials", "1")["cells"]
    assert 0 < cell["missing"] < 12 and cell["success"][0] == 1
    failed = cell["missing"] * league.ATTEMPTS
    assert cell["faults"]["rate"] == pytest.approx(rate_ci(failed, failed + cell["matches"]))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["asker", "--game", "clinic", "--persons", "ters"], "did you mean 'terse'"),
        (["askr", "--game", "clinic"], "did you mean 'asker'"),
        (["asker", "--game", "clinc"], "did you mean 'clinic'"),
        (["asker", "--game", "clinic", "--persons", "terse+smollm2-135m"], "did you mean 'smollm2-135m-instruct'"),
        (["asker", "--game", "clinic", "--persons", "terse+"], "name the speaker"),
        (["asker", "--game", "clinic", "--persons", "terse+first_legal"], "lists none for patient"),
        (["asker", "--game", "desk"], "asker plays clinic, not desk"),
        (["nano", "--game", "clinic", "--role", "docter"], "did you mean 'doctor'"),
        (["asker", "--game", "clinic", "--trials", "2", "--k", "3"], "--k 3 needs"),
        (["asker", "--game", "clinic", "--option", "persona=terse"], "--persons"),
        (["random", "--game", "reasoning", "--persons", "terse"], "reasoning has no personas: leave --persons out"),
        (["oracle", "--game", "search", "--persons", "script=nano"], "write default=nano"),
        (["oracle", "--game", "debate", "--persons", "noop"], "write default or default=CONTENDER"),
        (["oracle", "--game", "repair", "--persons", "default=noop"], "no option `person`"),
        (["random", "--game", "kuhn_poker"], "kuhn_poker is not a simulator: use arena eval"),
    ],
)
def test_bad_input_gives_one_line(command: list[str], message: str) -> None:
    assert message in get_refusal("matrix", *command)


def test_ctrl_c_keeps_finished_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, out = Cell.add, tmp_path / "m.json"

    def add_or_interrupt(cell: Cell, task: int, record: MatchRecord) -> None:
        if cell.person == "forgetful":
            signal.raise_signal(signal.SIGINT)
        add(cell, task, record)

    monkeypatch.setattr(Cell, "add", add_or_interrupt)
    command = ["noop", "--game", "clinic", "--persons", "terse,forgetful,mistaken", "--tasks", "2", "--trials", "1"]
    result = arena("matrix", *command, "--out", out)
    assert result.code == 130 and f"1 of 3 cells are done and in {out}" in result.err
    assert [cell["person"] for cell in json.loads(out.read_text())["cells"]] == ["terse"]


def test_picture_is_legible_with_any_names() -> None:
    cells = []
    for agent in ("oracle", "a_$very_long_name_of_a_folder_with_a_run@12"):
        for person in ("terse", "forgetful", "cooperative+smollm2-135m-instruct-and-more"):
            cell = Cell(agent=agent, person=person, speaker="script", tasks=2, trials=2, k=2)
            cell.successes |= {0: [True, True], 1: [False, True]}
            cells.append(cell)
    assert find_overlaps(draw_matrix(cells, "clinic (budget=[2, 8]): 2 tasks × 2 trials, " * 3)) == []


def test_simulator_without_personas_has_one_column() -> None:
    result = arena("matrix", "oracle", "noop", "--game", "reasoning", "--tasks", "3", "--trials", "1", "--json")
    assert result.code == 0, result.err
    cells = {cell["agent"]: cell for cell in json.loads(result.out)["cells"]}
    assert {cell["person"] for cell in cells.values()} == {"default"}
    assert cells["oracle"]["successes"] == [1, 1, 1] and cells["noop"]["successes"] == [0, 0, 0]


@pytest.mark.slow_after(1)
def test_agent_takes_all_seats_unless_it_has_a_partner() -> None:
    command = ["oracle", "noop", "--game", "search_selfplay", "--tasks", "2", "--trials", "1"]
    cells = index_cells(run_matrix(*command, "--persons", "default,default=noop,=oracle"))
    assert {person for _, person in cells} == {"default", "default=noop", "default=oracle"}
    assert cells["oracle", "default"]["successes"] == cells["oracle", "default=oracle"]["successes"] == [1, 1]
    assert cells["oracle", "default=noop"]["successes"] == [0, 0], "the second seat's question is not answered"
    assert cells["noop", "default"]["words"] == "noop" and cells["oracle", "default=noop"]["words"] == "noop"
    (alone,) = run_matrix("oracle", "--game", "workspace", "--persons", "default", "--tasks", "2", "--trials", "1")[
        "cells"
    ]
    assert (alone["words"], alone["successes"]) == ("script", [1, 1])


def test_partners_take_seats_added_by_game_options() -> None:
    table = league.make_lineup(
        ScriptedContender("oracle"),
        league.Person("", ScriptedContender("noop"), "played"),
        GameSpec(name="sql", options={"seats": "all"}),
    )
    assert {seat: who.name for seat, who in table.items()} == {"grounder": "oracle", "writer": "noop", "judge": "noop"}
    for options, is_possible in (({"seats": "all"}, True), ({}, False)):
        spec = GameSpec(name="sql", options=options)
        if is_possible:
            assert league.read_persons(["default=noop"], spec) == [("", "noop", "played")]
        else:
            with pytest.raises(ConfigError, match="no option `person`"):
                league.read_persons(["default=noop"], spec)


def test_initial_simulator_template_has_a_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has personas, but no model can word what its person says."""
    monkeypatch.chdir(tmp_path)
    assert arena("init", "simulator", "shop").code == 0
    result = arena("matrix", "oracle", "--game", "shop.py:Shop", "--tasks", "2", "--trials", "1", "--json")
    assert result.code == 0, result.err
    cells = json.loads(result.out)["cells"]
    assert [(cell["person"], cell["successes"]) for cell in cells] == [("cooperative", [1, 1]), ("terse", [1, 1])]
    line = get_refusal("matrix", "oracle", "--game", "shop.py:Shop", "--persons", "terse+nano")
    assert "has no option `person`" in line
