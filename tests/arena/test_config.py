"""The experiment: layers over a recipe, and one clear line for whatever is wrong."""

from pathlib import Path

import pytest

from arena.config import (
    ConfigError,
    Experiment,
    compose,
    file_layer,
    recipe_layer,
    recipe_names,
    set_layer,
    text_layer,
    to_yaml,
    with_policies,
)
from arena.seating import set_table

BASE = """\
name: small
iterations: 3
game: {name: negotiation, options: {max_turns: 4}}
policies:
  shared: {model: nano}
seats:
  opener: {role: nano_opener, policy: shared}
  responder: {role: nano_responder, policy: shared}
learn:
  lr: 1e-3
"""


def experiment(*assignments: str, text: str = "") -> Experiment:
    layers = [text_layer("base.yaml", BASE), *([text_layer("mine.yaml", text)] if text else [])]
    return compose([*layers, *(set_layer(a) for a in assignments)])


def refusal(*assignments: str, text: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        experiment(*assignments, text=text)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_an_experiment_whose_names_are_known(name: str) -> None:
    found = compose([recipe_layer(name)])
    table = set_table(found)
    assert set(table.roles) == set(found.seats) == set(table.make_game().possible_agents)


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_what_is_written_down_is_read_back_the_same(name: str, mode: str) -> None:
    found = with_policies(compose([recipe_layer(name), set_layer("learn.lr=1e-7")]), mode)  # type: ignore[arg-type]
    again = compose([text_layer("config.yaml", to_yaml(found))])
    assert again == found and to_yaml(again) == to_yaml(found)
    set_table(again)


def test_later_layers_lie_over_earlier_ones_key_by_key() -> None:
    found = experiment("game.options.max_turns=8", text="learn: {kl: 0.5}\ngame: {options: {talk: false}}\n")
    assert (found.learn.lr, found.learn.kl) == (1e-3, 0.5)
    assert found.game.options == {"max_turns": 8, "talk": False}
    assert experiment("learn.kl=0.1", "learn.kl=0.2", text="learn: {kl: 0.5}").learn.kl == 0.2


def test_lists_are_replaced_whole() -> None:
    found = experiment("credit.normalise_by=[seat]", text="credit: {normalise_by: [game, role]}")
    assert found.credit.normalise_by == ["seat"]


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("learn.lr=2e-5", ("learn", "lr"), 2e-5),
        ("seed=7", ("seed",), 7),
        ("threads=null", ("threads",), None),
        ("learn.betas=[0.8, 0.9]", ("learn", "betas"), (0.8, 0.9)),
        ("play.limits.seconds=null", ("play", "limits", "seconds"), None),
        ("credit.weights={deal: 0.5}", ("credit", "weights"), {"deal": 0.5}),
    ],
)
def test_set_reads_its_value_as_yaml(assignment: str, path: tuple[str, ...], value: object) -> None:
    found: object = experiment(assignment)
    for key in path:
        found = getattr(found, key)
    assert found == value


def test_unknown_keys_are_named_with_line_and_nearest() -> None:
    message = refusal(text="# mine\nlearn:\n  kl: 0.1\n  lrr: 1e-3\n")
    assert message.startswith("mine.yaml:4:") and "learn.lrr" in message and "'lr'" in message
    message = refusal(text="iteration: 3\n")
    assert message.startswith("mine.yaml:1:") and "did you mean 'iterations'?" in message
    assert "--set lern.lr=1" in refusal("lern.lr=1") and "'learn'" in refusal("lern.lr=1")


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("seed: 1\niterations: many\n", 2, "iterations"),
        ("iterations: 0\n", 1, "iterations"),
        ("iterations: 2.0\n", 1, "iterations"),
        ("seed: true\n", 1, "seed"),
        ("play:\n  matches: '16'\n", 2, "play.matches"),
        ("learn: {zero_stage: 4}\n", 1, "learn.zero_stage"),
        ("learn:\n  lr: -1.0\n", 2, "learn.lr"),
        ("policies:\n  Bad Name: {model: nano}\n", 2, "policies"),
        ("precision: fp16\n", 1, "precision"),
        ("credit: {stages: [{stage: valid_act, parameters: {bonus: lots}}]}\n", 1, "credit.stages"),
    ],
)
def test_bad_values_are_told_with_file_line_and_field(text: str, line: int, field: str) -> None:
    message = refusal(text=text)
    assert message.startswith(f"mine.yaml:{line}:") and field in message


def test_a_fault_is_told_of_the_layer_that_it_came_from() -> None:
    assert refusal("learn.lr=fast", text="learn: {lr: 1e-4}").startswith("--set learn.lr=fast")
    assert refusal("learn.kl=0.1", text="seed: 1\nlearn: {lr: fast}").startswith("mine.yaml:2:")


def test_a_missing_key_is_told() -> None:
    with pytest.raises(ConfigError, match="iterations"):
        compose([text_layer("mine.yaml", "name: x\n")])


@pytest.mark.parametrize("assignment", ["learn.lr", "=3", "learn.lr=[1", "learn.lr=*a"])
def test_a_set_that_cannot_be_read_is_one_line(assignment: str) -> None:
    message = refusal(assignment)
    assert message.startswith(f"--set {assignment}")


def test_broken_files_and_recipes_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(ConfigError, match=r"list\.yaml:1: expected `key: value` lines"):
        compose([file_layer(tmp_path / "list.yaml")])
    (tmp_path / "twice.yaml").write_text("seed: 1\nseed: 2\n")
    with pytest.raises(ConfigError, match=r"twice\.yaml:2"):
        file_layer(tmp_path / "twice.yaml")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        file_layer(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="unknown recipe 'negotiaton' — did you mean 'negotiation'"):
        recipe_layer("negotiaton")


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        ("game.name=negotiaton", "unknown game 'negotiaton' — did you mean 'negotiation'?"),
        ("seats.opener.role=nano_opner", "unknown role 'nano_opner' — did you mean 'nano_opener'?"),
        ("seats.opener.policy=sharde", "unknown policy 'sharde' — did you mean 'shared'?"),
        ("credit.estimator=marss", "unknown estimator 'marss' — did you mean 'mars'?"),
        ("learn.loss=ppo-clip", "unknown loss 'ppo-clip' — did you mean 'ppo_clip'?"),
        ("credit.stages=[{stage: valid_acts}]", "unknown reward stage 'valid_acts' — did you mean 'valid_act'?"),
        ("seats.opner={role: nano_opener, policy: shared}", "no seat 'opner' — did you mean 'opener'?"),
        ("game.options.turns=3", "game.options"),
    ],
)
def test_names_that_nobody_knows_are_told_with_the_nearest(assignment: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        set_table(experiment(assignment))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_policies_apart_or_together() -> None:
    apart = with_policies(experiment(), "separate")
    assert set(apart.policies) == {"nano_opener", "nano_responder"}
    assert {seat: s.policy for seat, s in apart.seats.items()} == {
        "opener": "nano_opener",
        "responder": "nano_responder",
    }
    assert all(p == experiment().policies["shared"] for p in apart.policies.values())
    assert with_policies(apart, "shared") == experiment()


def test_brains_and_frozen_policies_stay_where_they_sit() -> None:
    mixed = experiment(text="policies: {old: {model: nano, train: false}}\nseats: {responder: {policy: old}}")
    assert with_policies(mixed, "separate").seats["responder"].policy == "old"
    assert with_policies(mixed, "separate").policies["old"].train is False
    brain = with_policies(experiment("seats.responder.policy=conceder"), "separate")
    assert brain.seats["responder"].policy == "conceder" and set(brain.policies) == {"nano_opener"}


def test_a_roles_own_policy_never_takes_a_frozen_ones_place() -> None:
    text = "policies: {nano_opener: {model: nano, train: false}}\nseats: {responder: {policy: nano_opener}}"
    with pytest.raises(ConfigError, match=r"policies\.nano_opener: .* the name that opener needs"):
        with_policies(experiment(text=text), "separate")
