"""Parts chosen by name: checked settings, written defaults, round trips; schedules by hand."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.cli.catalogue import PARTS, list_entries
from arena.config.experiment import LearnSpec
from arena.config.kinds import KINDS, choose
from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer, text_layer
from arena.credit.settings import CreditSpec
from arena.errors import ConfigError
from arena.parts.part_config import PartConfig, accepts_any_setting, describe_parts
from arena.parts.schedules import SCHEDULES, Clock


def make_experiment(*assignments: str) -> Any:
    return compose([recipe_layer("negotiation-nano"), *map(set_layer, assignments)])


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_is_listed_and_described(kind: str) -> None:
    part_kind = KINDS[kind]
    rows = describe_parts(part_kind)
    assert [row[kind] for row in rows] == list(part_kind.table)
    assert list_entries(part_kind.plural) == rows
    for name, function in part_kind.table.items():
        assert len((inspect.getdoc(function) or "").split("\n")[0]) > 20, f"{kind} {name} says too little"
        settings = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        assert accepts_any_setting(part_kind, name) is (kind == "pipeline_stage" and name == "play")
        assert all(p.annotation is not p.empty for p in settings), f"{kind} {name}: a setting without a type"


def test_help_lists_all_kinds() -> None:
    assert tuple(kind.plural for kind in KINDS.values()) == PARTS


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_round_trip(kind: str) -> None:
    for name in KINDS[kind].table:
        try:
            part = choose(kind, name)
        except ValueError:  # it has settings without a default
            continue
        assert part == PartConfig(KINDS[kind], name) == PartConfig(KINDS[kind], name).with_defaults()
        plain = part.to_plain()
        settings = plain if isinstance(plain, dict) else {name: {}}
        if (kind, name) != ("schedule", "constant"):
            assert choose(kind, name, **settings[name]) == part


def test_experiment_writes_all_defaults() -> None:
    config = make_experiment(
        "credit.estimator={mars: {std: true}}", "credit.weights.deal={linear: {start: 1, end: 0, over: 5}}"
    )
    text = to_yaml(config)
    reloaded = compose([text_layer("config.yaml", text)])
    assert reloaded == config and to_yaml(reloaded) == text
    assert "gamma: 1.0" in text and "std: true" in text and "over: 5" in text


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("credit.estimator=mrs", "unknown estimator 'mrs' — did you mean 'mars'? (arena list estimators)"),
        ("credit.estimator={mars: {gama: 1}}", "credit.estimator.mars.gama: unknown setting of estimator mars"),
        ("credit.estimator={mars: {gamma: 2}}", "mars.gamma: should be less than or equal to 1, not 2"),
        ("credit.estimator={mars: {by: [gam]}}", "credit.estimator.mars.by[0]"),
        ("credit.estimator={mars: {}, zero: {}}", "expected one estimator, not mars and zero"),
        ("credit.estimator={zero: {gamma: 1}}", "unknown setting of estimator zero (it has none)"),
        ("credit.estimator=3", "credit.estimator: a name is missing"),
        ("credit.estimator={}", "credit.estimator: a name is missing"),
        ("credit.stages=[valid_akt]", "credit.stages[0]: unknown stage 'valid_akt' — did you mean 'valid_act'?"),
        ("credit.stages=[{valid_act: {bonus: lots}}]", "credit.stages[0].valid_act.bonus: should be a valid number"),
        ("credit.weights.deal=x", "credit.weights.deal: unknown schedule 'x'"),
        ("credit.weights.deal={linear: {start: 1, end: 0}}", "schedule linear needs the setting `over`"),
        ("learn.loss={policy_gradient: {clip: pop}}", "unknown clip 'pop' — did you mean 'ppo'?"),
        ("learn.loss={policy_gradient: {clip: {ppo: {lo: 1}}}}", "unknown setting of clip ppo — did you mean 'low'?"),
        ("learn.regularisers={kl: {weigth: 1}}", "unknown setting of regulariser kl — did you mean 'weight'?"),
        ("learn.regularisers=[kl]", "learn.regularisers: expected a mapping of regularisers by name"),
        ("learn.regularisers={k: {}}", "unknown regulariser 'k'"),
    ],
)  # fmt: skip
def test_invalid_parts_give_one_line(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_experiment(assignment)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_other_part_replaces_and_same_part_merges() -> None:
    layer = text_layer("below", "credit: {estimator: {mars: {gamma: 0.5, std: true}}}")
    recipe = recipe_layer("negotiation-nano")
    merged = compose([recipe, layer, set_layer("credit.estimator.mars.gamma=0.25")]).credit.estimator
    assert merged.settings["gamma"] == 0.25 and merged.settings["std"] is True
    assert compose([recipe, layer, set_layer("credit.estimator={shuffled: {}}")]).credit.estimator.name == "shuffled"
    assert compose([recipe, layer, set_layer("credit.estimator=zero")]).credit.estimator.name == "zero"
    assert compose([recipe, layer, set_layer("credit.estimator={mars: {std: false}}")]).credit.estimator.settings == {
        "gamma": 0.5, "by": ["game", "role", "policy"], "std": False,
    }  # fmt: skip


def test_nested_part_replaces_or_merges() -> None:
    aepo = "learn.loss={policy_gradient: {ratio: turn, clip: {aepo: {low: 0.1, c: null}}}}"
    loss = make_experiment(aepo, "learn.loss={policy_gradient: {clip: {dual: {high: 0.3}}}}").learn.loss
    assert loss.settings["ratio"] == "turn" and loss.settings["clip"] == choose("clip", "dual", high=0.3)
    merged = make_experiment(aepo, "learn.loss={policy_gradient: {clip: {aepo: {low: 0.3}}}}").learn.loss.settings[
        "clip"
    ]
    assert merged == choose("clip", "aepo", low=0.3, c=None)
    steps, line = "{steps: {values: [1.0, 0.0], every: 3}}", "{linear: {start: 1.0, end: 0.0, over: 3}}"
    for path in ("credit.weights.deal=", "learn.regularisers.kl.weight="):
        config = make_experiment(path + line, path + steps)
        assert config == make_experiment(path + steps)
    mars, rae = "credit.estimator={shuffled: {of: {mars: {}}}}", "credit.estimator={shuffled: {of: {rae: {}}}}"
    assert make_experiment(mars, rae).credit.estimator.settings["of"] == choose("estimator", "rae")


def test_regularisers_merge_by_name() -> None:
    spec = make_experiment("learn.regularisers.kl.weight=0.5", "learn.regularisers.entropy={weight: 0.1}").learn
    assert set(spec.regularisers) == {"kl", "entropy"} and spec.uses_reference
    assert not make_experiment("learn.regularisers.kl.weight=0").learn.uses_reference


def test_needs_are_collected_from_all_parts() -> None:
    assert CreditSpec().needs == frozenset()
    assert LearnSpec().regularisers["kl"].needs == {"reference"}


def list_schedule_values(kind: str, name: str, **settings: Any) -> list[float]:
    """Return a schedule's values in iterations 1 to 6."""
    return [choose(kind, name, **settings)(Clock(k, 6)) for k in range(1, 7)]


def test_schedules_by_hand() -> None:
    assert list_schedule_values("schedule", "constant", value=0.3) == [0.3] * 6
    # 1, then a quarter less each time, 0 from the fifth
    assert list_schedule_values("schedule", "linear", start=1.0, end=0.0, over=4) == [1, 0.75, 0.5, 0.25, 0, 0]
    assert list_schedule_values("schedule", "linear", start=0.0, end=2.0, over=2, after=2) == [0, 0, 0, 1, 2, 2]
    # (1 + cos(pi x)) / 2 at x = 0, 1/4, 1/2, 3/4, 1
    half = 2**-0.5 / 2
    assert list_schedule_values("schedule", "cosine", start=1.0, end=0.0, over=4) == pytest.approx(
        [1, 0.5 + half, 0.5, 0.5 - half, 0, 0]
    )
    assert list_schedule_values("schedule", "steps", values=[6, 13, 20], every=2) == [6, 6, 13, 13, 20, 20]
    # half of 4 is 2: 1, 1 - .2 (1 - 1/e), 1 - .2 (1 - 1/e²), then .8 e^-1.5, .8 e^-3
    falling = [2.0, 1.7471517765, 1.6541341133, 0.3570082562, 0.0796592937]
    assert list_schedule_values("schedule", "explore_exploit", start=2.0, over=4)[:5] == pytest.approx(falling)
    assert list_schedule_values("schedule", "steps", values=[1, 2], every=1) == [1, 2, 2, 2, 2, 2]


@given(
    st.sampled_from(["linear", "cosine"]), st.floats(-5, 5), st.floats(-5, 5), st.integers(1, 50), st.integers(1, 99)
)
def test_ramps_stay_between_their_ends(name: str, start: float, end: float, over: int, k: int) -> None:
    value = SCHEDULES[name](Clock(k, 99), start=start, end=end, over=over)
    assert min(start, end) - 1e-9 <= value <= max(start, end) + 1e-9
    assert SCHEDULES[name](Clock(1, 99), start=start, end=end, over=over) == pytest.approx(start)
    assert SCHEDULES[name](Clock(over + 1, 99), start=start, end=end, over=over) == pytest.approx(end)


def test_examples_in_the_docs_work() -> None:
    docs = Path(__file__).parents[3] / "docs"
    text = "".join((docs / f"{page}.md").read_text("utf-8") for page in ("credit", "estimators", "rewards", "losses"))
    example = re.findall(r"```yaml\n(.*?)```", text, re.S)[0]
    config = compose([recipe_layer("negotiation-nano"), text_layer("docs", example)])
    assert config.play.group == 8 and config.credit.estimator.name == "gigpo"
    rows = [line.split("|")[1] for line in text.split("\n") if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} - set(LearnSpec.model_fields)
    known = {name for kind in KINDS.values() for name in kind.table} | {"ratio", "clip", "correction"}
    assert len(named) > 40 and named <= known, named - known
