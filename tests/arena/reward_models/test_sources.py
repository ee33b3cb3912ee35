"""Where a reward model's examples come from: rows of data sets, and matches in a run's log; and the stage itself."""

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
ASKED = [{"role": "user", "content": "Say it."}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def pair(n: int, **changes: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": f"Say {n}."}]
    return {"prompt": asked, "chosen": said("yes please"), "rejected": said("no"), **changes}


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def read(path: Path, objective: Any = "bradley_terry", longest: int = 2048, notes: Any = None) -> Any:
    note = (lambda text: None) if notes is None else notes.append
    return read_row_examples(path, FRAME, longest, objective, 0.25, np.random.default_rng(0), note)


# -- rows --------------------------------------------------------------------------------------------------


def test_pairs_are_read_as_the_policy_reads_them(tmp_path: Path) -> None:
    notes: list[str] = []
    rows = [*(pair(n % 10, margin=0.5) for n in range(20)), pair(3, chosen=said("yes " * 50))]
    made = read(written(tmp_path / "pairs.jsonl", rows), longest=40, notes=notes)
    assert len(made.train) + len(made.held_out) == 20 and len(made.held_out) == 4, "two prompts of ten, twice each"
    assert notes == [f"{tmp_path / 'pairs.jsonl'}: 1 of 21 rows are longer than 40 tokens and left out"]
    example = made.train[0]
    opening = [*FRAME.open(""), *FRAME.ask(rows[0]["prompt"][0]["content"])]
    assert example.value == 0.5 and [len(opening)] * 2 == [stream.mask.index(True) for stream in example.streams]
    assert [FRAME.decode(s.ids[len(opening) :]) for s in example.streams] == ["yes please", "no"]
    assert example.streams[0].ids[-1] in FRAME.stop_ids
    prompts = [{tuple(one.streams[0].ids[: len(opening)]) for one in side} for side in (made.train, made.held_out)]
    assert not prompts[0] & prompts[1]
    assert [one.value for one in made.train[2:4]] == [0.5, 0.5] and len(made.digest) == 64


def test_labels_are_read(tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {n}.", "completion": said("ok"), "label": n % 2 == 0} for n in range(12)]
    made = read(written(tmp_path / "labels.jsonl", rows), "logistic")
    assert sorted(one.value for side in (made.train, made.held_out) for one in side) == [0.0] * 6 + [1.0] * 6


@pytest.mark.parametrize(
    ("rows", "objective", "told"),
    [
        ([pair(0), pair(1, rejected=said("yes please"))], "bradley_terry", "jsonl:2: rejected: the same as chosen"),
        ([pair(0), {"prompt": ASKED, "chosen": said("a")}], "bradley_terry", "jsonl:2: "),
        ([pair(0), pair(1, margin="much")], "bradley_terry", "jsonl:2: margin: expected a number"),
        ([pair(0), pair(1, margin=True)], "bradley_terry", "jsonl:2: margin: expected a number"),
        ([pair(0), "{"], "bradley_terry", "jsonl:2: not JSON"),
        ([pair(0), pair(1, chosen=[{"role": "boss", "content": "x"}])], "bradley_terry", "jsonl:2: "),
        ([pair(0)], "bradley_terry", "no pairs"),
        ([pair(0), pair(1)], "logistic", "its rows are pairs, and the loss logistic learns from labels"),
        ([], "bradley_terry", "it has no rows"),
        (
            [{"prompt": f"Say {n}.", "completion": said("ok"), "label": True} for n in range(4)],
            "logistic",
            "all 3 labels are 1",
        ),
        ([{"prompt": "Say.", "completion": said("ok"), "label": 1}] * 2, "logistic", "label: expected true or false"),
    ],
)
def test_a_row_that_teaches_nothing_is_told_with_file_and_line(
    tmp_path: Path, rows: list[Any], objective: Any, told: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        read(written(tmp_path / "data.jsonl", rows), objective)
    assert told in str(refusal.value) and "\n" not in str(refusal.value)


# -- logs, and the stage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two iterations with eight matches each, four of each deal."""
    from arena.config.saved_config import experiment_to_plain
    from arena.store.run import write_environment

    folder = tmp_path_factory.mktemp("runs") / "played"
    given = make_experiment("play.matches=16", "play.group=8")
    run_lab(folder, given)
    write_environment(folder, {"experiment": experiment_to_plain(given)})
    return folder


def test_outcomes_are_those_of_the_log(run: Path) -> None:
    found = read_outcomes(run, "shared", "payoff", "deal", 1000, resolve("nano"))
    records = [MatchRecord.from_json(row) for k in (2, 1) for row in RunFolder.open(run).log.read(k)]
    own = [one for record in records for one in trajectories(record)]
    assert [(o.worth, o.stream.ids) for o in found] == [(one.payoff, one.streams[-1].ids) for one in own]
    assert {o.peers for o in found} == {(one.game, one.seed, one.seat) for one in own}
    assert len(read_outcomes(run, "shared", "payoff", "deal", 5, resolve("nano"))) == 5
    credit = {(c.match, c.turn): c.reward for k in (1, 2) for c in RunFolder.open(run).log.credit(k)}
    totals = [sum(credit[one.match, turn.index] for turn in one.turns) for one in own]
    found = read_outcomes(run, "shared", "credited", "game", 1000, resolve("nano"))
    assert [o.worth for o in found] == pytest.approx(totals)
    assert len({o.peers for o in found}) == 2, "the two seats"


def test_a_wrong_name_or_tokenizer_is_told_in_one_line(run: Path, tmp_path: Path) -> None:
    for policy, outcome, told in (
        ("shard", "payoff", "has no policy 'shard' — did you mean 'shared'?"),
        ("shared", "payof", "has no outcome 'payof' of policy 'shared' — did you mean 'payoff'?"),
    ):
        with pytest.raises(ConfigError) as refusal:
            read_outcomes(run, policy, outcome, "deal", 1000, resolve("nano"))
        assert told in str(refusal.value) and "\n" not in str(refusal.value)
    other = tmp_path / "other"
    RewardModel.load(resolve("nano")).save(other)
    template = (other / "chat_template.jinja").read_text()
    (other / "chat_template.jinja").write_text(template.replace("'<|im_end|>'", "'<|im_end|><|im_end|>'"))
    with pytest.raises(ConfigError, match="has another tokenizer or chat template"):
        read_outcomes(run, "shared", "payoff", "deal", 1000, other)


def context(**shared: Any) -> StageContext:
    settings = {"policies": {"shared": {"model": "nano"}}, **shared}
    return StageContext(shared=settings, seed=3, folders={}, weights={}, note=lambda text: None)


def test_the_stage_trains_and_names_its_weights(run: Path, tmp_path: Path) -> None:
    stage = choose(
        PIPELINE_STAGE, "reward_model", policy="shared", log=str(run), within="game", outcome="credited", iterations=2
    )
    loop = stage(context())
    assert isinstance(loop, StageLoop)
    folder = tmp_path / "02-reward_model"
    folder.mkdir()
    wait(loop.run(folder, RecordingWatcher()))
    ((name, weights),) = loop.weights(folder).items()
    assert name == "reward_model" and weights.is_dir() and RewardModel.load(weights)
    before = (folder / "metrics.jsonl").read_bytes()
    wait(stage(context()).run(folder, RecordingWatcher()))
    assert (folder / "metrics.jsonl").read_bytes() == before and len(before.splitlines()) == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"policy": "shard", "data": "x"}, "there is no policy 'shard' — did you mean 'shared'?"),
        ({"policy": "shared"}, "give `data: FILE` or `log: RUN`"),
        ({"policy": "shared", "data": "x", "log": "y"}, "give `data: FILE` or `log: RUN`"),
    ],
)
def test_a_stage_that_cannot_work_is_refused_before_the_first_runs(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        choose(PIPELINE_STAGE, "reward_model", **settings)(context())
    assert told in str(refusal.value)
