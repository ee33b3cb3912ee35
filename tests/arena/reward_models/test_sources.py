"""Sources of a reward model's examples: rows of data sets and matches of a log; and the stage itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.policy import load_tokenizer_and_frame
from agents.weights import resolve
from arena.cli.loop import wait
from arena.errors import ConfigError
from arena.learn.reward_model import RewardModel
from arena.parts.part_config import choose
from arena.records import MatchRecord, trajectories
from arena.reward_models.logged import read_outcomes
from arena.reward_models.rows import read_row_examples
from arena.stages import PIPELINE_STAGE, StageContext, StageLoop
from arena.store.run import RunFolder
from tests.factories.labs import RecordingWatcher, make_experiment, run_lab

FRAME = load_tokenizer_and_frame(resolve("nano"))[1]
PROMPT = [{"role": "user", "content": "Say it."}]


def make_reply(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def make_pair(n: int, **changes: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"Say {n}."}]
    return {"prompt": prompt, "chosen": make_reply("yes please"), "rejected": make_reply("no"), **changes}


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def read_examples(path: Path, objective: Any = "bradley_terry", longest: int = 2048, notes: Any = None) -> Any:
    note = (lambda text: None) if notes is None else notes.append
    return read_row_examples(path, FRAME, longest, objective, 0.25, np.random.default_rng(0), note)


# -- rows --------------------------------------------------------------------------------------------------


def test_pairs_are_tokenized_like_the_policys_prompts(tmp_path: Path) -> None:
    notes: list[str] = []
    rows = [*(make_pair(n % 10, margin=0.5) for n in range(20)), make_pair(3, chosen=make_reply("yes " * 50))]
    data = read_examples(write_rows(tmp_path / "pairs.jsonl", rows), longest=40, notes=notes)
    assert len(data.train) + len(data.held_out) == 20 and len(data.held_out) == 4, "two prompts of ten, twice each"
    assert notes == [f"{tmp_path / 'pairs.jsonl'}: 1 of 21 rows are longer than 40 tokens and left out"]
    example = data.train[0]
    opening = [*FRAME.open(""), *FRAME.ask(rows[0]["prompt"][0]["content"])]
    assert example.value == 0.5 and [len(opening)] * 2 == [stream.mask.index(True) for stream in example.streams]
    assert [FRAME.decode(s.ids[len(opening) :]) for s in example.streams] == ["yes please", "no"]
    assert example.streams[0].ids[-1] in FRAME.stop_ids
    prompts = [{tuple(one.streams[0].ids[: len(opening)]) for one in side} for side in (data.train, data.held_out)]
    assert not prompts[0] & prompts[1]
    assert [one.value for one in data.train[2:4]] == [0.5, 0.5] and len(data.digest) == 64


def test_labels_are_read(tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {n}.", "completion": make_reply("ok"), "label": n % 2 == 0} for n in range(12)]
    data = read_examples(write_rows(tmp_path / "labels.jsonl", rows), "logistic")
    assert sorted(one.value for side in (data.train, data.held_out) for one in side) == [0.0] * 6 + [1.0] * 6


@pytest.mark.parametrize(
    ("rows", "objective", "message"),
    [
        (
            [make_pair(0), make_pair(1, rejected=make_reply("yes please"))],
            "bradley_terry",
            "jsonl:2: rejected: the same as chosen",
        ),
        ([make_pair(0), {"prompt": PROMPT, "chosen": make_reply("a")}], "bradley_terry", "jsonl:2: "),
        ([make_pair(0), make_pair(1, margin="much")], "bradley_terry", "jsonl:2: margin: expected a number"),
        ([make_pair(0), make_pair(1, margin=True)], "bradley_terry", "jsonl:2: margin: expected a number"),
        ([make_pair(0), "{"], "bradley_terry", "jsonl:2: not JSON"),
        ([make_pair(0), make_pair(1, chosen=[{"role": "boss", "content": "x"}])], "bradley_terry", "jsonl:2: "),
        ([make_pair(0)], "bradley_terry", "no pairs"),
        ([make_pair(0), make_pair(1)], "logistic", "its rows are pairs, but the loss logistic learns from labels"),
        ([], "bradley_terry", "it has no rows"),
        (
            [{"prompt": f"Say {n}.", "completion": make_reply("ok"), "label": True} for n in range(4)],
            "logistic",
            "all 3 labels are 1",
        ),
        (
            [{"prompt": "Say.", "completion": make_reply("ok"), "label": 1}] * 2,
            "logistic",
            "label: expected true or false",
        ),
    ],
)
def test_invalid_row_gives_file_and_line(tmp_path: Path, rows: list[Any], objective: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_examples(write_rows(tmp_path / "data.jsonl", rows), objective)
    assert message in str(error.value) and "\n" not in str(error.value)


# -- logs, and the stage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logged_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two iterations."""
    from arena.config.saved_config import experiment_to_plain
    from arena.store.run import write_environment

    folder = tmp_path_factory.mktemp("runs") / "played"
    config = make_experiment("play.matches=16", "play.group=8")
    run_lab(folder, config)
    write_environment(folder, {"experiment": experiment_to_plain(config)})
    return folder


def test_outcomes_equal_those_of_the_log(logged_run: Path) -> None:
    outcomes = read_outcomes(logged_run, "shared", "payoff", "deal", 1000, resolve("nano"))
    records = [MatchRecord.from_json(row) for k in (2, 1) for row in RunFolder.open(logged_run).reader.log.read(k)]
    expected = [trajectory for record in records for trajectory in trajectories(record)]
    assert [(o.worth, o.stream.ids) for o in outcomes] == [
        (trajectory.payoff, trajectory.streams[-1].ids) for trajectory in expected
    ]
    assert {o.peers for o in outcomes} == {
        (trajectory.game, trajectory.seed, trajectory.seat) for trajectory in expected
    }
    assert len(read_outcomes(logged_run, "shared", "payoff", "deal", 5, resolve("nano"))) == 5
    credit = {(c.match, c.turn): c.reward for k in (1, 2) for c in RunFolder.open(logged_run).reader.credit(k)}
    totals = [sum(credit[trajectory.match, turn.index] for turn in trajectory.turns) for trajectory in expected]
    outcomes = read_outcomes(logged_run, "shared", "credited", "game", 1000, resolve("nano"))
    assert [o.worth for o in outcomes] == pytest.approx(totals)
    assert len({o.peers for o in outcomes}) == 2, "the two seats"


def test_wrong_name_or_tokenizer_gives_one_line(logged_run: Path, tmp_path: Path) -> None:
    for policy, outcome, message in (
        ("shard", "payoff", "has no policy 'shard' — did you mean 'shared'?"),
        ("shared", "payof", "has no outcome 'payof' of policy 'shared' — did you mean 'payoff'?"),
    ):
        with pytest.raises(ConfigError) as error:
            read_outcomes(logged_run, policy, outcome, "deal", 1000, resolve("nano"))
        assert message in str(error.value) and "\n" not in str(error.value)
    other = tmp_path / "other"
    RewardModel.load(resolve("nano")).save(other)
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(template.replace("'<|im_end|>'", "'<|im_end|><|im_end|>'"))
    with pytest.raises(ConfigError, match="has another tokenizer or chat template"):
        read_outcomes(logged_run, "shared", "payoff", "deal", 1000, other)


def make_context(**shared: Any) -> StageContext:
    settings = {"policies": {"shared": {"model": "nano"}}, **shared}
    return StageContext(shared=settings, seed=3, folders={}, weights={}, note=lambda text: None)


def test_stage_trains_and_names_its_weights(logged_run: Path, tmp_path: Path) -> None:
    stage = choose(
        PIPELINE_STAGE,
        "reward_model",
        policy="shared",
        log=str(logged_run),
        within="game",
        outcome="credited",
        iterations=2,
    )
    loop = stage(make_context())
    assert isinstance(loop, StageLoop)
    folder = tmp_path / "02-reward_model"
    folder.mkdir()
    wait(loop.run(folder, RecordingWatcher()))
    ((name, weights),) = loop.weights(folder).items()
    assert name == "reward_model" and weights.is_dir() and RewardModel.load(weights)
    before = (folder / "metrics.jsonl").read_bytes()
    wait(stage(make_context()).run(folder, RecordingWatcher()))
    assert (folder / "metrics.jsonl").read_bytes() == before and len(before.splitlines()) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "shard", "data": "x"}, "there is no policy 'shard' — did you mean 'shared'?"),
        ({"policy": "shared"}, "give `data: FILE` or `log: RUN`"),
        ({"policy": "shared", "data": "x", "log": "y"}, "give `data: FILE` or `log: RUN`"),
    ],
)
def test_invalid_stage_is_refused_before_the_first_stage_runs(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        choose(PIPELINE_STAGE, "reward_model", **settings)(make_context())
    assert message in str(error.value)
