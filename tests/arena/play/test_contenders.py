"""Contenders: meaning of a spec, its role, and errors for unknown ones."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

import games
from agents.engines.base import Request
from agents.engines.in_process import InProcessEngine
from agents.errors import WeightsError
from agents.model_folder import load_model
from agents.precision import Precision
from agents.role import load_role
from agents.weights import resolve
from arena.cli.loop import wait
from arena.errors import ConfigError, StoreError
from arena.evaluate.casting import Casting
from arena.evaluate.specs import ContenderLoader, list_history, name_first_weights, read_spec
from arena.play.contenders import Contender, EndpointContender, HumanContender, ModelContender, ScriptedContender
from arena.play.lineup import make_seatings
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.settings import GameSpec
from arena.play.tables import Table
from games.contracts import MatchId
from tests.factories.kept_run import SEPARATE, SHARED, make_checkpointed_run
from tests.factories.server import Server, reply_with_models


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_checkpointed_run(tmp_path / "run", _3="nano-3", _7="nano-7")


@pytest.fixture
def separate_run(tmp_path: Path) -> Path:
    return make_checkpointed_run(tmp_path / "separate", SEPARATE, _2="nano-4")


def get_casting(contender: Contender) -> Casting:
    assert isinstance(contender, ModelContender) and isinstance(contender.cast, Casting)
    return contender.cast


def get_role(contender: Contender, game: str, seat: str) -> str:
    return get_casting(contender)(game, seat)[1].role


def get_policy(contender: Contender, game: str, seat: str) -> str:
    return get_casting(contender)(game, seat)[0].name


def get_module(contender: Contender, policy: str) -> Any:
    """Return the module with which the engine computes one of a contender's policies."""
    assert isinstance(contender, ModelContender) and isinstance(contender.engine, InProcessEngine)
    return contender.engine._served[get_casting(contender).policies[policy].name].model


def load(spec: str | Path, role: str = "") -> ModelContender:
    (contender,) = wait(ContenderLoader(role).load(str(spec)))
    assert isinstance(contender, ModelContender)
    return contender


def has_weights_of(contender: ModelContender, policy: str, model: str) -> bool:
    expected = load_model(resolve(model)).state_dict()
    return all(torch.equal(tensor, expected[n]) for n, tensor in get_module(contender, policy).state_dict().items())


@pytest.mark.parametrize(
    ("suffix", "model"), [("", "nano-7"), ("@7", "nano-7"), ("@3:shared", "nano-3"), ("@0", "nano")]
)
def test_spec_selects_any_weights_of_a_run(run: Path, suffix: str, model: str) -> None:
    contender = load(f"{run}{suffix}")
    assert has_weights_of(contender, "shared", model)
    assert contender.seating("kuhn_poker", "first").version == {"nano-7": 7, "nano-3": 3, "nano": 0}[model]


def test_first_weights_are_those_after_imitation(tmp_path: Path) -> None:
    assert has_weights_of(
        load(f"{make_checkpointed_run(tmp_path / 'run', _0='nano-5', _2='nano')}@0"), "shared", "nano-5"
    )


def test_the_league_pool_keeps_weights_too(run: Path) -> None:
    pooled = run / "league" / "shared@5"
    pooled.parent.mkdir()
    pooled.symlink_to(resolve("nano-5"))
    assert has_weights_of(load(f"{run}@5"), "shared", "nano-5")
    assert list_history(str(run)) == [f"{run}@{k}" for k in (0, 3, 5, 7)]


def test_a_model_is_a_name_or_a_folder() -> None:
    by_name, by_folder = wait(ContenderLoader().load("nano-2", str(resolve("nano-2"))))
    assert isinstance(by_name, ModelContender) and isinstance(by_folder, ModelContender)
    assert get_module(by_name, "") is get_module(by_folder, ""), "the same weights are loaded once"


def test_roles(run: Path, separate_run: Path) -> None:
    contender = load(run)
    assert get_role(contender, "kuhn_poker", "second") == "nano_kuhn"
    assert get_role(contender, "leduc_poker", "first") == "nano_player", "a tiny model's own"
    assert get_role(load(run, role="player"), "kuhn_poker", "second") == "player"
    separate = load(separate_run)
    assert get_role(separate, "negotiation", "responder") == "nano_responder"
    assert get_role(load(f"{separate_run}:two"), "nim", "first") == "nano_player", "the run's role for any game"


def test_several_policies_take_their_own_seats(separate_run: Path) -> None:
    contender = load(separate_run)
    assert get_policy(contender, "negotiation", "responder").endswith("/two")
    with pytest.raises(ConfigError, match=r"several policies \(one, two\), none at nim's first: name one: .*:one"):
        get_policy(contender, "nim", "first")
    assert get_policy(load(f"{separate_run}:two"), "nim", "first").endswith("/two")


def test_the_first_weights_of_any(run: Path, separate_run: Path) -> None:
    assert name_first_weights(f"{run}@7") == f"{run}@0"
    assert name_first_weights(f"{separate_run}:two") == f"{separate_run}@0:two"
    for spec in ("random", "nano"):
        with pytest.raises(ConfigError, match="has no first weights"):
            name_first_weights(spec)


def test_contenders_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(models=reply_with_models("some/model")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        script, endpoint = wait(ContenderLoader().load("mcts:10", "endpoint:some/model"))
    assert isinstance(script, ScriptedContender) and isinstance(endpoint, EndpointContender)
    assert endpoint.role("nim", "first").role == "player"
    script.check("tic_tac_toe", games.make("tic_tac_toe"), "first")
    with pytest.raises(ConfigError, match="mcts"):
        script.check("kuhn_poker", games.make("kuhn_poker"), "first")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randm", "unknown contender 'randm' — did you mean 'random'"),
        ("nanoo", "did you mean 'nano'"),
        ("mcts:many", "mcts"),
        ("endpoint:", "write endpoint:MODEL"),
        ("{run}x", "did you mean '{run}'"),
        ("{run}@4", "keeps no weights of iteration 4; it has: 0, 3, 7"),
        ("{run}:sharde", "has no policy 'sharde' — did you mean 'shared'? (it has: shared)"),
        ("{run}/checkpoints@3", "is not a run folder"),
        ("", "a contender has no name"),
    ],
)
def test_unknown_contender_gives_one_line(run: Path, spec: str, message: str) -> None:
    with pytest.raises((ConfigError, StoreError, WeightsError)) as error:
        read_spec(spec.format(run=run))
    assert message.format(run=run) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_without_a_checkpoint_has_its_first_weights_only(tmp_path: Path) -> None:
    run = make_checkpointed_run(tmp_path / "run")
    with pytest.raises(StoreError, match="has no checkpoint yet"):
        read_spec(str(run))
    assert read_spec(f"{run}@0").folders == {"shared": resolve("nano")}


def test_endpoint_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        wait(ContenderLoader().load("endpoint:m"))


def test_engine_serves_each_contender_its_own_weights(run: Path) -> None:
    old, new = wait(ContenderLoader().load(f"{run}@3", f"{run}@7"))
    assert isinstance(old, ModelContender) and isinstance(new, ModelContender)
    assert old.engine is new.engine
    ids = tuple(get_casting(old).policies["shared"].frame.ask("card K"))

    async def reply(contender: ModelContender) -> tuple[float, ...]:
        request = Request(
            policy=get_casting(contender).policies["shared"].name,
            ids=ids,
            key="k",
            max_tokens=4,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            stop_ids=frozenset(),
            seed=(1,),
        )
        (completion,) = await contender.engine.generate([request])
        return completion.logprobs

    assert asyncio.run(reply(old)) != asyncio.run(reply(new))


def test_the_same_seed_plays_the_same_match(run: Path) -> None:
    model, script = wait(ContenderLoader().load(str(run), "random"))

    def play(seed: int) -> list[str]:
        seats: dict[str, Contender] = {"first": model, "second": script}
        seating = {seat: contender.seating("kuhn_poker", seat) for seat, contender in seats.items()}
        plan, game = (
            MatchPlan(identity=MatchId(0, 0), game="kuhn_poker", options={}, seed=5, seats=seating),
            games.make("kuhn_poker"),
        )
        players = {seat: contender.player(seat, plan, game, seed) for seat, contender in seats.items()}
        record = asyncio.run(play_match(plan, game, players, Limits()))
        assert record.status == "finished", record.reason
        return [turn.raw for turn in record.turns]

    assert play(1) == play(1) != play(2)


def test_kinds_are_equal_inside_and_outside_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(models=reply_with_models("m")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        contenders = [*wait(ContenderLoader().load("nano", "random", "endpoint:m")), HumanContender(Console())]
    kinds = [contender.seating("kuhn_poker", "first").kind for contender in contenders]
    assert kinds == ["model", "brain", "endpoint", "human"]
    role, names = load_role("player"), ("nano", "random", "endpoint:m")
    table = Table(GameSpec(name="kuhn_poker"), {"first": role})
    policies: dict[str, Any] = {"nano": SimpleNamespace(version=0, trained=False)}
    assert [make_seatings(table, {"first": name}, policies)["first"].kind for name in names] == kinds[:3]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_contenders_compute_in_the_precision_of_their_run(tmp_path: Path, order: tuple[int, int]) -> None:
    bf16_run = make_checkpointed_run(tmp_path / "half", SHARED + "precision: bf16\n", _1="nano-3")
    specs = [str(bf16_run), "nano-3"]
    by_spec = {contender.name: contender for contender in wait(ContenderLoader().load(*(specs[i] for i in order)))}
    precisions = {}
    for name, contender in by_spec.items():
        assert isinstance(contender, ModelContender) and isinstance(contender.engine, InProcessEngine)
        precisions[name] = contender.engine.precision
    assert precisions == {str(bf16_run): Precision.BF16, "nano-3": Precision.FP32}
