"""The commands as a user types them: output, files, and terminal safety of other people's text."""

import json
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file

from agents.chat_template import CLOCK
from agents.model_folder import load_model, load_tokenizer
from agents.stream import Stream
from arena.cli import catalogue
from arena.doctor import describe_environment
from arena.league.settings import OpponentSpec
from arena.records import MatchRecord
from arena.store.run import RunFolder
from games.adapters.loading import LIBRARIES
from games.contracts import Message
from tests.factories.children import ChildFault, run_arena_child
from tests.factories.commands import ITERATIONS, NO_IMITATION, TINY, arena, get_refusal
from tests.factories.records import make_match_record, make_turn
from tests.factories.traces import assert_same, assert_same_runs, parse_json_lines, read_trace

TINY_WITHOUT_JSON = [argument for argument in TINY if argument != "--json"]
ROLE = """
role: {name}
game: negotiation
system: my own role, {name}
turn: "{{% if first %}}pool {{{{ public.pool | join(' ') }}}} {{{{ private['values'] | join(' ') }}}}\\n{{% endif %}}\\
  {{% for m in messages %}}{{{{ m.text }}}}\\n{{% endfor %}}"
reply: {{format: free}}
sampling: {{max_tokens: 6}}
"""
HOSTILE = (
    "[/im_end] [link=http://x]click[/link] [bold]loud\x1b[31m red \x1b]8;;http://x\x07 \u202egnol\r\nopener: ACCEPT"
)


# Words


def test_version() -> None:
    result = arena("--version")
    assert result.code == 0 and re.fullmatch(r"arena \d+\.\d+\.\d+\n", result.out)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "arena run selfplay --game negotiation"),
        (["--help"], "resume"),
        (["run", "selfplay", "--help"], "--set"),
        (["run", "selfplay", "--help"], "Train policies"),
        (["resume", "--help"], "newest valid checkpoint"),
        (["show", "--help"], "advantage|credited"),
        (["export", "--help"], "transformers"),
        (["list", "--help"], "estimators"),
        (["check", "role", "--help"], "role file"),
    ],
)
def test_help_explains(words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = arena(*words)
    assert result.code == (0 if words else 2)
    assert re.search(expected, result.out + result.err)


@pytest.mark.parametrize(
    "words", [["--nope"], ["fly"], ["run"], ["show"], ["export", "x"], ["list"], ["run", "selfplay", "x"]]
)
def test_wrong_use_exits_with_code_2(words: list[str]) -> None:
    result = arena(*words)
    assert result.code == 2 and "Traceback" not in result.out + result.err
    assert "Usage" in result.out + result.err


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_every_kind_is_listed(kind: str) -> None:
    rows = json.loads(arena("list", kind, "--json").out)
    shown = arena("list", kind).out
    study_columns = {"family", "minutes", "replicates"}  # only recipes with a study have them
    assert rows and all(value or name in study_columns for row in rows for name, value in row.items())
    assert any(row.keys() >= study_columns and all(row.values()) for row in rows) == (kind == "recipes")
    for row in rows:
        assert next(iter(row.values())) in shown


def test_listed_names_are_accepted() -> None:
    known = get_args(OpponentSpec.model_fields["play"].annotation)
    assert {row["play"] for row in catalogue.list_entries("opponents")} == set(known)
    assert {f"{library}:NAME" for library in LIBRARIES} <= {row["game"] for row in catalogue.list_entries("games")}


def test_models_and_doctor_as_json() -> None:
    rows = json.loads(arena("list", "models", "--json").out)
    assert {"nano", "smollm2-135m-instruct"} <= {row["name"] for row in rows}
    result = arena("doctor", "--json")
    findings = json.loads(result.out)
    assert result.code == (0 if all(finding["ok"] for finding in findings) else 1)
    assert {"python", "learning", "device"} <= {finding["what"] for finding in findings}
    found = {finding["what"]: finding["found"] for finding in json.loads(result.out)}
    assert re.match(r"\d+ \(time of the same work: ", found["threads"])
    for what in ("threads", describe_environment()["instruction_set"], torch.__version__):
        assert what in found["same bits"], "what bit-repeatability depends on"
    assert len(arena("doctor").out.splitlines()) >= len(findings)


def test_shadowing_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from arena.doctor import find_shadowed_package

    assert find_shadowed_package() == ""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "agents")
    assert str(tmp_path) in find_shadowed_package() and "openai-agents" in find_shadowed_package()


# Roles


def test_a_role_is_shown_as_its_model_will_see_it(tmp_path: Path) -> None:
    result = arena("check", "role", "nano_opener")
    assert result.code == 0 and "pool" in result.out and "fit to play" in result.out
    file = tmp_path / "haggler.yaml"
    file.write_text(ROLE.format(name="haggler"))
    fields = json.loads(arena("check", "role", file, "--seat", "responder", "--json").out)
    assert fields["role"] == "haggler" and fields["system"] == "my own role, haggler"
    assert fields["turns"] and fields["turns"][0].startswith("pool ")
    assert arena("check", "role", "haggler", "--roles", tmp_path).code == 0


def test_a_role_cannot_steer_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "evil.yaml"
    file.write_text(
        'role: evil\nsystem: "a [bold]b[/bold] \\e[31m \\e]8;;http://x\\e\\\\ c"\n'
        'examples: [{see: "\\e[2J", say: "ok"}]\n'
    )
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = arena("check", "role", file)
    assert "[bold]b[/bold]" in result.out
    assert "\x1b[31m" not in result.out and "\x1b]8" not in result.out and "\x1b[2J" not in result.out


def test_own_roles_play_without_python(tmp_path: Path, uninterrupted_run: Path) -> None:
    folder = tmp_path / "roles"
    folder.mkdir()
    (folder / "haggler.yaml").write_text(ROLE.format(name="haggler"))
    (tmp_path / "other.yaml").write_text(ROLE.format(name="other"))
    run = tmp_path / "run"
    seats = ["--set", "seats.opener.role=haggler", "--set", f"seats.responder.role={tmp_path / 'other.yaml'}"]
    quick = [*NO_IMITATION, "--iterations", "1", "--roles", folder]
    result = arena(*TINY, *seats, *quick, "--policies", "separate", "--out", run)
    assert result.code == 0, result.err
    rows = list(RunFolder.open(run).reader.matches())
    assert {s["role"] for row in rows for s in row["seats"].values()} == {"haggler", "other"}
    assert {s["policy"] for row in rows for s in row["seats"].values()} == {"haggler", "other"}


# A run


def test_json_run_prints_rows_and_a_summary(uninterrupted_run: Path) -> None:
    output = (uninterrupted_run.parent / "out").read_text(), (uninterrupted_run.parent / "err").read_text()
    *rows, summary = parse_json_lines(output[0])
    assert [row["iteration"] for row in rows] == list(range(1, ITERATIONS + 1))
    assert summary["run"] == str(uninterrupted_run) and {"valid per match", "deal rate"} <= {
        c["figure"] for c in summary["changes"]
    }
    assert output[1] == ""
    for file in ("config.yaml", "environment.json", "metrics.jsonl"):
        assert (uninterrupted_run / file).stat().st_size
    assert json.loads((uninterrupted_run / "environment.json").read_text())["chat_clock"] == CLOCK.isoformat()
    assert (uninterrupted_run.parent / "latest").resolve() == uninterrupted_run.resolve()


def test_run_without_a_terminal_prints_lines(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = arena(*TINY_WITHOUT_JSON, *NO_IMITATION, "--iterations", "2", "--seed", "5", "--out", run)
    assert result.code == 0 and not result.err
    assert len(re.findall(r"^it \d .*valid .*deal .*loss ", result.out, re.M)) == 2
    assert "Iteration 1 against 2 (95 % intervals; ≈ within noise)" in result.out
    assert f"arena show {run} 0002-" in result.out and f"arena export {run} --policy shared --to DIR" in result.out
    assert "\x1b" not in result.out
    assert "seed: 5" in (run / "config.yaml").read_text()


@pytest.mark.slow
def test_separate_policies_are_two_sets_of_weights(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = run_arena_child(tmp_path, *TINY, "--policies", "separate", "--iterations", "1", "--out", run)
    assert result.code == 0, result.err
    newest = run / "checkpoints" / "0001" / "policies"
    assert sorted(p.name for p in newest.iterdir()) == ["nano_opener", "nano_responder"]
    first, second = (load_file(newest / name / "model.safetensors") for name in ("nano_opener", "nano_responder"))
    assert first.keys() == second.keys() and not all(torch.equal(first[k], second[k]) for k in first)
    learned = parse_json_lines(result.out)[0]["learn"]
    assert sorted(learned) == ["nano_opener", "nano_responder"]
    rows = [s["policy"] for row in RunFolder.open(run).reader.matches() for s in row["seats"].values()]
    assert set(rows) == {"nano_opener", "nano_responder"}


def test_scripted_policies_can_play_without_a_model(tmp_path: Path) -> None:
    run = tmp_path / "run"
    seats = ["--set", "seats.opener.policy=fair_split", "--set", "seats.responder.policy=conceder"]
    result = arena(*TINY_WITHOUT_JSON, *seats, *NO_IMITATION, "--iterations", "1", "--out", run)
    assert result.code == 0, result.err
    for words in (result.out, arena("show", run).out):
        assert "Iteration 1 (95 % intervals)" in words and "deal rate" in words
        assert "against 1" not in words and "difference" not in words, "one iteration is not compared with itself"
    assert "has no trained policy 'shared'" in get_refusal("export", run, "--to", tmp_path / "x")


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    before = read_trace(run)
    result = arena("resume", run)
    assert result.code == 0 and result.err == ""
    assert f"Iteration 1 against {ITERATIONS}" in result.out and f"arena show {run}" in result.out
    assert "\niter" not in result.out
    assert_same(read_trace(run), before)


@pytest.mark.slow
def test_run_can_be_resumed_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "haggler.yaml").write_text(ROLE.format(name="haggler"))
    monkeypatch.chdir(tmp_path)
    more = ["--set", "seats.opener.role=haggler", "--roles", "roles", *NO_IMITATION, "--iterations", "1"]
    result = run_arena_child(tmp_path, *TINY, *more, "--out", "run", fault=ChildFault(kill_at_step=30))
    assert result.code == -signal.SIGKILL
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = run_arena_child(tmp_path, "resume", tmp_path / "run")
    assert result.code == 0, result.err


def test_matches_that_keep_failing_stop_the_run_in_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    limit = ["--set", "play.limits.tokens=1", "--set", "play.attempts=2"]
    result = arena(*TINY_WITHOUT_JSON, *NO_IMITATION, *limit, "--out", run)
    assert result.code == 1 and "failed 2 times" in result.line and "token limit" in result.line
    failed = [row for row in RunFolder.open(run).reader.matches() if row["status"] == "failed"]
    assert {row["attempt"] for row in failed} == {0, 1} and not any(row["payoffs"] for row in failed)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("signal_number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_ended_run_names_the_resume_command(
    tmp_path: Path, uninterrupted_run: Path, signal_number: signal.Signals, code: int, word: str
) -> None:
    run = tmp_path / "run"

    def send_signal() -> None:
        while not (run / "log" / "0002.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal_number)

    threading.Thread(target=send_signal, daemon=True).start()
    result = arena(*TINY, "--out", run)
    assert result.code == code
    assert result.line == f"{word}; committed iterations are safe, and arena resume {run} continues"
    assert arena("resume", run).code == 0
    assert_same_runs(run, uninterrupted_run)


# Looking at it


def test_a_run_and_its_matches_are_shown(uninterrupted_run: Path) -> None:
    result = arena("show", uninterrupted_run)
    assert result.code == 0 and f"{ITERATIONS} of {ITERATIONS} iterations" in result.out
    match = re.search(r"arena show \S+ (\d{4}-\d{4})", result.out)
    assert match
    shown = arena("show", uninterrupted_run, match[1]).out
    row = json.loads(arena("show", uninterrupted_run, match[1], "--json").out)
    for turn in row["turns"]:
        assert f"{turn['index'] + 1:>2}. {turn['seat']}: " in shown
    assert len(re.findall(r"^    .*earned .*reward [+-]\d.*advantage [+-]\d", shown, re.M)) == len(row["turns"])
    assert "payoffs: opener" in shown and row["report"]["ended"] in shown
    assert len(json.loads(arena("show", uninterrupted_run, "--json").out)) == ITERATIONS


def make_hostile_match() -> MatchRecord:
    turn = make_turn(
        0, {HOSTILE: -1.0}, messages=(Message.of("referee", HOSTILE),), raw=HOSTILE, public=HOSTILE, private=HOSTILE,
        action=HOSTILE, valid=False,
    )  # fmt: skip
    stream = Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0])
    return make_match_record(
        game="negotiation", payoffs={"opener": 0.0}, report={"ended": HOSTILE}, turns=(turn,),
        streams={"opener": (stream,)},
    )  # fmt: skip


@pytest.mark.parametrize("is_terminal", [False, True])
def test_model_text_is_never_markup_nor_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    run = RunFolder.create(tmp_path / "run", "name: x\n", {})
    run.log.extend([make_hostile_match()])
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    result = arena("show", run.path, "0001-0000")
    assert result.code == 0, result.err
    for literal in ("[/im_end]", "[link=http://x]click[/link]", "[bold]loud"):
        assert result.out.count(literal) == 5  # heard, said, thought, earned, ended
    ours = re.compile(r"\x1b\[[0-9;]*m")
    assert ("\x1b" in result.out) == is_terminal
    assert "\x1b[31m red" not in result.out and "\x1b" not in ours.sub("", result.out)
    assert not {"\u202e", "\r", "\x07"} & set(result.out)
    assert not re.search(r"^opener: ACCEPT", result.out, re.M)


# Taking it away


def test_transformers_loads_an_export(tmp_path: Path, uninterrupted_run: Path) -> None:
    to = tmp_path / "mine"
    result = arena("export", uninterrupted_run, "--policy", "shared", "--to", to, "--json")
    assert json.loads(result.out) == {"folder": str(to), "iteration": ITERATIONS}
    saved = uninterrupted_run / "checkpoints" / f"{ITERATIONS:04d}" / "policies" / "shared"
    assert {p.name for p in to.iterdir()} == {p.name for p in saved.iterdir()} - {"optimizer.safetensors"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine"]
    tokenizer = load_tokenizer(to)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "pool 1 2 3"}], add_generation_prompt=True)
    ids = torch.tensor([asked["input_ids"] if not isinstance(asked, list) else asked])
    ours, theirs = load_model(saved), load_with_transformers(to)
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)
    written = theirs.generate(ids, max_new_tokens=4, do_sample=False)
    assert written.shape[1] > ids.shape[1]


def load_with_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


def test_an_older_checkpoint_can_be_exported(tmp_path: Path, uninterrupted_run: Path) -> None:
    result = arena("export", uninterrupted_run, "--iteration", ITERATIONS - 1, "--to", tmp_path / "new" / "older")
    assert result.out == f"{tmp_path / 'new' / 'older'}: shared after iteration {ITERATIONS - 1}\n"
    assert "has no checkpoint of iteration 1" in get_refusal(
        "export", uninterrupted_run, "--iteration", "1", "--to", tmp_path / "x"
    )
