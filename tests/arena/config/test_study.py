"""The section `study`: one-line errors, and arms as overlays of the recipe with equal budgets."""

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


def make_experiment(before: str = "", after: str = "") -> Experiment:
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
def test_bad_section_gives_one_line(before: str, after: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_experiment(before, after)
    line = str(error.value)
    assert "\n" not in line and "mine.yaml:" in line and message in line


def test_arm_changes_only_its_settings() -> None:
    recipe = make_experiment()
    assert with_arm(recipe, "mars") == recipe
    zero = with_arm(recipe, "zero")
    assert zero.credit.estimator.name == "zero"
    assert all(change.field.startswith("credit.estimator") for change in list_changes(recipe, zero))
    assert zero.model_copy(update={"credit": recipe.credit}) == recipe
    with pytest.raises(ConfigError, match=r"no arm 'zeor' — did you mean 'zero'.*mars, zero, longer"):
        with_arm(recipe, "zeor")


def test_settings_can_use_the_seed() -> None:
    recipe = make_experiment("  last: 2\n", '  last: 2\n  each: ["policies.shared.model=nano-{seed}"]\n')
    assert with_arm(recipe, "mars", 3).policies["shared"].model == "nano-3"
    assert with_arm(recipe, "zero", 4).policies["shared"].model == "nano-4"
    with pytest.raises(ConfigError, match=r"study\.each: policies.shared.modl=nano-0"):
        check_arms(make_experiment("  last: 2\n", '  last: 2\n  each: ["policies.shared.modl=nano-{seed}"]\n'))


def test_bad_setting_names_its_arm() -> None:
    with pytest.raises(ConfigError, match=r"study\.arms\.zero: credit.estimatr=zero"):
        with_arm(make_experiment("credit.estimator=zero", "credit.estimatr=zero"), "zero")


def test_arms_have_equal_budgets_unless_declared_uneven() -> None:
    check_arms(make_experiment())
    with pytest.raises(ConfigError, match=r"study.arms.longer: plays 30 × 128 matches, mars 20 × 128"):
        check_arms(make_experiment("  uneven: [longer]\n", ""))
    with pytest.raises(ConfigError, match="no section `study`"):
        check_arms(compose([recipe_layer("tic_tac_toe-nano")]))


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipes_study_is_valid(name: str) -> None:
    recipe = compose_recipe([recipe_layer(name)])
    if recipe.study:
        check_arms(recipe)
        assert recipe_to_plain(compose_recipe([text_layer("again", recipe_to_yaml(recipe))])) == recipe_to_plain(recipe)
        arms = [with_arm(recipe, arm) for arm in recipe.study.names]
        assert all(recipe_to_plain(one) != recipe_to_plain(other) for one, other in combinations(arms, 2)), (
            "two arms are the same experiment"
        )


def test_study_section_may_change_on_resume() -> None:
    recipe = make_experiment()
    assert all(change.may_change for change in list_changes(recipe, recipe.model_copy(update={"study": None})))
    assert "study" in MAY_CHANGE
