"""A second engine plugs in through the table of engines; what it cannot do is refused before a run begins."""

from pathlib import Path

import pytest

from agents.engines.kinds import ENGINES
from agents.engines.spec import EngineSpec
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.preflight import preflight
from arena.records import MatchRecord
from arena.scale.cluster import check_scale
from arena.scale.settings import ResourcesSpec, ScaleSpec, WorkerResources
from arena.store.run import RunFolder
from tests.factories.labs import make_experiment, run_lab
from tests.factories.toy_engine import PLACE

NO_REFERENCE = ("learn.regularisers.kl.weight=0.0", "policies.shared.imitate=null")
PAST = "league={opponents: [{play: self}, {play: past, lag: 1}]}"


@pytest.fixture(autouse=True)
def toy_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"toy": "ToyEngine", "only_one": "OnlyOne", "elsewhere": "Elsewhere"}
    for kind, name in places.items():
        monkeypatch.setitem(ENGINES, kind, f"{PLACE}:{name}")


def read_matches(folder: Path, k: int) -> list[MatchRecord]:
    log = RunFolder.open(folder).reader.log
    return sorted(map(MatchRecord.from_json, log.read(k)), key=lambda record: record.id)


def test_run_with_another_engine_plays_and_learns_equally(tmp_path: Path) -> None:
    """Its gate passes and the replies are equal, although it computes each token differently."""
    for kind in ("toy", "in_process"):
        run_lab(tmp_path / kind, make_experiment(f"engine.kind={kind}"))
    toy, ours = (RunFolder.open(tmp_path / kind).reader.metrics() for kind in ("toy", "in_process"))
    assert all(row["learn"]["shared"]["logprob_gap"] < 1e-4 for row in toy)
    for k in (1, 2):
        for first, second in zip(
            read_matches(tmp_path / "toy", k), read_matches(tmp_path / "in_process", k), strict=True
        ):
            assert first.payoffs == second.payoffs
            for seat, streams in first.streams.items():
                assert [s.ids for s in streams] == [s.ids for s in second.streams[seat]]
        loss = ours[k - 1]["learn"]["shared"]["loss"]
        assert toy[k - 1]["learn"]["shared"]["loss"] == pytest.approx(loss, abs=1e-4)


def get_refusal(config: Experiment) -> str:
    with pytest.raises(ConfigError) as error:
        wait(preflight(config, lambda text: None))
    return str(error.value)


def test_adapters_are_refused() -> None:
    config = make_experiment("engine.kind=toy", "policies.shared={model: nano, adapter: {rank: 2}}")
    assert get_refusal(config) == (
        "engine.kind: toy serves no adapters, and policy 'shared' is one: set engine.kind to "
        "in_process or vllm or only_one or elsewhere"
    )


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ((), "shared, reference weights"),
        ((*NO_REFERENCE, PAST), "shared, past versions"),
        (
            (*NO_REFERENCE, "policies.other={model: nano-1, train: false}", "seats.responder.policy=other"),
            "other, shared",
        ),
    ],
)
def test_several_policies_are_refused(settings: tuple[str, ...], served: str) -> None:
    message = get_refusal(make_experiment("engine.kind=only_one", *settings))
    assert message.startswith(f"engine.kind: only_one serves one policy, and this run has {served}: set engine.kind to")


def test_one_policy_without_a_reference_is_served() -> None:
    wait(preflight(make_experiment("engine.kind=only_one", *NO_REFERENCE), lambda text: None))


def test_past_versions_of_full_weights_are_refused_with_a_process_each() -> None:
    message = get_refusal(make_experiment("engine.kind=elsewhere", *NO_REFERENCE, PAST))
    assert message.startswith(
        "engine.kind: elsewhere serves past versions of adapters only: set policies.shared.adapter"
    )
    adapters = "policies.shared={model: nano, adapter: {rank: 2}}"
    wait(preflight(make_experiment("engine.kind=elsewhere", adapters, PAST), lambda text: None))


def test_role_that_needs_entropies_is_refused(tmp_path: Path) -> None:
    role = "{role: careful, turn: '{{ messages }}', sampling: {cautious: {most: 4, low: 0.5, high: 2.0}}}\n"
    (tmp_path / "careful.yaml").write_text(role)
    other = ("policies.other={model: nano-1, train: false}", "seats.responder={role: careful, policy: other}")
    settings = (f"roles={tmp_path}", *other, *NO_REFERENCE)
    wait(preflight(make_experiment(*settings), lambda text: None))
    message = get_refusal(make_experiment("engine.kind=toy", *settings))
    assert message.startswith("role careful: sampling.cautious needs entropies, which engine toy does not report")


def test_several_gpus_for_a_model_are_refused() -> None:
    pytest.importorskip("ray")
    spec = ScaleSpec(resources=ResourcesSpec(engine=WorkerResources(gpus=2.0)))
    with pytest.raises(ConfigError, match=r"toy computes a model on one GPU: set engine\.kind to vllm, or ask"):
        check_scale(spec, EngineSpec(kind="toy"))
