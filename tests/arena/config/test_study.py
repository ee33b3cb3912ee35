"""The section `study`: what is wrong with it is one line; its arms lie over the recipe at the same budget."""

from itertools import combinations

import pytest

from arena.config.arms import check_arms, with_arm
from arena.config.experiment import Experiment
from arena.config.layers import compose, to_yaml
from arena.config.recipe import compose_recipe, recipe_to_plain, recipe_to_yaml
from arena.config.saved_config import MAY_CHANGE, list_changes
from arena.config.sources import recipe_layer, recipe_names, text_layer
from arena.errors import ConfigError

SECTION = """\
study:
  replicates: a paper
  claim: it learns
  published: "1"
  family: negotiation
  minutes: 1
  figure: mean_payoff
  last: 2
  arm: mars
  arms: {zero: [credit.estimator=zero], longer: [iterations=30]}
  uneven: [longer]
  verdict: {better_than: [zero]}
"""


def experiment(before: str = "", after: str = "") -> Experiment:
    text = SECTION.replace(before, after) if before else SECTION
    assert not before or text != SECTION
    bare = compose([recipe_layer("negotiation-nano")]).model_copy(update={"study": None})
    return compose([text_layer("bare.yaml", to_yaml(bare)), text_layer("mine.yaml", text)])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("arm: mars", "arm: zero", "`arms` has 'zero', as the recipe itself is called"),
        (
            "better_than: [zero]",
            "better_than: [zeroo]",
            "names 'zeroo', which is none of `arms` — did you mean 'zero'?",
        ),
        ("uneven: [longer]", "warm: [loner]", "`warm` names 'loner', which is none of `arms` — did you mean 'longer'?"),
        ("better_than: [zero]", "better_than: [zero], interval: 1.5", "study.verdict.interval"),
        ("  figure: mean_payoff\n", "", "study.figure: missing"),
        ("last: 2", "lats: 2", "study.lats: unknown field — did you mean 'last'?"),
        ("minutes: 1", "minutes: soon", "study.minutes"),
    ],
)
def test_a_bad_section_is_one_line(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        experiment(before, after)
    line = str(error.value)
    assert "\n" not in line and "mine.yaml:" in line and message in line


def test_an_arm_is_the_recipe_with_its_settings_and_nothing_else() -> None:
    recipe = experiment()
    assert with_arm(recipe, "mars") == recipe
    zero = with_arm(recipe, "zero")
    assert zero.credit.estimator.name == "zero"
    assert all(change.field.startswith("credit.estimator") for change in list_changes(recipe, zero))
    assert zero.model_copy(update={"credit": recipe.credit}) == recipe
    with pytest.raises(ConfigError, match=r"no arm 'zeor' — did you mean 'zero'.*mars, zero, longer"):
        with_arm(recipe, "zeor")


def test_each_run_may_have_something_of_its_seed() -> None:
    recipe = experiment("  last: 2\n", '  last: 2\n  each: ["policies.shared.model=nano-{seed}"]\n')
    assert with_arm(recipe, "mars", 3).policies["shared"].model == "nano-3"
    assert with_arm(recipe, "zero", 4).policies["shared"].model == "nano-4"
    with pytest.raises(ConfigError, match=r"study\.each: policies.shared.modl=nano-0"):
        check_arms(experiment("  last: 2\n", '  last: 2\n  each: ["policies.shared.modl=nano-{seed}"]\n'))


def test_an_arm_s_bad_setting_names_the_arm() -> None:
    with pytest.raises(ConfigError, match=r"study\.arms\.zero: credit.estimatr=zero"):
        with_arm(experiment("credit.estimator=zero", "credit.estimatr=zero"), "zero")


def test_all_arms_have_one_budget_unless_one_says_otherwise() -> None:
    check_arms(experiment())
    with pytest.raises(ConfigError, match=r"study.arms.longer: plays 30 × 128 matches, mars 20 × 128"):
        check_arms(experiment("  uneven: [longer]\n", ""))
    with pytest.raises(ConfigError, match="no section `study`"):
        check_arms(compose([recipe_layer("tic_tac_toe-nano")]))


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_s_study_can_be_run(name: str) -> None:
    found = compose_recipe([recipe_layer(name)])
    if found.study:
        check_arms(found)
        assert recipe_to_plain(compose_recipe([text_layer("again", recipe_to_yaml(found))])) == recipe_to_plain(found)
        arms = [with_arm(found, arm) for arm in found.study.names]
        assert all(recipe_to_plain(one) != recipe_to_plain(other) for one, other in combinations(arms, 2)), (
            "two arms are the same experiment"
        )


def test_it_is_no_part_of_what_a_run_is() -> None:
    recipe = experiment()
    assert all(change.may_change for change in list_changes(recipe, recipe.model_copy(update={"study": None})))
    assert "study" in MAY_CHANGE
