"""Critics: the linear one by hand and against the future, the token head against finite differences, and resumption."""

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
from arena.lab import Lab
from arena.records import MatchRecord, trajectories
from arena.store.checkpoints import write
from arena.store.run import RunFolder
from games.contracts import Message
from games.png import encode
from tests.factories.labs import RecordingWatcher, make_experiment, open_lab, read_log, read_weight_files, run_lab
from tests.factories.models import make_tiny_llama
from tests.factories.policies import make_policies
from tests.factories.trajectories import make_token_trajectories, make_turn, wrap_turns

NO_CHANCE = np.random.default_rng(0)


def heard(texts: Sequence[str], rewards: Sequence[float], role: str = "opener", match: str = "m") -> CreditedTrajectory:
    """A trajectory whose mover heard these texts, with what each turn earned."""
    turns = tuple(
        make_turn(2 * k, {}, role=role, seat=role, messages=(Message.of("they", text),)) for k, text in enumerate(texts)
    )
    one = wrap_turns(turns, match=match, seat=role, role=role)
    return CreditedTrajectory(trajectory=one, rewards=np.array(rewards, float), advantages=np.zeros(len(turns)))


def linear(gamma: float = 1.0, **given: Any) -> Critic:
    return choose("critic", "linear", **given)(CriticContext(discounts=Discounts(1.0, gamma)))


def values(critic: Critic, *found: CreditedTrajectory) -> list[list[float]]:
    return [v.tolist() for v in wait(critic.predict([c.trajectory for c in found]))["values"]]


# -- linear ------------------------------------------------------------------------------------------------


def test_the_first_values_are_nothing_and_the_next_are_about_the_mean() -> None:
    critic, many = linear(ridge=1e6), [heard(["hello"], [r]) for r in (1.0, 3.0)] * 8
    assert values(critic, many[0]) == [[0.0]]
    wait(critic.fit(many, NO_CHANCE))
    # with a ridge that forbids every word only the free intercept is left: the mean return, (1 + 3) / 2
    assert values(critic, many[0], heard(["other words"], [0.0])) == [[pytest.approx(2, abs=1e-3)]] * 2


def test_values_are_the_ridge_regression_of_returns() -> None:
    found = [heard(["buy now", "walk away"], [1.0, 2.0]), heard(["walk"], [-4.0], role="responder")]
    critic = linear(gamma=0.5, features=16, ridge=0.5)
    wait(critic.fit(found, NO_CHANCE))
    # returns: 1 + .5·2 = 2, 2, -4; the normal equations, intercept (almost) free
    seen = np.concatenate([np.ones((3, 1)), hash_states([c.trajectory for c in found], 16)], 1)
    weights = np.linalg.solve(seen.T @ seen + np.diag([1e-6, *[0.5] * 16]), seen.T @ np.array([2.0, 2.0, -4.0]))
    assert np.concatenate(values(critic, *found)) == pytest.approx(seen @ weights, rel=1e-5)


def test_it_tells_words_places_and_roles_apart() -> None:
    rng = np.random.default_rng(0)
    found = []
    for i in range(200):
        word, role = ("apple", "stone")[rng.integers(2)], ("opener", "responder")[i % 2]
        worth = (2.0 if word == "apple" else -2.0) + (1.0 if role == "opener" else 0.0)
        found.append(heard([f"some {word}", "later"], [0.0, worth], role))
    critic = linear(ridge=0.1)
    wait(critic.fit(found, NO_CHANCE))
    said = values(
        critic, *(heard([w, "later"], [0, 0], r) for w in ("some apple", "some stone") for r in ("opener", "responder"))
    )
    assert np.array(said) == pytest.approx(np.array([[3, 3], [2, 2], [-1, -1], [-2, -2]]), abs=0.2), "also a turn later"
    told = wait(critic.fit(found, NO_CHANCE))
    assert told["explained"] > 0.98 and told["error"] < 0.05


def test_older_iterations_fade() -> None:
    one, other = [heard(["x"], [0.0])] * 4, [heard(["x"], [1.0])] * 4
    critic = linear(decay=0.25, ridge=1e-3)
    wait(critic.fit(one, NO_CHANCE))
    wait(critic.fit(other, NO_CHANCE))
    assert values(critic, *one[:1]) == [[pytest.approx(4 / (4 + 0.25 * 4), abs=0.01)]]


def test_values_never_see_the_turns_they_are_for(tmp_path: Path) -> None:
    """Whatever an iteration's matches led to, its values are those of before."""
    past, now = [heard(["a b"], [1.0]), heard(["c"], [0.0])], [heard(["a"], [5.0])]
    one, other = linear(), linear()
    for critic in (one, other):
        wait(critic.fit(past, NO_CHANCE))
    before = values(one, *now)
    wait(one.fit(now, NO_CHANCE))
    assert before == values(other, *now) != values(one, *now)
    for critic in (one, other):
        (tmp_path / str(id(critic))).mkdir()
        critic.save(tmp_path / str(id(critic)))
    again = linear()
    again.load(tmp_path / str(id(one)))
    assert values(again, *now) == values(one, *now) != values(other, *now)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["", "buy it", "no", "buy no it"]), min_size=1, max_size=3), min_size=1, max_size=5
    )
)
def test_what_was_seen_does_not_depend_on_who_else_played(texts: list[list[str]]) -> None:
    found = [heard(t, [0.0] * len(t), ("opener", "responder")[i % 2]).trajectory for i, t in enumerate(texts)]
    apart = np.concatenate([hash_states([t], 32) for t in found])
    assert (hash_states(found, 32) == apart).all()
    assert (np.linalg.norm(apart, axis=1) <= 3 + 1e-9).all()


def test_a_word_is_one_feature_and_a_sign_and_so_is_a_run_of_words() -> None:
    one, twice, none, other = hash_texts(["Offer", "offer offer", "  ", "walk"], 64)
    assert np.abs(one).sum() == 1 and (one == twice).all() and not none.any() and (one != other).any()
    # two words and their run, each ± 1 / √3
    both, turned = hash_texts(["offer walk", "walk offer"], 4096, 2)
    assert sorted(np.abs(both[both != 0])) == pytest.approx([3**-0.5] * 3)
    assert np.abs(both - turned).sum() == pytest.approx(2 * 3**-0.5), "the run alone tells the order"
    apart = hash_texts(["offer", "walk", "offer walk"], 4096, 2)
    assert (apart[2] == both).all(), "no run goes from one text into the next"


# -- the configuration -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credit", "told"),
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
def test_a_critic_that_is_missing_or_does_not_fit_is_told_before_play(credit: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_experiment(f"credit={credit}")
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_critic_is_written_and_read_and_taken_away() -> None:
    given = make_experiment("credit={estimator: gae_turn, critic: {linear: {ridge: 2.0}}}")
    again = compose([text_layer("kept", to_yaml(given))])
    assert again == given and given.credit.critic == choose("critic", "linear", ridge=2.0)
    other = [text_layer("kept", to_yaml(given)), set_layer("credit.critic={value_head: {lr: 1e-3}}")]
    assert compose(other).credit.critic == choose("critic", "value_head", lr=1e-3)
    assert compose([*other, set_layer("credit.critic=null"), set_layer("credit.estimator=mars")]).credit.critic is None
    assert create_critic(None, choose("estimator", "mars")) is None


def test_a_head_needs_weights() -> None:
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
    (slope,) = torch.autograd.grad(value_loss(value, target, old, 0.5).sum(), value)
    assert slope.tolist() == [-1.0, 1.0, 0.0], "V - R, and nothing where the clipped error is the larger"


def head(model: Any, **given: Any) -> ValueHead:
    found = choose("critic", "value_head", **given)(
        CriticContext(discounts=Discounts(1.0, None), policies=make_policies(model))
    )
    assert isinstance(found, ValueHead)
    return found


def test_a_value_is_that_of_the_position_before_its_token() -> None:
    model = ValueModel(make_tiny_llama())
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    streams = [c.trajectory.streams[0] for c in make_token_trajectories(0)]
    for batch in pack(streams, [1.0] * 6, 64):
        found = model(batch).tolist()
        for i in batch.index:
            hidden = model.model.base_model(input_ids=torch.tensor([streams[i].ids])).last_hidden_state[0]
            expected = [model.head(hidden[k - 1]).item() for k, own in enumerate(streams[i].mask) if own]
            assert found[: len(expected)] == pytest.approx(expected, abs=1e-5)
            found = found[len(expected) :]


def test_a_value_depends_on_the_images_before_its_token() -> None:
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
    one, same, other = (float(value[0]) for value in model.predict(streams, 64))
    assert one == pytest.approx(same, abs=1e-5) and abs(one - other) > 1e-3


@pytest.mark.slow
def test_the_head_begins_with_nothing_and_learns_what_comes() -> None:
    model = make_tiny_llama()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    critic, found = head(model, lr=3e-3, epochs=30, minibatches=2), make_token_trajectories(1, 24)
    played = [c.trajectory for c in found]
    measures = wait(critic.predict(played))
    assert not any(v.any() for v in measures["token_values"]) and not any(v.any() for v in measures["values"])
    assert [len(v) for v in measures["values"]] == [len(t.turns) for t in played]
    assert [len(v) for v in measures["token_values"]] == [t.streams[0].sampled_count for t in played]
    wait(critic.fit(found, np.random.default_rng(0)))
    values_ = wait(critic.predict(played))["values"]
    worth = np.array([c.rewards.sum() for c in found])
    assert np.corrcoef([v[0] for v in values_], worth)[0, 1] > 0.9
    assert np.abs(np.concatenate([v[1:] for v in values_])).mean() < 0.35, "nothing comes after the first turn"
    assert all((p == before[name]).all() for name, p in model.named_parameters()), "the policy is another copy"
    for t, tokens, turns in zip(played, wait(critic.predict(played))["token_values"], values_, strict=True):
        own = [k for k, mine in zip(t.streams[0].turns, t.streams[0].mask, strict=True) if mine]
        assert [tokens[own.index(k.index)] for k in t.turns] == turns.tolist()


@pytest.mark.parametrize("clip", [None, 0.2])
def test_a_head_goes_on_where_it_was_saved(tmp_path: Path, clip: float | None) -> None:
    model, given = make_tiny_llama(), {"lr": 1e-2, "epochs": 2, "minibatches": 2, "clip": clip}
    whole, first = head(model, **given), head(model, **given)
    for critic in (whole, first):
        wait(critic.fit(make_token_trajectories(1), np.random.default_rng(1)))
    first.save(tmp_path)
    resumed = head(make_tiny_llama(7), **given)
    resumed.load(tmp_path)
    for critic in (whole, resumed):
        wait(critic.fit(make_token_trajectories(2), np.random.default_rng(2)))
    played = [c.trajectory for c in make_token_trajectories(3)]
    one, other = (wait(critic.predict(played))["token_values"] for critic in (whole, resumed))
    assert all((a == b).all() for a, b in zip(one, other, strict=True)) and any(a.any() for a in one)
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
        "credit.critic={archer: {features: 32, hidden: 8, batch: 16, steps: 5, warmup: 1, fresh: 4, replay: 30}}",
    ],
}


def small(warm: str, critic: str, *assignments: str) -> Experiment:
    policies = f"policies={{shared: {{model: {warm}}}}}"
    return make_experiment(policies, "policies.shared.imitate=null", *CREDIT[critic], *assignments)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights that know the words, so that turns earn different rewards."""
    folder = tmp_path_factory.mktemp("critics") / "run"
    lab = open_lab(folder, make_experiment("iterations=1", "play.matches=1"))
    wait(lab.imitate())
    return str(folder / "checkpoints" / "0000" / "policies" / "shared")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("critic", CREDIT)
def test_a_run_with_a_critic_that_was_stopped_goes_on_bit_by_bit(warm: str, tmp_path: Path, critic: str) -> None:
    given, watcher = small(warm, critic), RecordingWatcher()
    run_lab(tmp_path / "whole", given, watcher)
    assert all(row["critic"] for row in watcher.rows)
    folder = tmp_path / "broken"
    lab = open_lab(folder, given, RecordingWatcher(lambda what, value: (what, value) == ("phase", (2, "learn"))))
    with pytest.raises(KeyboardInterrupt):
        wait(lab.run())
    again = wait(Lab.open(RunFolder.open(folder), given, RecordingWatcher()))
    assert again.done == 1, "stopped when the critic had just learned from iteration 2"
    wait(again.run())
    assert read_log(folder) == read_log(tmp_path / "whole") and read_weight_files(folder, 2) == read_weight_files(
        tmp_path / "whole", 2
    )
    one, other = (critic_files(f) for f in (folder, tmp_path / "whole"))
    assert one == other and one and {Path(name).suffix for name in one} <= {".safetensors", ".json", ".jinja"}
    assert any(row.advantage for row in RunFolder.open(folder).log.credit(2))


def critic_files(folder: Path) -> dict[str, bytes]:
    root = folder / "checkpoints" / "0002" / "critic"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_linear_credit_can_be_worked_out_again_from_the_log(warm: str, tmp_path: Path) -> None:
    given = small(warm, "linear")
    run_lab(tmp_path / "run", given)
    run, critic = RunFolder.open(tmp_path / "run"), create_critic(given.credit.critic, given.credit.estimator)
    assert critic is not None
    for k in (1, 2):
        found = [t for row in run.log.read(k) for t in trajectories(MatchRecord.from_json(row))]
        again = assign(TurnBatch(found, measures=wait(critic.predict(found))), given.credit)
        wait(critic.fit(again, NO_CHANCE))
        online = {(row.match, row.turn): row.advantage for row in run.log.credit(k)}
        offline = {
            (c.trajectory.match, one.index): advantage
            for c in again
            for one, advantage in zip(c.trajectory.turns, c.advantages, strict=True)
        }
        assert online == pytest.approx(offline, abs=1e-6)


def test_a_checkpoint_takes_no_pickled_critic(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "critic").mkdir()
        torch.save({}, folder / "critic" / "value_head.pt")

    with pytest.raises(StoreError, match="safetensors, JSON and text only"):
        write(tmp_path, 1, fill)
