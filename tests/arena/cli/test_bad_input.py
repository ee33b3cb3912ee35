"""Bad input: one clear line on stderr, exit code 2, no traceback, and nothing lost or left behind."""

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
from tests.factories.traces import assert_same, flip_byte, read_trace

RUN = ["run", "selfplay", "--recipe", "negotiation-nano"]


@pytest.fixture(autouse=True)
def empty_place(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each test stands: an empty folder of its own."""
    place = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(place)
    return place


def run_refused(*arguments: str | Path) -> str:
    """The one line of a run that does not begin, and leaves nothing."""
    before = sorted(Path.cwd().rglob("*"))
    by_default = get_refusal(*RUN, *arguments)
    named = get_refusal(*RUN, *arguments, "--out", "out")
    assert by_default == named
    assert sorted(Path.cwd().rglob("*")) == before
    return named


# Names


@pytest.mark.parametrize(
    ("arguments", "told"),
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
def test_unknown_names(arguments: list[str], told: str) -> None:
    assert told in run_refused(*arguments)


def test_a_recipe_given_as_a_command() -> None:
    assert "arena run selfplay --recipe mars-nano" in get_refusal("run", "mars-nano")


def test_an_unknown_recipe() -> None:
    line = get_refusal("run", "selfplay", "--recipe", "negotiation-nan", "--out", "out")
    assert "unknown recipe 'negotiation-nan' — did you mean 'negotiation-nano'?" in line
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["list", "rols"], "unknown list 'rols' — did you mean 'roles'?"),
        (["list", "roles", "--roles", "nowhere"], "nowhere: the folder of roles does not exist"),
        (["check", "role", "openr"], "unknown role 'openr' — did you mean 'opener'?"),
        (["check", "role", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["check", "role", "opener", "--game", "chss"], "unknown game 'chss'"),
        (["check", "role", "opener", "--seat", "openr"], "no seat 'openr' — did you mean 'opener'?"),
    ],
)
def test_unknown_names_elsewhere(arguments: list[str], told: str) -> None:
    assert told in get_refusal(*arguments)


# YAML

# One of each kind; tests/agents/test_strict_yaml.py has all messages.
BROKEN: dict[str, tuple[str | bytes, str]] = {
    "duplicate key": ("{key}: 1\n{key}: 2\n", r":{2}: {key}: written twice, first in line {1}"),
    "alias bomb": ("{key}: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", r":{1}: {key}: anchors"),
    "nested deep": ("{key}: " + "[" * 5000 + "]" * 5000 + "\n", r":{1}: {key}.*nested deeper than 32"),
    "invalid UTF-8": (b"{key}: \xff\xfe\n", r":{1}: {key}: byte 0xff is not UTF-8"),
    "tag": ("{key}: !!python/object/apply:os.system [x]\n", r":{1}: {key}: tags"),
    "two documents": ("{key}: 1\n---\n{key}: 2\n", r"more than one document"),
}
BARE = {
    "empty": (b"", "the text is empty"),
    "comments only": (b"# nothing\n\n", "the text is empty"),
    "a list": (b"[1, 2]\n", ":1: .*expected `key: value` lines"),
    "a word": (b"hello\n", ":1: .*expected `key: value` lines"),
    "too large": (b"# x\n" * 300_000, "larger than 1 MB"),
}
AS_CONFIG = {
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


def broken(key: str, first_line: int) -> list[tuple[bytes, str]]:
    """The broken texts about one key, with what must be told when they begin at this line."""
    lines = {"1": str(first_line), "2": str(first_line + 1)}
    found = []
    for text, told in BROKEN.values():
        data = text.encode() if isinstance(text, str) else text
        data = data.replace(b"{key}", key.encode()).replace(b"{{", b"{")
        for name, value in {**lines, "key": key}.items():
            told = told.replace(f"{{{name}}}", value)
        found.append((data, told))
    return found


@pytest.mark.parametrize(
    ("data", "told"),
    [*broken("learn", 1), *BARE.values(), *AS_CONFIG.values()],
    ids=[*BROKEN, *BARE, *AS_CONFIG],
)
def test_a_broken_config(data: bytes, told: str) -> None:
    Path("mine.yaml").write_bytes(data)
    line = run_refused("--config", "mine.yaml")
    assert line.startswith("mine.yaml") and re.search(told, line), line
    assert len(line) < 500


AS_ROLE = {
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
    ("data", "told"),
    [*((b"role: mine\n" + text, told) for text, told in broken("persona", 2)), *BARE.values(), *AS_ROLE.values()],
    ids=[*BROKEN, *BARE, *AS_ROLE],
)
def test_a_broken_role(data: bytes, told: str) -> None:
    Path("mine.yaml").write_bytes(data)
    line = get_refusal("check", "role", "mine.yaml")
    assert line.startswith("mine.yaml") and re.search(told, line), line
    assert run_refused("--set", "seats.opener.role=mine.yaml") == line


def test_a_role_that_reaches_out_of_its_template() -> None:
    Path("mine.yaml").write_text("role: mine\nsystem: \"{{ ''.__class__.__mro__ }}\"\n")
    assert get_refusal("check", "role", "mine.yaml")


def test_a_role_under_another_name_and_a_name_taken_twice() -> None:
    Path("roles").mkdir()
    Path("roles/mine.yaml").write_text("role: yours\n")
    assert "'yours' is not the file's name" in run_refused("--roles", "roles", "--set", "seats.opener.role=mine")
    Path("roles/opener.yaml").write_text("role: opener\n")
    assert "the name 'opener' is taken" in run_refused("--roles", "roles")


@pytest.mark.parametrize("sampling", ["top_p: 0.9", "top_k: 5", "temperature: 0"])
def test_a_trained_policy_must_be_sampled_whole(sampling: str) -> None:
    Path("mine.yaml").write_text(f"role: mine\nsystem: x\nsampling: {{{sampling}}}\n")
    line = run_refused("--set", "seats.opener.role=mine.yaml")
    assert "policy 'shared' is trained" in line and "change the role's sampling" in line


@pytest.mark.parametrize("path", ["nowhere.yaml", "."])
def test_a_config_that_cannot_be_read(path: str) -> None:
    assert "cannot be read" in run_refused("--config", path)


@pytest.mark.parametrize(
    ("assignment", "told"),
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
def test_a_bad_setting(assignment: str, told: str) -> None:
    line = run_refused("--set", assignment)
    assert told in line and len(line) < 1200


@pytest.mark.parametrize(
    ("options", "told"),
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
def test_bad_game_options(options: str, told: str) -> None:
    line = run_refused("--set", f"game.options.{options}")
    assert line.startswith("game.options: ") and told in line


HUGE = "1" + "0" * 40


@pytest.mark.parametrize(
    ("setting", "told"),
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
def test_numbers_beyond_any_use(setting: str, told: str) -> None:
    assert told in run_refused("--set", setting)


def test_an_option_that_a_simulator_sets_itself() -> None:
    for game in ("clinic", "desk"):
        for command in (["eval", "noop"], ["play", "--seat", "0=noop"], ["check", "game"]):
            name = ["--game", game] if command[0] != "check" else [game]
            assert "the option 'talk' is not to choose" in get_refusal(*command, *name, "--option", "talk=true")
        assert "the option 'talk' is not to choose" in get_refusal(
            *RUN[:2], "--game", game, "--set", "game.options.talk=true"
        )


def test_a_task_that_would_take_hours_to_make() -> None:
    task = "task={chain_sum: {max_digits: 1000000}}"
    assert "chain_sum.max_digits: at most 1000" in get_refusal("eval", "noop", "--game", "reasoning", "--option", task)


@pytest.mark.parametrize("name", ["~nobody", "~nobody/x", "x" * 5000, "a\x00b", "a/" * 3000])
def test_names_that_no_file_can_have(name: str) -> None:
    quoted = json.dumps(name)
    for setting in ("policies.shared.model", "seats.opener.role", "game.name", "roles"):
        assert run_refused("--set", f"{setting}={quoted}")
    if "\0" not in name:
        assert get_refusal("eval", name, "--game", "nim")
        assert get_refusal("eval", "random", "--game", f"{name}.py:A")
        for command in ("show", "resume"):
            assert get_refusal(command, name)


def test_a_complaint_is_short_whatever_it_repeats() -> None:
    assert len(get_refusal("list", "x" * 100_000)) <= 1000


def test_something_else_where_tensorboard_writes(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = shutil.copytree(uninterrupted_run, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / f"{ITERATIONS:04d}")
    shutil.rmtree(run / "tensorboard")
    (run / "tensorboard").touch()
    told = arena("resume", run)
    assert told.code == 2 and "tensorboard is no folder" in told.err and "Traceback" not in told.err


@pytest.mark.parametrize(
    ("settings", "told"),
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
def test_a_key_that_is_nearly_one(settings: list[str], told: str) -> None:
    assert told in run_refused(*(part for setting in settings for part in ("--set", setting)))


def test_a_seat_that_the_game_does_not_have() -> None:
    line = run_refused("--set", "seats.oponer={role: opener, policy: shared}")
    assert "negotiation has no seat 'oponer' — did you mean 'opener'? (its seats: opener, responder)" in line


# Folders


def test_an_output_folder_that_is_not_free(uninterrupted_run: Path) -> None:
    Path("full").mkdir()
    Path("full/thesis.tex").write_text("years of work")
    Path("file").touch()
    for out, told in (
        ("full", "full is not empty (it holds 'thesis.tex'): choose another --out"),
        ("file", "file is a file: choose another --out"),
        (
            uninterrupted_run,
            f"{uninterrupted_run} already holds a run: arena resume {uninterrupted_run}, or choose another --out",
        ),
    ):
        before = {p: p.stat().st_mtime_ns for p in Path(out).rglob("*")}
        assert get_refusal(*RUN, "--out", out) == told
        assert {p: p.stat().st_mtime_ns for p in Path(out).rglob("*")} == before
    assert "file/run" in get_refusal(*RUN, "--out", "file/run")


def test_a_folder_in_use(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = RunFolder.open(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    with run.lock():
        assert get_refusal("resume", run.path) == f"{run.path} is in use by process {os.getpid()}"
    begun = RunFolder.open(shutil.copytree(uninterrupted_run, tmp_path / "begun"))
    with begun.lock():
        for name in ("config.yaml", "metrics.jsonl", "log", "checkpoints", "tensorboard", "trackers", "run.log"):
            part = begun.path / name
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
        assert get_refusal(*RUN, "--out", begun.path) == f"{begun.path} is in use by process {os.getpid()}"


@pytest.mark.parametrize("command", [["resume"], ["show"], ["export", "--to", "x"]])
def test_a_run_that_is_none(command: list[str], empty_place: Path) -> None:
    Path("folder").mkdir()
    Path("file").touch()
    assert get_refusal(*command, "nowhere") == "there is no folder nowhere"
    assert "folder is not a run folder: it has no config.yaml" in get_refusal(*command, "folder")
    assert "file is not a run folder" in get_refusal(*command, "file")
    assert sorted(p.name for p in empty_place.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", r"config\.yaml:1: the text is empty"),
        (b"name: x\nname: y\n", r"config\.yaml:2: name: written twice"),
        (b"name: x\n", r"config\.yaml.*: missing"),
        (b"\xff", r"config\.yaml"),
    ],
)
def test_a_run_whose_config_is_broken(tmp_path: Path, data: bytes, told: str) -> None:
    run = RunFolder.create(tmp_path / "run", "name: x\n", {})
    (run.path / "config.yaml").write_bytes(data)
    line = get_refusal("resume", run.path)
    assert str(run.path) in line and re.search(told, line)


def test_a_seat_where_nobody_sits(tmp_path: Path) -> None:
    experiment = compose([recipe_layer("negotiation-nano")])
    assert experiment.seats
    seats = {"opener": experiment.seats["opener"]}
    text = to_yaml(experiment.model_copy(update={"seats": seats}))
    run = RunFolder.create(tmp_path / "run", text, {})
    assert "seat 'responder' of negotiation has no role" in get_refusal("resume", run.path)


# Checkpoints


def test_a_run_none_of_whose_checkpoints_is_whole_keeps_its_log(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    for folder in (run / "checkpoints").iterdir():
        flip_byte(folder / "policies" / "shared" / "model.safetensors")
    before = read_trace(run)
    line = get_refusal("resume", run)
    newest = run / "checkpoints" / f"{ITERATIONS:04d}"
    assert line.startswith(f"no checkpoint is intact (checkpoint {newest} is torn: policies/shared/model.safetensors")
    assert_same(read_trace(run), before)
    assert get_refusal("export", run, "--to", "x").startswith(f"checkpoint {newest} is torn")
    told = get_refusal("export", run, "--to", "x", "--iteration", str(ITERATIONS))
    assert told.startswith(f"checkpoint {newest} is torn: policies/shared/model.safetensors")
    assert not Path("x").exists()


def test_what_cannot_be_exported(uninterrupted_run: Path) -> None:
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


def test_a_match_that_is_not_there(tmp_path: Path, uninterrupted_run: Path) -> None:
    assert "has no match '0002-0009' — did you mean '0002-000" in get_refusal("show", uninterrupted_run, "0002-0009")
    for id in ("9999999999-1", "../../x", "-x", "0002", "²-1", "\x1b[31m"):
        assert "has no match" in get_refusal("show", uninterrupted_run, "--", id)
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    os.truncate(run / "log" / "0002.parquet", 5000)
    assert str(run / "log" / "0002.parquet") in get_refusal("show", run, "0002-0000")
    shutil.rmtree(run / "checkpoints")  # which tell sooner
    (run / "metrics.jsonl").write_text("{\n" + (run / "metrics.jsonl").read_text())
    assert "metrics.jsonl:1: this line is damaged" in get_refusal("show", run)


# Model folders


def no_config(folder: Path) -> str:
    (folder / "config.json").unlink()
    return "has no config.json"


def pickled(folder: Path) -> str:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return "pickled weights"


def torn_weights(folder: Path) -> str:
    os.truncate(folder / "model.safetensors", 1000)
    return "torn"


def no_tokenizer(folder: Path) -> str:
    for file in folder.glob("tokenizer*"):
        file.unlink()
    return "has no tokenizer"


def config_that_is_no_json(folder: Path) -> str:
    (folder / "config.json").write_text("{")
    return "config.json cannot be read"


@pytest.mark.parametrize("spoil", [no_config, pickled, torn_weights, no_tokenizer, config_that_is_no_json])
def test_a_model_folder_that_is_none(uninterrupted_run: Path, spoil: Callable[[Path], str]) -> None:
    arena("export", uninterrupted_run, "--to", "model")
    told = spoil(Path("model"))
    line = run_refused("--set", "policies.shared.model=./model")
    assert told in line and "model" in line


# Disks


def test_a_full_disk_loses_nothing(tmp_path: Path, uninterrupted_run: Path) -> None:
    run = Path(shutil.copytree(uninterrupted_run, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints" / f"{ITERATIONS:04d}")
    with limit_file_size(3_000_000):
        told = arena("resume", run)
    assert told.code == 2, told
    note, line = told.err.splitlines()
    assert note == f"arena: no checkpoint has iteration {ITERATIONS}, which was played: resuming from iteration 2"
    assert line.startswith(f"arena: disk full while writing {run}/") and line.endswith(f"arena resume {run}")
    assert [k for k in RunFolder.open(run).reader.iterations() if k < ITERATIONS] == list(range(1, ITERATIONS))
    told = arena("resume", run)
    assert told.code == 0, told.err
    assert_same(read_trace(run), read_trace(uninterrupted_run))


def test_a_disk_full_from_the_first_byte(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with limit_file_size(500):
        told = arena(*TINY, *NO_IMITATION, "--out", run)
    assert told.code == 2 and "disk full while writing" in told.line and told.out == ""


def test_a_disk_full_while_exporting(tmp_path: Path, uninterrupted_run: Path) -> None:
    with limit_file_size(100_000):
        told = arena("export", uninterrupted_run, "--to", tmp_path / "x")
    assert told.code == 2 and f"disk full while writing {tmp_path / 'x'}" in told.line
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_disk_that_is_really_full(tmp_path: Path, uninterrupted_run: Path) -> None:
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=30m tmpfs '{disk}'"
    if not shutil.which("unshare") or subprocess.run([*apart, mount], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    go = f'"$@" --out {disk}/run; echo $? > {tmp_path}/code'
    grow = f"mount -o remount,size=200m '{disk}'"
    resume = f"{sys.executable} -m arena resume {disk}/run && cp -r {disk}/run {tmp_path}/run"
    command = [*apart, f"{mount} && {go}; {grow} && {resume}", "sh", sys.executable, "-m", "arena", *TINY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "code").read_text() == "2\n"
    line = f"arena: disk full while writing {disk}/run/(.*); free some space, then arena resume {disk}/run\n"
    told = re.match(line, done.stderr)
    assert told, done.stderr
    lost = re.match(r"checkpoints/0*([1-9]\d*)", told[1])  # then that iteration had been played, and is said to be lost
    note = "arena: no checkpoint has iteration {}, which was played: resuming from iteration {}\n"
    assert done.stderr[told.end() :] == (note.format(int(lost[1]), int(lost[1]) - 1) if lost else "")
    assert_same(read_trace(tmp_path / "run"), read_trace(uninterrupted_run))
