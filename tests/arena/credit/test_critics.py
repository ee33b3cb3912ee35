"""Critics: the linear one by hand and without look-ahead, the token head by finite differences, and resumption."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.policy import find_image_token, load_module
from agents.scoring import pack
from agents.stream import OBSERVED, MediaSpan, Stream
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.kinds import choose
from arena.config.layers import compose, to_yaml
from arena.config.sources import set_layer, text_layer
from arena.credit.assign import assign
from arena.credit.batch import CreditedTrajectory, TurnBatch
from arena.credit.critics import create_critic
from arena.credit.critics.base import Critic, CriticContext
from arena.credit.critics.value_head import ValueHead, ValueModel, value_loss
from arena.credit.critics.words import hash_states, hash_texts
from arena.credit.estimators.gae import Discounts
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError, StoreError
from arena.records import MatchRecord, trajectories
from arena.store.checkpoints import write
from arena.store.run import RunFolder
from games.contracts import Message
from games.png import encode
from tests.factories.labs import RecordingWatcher, make_experiment, open_lab, reopen_lab, run_lab, stop_lab
from tests.factories.models import make_tiny_llama
from tests.factories.policies import make_policies
from tests.factories.records import make_turn, wrap_turns
from tests.factories.traces import assert_same_runs
from tests.factories.trajectories import make_token_trajectories

UNUSED_RNG = np.random.default_rng(0)


def make_credited(
    texts: Sequence[str], rewards: Sequence[float], role: str = "opener", match: str = "m"
) -> CreditedTrajectory:
    """Return a credited trajectory whose turns observe these texts and earn these rewards."""
    turns = tuple(
        make_turn(2 * k, {}, role=role, seat=role, messages=(Message.of("they", text),)) for k, text in enumerate(texts)
    )
    trajectory = wrap_turns(turns, match=match, seat=role, role=role)
    return CreditedTrajectory(trajectory=trajectory, rewards=np.array(rewards, float), advantages=np.zeros(len(turns)))


def make_linear_critic(gamma: float = 1.0, **settings: Any) -> Critic:
    return choose("critic", "linear", **settings)(CriticContext(discounts=Discounts(1.0, gamma)))


def predict_values(critic: Critic, *credited: CreditedTrajectory) -> list[list[float]]:
    return [v.tolist() for v in wait(critic.predict([c.trajectory for c in credited]))["values"]]


# -- linear ------------------------------------------------------------------------------------------------


def test_values_are_zero_first_and_then_near_the_mean() -> None:
    critic, credited = make_linear_critic(ridge=1e6), [make_credited(["hello"], [r]) for r in (1.0, 3.0)] * 8
    assert predict_values(critic, credited[0]) == [[0.0]]
    wait(critic.fit(credited, UNUSED_RNG))
    # with a ridge that forbids every word only the free intercept is left: the mean return, (1 + 3) / 2
    assert (
        predict_values(critic, credited[0], make_credited(["other words"], [0.0])) == [[pytest.approx(2, abs=1e-3)]] * 2
    )


def test_values_equal_the_ridge_regression_of_returns() -> None:
    credited = [make_credited(["buy now", "walk away"], [1.0, 2.0]), make_credited(["walk"], [-4.0], role="responder")]
    critic = make_linear_critic(gamma=0.5, features=16, ridge=0.5)
    wait(critic.fit(credited, UNUSED_RNG))
    # returns: 1 + .5·2 = 2, 2, -4; the normal equations, intercept (almost) free
    features = np.concatenate([np.ones((3, 1)), hash_states([c.trajectory for c in credited], 16)], 1)
    weights = np.linalg.solve(
        features.T @ features + np.diag([1e-6, *[0.5] * 16]), features.T @ np.array([2.0, 2.0, -4.0])
    )
    assert np.concatenate(predict_values(critic, *credited)) == pytest.approx(features @ weights, rel=1e-5)


def test_linear_critic_distinguishes_words_turns_and_roles() -> None:
    rng = np.random.default_rng(0)
    credited = []
    for i in range(200):
        word, role = ("apple", "stone")[rng.integers(2)], ("opener", "responder")[i % 2]
        reward = (2.0 if word == "apple" else -2.0) + (1.0 if role == "opener" else 0.0)
        credited.append(make_credited([f"some {word}", "later"], [0.0, reward], role))
    critic = make_linear_critic(ridge=0.1)
    wait(critic.fit(credited, UNUSED_RNG))
    values = predict_values(
        critic,
        *(
            make_credited([w, "later"], [0, 0], r)
            for w in ("some apple", "some stone")
            for r in ("opener", "responder")
        ),
    )
    assert np.array(values) == pytest.approx(np.array([[3, 3], [2, 2], [-1, -1], [-2, -2]]), abs=0.2), (
        "also a turn later"
    )
    figures = wait(critic.fit(credited, UNUSED_RNG))
    assert figures["explained"] > 0.98 and figures["error"] < 0.05


def test_older_iterations_decay() -> None:
    older, newer = [make_credited(["x"], [0.0])] * 4, [make_credited(["x"], [1.0])] * 4
    critic = make_linear_critic(decay=0.25, ridge=1e-3)
    wait(critic.fit(older, UNUSED_RNG))
    wait(critic.fit(newer, UNUSED_RNG))
    assert predict_values(critic, *older[:1]) == [[pytest.approx(4 / (4 + 0.25 * 4), abs=0.01)]]


def test_values_do_not_use_the_turns_they_predict(tmp_path: Path) -> None:
    """An iteration's values depend only on earlier iterations."""
    earlier, current = [make_credited(["a b"], [1.0]), make_credited(["c"], [0.0])], [make_credited(["a"], [5.0])]
    fitted, unfitted = make_linear_critic(), make_linear_critic()
    for critic in (fitted, unfitted):
        wait(critic.fit(earlier, UNUSED_RNG))
    before = predict_values(fitted, *current)
    wait(fitted.fit(current, UNUSED_RNG))
    assert before == predict_values(unfitted, *current) != predict_values(fitted, *current)
    for critic in (fitted, unfitted):
        (tmp_path / str(id(critic))).mkdir()
        critic.save(tmp_path / str(id(critic)))
    loaded = make_linear_critic()
    loaded.load(tmp_path / str(id(fitted)))
    assert predict_values(loaded, *current) == predict_values(fitted, *current) != predict_values(unfitted, *current)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["", "buy it", "no", "buy no it"]), min_size=1, max_size=3), min_size=1, max_size=5
    )
)
def test_features_do_not_depend_on_other_trajectories(texts: list[list[str]]) -> None:
    rollouts = [
        make_credited(t, [0.0] * len(t), ("opener", "responder")[i % 2]).trajectory for i, t in enumerate(texts)
    ]
    separate = np.concatenate([hash_states([t], 32) for t in rollouts])
    assert (hash_states(rollouts, 32) == separate).all()
    assert (np.linalg.norm(separate, axis=1) <= 3 + 1e-9).all()


def test_words_and_bigrams_are_signed_hashed_features() -> None:
    word, repeated, empty, other_word = hash_texts(["Offer", "offer offer", "  ", "walk"], 64)
    assert np.abs(word).sum() == 1 and (word == repeated).all() and not empty.any() and (word != other_word).any()
    # two words and their bigram, each ± 1 / √3
    bigram, reversed_bigram = hash_texts(["offer walk", "walk offer"], 4096, 2)
    assert sorted(np.abs(bigram[bigram != 0])) == pytest.approx([3**-0.5] * 3)
    assert np.abs(bigram - reversed_bigram).sum() == pytest.approx(2 * 3**-0.5), "only the bigram depends on the order"
    separate = hash_texts(["offer", "walk", "offer walk"], 4096, 2)
    assert (separate[2] == bigram).all(), "no bigram spans two texts"


# -- the configuration -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        ("{estimator: gae_token}", "credit.estimator: gae_token needs credit.critic: value_head"),
        ("{estimator: gae_turn}", "credit.estimator: gae_turn needs credit.critic: linear or value_head or archer"),
        ("{estimator: archer}", "credit.estimator: archer needs credit.critic: archer"),
        ("{estimator: gae_bilevel, critic: linear}", "gae_bilevel needs credit.critic: value_head, not linear"),
        (
            "{estimator: {weighted_sum: {parts: [{estimator: mars}, {estimator: gae_token}]}}}",
            "needs credit.critic: value",
        ),
        ("{estimator: gae_turn, critic: lineal}", "unknown critic 'lineal' — did you mean 'linear'?"),
        ("{estimator: gae_turn, critic: {linear: {ridges: 1.0}}}", "did you mean 'ridge'?"),
        ("{estimator: gae_turn, critic: {linear: {decay: 2.0}}}", "decay"),
    ],
)
def test_missing_or_unsuitable_critic_is_refused_before_play(credit: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_experiment(f"credit={credit}")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_critic_setting_round_trips_and_can_be_replaced() -> None:
    config = make_experiment("credit={estimator: gae_turn, critic: {linear: {ridge: 2.0}}}")
    reloaded = compose([text_layer("kept", to_yaml(config))])
    assert reloaded == config and config.credit.critic == choose("critic", "linear", ridge=2.0)
    replaced = [text_layer("kept", to_yaml(config)), set_layer("credit.critic={value_head: {lr: 1e-3}}")]
    assert compose(replaced).credit.critic == choose("critic", "value_head", lr=1e-3)
    assert (
        compose([*replaced, set_layer("credit.critic=null"), set_layer("credit.estimator=mars")]).credit.critic is None
    )
    assert create_critic(None, choose("estimator", "mars")) is None


def test_value_head_needs_weights() -> None:
    rule = CreditSpec.model_validate(dict(estimator="gae_token", critic="value_head"))
    with pytest.raises(ValueError, match="a match log alone is not enough"):
        create_critic(rule.critic, rule.estimator)
    assert rule.critic is not None and rule.critic.needs == {"policies"}
    assert create_critic(choose("critic", "linear"), choose("estimator", "gae_turn")) is not None


# -- the token head ----------------------------------------------------------------------------------------


def test_value_losses_by_hand_and_by_finite_differences() -> None:
    value, target, old = (
        torch.tensor(v, dtype=torch.float64) for v in ([1.0, 3.0, 1.0], [2.0, 2.0, 0.0], [1.0, 1.0, 3.0])
    )
    assert value_loss(value, target).tolist() == [0.5, 0.5, 0.5]
    # clip .5: the second may say 1.5 at most, a smaller error than its own: 1 counts. The third 2.5 at least: 6.25
    assert value_loss(value, target, old, 0.5).tolist() == [0.5, 0.5, 3.125]
    value.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: value_loss(v, target), value)
    assert torch.autograd.gradcheck(lambda v: value_loss(v, target, old, 0.5), value)
    (gradient,) = torch.autograd.grad(value_loss(value, target, old, 0.5).sum(), value)
    assert gradient.tolist() == [-1.0, 1.0, 0.0], "V - R, and nothing where the clipped error is the larger"


def make_value_head(model: Any, **settings: Any) -> ValueHead:
    critic = choose("critic", "value_head", **settings)(
        CriticContext(discounts=Discounts(1.0, None), policies=make_policies(model))
    )
    assert isinstance(critic, ValueHead)
    return critic


def test_value_is_predicted_at_the_position_before_its_token() -> None:
    model = ValueModel(make_tiny_llama())
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    streams = [c.trajectory.streams[0] for c in make_token_trajectories(0)]
    for batch in pack(streams, [1.0] * 6, 64):
        values = model(batch).tolist()
        for i in batch.index:
            hidden = model.model.base_model(input_ids=torch.tensor([streams[i].ids])).last_hidden_state[0]
            expected = [model.head(hidden[k - 1]).item() for k, is_sampled in enumerate(streams[i].mask) if is_sampled]
            assert values[: len(expected)] == pytest.approx(expected, abs=1e-5)
            values = values[len(expected) :]


def test_value_depends_on_earlier_images() -> None:
    model, token = ValueModel(load_module(resolve("nano-vlm"), frozen=True)), find_image_token(resolve("nano-vlm"))
    assert token is not None
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    streams = []
    for level in (0, 0, 200):
        data = encode(np.full((48, 48, 3), level, np.uint8))
        span = MediaSpan(1, 9, hashlib.sha256(data).hexdigest(), data)
        streams.append(
            Stream([5, *[token.id] * 9, 6], [False] * 10 + [True], [0.0] * 11, [OBSERVED] * 10 + [0], media=[span])
        )
    first, equal, different = (float(value[0]) for value in model.predict(streams, 64))
    assert first == pytest.approx(equal, abs=1e-5) and abs(first - different) > 1e-3


@pytest.mark.slow
def test_value_head_starts_at_zero_and_learns_returns() -> None:
    model = make_tiny_llama()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    critic, credited = make_value_head(model, lr=3e-3, epochs=30, minibatches=2), make_token_trajectories(1, 24)
    rollouts = [c.trajectory for c in credited]
    measures = wait(critic.predict(rollouts))
    assert not any(v.any() for v in measures["token_values"]) and not any(v.any() for v in measures["values"])
    assert [len(v) for v in measures["values"]] == [len(t.turns) for t in rollouts]
    assert [len(v) for v in measures["token_values"]] == [t.streams[0].sampled_count for t in rollouts]
    wait(critic.fit(credited, np.random.default_rng(0)))
    values = wait(critic.predict(rollouts))["values"]
    returns = np.array([c.rewards.sum() for c in credited])
    assert np.corrcoef([v[0] for v in values], returns)[0, 1] > 0.9
    assert np.abs(np.concatenate([v[1:] for v in values])).mean() < 0.35, "later turns have a return of 0"
    assert all((p == before[name]).all() for name, p in model.named_parameters()), (
        "the policy's own weights are unchanged"
    )
    for t, tokens, turns in zip(rollouts, wait(critic.predict(rollouts))["token_values"], values, strict=True):
        sampled_turns = [
            turn_ for turn_, is_sampled in zip(t.streams[0].turns, t.streams[0].mask, strict=True) if is_sampled
        ]
        assert [tokens[sampled_turns.index(turn_.index)] for turn_ in t.turns] == turns.tolist()


@pytest.mark.parametrize("clip", [None, 0.2])
def test_saved_value_head_resumes_bit_equal(tmp_path: Path, clip: float | None) -> None:
    model, settings = make_tiny_llama(), {"lr": 1e-2, "epochs": 2, "minibatches": 2, "clip": clip}
    uninterrupted, first = make_value_head(model, **settings), make_value_head(model, **settings)
    for critic in (uninterrupted, first):
        wait(critic.fit(make_token_trajectories(1), np.random.default_rng(1)))
    first.save(tmp_path)
    resumed = make_value_head(make_tiny_llama(7), **settings)
    resumed.load(tmp_path)
    for critic in (uninterrupted, resumed):
        wait(critic.fit(make_token_trajectories(2), np.random.default_rng(2)))
    rollouts = [c.trajectory for c in make_token_trajectories(3)]
    expected, predicted = (wait(critic.predict(rollouts))["token_values"] for critic in (uninterrupted, resumed))
    assert all((a == b).all() for a, b in zip(expected, predicted, strict=True)) and any(a.any() for a in expected)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors"}


# -- in a run ----------------------------------------------------------------------------------------------

CREDIT = {
    "linear": ["credit.estimator={gae_turn: {lam: 0.9}}", "credit.critic=linear"],
    "value_head": [
        "credit.estimator={gae_token: {gamma: 0.9}}",
        "credit.critic={value_head: {lr: 1e-3, minibatches: 2}}",
    ],
    "archer": [
        "credit.estimator=archer",
        "credit.critic={archer: {features: 32, hidden: 8, batch: 16, steps: 5, warmup: 1, replay: 30}}",
    ],
}


def make_critic_experiment(imitated_weights: str, critic: str, *assignments: str) -> Experiment:
    policies = f"policies={{shared: {{model: {imitated_weights}}}}}"
    return make_experiment(policies, "policies.shared.imitate=null", *CREDIT[critic], *assignments)


@pytest.fixture(scope="module")
def imitated_weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights that know the words, so that turns earn different rewards."""
    folder = tmp_path_factory.mktemp("critics") / "run"
    lab = open_lab(folder, make_experiment("iterations=1", "play.matches=1"))
    wait(lab.imitate())
    return str(folder / "checkpoints" / "0000" / "policies" / "shared")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("critic", CREDIT)
def test_resume_with_critic_is_bit_equal(imitated_weights: str, tmp_path: Path, critic: str) -> None:
    config, watcher = make_critic_experiment(imitated_weights, critic), RecordingWatcher()
    run_lab(tmp_path / "whole", config, watcher)
    assert all(row["critic"] for row in watcher.rows)
    folder = tmp_path / "broken"
    stop_lab(folder, config, "phase", (2, "learn"))
    resumed = reopen_lab(folder, config)
    assert resumed.done == 1, "stopped right after the critic's update in iteration 2"
    wait(resumed.run())
    assert_same_runs(folder, tmp_path / "whole")
    files = {path.suffix for path in (folder / "checkpoints" / "0002" / "critic").rglob("*") if path.is_file()}
    assert files and files <= {".safetensors", ".json", ".jinja"}
    assert any(row.advantage for row in RunFolder.open(folder).reader.credit(2))


def read_critic_files(folder: Path) -> dict[str, bytes]:
    root = folder / "checkpoints" / "0002" / "critic"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_linear_credit_is_reproducible_from_the_log(imitated_weights: str, tmp_path: Path) -> None:
    config = make_critic_experiment(imitated_weights, "linear")
    run_lab(tmp_path / "run", config)
    run, critic = RunFolder.open(tmp_path / "run"), create_critic(config.credit.critic, config.credit.estimator)
    assert critic is not None
    for k in (1, 2):
        played = [t for row in run.reader.log.read(k) for t in trajectories(MatchRecord.from_json(row))]
        credited = assign(TurnBatch(played, measures=wait(critic.predict(played))), config.credit)
        wait(critic.fit(credited, UNUSED_RNG))
        online = {(row.match, row.turn): row.advantage for row in run.reader.credit(k)}
        offline = {
            (c.trajectory.match, turn_.index): advantage
            for c in credited
            for turn_, advantage in zip(c.trajectory.turns, c.advantages, strict=True)
        }
        assert online == pytest.approx(offline, abs=1e-6)


def test_checkpoint_refuses_pickled_critic(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "critic").mkdir()
        torch.save({}, folder / "critic" / "value_head.pt")

    with pytest.raises(StoreError, match="safetensors, JSON and text only"):
        write(tmp_path, 1, fill)
