"""Preflight refuses whatever it can before a run's folder exists and before `runs/latest` moves."""

import json
import shutil
from pathlib import Path

import pytest

from agents.nano import TEMPLATE
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.preflight import preflight
from tests.factories.commands import NO_IMITATION, TINY, arena, get_refusal
from tests.factories.families import FAMILIES
from tests.factories.kept_run import SEPARATE, SHARED, make_checkpointed_run
from tests.factories.labs import CONFIG

PLAYED_BY_AN_ENDPOINT = SHARED.replace(
    "second: {role: nano_kuhn, policy: shared}", "second: {role: player, policy: 'endpoint:m'}"
)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an earlier run that `runs/latest` points to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    make_checkpointed_run(tmp_path / "runs" / "earlier", _3="nano-3")
    (tmp_path / "runs" / "latest").symlink_to("earlier")
    return tmp_path


def copy_nano(folder: Path, name: str, **changes: object) -> Path:
    """Copy nano's folder with changes to its tokenizer_config.json."""
    model_folder = folder / name
    shutil.copytree(resolve("nano"), model_folder)
    config = json.loads((model_folder / "tokenizer_config.json").read_text())
    (model_folder / "tokenizer_config.json").write_text(json.dumps(config | changes))
    (model_folder / "chat_template.jinja").unlink(missing_ok=True)
    return model_folder


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("learn.demonstrations={run: runs/nowhere}", "learn.demonstrations.run: there is no folder runs/nowhere"),
        ("learn.demonstrations={run: runs/earlier}", "has no finished match of negotiation"),
        ("seats.responder.policy=endpoint:gpt", "OPENAI_API_KEY"),
        ("seats.responder.policy=randm", "did you mean 'random'"),
        ("policies.shared.model=nanoo", "did you mean 'nano'"),
        ("policies.shared.model=empty", "no model folder"),
        ("policies.shared.model=silent", "chat template"),
        ("evaluate={games: [{name: kuhn_pokr}]}", "did you mean 'kuhn_poker'"),
        ("evaluate={games: [{name: kuhn_poker}], against: [runs/latest@9]}", "keeps no weights of iteration 9"),
        ("seats.responder.role=nowhere.yaml", "nowhere.yaml"),
        ("credit.weights={dael: 0.2}", "credit.weights: no reward is called 'dael' — did you mean 'deal'? (there are:"),
        ("credit.stages=[{clip: {part: daal, between: [0, 1]}}]", "credit.stages: clip: no reward is called 'daal'"),
        ("credit.stages=[{gate: {on: {dea: 1}, parts: [deal]}}]", "credit.stages: gate: no reward is called 'dea'"),
        ("learn.replay={self_imitation: {of: deel}}", "learn.replay: self_imitation: no reward is called 'deel'"),
        ("credit={stages: [valid_act], weights: {valid_akt: 1}}", "did you mean 'valid_act'"),
        ("game.name=race.py:Race", "race.py (arena list games)"),
    ],
)
def test_refused_run_leaves_nothing(working_folder: Path, setting: str, message: str) -> None:
    (working_folder / "empty").mkdir()
    if "silent" in setting:
        copy_nano(working_folder, "silent", chat_template=None)
    assert message in get_refusal(*TINY, *NO_IMITATION, "--set", setting)
    assert sorted(path.name for path in (working_folder / "runs").iterdir()) == ["earlier", "latest"]
    assert (working_folder / "runs" / "latest").readlink() == Path("earlier")


def test_preflight_returns_the_prepared_experiment(working_folder: Path) -> None:
    report = wait(preflight(compose([text_layer("test", CONFIG), set_layer("threads=auto")]), lambda text: None))
    assert isinstance(report.experiment.threads, int)
    assert report.notes == []


def test_forgeable_chat_template_is_noted(working_folder: Path) -> None:
    shutil.copytree(resolve("nano"), working_folder / "forgeable", ignore=shutil.ignore_patterns("token*", "chat_*"))
    FAMILIES["llama2"]().save_pretrained(working_folder / "forgeable")
    report = wait(
        preflight(
            compose([text_layer("test", CONFIG), set_layer("policies.shared.model=forgeable")]), lambda text: None
        )
    )
    (note,) = report.notes
    assert note.startswith("forgeable: its chat template ends turns by plain text")


@pytest.mark.parametrize(
    ("before", "reply", "message"),
    [
        ("{{ strftime_now('%d %b %Y') }}", "message['content']", "prints the time, which is fixed at 26 Jul 2024"),
        ("", "message['content'].split('</think>')[-1]", "rewrites thoughts of earlier replies"),
    ],
)
def test_template_with_the_time_or_without_thoughts_is_noted(
    working_folder: Path, before: str, reply: str, message: str
) -> None:
    model_folder = copy_nano(working_folder, "odd")
    (model_folder / "chat_template.jinja").write_text(before + TEMPLATE.replace("message['content']", reply))
    setting = set_layer("policies.shared.model=odd")
    (note,) = wait(preflight(compose([text_layer("test", CONFIG), setting]), lambda text: None)).notes
    assert note.startswith("odd: ") and message in note


def test_resume_without_the_key_changes_nothing(working_folder: Path) -> None:
    run = make_checkpointed_run(working_folder / "runs" / "held", PLAYED_BY_AN_ENDPOINT)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = arena("resume", run)
    assert result.code == 2 and "OPENAI_API_KEY" in result.line
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


GAIN = "{information_gain: {gold: secret, outcome: deal}}"


@pytest.fixture
def interrupted_run(working_folder: Path) -> Path:
    """Return a run of two policies that was interrupted."""
    return make_checkpointed_run(working_folder / "runs" / "begun", SEPARATE, _3="nano-3")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("evaluate={games: [{name: kuhn_pokr}]}", "did you mean 'kuhn_poker'"),
        ("evaluate={games: [{name: negotiation}], against: [randm]}", "did you mean 'random'"),
        ("evaluate={games: [{name: negotiation, options: {max_turns: 4}}], against: [nash]}", "evaluate.against"),
        ("evaluate={games: [{name: negotiation}], against: [runs/begun@9]}", "keeps no weights of iteration 9"),
        ("iterations=1", "has 3 committed: set a higher total"),
    ],
)
def test_refused_resume_changes_nothing(interrupted_run: Path, setting: str, message: str) -> None:
    assert_refused(interrupted_run, message, "--set", setting)


def assert_refused(run: Path, message: str, *more: str) -> None:
    """Assert that `arena resume` refuses in one line and changes no byte."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    result = arena("resume", run, *more)
    assert result.code == 2 and message in result.line, result
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("learn: {demonstrations: {run: runs/gone}}", "learn.demonstrations.run: there is no folder runs/gone"),
        ("credit: {weights: {dael: 0.2}}", "credit.weights: no reward is called 'dael'"),
        (
            "play: {matches: 4, group: 2}\ncredit: {stages: [{information_gain: {gold: secret, outcome: deal}}]}",
            "secret",
        ),
        ("engine: {kind: vllm}", "vllm"),
    ],
)
def test_resume_is_checked_like_a_start(working_folder: Path, section: str, message: str) -> None:
    """The run may come from another machine, other packages or an older Arena."""
    assert_refused(
        make_checkpointed_run(working_folder / "runs" / "of_old", f"{SEPARATE}{section}\n", _3="nano-3"), message
    )


def test_missing_weights_are_noticed_before_a_resume(working_folder: Path) -> None:
    shutil.copytree(resolve("nano"), working_folder / "mine")
    run = make_checkpointed_run(
        working_folder / "runs" / "with_mine", SHARED.replace("{model: nano}", f"{{model: {working_folder / 'mine'}}}")
    )
    (working_folder / "mine" / "tokenizer.json").unlink()
    assert_refused(run, "mine")


def test_unknown_reward_of_an_undeclared_game_is_refused_after_an_iteration(working_folder: Path) -> None:
    """The game pays `deal`, and never `one`."""
    (working_folder / "race.py").write_text(RACE)
    players = [f"seats.{seat}.role=player" for seat in ("opener", "responder")]
    race = [part for setting in ("game.name=race.py:Race", *players) for part in ("--set", setting)]
    result = arena(*TINY, *NO_IMITATION, *race, "--set", "credit.weights={one: 2}")
    assert result.code == 2
    assert (
        "credit.weights: no reward is called 'one'" in result.err and "(there are: deal, illegal, stake)" in result.err
    )
    assert arena(*TINY, *NO_IMITATION, *race, "--set", "credit.weights={deal: 2}").code == 0


RACE = """
from games.base import IllegalAct, TextGame

class Race(TextGame):
    name, seats, metadata = "race", ("opener", "responder"), {"name": "race_v0", "render_modes": ["ansi"]}

    def __init__(self, *, max_turns=4, **options):
        super().__init__(**options)

    def set_up(self, rng, options):
        pass

    def rules(self):
        return "Say anything."

    def public(self):
        return {}

    def legal(self, seat):
        return ["GO"]

    def play(self, seat, act):
        self.pay(seat, "deal", 1.0)
        self.end("gone", "Gone.")
        return act
"""
