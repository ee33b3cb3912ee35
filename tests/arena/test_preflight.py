"""What can be refused is refused before a run's folder exists, and before `runs/latest` moves."""

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

HELD_BY_AN_ENDPOINT = SHARED.replace(
    "second: {role: nano_kuhn, policy: shared}", "second: {role: player, policy: 'endpoint:m'}"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an earlier run that `runs/latest` points to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    make_checkpointed_run(tmp_path / "runs" / "earlier", _3="nano-3")
    (tmp_path / "runs" / "latest").symlink_to("earlier")
    return tmp_path


def folder(place: Path, name: str, **changes: object) -> Path:
    """A copy of nano's folder with another tokenizer_config.json."""
    made = place / name
    shutil.copytree(resolve("nano"), made)
    config = json.loads((made / "tokenizer_config.json").read_text())
    (made / "tokenizer_config.json").write_text(json.dumps(config | changes))
    (made / "chat_template.jinja").unlink(missing_ok=True)
    return made


@pytest.mark.parametrize(
    ("setting", "says"),
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
def test_nothing_is_left_of_a_run_that_is_refused(place: Path, setting: str, says: str) -> None:
    (place / "empty").mkdir()
    if "silent" in setting:
        folder(place, "silent", chat_template=None)
    assert says in get_refusal(*TINY, *NO_IMITATION, "--set", setting)
    assert sorted(path.name for path in (place / "runs").iterdir()) == ["earlier", "latest"]
    assert (place / "runs" / "latest").readlink() == Path("earlier")


def test_what_it_returns_is_what_was_prepared(place: Path) -> None:
    found = wait(preflight(compose([text_layer("test", CONFIG), set_layer("threads=auto")]), lambda what: None))
    assert isinstance(found.experiment.threads, int)
    assert found.notes == []


def test_a_template_whose_turns_can_be_forged_is_noted(place: Path) -> None:
    shutil.copytree(resolve("nano"), place / "forgeable", ignore=shutil.ignore_patterns("token*", "chat_*"))
    FAMILIES["llama2"]().save_pretrained(place / "forgeable")
    found = wait(
        preflight(
            compose([text_layer("test", CONFIG), set_layer("policies.shared.model=forgeable")]), lambda doing: None
        )
    )
    (note,) = found.notes
    assert note.startswith("forgeable: its chat template ends turns by plain text")


@pytest.mark.parametrize(
    ("before", "reply", "says"),
    [
        ("{{ strftime_now('%d %b %Y') }}", "message['content']", "prints the time, which is fixed at 26 Jul 2024"),
        ("", "message['content'].split('</think>')[-1]", "rewrites thoughts of earlier replies"),
    ],
)
def test_a_template_that_prints_the_time_or_drops_thoughts_is_noted(
    place: Path, before: str, reply: str, says: str
) -> None:
    made = folder(place, "odd")
    (made / "chat_template.jinja").write_text(before + TEMPLATE.replace("message['content']", reply))
    setting = set_layer("policies.shared.model=odd")
    (note,) = wait(preflight(compose([text_layer("test", CONFIG), setting]), lambda doing: None)).notes
    assert note.startswith("odd: ") and says in note


def test_a_resume_without_the_key_says_so_and_changes_nothing(place: Path) -> None:
    run = make_checkpointed_run(place / "runs" / "held", HELD_BY_AN_ENDPOINT)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    told = arena("resume", run)
    assert told.code == 2 and "OPENAI_API_KEY" in told.line
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


GAIN = "{information_gain: {gold: secret, outcome: deal}}"


@pytest.fixture
def begun(place: Path) -> Path:
    """A run of two policies that was interrupted."""
    return make_checkpointed_run(place / "runs" / "begun", SEPARATE, _3="nano-3")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("evaluate={games: [{name: kuhn_pokr}]}", "did you mean 'kuhn_poker'"),
        ("evaluate={games: [{name: negotiation}], against: [randm]}", "did you mean 'random'"),
        ("evaluate={games: [{name: negotiation, options: {max_turns: 4}}], against: [nash]}", "evaluate.against"),
        ("evaluate={games: [{name: negotiation}], against: [runs/begun@9]}", "keeps no weights of iteration 9"),
        ("iterations=1", "has 3 committed: ask for more"),
    ],
)
def test_what_a_resume_may_not_do_is_refused_before_anything_changes(begun: Path, setting: str, says: str) -> None:
    assert_refused(begun, says, "--set", setting)


def assert_refused(run: Path, says: str, *more: str) -> None:
    """`arena resume` refuses in one line and leaves every byte as it was."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    told = arena("resume", run, *more)
    assert told.code == 2 and says in told.line, told
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("section", "says"),
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
def test_a_resume_is_checked_as_a_start_is(place: Path, section: str, says: str) -> None:
    """Of a run that began elsewhere, with other packages, or by an older Arena."""
    assert_refused(make_checkpointed_run(place / "runs" / "of_old", f"{SEPARATE}{section}\n", _3="nano-3"), says)


def test_weights_that_are_gone_are_missed_before_a_resume(place: Path) -> None:
    shutil.copytree(resolve("nano"), place / "mine")
    run = make_checkpointed_run(
        place / "runs" / "with_mine", SHARED.replace("{model: nano}", f"{{model: {place / 'mine'}}}")
    )
    (place / "mine" / "tokenizer.json").unlink()
    assert_refused(run, "mine")


def test_a_reward_of_an_undeclared_game_is_missed_after_the_first_iteration(place: Path) -> None:
    """`deal` came, `one` never does."""
    (place / "race.py").write_text(RACE)
    players = [f"seats.{seat}.role=player" for seat in ("opener", "responder")]
    race = [part for setting in ("game.name=race.py:Race", *players) for part in ("--set", setting)]
    told = arena(*TINY, *NO_IMITATION, *race, "--set", "credit.weights={one: 2}")
    assert told.code == 2
    assert "credit.weights: no reward is called 'one'" in told.err and "(there are: deal, illegal, stake)" in told.err
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

    def private(self, seat):
        return {}

    def legal(self, seat):
        return ["GO"]

    def play(self, seat, act):
        self.pay(seat, "deal", 1.0)
        self.end("gone", "Gone.")
        return act
"""
