"""Stages that learn from a log or a teacher in a whole pipeline, references of policies, and refusals."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agents.memory import Memory
from agents.role import BUILT_IN
from arena.cli.loop import wait
from arena.config.layers import to_yaml
from arena.config.pipeline import Pipeline, read_pipeline
from arena.config.sources import text_layer
from arena.config.staging import plan
from arena.errors import ConfigError
from arena.evaluate.specs import ContenderLoader, read_spec
from arena.export.chats import Chats, Reply
from arena.export.selection import Selection
from arena.pipelines.running import start_pipeline
from arena.play.logged import LogSource
from arena.play.settings import GameSpec, SourceSpec, TableSpec
from arena.preflight import preflight
from arena.records import trajectories
from arena.store.reader import FolderReader, RunReader
from arena.store.run import RunFolder, write_environment
from arena.store.stages import read_stage_end as ended
from tests.factories.labs import RecordingWatcher, read_weight_files, run_lab
from tests.factories.labs import make_experiment as small
from tests.factories.pipelines import CONFIG

SHARED = CONFIG.partition("stages:")[0]
STAGES = """\
stages:
  - name: sample
    play: {iterations: 2, learn: {lr: 0.0}}
  - {name: bc, offline: {log: "stage:sample", method: bc, iterations: 1}}
  - {name: best, offline: {log: "stage:sample", method: filtered_bc, best: 0.5, iterations: 1, start: base}}
  - {name: awr, offline: {log: "stage:sample", iterations: 1, beta: 0.5}}
  - name: mc
    offline: {log: "stage:sample", method: mc, iterations: 1}
    with: {credit: {critic: {monte_carlo: {steps: 2}}}}
  - name: ilql
    offline: {log: "stage:sample", method: ilql, iterations: 4}
    with: {credit: {critic: {ilql: {steps: 2}}}}
  - {name: experts, expert_iteration: {iterations: 1, group: 4, best: 0.25, at_least: 0.0, filter: both}}
  - {name: teacher, distil: {mode: sequence, log: "stage:experts", iterations: 1}}
  - {name: student, distil: {teacher: "stage:awr", iterations: 2}}
"""


def make_pipeline(stages: str) -> Pipeline:
    return read_pipeline([text_layer("test", SHARED + stages)])


def read_metrics(run: Path, name: str) -> list[dict[str, Any]]:
    (folder,) = (run / "stages").glob(f"*-{name}")
    return [row["learn"]["player"] for row in RunReader(folder).metrics()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stages") / "run"
    return wait(start_pipeline(make_pipeline(STAGES), folder, RecordingWatcher()))


@pytest.mark.slow
def test_every_kind_learns(run: Path) -> None:
    folders = sorted((run / "stages").iterdir())
    before = read_weight_files(folders[0], 2, "player")[0]
    for folder in folders[1:]:
        stage_end = ended(folder)
        assert stage_end is not None
        after = (stage_end.weights["player"] / "model.safetensors").read_bytes()
        assert after != before, folder
        before = after
    for name in ("bc", "best", "awr", "mc", "ilql", "teacher"):
        assert all(0 < row["effective"] <= 1 for row in read_metrics(run, name)), name
    assert read_metrics(run, "bc")[0]["effective"] == pytest.approx(1), "all turns weigh 1"


@pytest.mark.slow
def test_base_weights_and_folders_of_stages_are_found(run: Path) -> None:
    def read_experiment(name: str) -> dict[str, Any]:
        (folder,) = (run / "stages").glob(f"*-{name}")
        return dict(RunReader(folder).environment()["experiment"])

    assert (
        read_experiment("best")["policies"]["player"]["model"]
        == "nano"
        != read_experiment("bc")["policies"]["player"]["model"]
    )
    expected: dict[str, Any] = {"log": str((run / "stages/01-sample").resolve()), "iterations": 2, "shuffle": True}
    assert read_experiment("bc")["source"] == SourceSpec(**expected).model_dump(mode="json")
    student = read_experiment("student")["policies"]["player"]
    (awr,) = (run / "stages").glob("*-awr")
    stage_end = ended(awr)
    assert stage_end is not None and student["reference"] == str(stage_end.weights["player"]) != student["model"]


@pytest.mark.slow
def test_student_learns_by_kl_without_advantage(run: Path) -> None:
    rows = read_metrics(run, "student")
    assert all(row["advantage_size"] == 0 and row["kl_term"] > 0 and row["grad_norm"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("offline: {log: /nowhere, iterations: 1, method: bc, beta: 2.0}", "stage offline: .*bc does not use `beta`"),
        ("offline: {log: /nowhere, iterations: 1, expectile: 0.9}", "awr does not use `expectile`, which is for ilql"),
        ("offline: {log: /nowhere, iterations: 1, method: dqn}", "'bc', 'filtered_bc', 'awr', 'mc' or 'ilql'"),
        ("offline: {log: /nowhere, iterations: 1, best: 0.0, method: filtered_bc}", "greater than 0"),
        ("expert_iteration: {iterations: 3}", "give `at_least`, or `best` below 1"),
        ("expert_iteration: {iterations: 3, best: 0.5, filter: tails}", "'none', 'low', 'high' or 'both'"),
        ("distil: {iterations: 3}", "mode on_policy needs `teacher`"),
        ("distil: {iterations: 3, mode: sequence}", "mode sequence needs `log`"),
        ("distil: {iterations: 3, teacher: nano, best: 0.5}", "on_policy does not use `best`"),
        ("distil: {iterations: 3, teacher: nano, policy: noone}", "noone"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(stage: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=expected) as error:
        plan(make_pipeline(f"stages:\n  - {stage}\n"), tmp_path, lambda text: None)
    assert "\n" not in str(error.value)


def test_scripted_traces_are_imitated_in_the_roles_format(tmp_path: Path) -> None:
    role_file = tmp_path / "tagged_kuhn.yaml"
    text = (BUILT_IN / "nano_kuhn.yaml").read_text()
    role_file.write_text(
        text.replace("role: nano_kuhn", "role: tagged_kuhn").replace(
            "format: free", "format: tagged, action: answer, private: think"
        )
    )
    seat = f"{{role: {role_file}, policy: random}}"
    run = wait(start_pipeline(make_pipeline(f"""\
stages:
  - {{name: traces, play: {{iterations: 1, seats: {{first: {seat}, second: {seat}}}}}}}
  - sft: {{policy: player, data: {{run: "stage:traces", policies: [random]}}, batch: 4}}
"""), tmp_path / "run", RecordingWatcher()))  # fmt: skip
    rows = [json.loads(line) for line in (run / "stages/02-sft/data/rows.jsonl").read_text().splitlines()]
    imitated_texts = {
        (row["match"], row["seat"]): [m["content"] for m in row["messages"] if m["role"] == "assistant"] for row in rows
    }
    expected = {
        (match["id"], seat): [f"<answer>{turn['action']}</answer>" for turn in match["turns"] if turn["seat"] == seat]
        for match in RunReader(run / "stages/01-traces").matches()
        for seat in ("first", "second")
    }
    assert imitated_texts == {key: acts for key, acts in expected.items() if acts}
    assert read_metrics(run, "sft")[-1]["rows"] > 0
    experiment = read_spec(str(run / "stages/02-sft")).experiment
    assert experiment is not None
    (table,) = experiment.all_tables()
    assert (table.game.name, table.seats["first"].role) == ("kuhn_poker", "nano_kuhn"), (
        "the pipeline's game and role, for evaluation"
    )
    game_file = tmp_path / "planted.py"
    game_file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom games.kuhn_poker import KuhnPoker as Game\n")
    environment = FolderReader(run).environment()
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("kuhn_poker", f"{game_file}:Game"))
    with pytest.raises(ConfigError, match="was edited"):
        read_spec(str(run / "stages/02-sft"))
    environment["experiment"]["game"]["name"] = f"{game_file}:Game"
    write_environment(run, environment)  # as the author of a malicious folder would
    with pytest.raises(ConfigError, match="--trust"):
        wait(ContenderLoader().load(str(run / "stages/02-sft"), games=[f"{game_file}:Game"]))
    assert not (tmp_path / "ran").exists()


# -- the reference of a policy -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_reference_is_what_the_policy_names(tmp_path: Path) -> None:
    """At the first step the KL is 0 to the weights after the warm start, and not to those of a later update."""
    run_lab(tmp_path / "first", small("iterations=1"))
    settings = ("iterations=1", "learn.minibatches=1")
    kl = list[float]()
    for reference in (f"{tmp_path}/first@1", None):
        config = small(*settings, f"policies.shared.reference={reference or 'null'}")
        config = wait(preflight(config, lambda what: None)).experiment
        watcher = RecordingWatcher()
        run_lab(tmp_path / str(len(kl)), config, watcher)
        kl.append(watcher.rows[0]["learn"]["shared"]["kl"])
    assert kl[0] > 1e-4 and kl[1] == pytest.approx(0, abs=1e-6)


def test_a_reference_that_reads_other_tokens_is_refused() -> None:
    config = small("policies.shared.reference=smollm2-135m-instruct")
    with pytest.raises(ConfigError, match=r"policies.shared.reference: .*smollm2-135m-instruct has another tokenizer"):
        wait(preflight(config, lambda what: None))
    with pytest.raises(ConfigError, match="a frozen policy has no use for a reference: remove `reference`"):
        small("policies.shared.reference=nano", "policies.shared.train=false", "policies.shared.imitate=null")


# -- a log in random order ---------------------------------------------------------------------------------


def test_each_pass_uses_the_whole_shuffled_log(tmp_path: Path) -> None:
    def make_key(seed: int, acts: Iterable[str]) -> tuple[int, ...]:
        return seed, *map(hash, acts)

    config = small("iterations=2", "play.matches=6", "play.group=2", "policies.shared.imitate=null", "learn.lr=0.0")
    run_lab(tmp_path / "first", config)
    rows = [row for k in (1, 2) for row in RunReader(tmp_path / "first").log.read(k)]
    expected = sorted(make_key(row["seed"], (turn["raw"] for turn in row["turns"])) for row in rows)
    report = wait(preflight(small(f"source.log={tmp_path / 'first'}"), lambda what: None))
    assert any("replies are another's, without a correction" in note for note in report.notes)
    spec = SourceSpec(log=str(tmp_path / "first"), iterations=2, shuffle=True)

    def draw(seed: int) -> list[list[tuple[int, ...]]]:
        run = RunFolder.create(tmp_path / f"run{seed}", to_yaml(config), {})
        source = LogSource(run, spec, config.all_tables(), {"shared": 10**6}, RecordingWatcher(), seed % 10)
        parts = [wait(source.matches(k)).records for k in range(1, 5)]
        assert all(t.trained for part in parts for record in part for t in trajectories(record))
        return [[make_key(record.seed, (turn.raw for turn in record.turns)) for record in part] for part in parts]

    found = draw(1)
    for first, second in (found[:2], found[2:]):
        assert sorted([*first, *second]) == expected and len(first) == len(second) == 6
    assert found[:2] != found[2:], "the second pass has another order"
    for part in found:
        seeds = [seed for seed, *_ in part]
        assert all(seeds.count(seed) == 2 for seed in seeds), "a deal was split"
    assert draw(11) == found != draw(2), "the order depends on the seed"


def test_a_log_of_fewer_deals_than_iterations_is_not_shuffled(tmp_path: Path) -> None:
    run_lab(tmp_path / "first", small("iterations=1", "play.matches=1", "learn.lr=0.0", "policies.shared.imitate=null"))
    spec = SourceSpec(log=str(tmp_path / "first"), iterations=1, shuffle=True)
    table = TableSpec(game=GameSpec(name="kuhn_poker"), seats={})
    run = RunFolder.create(tmp_path / "run", to_yaml(small()), {})
    source = LogSource(run, spec, [table], {}, RecordingWatcher())
    with pytest.raises(ConfigError, match="has 0 complete deals of this run's games in 1 iterations"):
        wait(source.matches(1))


@pytest.fixture(scope="module")
def stages_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return stages that imitate matches of a scripted player, as texts and as chats."""
    source = "run: 'stage:cases', policies: [random]"
    stages = (
        "stages:\n"
        "  - {name: cases, play: {iterations: 1, seats: {first: {policy: random}, second: {policy: random}}}}\n"
        f"  - {{name: texts, sft: {{policy: player, data: {{{source}, as_texts: true}}}}}}\n"
        f"  - sft: {{policy: player, data: {{{source}}}}}\n"
    )
    return (
        wait(start_pipeline(make_pipeline(stages), tmp_path_factory.mktemp("imitated") / "run", RecordingWatcher()))
        / "stages"
    )


def test_a_scripted_player_is_imitated_by_its_chats_and_texts(stages_folder: Path) -> None:
    """Chats hold what a model at the seat would read and the logged acts; texts hold the same lines."""
    chats, texts = (
        [json.loads(line) for line in (stages_folder / name / "data" / "rows.jsonl").read_text().splitlines()]
        for name in ("03-sft", "02-texts")
    )
    for chat, text in zip(chats, texts, strict=True):
        assert text["text"] == "\n".join(message["content"] for message in chat["messages"])
        assert chat["policy"] == "random" and chat["match"] == text["match"]
    replies = [message["content"] for chat in chats for message in chat["messages"] if message["role"] == "assistant"]
    logged = [turn["raw"] for row in RunReader(stages_folder / "01-cases").matches() for turn in row["turns"]]
    assert replies and set(replies) <= set(logged)
    assert read_weight_files(stages_folder / "02-texts", 1, "player") != read_weight_files(
        stages_folder / "03-sft", 1, "player"
    )


@pytest.mark.parametrize("memory", [{"kind": "all"}, {"kind": "window", "turns": 0}, {"kind": "window", "turns": 1}])
def test_match_is_one_text_for_any_memory(stages_folder: Path, memory: dict[str, Any]) -> None:
    """A role with a window has a chat per turn; the text has each message once."""
    chats = Chats(RunReader(stages_folder / "01-cases"), Selection(policies=("random",)))
    for key, role in chats.roles.items():
        chats.roles[key] = role.model_copy(update={"memory": Memory(**memory)})
    replies = defaultdict[tuple[str, str], list[Reply]](list)
    for _, iteration in chats.iterations():
        for reply in iteration:
            replies[reply.row["id"], reply.turn["seat"]].append(reply)
    texts = [row["text"] for rows in chats.texts() for row in rows]
    assert max(map(len, replies.values())) > 1 and len(texts) == len(replies)
    for text, seat_replies in zip(texts, replies.values(), strict=True):
        lines = [message["content"] for message in seat_replies[0].prompt] + [seat_replies[0].message["content"]]
        for reply in seat_replies[1:]:
            lines += [reply.prompt[-1]["content"], reply.message["content"]]
        assert text == "\n".join(lines)
