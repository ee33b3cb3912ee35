"""Bad input: one clear line on stderr, exit code 2, no traceback; nothing is lost or left behind."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer
from arena.store.run import RunFolder
from tests.factories.commands import ITERATIONS, NO_IMITATION, TINY, arena, get_refusal, limit_file_size
from tests.factories.traces import assert_same, assert_same_runs, flip_byte, read_trace

RUN = ["run", "selfplay", "--recipe", "negotiation-nano"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder for each test."""
    place = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(place)
    return place


def get_run_refusal(*arguments: str | Path) -> str:
    """Return the one line of a run that is refused, and check that it leaves nothing."""
    before = sorted(Path.cwd().rglob("*"))
    by_default = get_refusal(*RUN, *arguments)
    named = get_refusal(*RUN, *arguments, "--out", "out")
    assert by_default == named
    assert sorted(Path.cwd().rglob("*")) == before
    return named


# Names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--game", "negotation"], "unknown game 'negotation' — did you mean 'negotiation'? (arena list games)"),
        (["--set", "game.name=negotation"], "unknown game 'negotation' — did you mean 'negotiation'?"),
        (["--game", "x\x1b[31m\ny"], "unknown game 'x[31m y'"),
        (["--set", "seats.opener.role=nano_openr"], "unknown role 'nano_openr' — did you mean 'nano_opener'?"),
        (["--set", "seats.opener.policy=shard"], "unknown policy 'shard' — did you mean 'shared'?"),
        (["--set", "seats.opener.policy=randm"], "unknown policy 'randm' — did you mean 'random'?"),
        (["--set", "seats.opener.policy=exploiter:fair_spilt"], "did you mean 'exploiter:fair_split'?"),
        (["--set", "credit.estimator=mrs"], "unknown estimator 'mrs' — did you mean 'mars'?"),
        (["--set", "learn.loss=likelyhood"], "unknown loss 'likelyhood' — did you mean 'likelihood'?"),
        (
            ["--set", "policies.shared.imitate.scripted=[randm]"],
            "unknown scripted policy 'randm' — did you mean 'random'?",
        ),
        (["--set", "credit.stages=[{nonesuch: {}}]"], "unknown stage 'nonesuch'"),
        (["--set", "policies.shared.model=smollm"], "unknown model 'smollm': did you mean 'smollm2-135m-instruct'?"),
        (["--set", "policies.shared.model=./nowhere"], "no model folder ./nowhere"),
        (["--set", "credit.estimator={mars: {by: [gam]}}"], "did you mean 'game'?"),
        (["--policies", "bogus"], "--policies is shared or separate, not 'bogus'"),
        (["--roles", "nowhere"], "nowhere: the folder of roles does not exist"),
        (["--iterations", "0"], "iterations"),
        (["--seed=-1"], "seed"),
    ],
)
def test_unknown_names(arguments: list[str], message: str) -> None:
    assert message in get_run_refusal(*arguments)


def test_a_recipe_given_as_a_command() -> None:
    assert "arena run selfplay --recipe mars-nano" in get_refusal("run", "mars-nano")


def test_an_unknown_recipe() -> None:
    line = get_refusal("run", "selfplay", "--recipe", "negotiation-nan", "--out", "out")
    assert "unknown recipe 'negotiation-nan' — did you mean 'negotiation-nano'?" in line
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "rols"], "unknown list 'rols' — did you mean 'roles'?"),
        (["list", "roles", "--roles", "nowhere"], "nowhere: the folder of roles does not exist"),
        (["check", "role", "openr"], "unknown role 'openr' — did you mean 'opener'?"),
        (["check", "role", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["check", "role", "opener", "--game", "chss"], "unknown game 'chss'"),
        (["check", "role", "opener", "--seat", "openr"], "no seat 'openr' — did you mean 'opener'?"),
    ],
)
def test_unknown_names_in_list_and_check(arguments: list[str], message: str) -> None:
    assert message in get_refusal(*arguments)


# YAML

# One of each kind; tests/agents/test_strict_yaml.py has all messages.
BROKEN_YAML: dict[str, tuple[str | bytes, str]] = {
    "duplicate key": ("{key}: 1\n{key}: 2\n", r":{2}: {key}: written twice, first in line {1}"),
    "alias bomb": ("{key}: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", r":{1}: {key}: anchors"),
    "nested deep": ("{key}: " + "[" * 5000 + "]" * 5000 + "\n", r":{1}: {key}.*nested deeper than 32"),
    "invalid UTF-8": (b"{key}: \xff\xfe\n", r":{1}: {key}: byte 0xff is not UTF-8"),
    "tag": ("{key}: !!python/object/apply:os.system [x]\n", r":{1}: {key}: tags"),
    "two documents": ("{key}: 1\n---\n{key}: 2\n", r"more than one document"),
}
NOT_A_MAPPING = {
    "empty": (b"", "the text is empty"),
    "comments only": (b"# nothing\n\n", "the text is empty"),
    "a list": (b"[1, 2]\n", ":1: .*expected `key: value` lines"),
    "a word": (b"hello\n", ":1: .*expected `key: value` lines"),
    "too large": (b"# x\n" * 300_000, "larger than 1 MB"),
}
BROKEN_CONFIGS = {
    "unknown field": (b"learn:\n  lrr: 1e-5\n", r":2: learn\.lrr: unknown field — did you mean 'lr'\?"),
    "unknown section": (b"seed: 1\nlern: {lr: 1}\n", r":2: lern: unknown field — did you mean 'learn'\?"),
    "a word for a number": (b"play:\n  matches: many\n", r":2: play\.matches: .*integer, not 'many'"),
    "a truth for a number": (b"play: {matches: true}\n", r":1: play\.matches: .*integer"),
    "a fraction": (b"play: {matches: 1.5}\n", r":1: play\.matches: .*integer, not 1\.5"),
    "a text for a part": (b"seed: 0\nlearn: 5\n", r":2: learn: "),
    "too small": (b"\n\nplay: {matches: 0}\n", r":3: play\.matches: .*greater than or equal to 1"),
    "out of a choice": (b"precision: fp23\n", r":1: precision: .*did you mean 'fp32'\?"),
    "yes is a text": (b"policies: {shared: {train: yes}}\n", r":1: policies\.shared\.train: .*boolean"),
    "a null": (b"credit: null\n", r":1: credit: "),
    "a name that could be a path": (b"name: ../../x\n", r":1: name: "),
    "merge key": (b"learn:\n  <<: {lr: 1}\n", r":2: learn\.<<: unknown field"),
}


def fill_broken_yaml(key: str, first_line: int) -> list[tuple[bytes, str]]:
    """Return the broken texts about one key, each with the expected message if the text starts at `first_line`."""
    lines = {"1": str(first_line), "2": str(first_line + 1)}
    cases = []
    for text, message in BROKEN_YAML.values():
        data = text.encode() if isinstance(text, str) else text
        data = data.replace(b"{key}", key.encode()).replace(b"{{", b"{")
        for name, value in {**lines, "key": key}.items():
            message = message.replace(f"{{{name}}}", value)
        cases.append((data, message))
    return cases


@pytest.mark.parametrize(
    ("data", "message"),
    [*fill_broken_yaml("learn", 1), *NOT_A_MAPPING.values(), *BROKEN_CONFIGS.values()],
    ids=[*BROKEN_YAML, *NOT_A_MAPPING, *BROKEN_CONFIGS],
)
def test_a_broken_config(data: bytes, message: str) -> None:
    Path("mine.yaml").write_bytes(data)
    line = get_run_refusal("--config", "mine.yaml")
    assert line.startswith("mine.yaml") and re.search(message, line), line
    assert len(line) < 500


BROKEN_ROLES = {
    "unknown field": (b"role: mine\npersonna: x\n", r":2: personna: unknown field — did you mean 'persona'\?"),
    "deep unknown field": (b"role: mine\nsampling:\n  temprature: 1\n", r":3: sampling\.temprature: unknown field"),
    "bad type": (b"role: mine\nsampling: {max_tokens: many}\n", r":2: sampling\.max_tokens: .*integer"),
    "out of range": (b"role: mine\nsampling:\n  top_p: 1.5\n", r":3: sampling\.top_p: "),
    "no role": (b"persona: x\n", r":1: role: missing"),
    "torn template": (b"role: mine\nsystem: '{{ persona'\n", r":2: system: "),
    "unknown variable": (b"role: mine\nsystem: '{{ secrets }}'\n", r":2: system: .*secrets"),
    "unknown format": (b"role: mine\nreply: {format: jsn}\n", r":2: reply\.format: .*did you mean 'json'\?"),
    "an example out of format": (
        b"role: mine\nreply: {format: json, action: a}\nexamples: [{see: x, say: y}]\n",
        r":3: examples.*example 1",
    ),
}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((b"role: mine\n" + text, message) for text, message in fill_broken_yaml("persona", 2)),
        *NOT_A_MAPPING.values(),
        *BROKEN_ROLES.values(),
    ],
    ids=[*BROKEN_YAML, *NOT_A_MAPPING, *BROKEN_ROLES],
)
def test_a_broken_role(data: bytes, message: str) -> None:
    Path("mine.yaml").write_bytes(data)
    line = get_refusal("check", "role", "mine.yaml")
    assert line.startswith("mine.yaml") and re.search(message, line), line
    assert get_run_refusal("--set", "seats.opener.role=mine.yaml") == line


def test_role_template_cannot_reach_python_internals() -> None:
    Path("mine.yaml").write_text("role: mine\nsystem: \"{{ ''.__class__.__mro__ }}\"\n")
    assert get_refusal("check", "role", "mine.yaml")


def test_role_name_must_match_its_file_and_be_unique() -> None:
    Path("roles").mkdir()
    Path("roles/mine.yaml").write_text("role: yours\n")
    assert "'yours' is not the file's name" in get_run_refusal("--roles", "roles", "--set", "seats.opener.role=mine")
    Path("roles/opener.yaml").write_text("role: opener\n")
    assert "the name 'opener' is taken" in get_run_refusal("--roles", "roles")


@pytest.mark.parametrize("sampling", ["top_p: 0.9", "top_k: 5", "temperature: 0"])
def test_trained_policy_refuses_truncated_sampling(sampling: str) -> None:
    Path("mine.yaml").write_text(f"role: mine\nsystem: x\nsampling: {{{sampling}}}\n")
    line = get_run_refusal("--set", "seats.opener.role=mine.yaml")
    assert "policy 'shared' is trained" in line and "change the role's sampling" in line


@pytest.mark.parametrize("path", ["nowhere.yaml", "."])
def test_a_config_that_cannot_be_read(path: str) -> None:
    assert "cannot be read" in get_run_refusal("--config", path)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("learn.lr", "write it as a.b=value"),
        ("=5", "write it as a.b=value"),
        ("", "write it as a.b=value"),
        ("learn.lr=[1", "--set learn.lr=[1"),
        ("learn.lr=&a 1", "anchors"),
        ("learn..lr=1", "unknown field"),
        ("learn.lrr=1", "unknown field — did you mean 'lr'?"),
        ("learn.lr.x=1", "learn.lr"),
        ("learn.lr=fast", "learn.lr: "),
        ("play=5", "play: "),
        ("seed=" + "9" * 5000, "seed"),
        ("game.options.max_turns=\x00", "U+0000"),
    ],
)
def test_a_bad_setting(assignment: str, message: str) -> None:
    line = get_run_refusal("--set", assignment)
    assert message in line and len(line) < 1200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("max_turns=0", "max_turns"),
        ("max_turns=many", "max_turns"),
        ("max_turns=true", "max_turns"),
        ("max_turn=3", "max_turn"),
        ("illegal=maybe", "illegal"),
        ("penalty=-1", "penalty"),
        ("penalty=lots", "penalty"),
        ("talk=5", "talk"),
        ("items=[a]", "items"),
    ],
)
def test_bad_game_options(options: str, message: str) -> None:
    line = get_run_refusal("--set", f"game.options.{options}")
    assert line.startswith("game.options: ") and message in line


HUGE = "1" + "0" * 40


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (f"threads={HUGE}", "threads: "),
        (f"play.matches={HUGE}", "play.matches: "),
        (f"iterations={HUGE}", "iterations: "),
        (f"seed={HUGE}", "seed: "),
        (f"learn.epochs={HUGE}", "learn.epochs: "),
        ("learn.betas=[5, -3]", "learn.betas[0]: "),
        ("learn.betas=[0.9, 1.0]", "learn.betas[1]: "),
        ("league.opponents=[{play: self, weight: 1e308}, {play: past, lag: 1, weight: 1e308}]", "weight: "),
        ("game.options.stake=1e308", "stake must be a number from 0 to 1e+09"),
        ("game.options.penalty=1e308", "penalty must be a number"),
        (f"game.options.max_turns={HUGE}", "max_turns must be a whole number"),
        ("credit.weights.deal=1e308", "credit.weights.deal"),
        (f"credit.weights.deal={HUGE}", "credit.weights.deal"),
        ("credit.estimator={weighted_sum: {of: {mars: 1e308}}}", "credit.estimator"),
        ("play.limits.seconds=1e308", "play.limits.seconds"),
    ],
)
def test_refuses_absurd_numbers(setting: str, message: str) -> None:
    assert message in get_run_refusal("--set", setting)


def test_refuses_option_that_the_simulator_sets_itself() -> None:
    for game in ("clinic", "desk"):
        for command in (["eval", "noop"], ["play", "--seat", "0=noop"], ["check", "game"]):
            name = ["--game", game] if command[0] != "check" else [game]
            assert "the option 'talk' cannot be set" in get_refusal(*command, *name, "--option", "talk=true")
        assert "the option 'talk' cannot be set" in get_refusal(
            *RUN[:2], "--game", game, "--set", "game.options.talk=true"
        )


def test_refuses_task_that_would_take_hours_to_generate() -> None:
    task = "task={chain_sum: {max_digits: 1000000}}"
    assert "chain_sum.max_digits: at most 1000" in get_refusal("eval", "noop", "--game", "reasoning", "--option", task)


@pytest.mark.parametrize("name", ["~nobody", "~nobody/x", "x" * 5000, "a\x00b", "a/" * 3000])
def test_refuses_names_that_no_file_can_have(name: str) -> None:
    quoted = json.dumps(name)
    for setting in ("policies.shared.model", "seats.opener.role", "game.name", "roles"):
        assert get_run_refusal("--set", f"{setting}={quoted}")
    if "\0" not in name:
        assert get_refusal("eval", name, "--game", "nim")
        assert get_refusal("eval", "random", "--game", f"{name}.py:A")
        for command in ("show", "resume"):
            assert get_refusal(command, name)


def test_error_with_a_long_name_is_short() -> None:
    assert len(get_refusal("list", "x" * 100_000)) <= 1000


def test_file_in_place_of_the_tensorboard_folder(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = shutil.copytree(uninterrupted_run, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / f"{ITERATIONS:04d}")
    shutil.rmtree(run / "tensorboard")
    (run / "tensorboard").touch()
    result = arena("resume", run)
    assert result.code == 2 and "tensorboard is not a folder" in result.err and "Traceback" not in result.err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["seats.opner.role=nano_opener"], "seats.opner: there is no 'opner' — did you mean 'opener'?"),
        (["policies.shard.train=false"], "policies.shard: there is no 'shard' — did you mean 'shared'?"),
        (["seats.opner={role: nano_opener, policy: shared}"], "no seat 'opner' — did you mean 'opener'?"),
        (["learn.regularisers.klo.weight=1"], "unknown regulariser 'klo' — did you mean 'kl'?"),
        (["play.limits.turn=3"], "did you mean 'turns'?"),
        (["game.options.max_turn=3"], "did you mean 'max_turns'?"),
        (["policies.shared.imitate.scriptd=[random]"], "did you mean 'scripted'?"),
    ],
)
def test_misspelled_key_suggests_the_nearest(settings: list[str], message: str) -> None:
    assert message in get_run_refusal(*(part for setting in settings for part in ("--set", setting)))


def test_a_seat_that_the_game_does_not_have() -> None:
    line = get_run_refusal("--set", "seats.oponer={role: opener, policy: shared}")
    assert "negotiation has no seat 'oponer' — did you mean 'opener'? (its seats: opener, responder)" in line


# Folders


def test_refuses_occupied_output_folder(uninterrupted_run: Path) -> None:
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("years of work")
    Path("file").touch()
    for out, result in (
        ("full", "full is not empty (it holds 'thesis.tex'): choose another --out"),
        ("file", "file is a file: choose another --out"),
        (
            uninterrupted_run,
            f"{uninterrupted_run} already holds a run: arena resume {uninterrupted_run}, or choose another --out",
        ),
    ):
        before = {p: p.stat().st_mtime_ns for p in Path(out).rglob("*")}
        assert get_refusal(*RUN, "--out", out) == result
        assert {p: p.stat().st_mtime_ns for p in Path(out).rglob("*")} == before
    assert "file/run" in get_refusal(*RUN, "--out", "file/run")


def test_a_folder_in_use(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = RunFolder.open(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    with run.lock():
        assert get_refusal("resume", run.path) == f"{run.path} is in use by process {os.getpid()}"
    unstarted = RunFolder.open(shutil.copytree(uninterrupted_run, tmp_path / "begun"))
    with unstarted.lock():
        for name in ("config.yaml", "metrics.jsonl", "log", "checkpoints", "tensorboard", "trackers", "run.log"):
            part = unstarted.path / name
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
        assert get_refusal(*RUN, "--out", unstarted.path) == f"{unstarted.path} is in use by process {os.getpid()}"


@pytest.mark.parametrize("command", [["resume"], ["show"], ["export", "--to", "x"]])
def test_refuses_what_is_not_a_run(command: list[str], empty_folder: Path) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    assert get_refusal(*command, "nowhere") == "there is no folder nowhere"
    assert "folder is not a run folder: it has no config.yaml" in get_refusal(*command, "folder")
    assert "file is not a run folder" in get_refusal(*command, "file")
    assert sorted(p.name for p in empty_folder.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"config\.yaml:1: the text is empty"),
        (b"name: x\nname: y\n", r"config\.yaml:2: name: written twice"),
        (b"name: x\n", r"config\.yaml.*: missing"),
        (b"\xff", r"config\.yaml"),
    ],
)
def test_a_run_whose_config_is_broken(tmp_path: Path, data: bytes, message: str) -> None:
    run = RunFolder.create(tmp_path / "run", "name: x\n", {})
    (run.path / "config.yaml").write_bytes(data)
    line = get_refusal("resume", run.path)
    assert str(run.path) in line and re.search(message, line)


def test_refuses_run_with_an_empty_seat(tmp_path: Path) -> None:
    experiment = compose([recipe_layer("negotiation-nano")])
    assert experiment.seats
    seats = {"opener": experiment.seats["opener"]}
    text = to_yaml(experiment.model_copy(update={"seats": seats}))
    run = RunFolder.create(tmp_path / "run", text, {})
    assert "seat 'responder' of negotiation has no role" in get_refusal("resume", run.path)


# Checkpoints


def test_run_without_an_intact_checkpoint_keeps_its_log(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    for folder in (run / "checkpoints").iterdir():
        flip_byte(folder / "policies" / "shared" / "model.safetensors")
    before = read_trace(run)
    line = get_refusal("resume", run)
    newest = run / "checkpoints" / f"{ITERATIONS:04d}"
    assert line.startswith(
        f"no checkpoint is intact (checkpoint {newest} is damaged: policies/shared/model.safetensors"
    )
    assert_same(read_trace(run), before)
    assert get_refusal("export", run, "--to", "x").startswith(f"checkpoint {newest} is damaged")
    line = get_refusal("export", run, "--to", "x", "--iteration", str(ITERATIONS))
    assert line.startswith(f"checkpoint {newest} is damaged: policies/shared/model.safetensors")
    assert not Path("x").exists()


def test_refuses_impossible_exports(uninterrupted_run: Path) -> None:
    Path("full").mkdir()
    Path("full/mine").touch()
    Path("file").touch()
    export = ["export", uninterrupted_run, "--to"]
    assert "no trained policy 'shred' — did you mean 'shared'?" in get_refusal(*export, "x", "--policy", "shred")
    assert "no trained policy" in get_refusal(*export, "x", "--policy", "../../../log")
    assert "full already holds something: choose another --to" in get_refusal(*export, "full")
    assert "file already holds something" in get_refusal(*export, "file")
    assert "has no checkpoint of iteration 99; it has: 0, 2, 3" in get_refusal(*export, "x", "--iteration", "99")
    assert "x" in get_refusal(*export, "file/x")
    assert sorted(p.name for p in Path.cwd().iterdir()) == ["file", "full"]


def test_a_run_before_its_first_checkpoint(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", to_yaml(compose([recipe_layer("negotiation-nano")])), {})
    assert "has no checkpoint yet" in get_refusal("export", run.path, "--to", "x")
    assert "has no match '0001-0000'" in get_refusal("show", run.path, "0001-0000")
    assert arena("show", run.path).code == 0


def test_unknown_or_damaged_match_is_refused(tmp_path: Path, uninterrupted_run: Path) -> None:
    assert "has no match '0002-0009' — did you mean '0002-000" in get_refusal("show", uninterrupted_run, "0002-0009")
    for id in ("9999999999-1", "../../x", "-x", "0002", "²-1", "\x1b[31m"):
        assert "has no match" in get_refusal("show", uninterrupted_run, "--", id)
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    os.truncate(run / "log" / "0002.parquet", 5000)
    assert str(run / "log" / "0002.parquet") in get_refusal("show", run, "0002-0000")
    shutil.rmtree(run / "checkpoints")  # their hashes would be checked first
    (run / "metrics.jsonl").write_text("{\n" + (run / "metrics.jsonl").read_text())
    assert "metrics.jsonl:1: this line is damaged" in get_refusal("show", run)


# Model folders


def remove_config(folder: Path) -> str:
    (folder / "config.json").unlink()
    return "has no config.json"


def rename_weights_to_pickle(folder: Path) -> str:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return "pickled weights"


def truncate_weights(folder: Path) -> str:
    os.truncate(folder / "model.safetensors", 1000)
    return "is damaged"


def remove_tokenizer(folder: Path) -> str:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    return "has no tokenizer"


def break_config(folder: Path) -> str:
    (folder / "config.json").write_text("{")
    return "config.json cannot be read"


@pytest.mark.parametrize(
    "damage", [remove_config, rename_weights_to_pickle, truncate_weights, remove_tokenizer, break_config]
)
def test_refuses_broken_model_folder(uninterrupted_run: Path, damage: Callable[[Path], str]) -> None:
    arena("export", uninterrupted_run, "--to", "model")
    message = damage(Path("model"))
    line = get_run_refusal("--set", "policies.shared.model=./model")
    assert message in line and "model" in line


# Disks


def test_a_full_disk_loses_nothing(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints" / f"{ITERATIONS:04d}")
    with limit_file_size(3_000_000):
        result = arena("resume", run)
    assert result.code == 2, result
    note, line = result.err.splitlines()
    assert note == f"arena: no checkpoint has iteration {ITERATIONS}, which was played: resuming from iteration 2"
    assert line.startswith(f"arena: disk full while writing {run}/") and line.endswith(f"arena resume {run}")
    assert [k for k in RunFolder.open(run).reader.iterations() if k < ITERATIONS] == list(range(1, ITERATIONS))
    result = arena("resume", run)
    assert result.code == 0, result.err
    assert_same_runs(run, uninterrupted_run)


def test_a_disk_full_from_the_first_byte(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with limit_file_size(500):
        result = arena(*TINY, *NO_IMITATION, "--out", run)
    assert result.code == 2 and "disk full while writing" in result.line and result.out == ""


def test_a_disk_full_while_exporting(tmp_path: Path, uninterrupted_run: Path) -> None:
    with limit_file_size(100_000):
        result = arena("export", uninterrupted_run, "--to", tmp_path / "x")
    assert result.code == 2 and f"disk full while writing {tmp_path / 'x'}" in result.line
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_small_real_disk_that_runs_full(tmp_path: Path, uninterrupted_run: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=30m tmpfs '{disk}'"
    if not shutil.which("unshare") or subprocess.run([*unshare, mount], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    start = f'"$@" --out {disk}/run; echo $? > {tmp_path}/code'
    grow = f"mount -o remount,size=200m '{disk}'"
    resume = f"{sys.executable} -m arena resume {disk}/run && cp -r {disk}/run {tmp_path}/run"
    command = [*unshare, f"{mount} && {start}; {grow} && {resume}", "sh", sys.executable, "-m", "arena", *TINY]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "code").read_text() == "2\n"
    line = f"arena: disk full while writing {disk}/run/(.*); free some space, then arena resume {disk}/run\n"
    match = re.match(line, result.stderr)
    assert match, result.stderr
    lost_checkpoint = re.match(
        r"checkpoints/0*([1-9]\d*)", match[1]
    )  # that iteration had been played, and is reported as lost
    note = "arena: no checkpoint has iteration {}, which was played: resuming from iteration {}\n"
    assert result.stderr[match.end() :] == (
        note.format(int(lost_checkpoint[1]), int(lost_checkpoint[1]) - 1) if lost_checkpoint else ""
    )
    assert_same_runs(tmp_path / "run", uninterrupted_run)
