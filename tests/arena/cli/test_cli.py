"""The commands, as a user types them: what they print, what they leave, and that nobody's text steers a terminal."""

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
from agents.stream import Stream
from agents.weights import load_model, load_tokenizer
from arena.cli import catalogue
from arena.doctor import describe_environment
from arena.league.settings import OpponentSpec
from arena.records import MatchRecord, Seating, Turn
from arena.store.run import RunFolder
from games.adapters.loading import LIBRARIES
from games.contracts import MatchId, Message
from tests.factories.children import ChildFault, run_arena_child
from tests.factories.commands import ITERATIONS, NO_IMITATION, TINY, arena, get_refusal
from tests.factories.traces import assert_same, parse_json_lines, read_trace

LINES = [argument for argument in TINY if argument != "--json"]
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
    told = arena("--version")
    assert told.code == 0 and re.fullmatch(r"arena \d+\.\d+\.\d+\n", told.out)


@pytest.mark.parametrize(
    ("words", "teaches"),
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
def test_help_teaches(words: list[str], teaches: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = arena(*words)
    assert told.code == (0 if words else 2)
    assert re.search(teaches, told.out + told.err)


@pytest.mark.parametrize(
    "words", [["--nope"], ["fly"], ["run"], ["show"], ["export", "x"], ["list"], ["run", "selfplay", "x"]]
)
def test_wrong_use_is_told_with_exit_code_2(words: list[str]) -> None:
    told = arena(*words)
    assert told.code == 2 and "Traceback" not in told.out + told.err
    assert "Usage" in told.out + told.err


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_every_kind_is_listed(kind: str) -> None:
    rows = json.loads(arena("list", kind, "--json").out)
    shown = arena("list", kind).out
    of_studies = {"family", "minutes", "replicates"}  # which not all recipes have
    assert rows and all(value or name in of_studies for row in rows for name, value in row.items())
    assert any(row.keys() >= of_studies and all(row.values()) for row in rows) == (kind == "recipes")
    for row in rows:
        assert next(iter(row.values())) in shown


def test_what_is_listed_can_be_named() -> None:
    known = get_args(OpponentSpec.model_fields["play"].annotation)
    assert {row["play"] for row in catalogue.list_entries("opponents")} == set(known)
    assert {f"{library}:NAME" for library in LIBRARIES} <= {row["game"] for row in catalogue.list_entries("games")}


def test_models_and_doctor_for_scripts() -> None:
    rows = json.loads(arena("list", "models", "--json").out)
    assert {"nano", "smollm2-135m-instruct"} <= {row["name"] for row in rows}
    told = arena("doctor", "--json")
    findings = json.loads(told.out)
    assert told.code == (0 if all(finding["ok"] for finding in findings) else 1)
    assert {"python", "learning", "device"} <= {finding["what"] for finding in findings}
    found = {finding["what"]: finding["found"] for finding in json.loads(told.out)}
    assert re.match(r"\d+ \(time of the same work: ", found["threads"])
    for what in ("threads", describe_environment()["instruction_set"], torch.__version__):
        assert what in found["same bits"], "what bit-repeatability depends on"
    assert len(arena("doctor").out.splitlines()) >= len(findings)


def test_names_of_foreign_packages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    told = arena("check", "role", "nano_opener")
    assert told.code == 0 and "pool" in told.out and "fit to play" in told.out
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
    told = arena("check", "role", file)
    assert "[bold]b[/bold]" in told.out
    assert "\x1b[31m" not in told.out and "\x1b]8" not in told.out and "\x1b[2J" not in told.out


def test_own_roles_play_without_python(tmp_path: Path, uninterrupted_run: Path) -> None:
    folder = tmp_path / "roles"
    folder.mkdir()
    (folder / "haggler.yaml").write_text(ROLE.format(name="haggler"))
    (tmp_path / "other.yaml").write_text(ROLE.format(name="other"))
    run = tmp_path / "run"
    seats = ["--set", "seats.opener.role=haggler", "--set", f"seats.responder.role={tmp_path / 'other.yaml'}"]
    quick = [*NO_IMITATION, "--iterations", "1", "--roles", folder]
    told = arena(*TINY, *seats, *quick, "--policies", "separate", "--out", run)
    assert told.code == 0, told.err
    rows = list(RunFolder.open(run).reader.matches())
    assert {s["role"] for row in rows for s in row["seats"].values()} == {"haggler", "other"}
    assert {s["policy"] for row in rows for s in row["seats"].values()} == {"haggler", "other"}


# A run


def test_a_run_for_scripts_is_json_lines_and_a_summary(uninterrupted_run: Path) -> None:
    told = (uninterrupted_run.parent / "out").read_text(), (uninterrupted_run.parent / "err").read_text()
    *rows, summary = parse_json_lines(told[0])
    assert [row["iteration"] for row in rows] == list(range(1, ITERATIONS + 1))
    assert summary["run"] == str(uninterrupted_run) and {"valid per match", "deal rate"} <= {
        c["figure"] for c in summary["changes"]
    }
    assert told[1] == ""
    for file in ("config.yaml", "environment.json", "metrics.jsonl"):
        assert (uninterrupted_run / file).stat().st_size
    assert json.loads((uninterrupted_run / "environment.json").read_text())["chat_clock"] == CLOCK.isoformat()
    assert (uninterrupted_run.parent / "latest").resolve() == uninterrupted_run.resolve()


def test_a_run_for_people_is_lines_without_a_terminal(tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = arena(*LINES, *NO_IMITATION, "--iterations", "2", "--seed", "5", "--out", run)
    assert told.code == 0 and told.err == ""
    assert len(re.findall(r"^it \d .*valid .*deal .*loss ", told.out, re.M)) == 2
    assert "Iteration 1 against 2 (95 % intervals; ≈ within noise)" in told.out
    assert f"arena show {run} 0002-" in told.out and f"arena export {run} --policy shared --to DIR" in told.out
    assert "\x1b" not in told.out
    assert "seed: 5" in (run / "config.yaml").read_text()


@pytest.mark.slow
def test_separate_policies_are_two_sets_of_weights(tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = run_arena_child(tmp_path, *TINY, "--policies", "separate", "--iterations", "1", "--out", run)
    assert told.code == 0, told.err
    newest = run / "checkpoints" / "0001" / "policies"
    assert sorted(p.name for p in newest.iterdir()) == ["nano_opener", "nano_responder"]
    one, other = (load_file(newest / name / "model.safetensors") for name in ("nano_opener", "nano_responder"))
    assert one.keys() == other.keys() and not all(torch.equal(one[k], other[k]) for k in one)
    learned = parse_json_lines(told.out)[0]["learn"]
    assert sorted(learned) == ["nano_opener", "nano_responder"]
    rows = [s["policy"] for row in RunFolder.open(run).reader.matches() for s in row["seats"].values()]
    assert set(rows) == {"nano_opener", "nano_responder"}


def test_brains_alone_may_play(tmp_path: Path) -> None:
    run = tmp_path / "run"
    seats = ["--set", "seats.opener.policy=fair_split", "--set", "seats.responder.policy=conceder"]
    told = arena(*LINES, *seats, *NO_IMITATION, "--iterations", "1", "--out", run)
    assert told.code == 0, told.err
    for words in (told.out, arena("show", run).out):
        assert "Iteration 1 (95 % intervals)" in words and "deal rate" in words
        assert "against 1" not in words and "difference" not in words, "one iteration is not compared with itself"
    assert "has no trained policy 'shared'" in get_refusal("export", run, "--to", tmp_path / "x")


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    before = read_trace(run)
    told = arena("resume", run)
    assert told.code == 0 and told.err == ""
    assert f"Iteration 1 against {ITERATIONS}" in told.out and f"arena show {run}" in told.out
    assert "\niter" not in told.out
    assert_same(read_trace(run), before)


@pytest.mark.slow
def test_a_run_may_be_resumed_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "haggler.yaml").write_text(ROLE.format(name="haggler"))
    monkeypatch.chdir(tmp_path)
    more = ["--set", "seats.opener.role=haggler", "--roles", "roles", *NO_IMITATION, "--iterations", "1"]
    told = run_arena_child(tmp_path, *TINY, *more, "--out", "run", fault=ChildFault(kill_at_step=30))
    assert told.code == -signal.SIGKILL
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    told = run_arena_child(tmp_path, "resume", tmp_path / "run")
    assert told.code == 0, told.err


def test_matches_that_keep_failing_stop_the_run_in_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    limit = ["--set", "play.limits.tokens=1", "--set", "play.attempts=2"]
    told = arena(*LINES, *NO_IMITATION, *limit, "--out", run)
    assert told.code == 1 and "failed 2 times" in told.line and "token limit" in told.line
    failed = [row for row in RunFolder.open(run).reader.matches() if row["status"] == "failed"]
    assert {row["attempt"] for row in failed} == {0, 1} and not any(row["payoffs"] for row in failed)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_whoever_ends_a_run_is_told_how_to_go_on(
    tmp_path: Path, uninterrupted_run: Path, number: signal.Signals, code: int, word: str
) -> None:
    run = tmp_path / "run"

    def send() -> None:
        while not (run / "log" / "0002.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()
    told = arena(*TINY, "--out", run)
    assert told.code == code
    assert told.line == f"{word}; committed iterations are safe, and arena resume {run} continues"
    assert arena("resume", run).code == 0
    assert_same(read_trace(run), read_trace(uninterrupted_run))


# Looking at it


def test_a_run_and_its_matches_are_shown(uninterrupted_run: Path) -> None:
    told = arena("show", uninterrupted_run)
    assert told.code == 0 and f"{ITERATIONS} of {ITERATIONS} iterations" in told.out
    match = re.search(r"arena show \S+ (\d{4}-\d{4})", told.out)
    assert match
    shown = arena("show", uninterrupted_run, match[1]).out
    row = json.loads(arena("show", uninterrupted_run, match[1], "--json").out)
    for turn in row["turns"]:
        assert f"{turn['index'] + 1:>2}. {turn['seat']}: " in shown
    assert len(re.findall(r"^    .*earned .*reward [+-]\d.*advantage [+-]\d", shown, re.M)) == len(row["turns"])
    assert "payoffs: opener" in shown and row["report"]["ended"] in shown
    assert len(json.loads(arena("show", uninterrupted_run, "--json").out)) == ITERATIONS


def hostile_match() -> MatchRecord:
    turn = Turn(
        index=0, seat="opener", role="opener", policy="shared", version=1, messages=(Message.of("referee", HOSTILE),),
        raw=HOSTILE, public=HOSTILE, private=HOSTILE, action=HOSTILE, valid=False, rewards={HOSTILE: -1.0},
        finish="stop", tokens=9, seconds=0.1,
    )  # fmt: skip
    stream = Stream([1, 2], [False, True], [0.0, -0.5], [-1, 0])
    return MatchRecord(
        identity=MatchId(1, 0),
        game="negotiation",
        options={},
        seed=1,
        seats={"opener": Seating("opener", "shared", 1, True, "model")},
        status="finished",
        reason="",
        payoffs={"opener": 0.0},
        report={"ended": HOSTILE},
        turns=(turn,),
        streams={"opener": (stream,)},
        started="2026-01-01T00:00:00+00:00",
        seconds=1.0,
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_what_models_write_is_never_markup_nor_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    run = RunFolder.create(tmp_path / "run", "name: x\n", {})
    run.log.append(hostile_match())
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    told = arena("show", run.path, "0001-0000")
    assert told.code == 0, told.err
    for literal in ("[/im_end]", "[link=http://x]click[/link]", "[bold]loud"):
        assert told.out.count(literal) == 5  # heard, said, thought, earned, ended
    ours = re.compile(r"\x1b\[[0-9;]*m")
    assert ("\x1b" in told.out) == terminal
    assert "\x1b[31m red" not in told.out and "\x1b" not in ours.sub("", told.out)
    assert not {"\u202e", "\r", "\x07"} & set(told.out)
    assert not re.search(r"^opener: ACCEPT", told.out, re.M)


# Taking it away


def test_an_export_is_a_model_that_transformers_load(tmp_path: Path, uninterrupted_run: Path) -> None:
    to = tmp_path / "mine"
    told = arena("export", uninterrupted_run, "--policy", "shared", "--to", to, "--json")
    assert json.loads(told.out) == {"folder": str(to), "iteration": ITERATIONS}
    kept = uninterrupted_run / "checkpoints" / f"{ITERATIONS:04d}" / "policies" / "shared"
    assert {p.name for p in to.iterdir()} == {p.name for p in kept.iterdir()} - {"optimizer.safetensors"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine"]
    tokenizer = load_tokenizer(to)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "pool 1 2 3"}], add_generation_prompt=True)
    ids = torch.tensor([asked["input_ids"] if not isinstance(asked, list) else asked])
    ours, theirs = load_model(kept), loaded(to)
    with torch.no_grad():
        assert torch.equal(ours(ids).logits, theirs(ids).logits)
    written = theirs.generate(ids, max_new_tokens=4, do_sample=False)
    assert written.shape[1] > ids.shape[1]


def loaded(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


def test_an_older_checkpoint_can_be_exported(tmp_path: Path, uninterrupted_run: Path) -> None:
    told = arena("export", uninterrupted_run, "--iteration", ITERATIONS - 1, "--to", tmp_path / "new" / "older")
    assert told.out == f"{tmp_path / 'new' / 'older'}: shared after iteration {ITERATIONS - 1}\n"
    assert "has no checkpoint of iteration 1" in get_refusal(
        "export", uninterrupted_run, "--iteration", "1", "--to", tmp_path / "x"
    )
