"""Any experiment, role or `--set` is accepted or refused in one line, never with a traceback."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import games
from agents.role import read_role
from arena.cli.loop import wait
from arena.cli.main import BAD_INPUT
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import Layer, recipe_layer, recipe_names, set_layer, text_layer
from arena.preflight import preflight
from games.contracts import Deal
from tests.factories import hostile
from tests.factories.commands import arena
from tests.factories.hostile import limit_seconds
from tests.factories.thorough import count_cases

PATIENCE = 10


def is_accepted(case: str, check: Callable[[], object], patience: int = PATIENCE) -> bool:
    """Return whether the input was accepted; fail for an error that is not one line."""
    try:
        with limit_seconds(patience):
            check()
        return True
    except BAD_INPUT as error:
        assert len(str(error).splitlines()) == 1, case
        return False
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__}: {str(error)[:300]}, of:\n{case}") from error


def check_experiment(experiment: Experiment) -> None:
    """Run all checks that precede a run's folder, except the timing of this machine."""
    wait(preflight(experiment.model_copy(update={"threads": 1, "precision": "fp32"}), lambda doing: None))


def check_text(source: str, text: str) -> None:
    """Check an experiment's text."""
    check_experiment(compose([text_layer(source, text)]))


def check_settings(recipe: Layer, *settings: str) -> None:
    """Check a recipe with settings laid over it."""
    check_experiment(compose([recipe, *map(set_layer, settings)]))


def try_experiments(rng: random.Random, count: int) -> int:
    """Return how many of `count` mutated experiments are accepted."""
    texts = (text for _, text in hostile.generate_mutants(hostile.read_experiments(), rng, count))
    return sum(is_accepted(text, partial(check_text, "it", text)) for text in texts)


def try_settings(rng: random.Random, count: int) -> int:
    """Return how many of `count` mutated settings are accepted."""
    recipes = {name: recipe_layer(name) for name in recipe_names()}
    return sum(
        is_accepted(
            f"{name}: {setting}",
            partial(check_settings, recipes[name], setting),
        )
        for name, setting in (hostile.generate_setting(rng) for _ in range(count))
    )


def try_roles(rng: random.Random, count: int, folder: Path) -> int:
    """Return how many of `count` mutated roles are accepted."""
    file, accepted = folder / "role.yaml", 0
    for _, text in hostile.generate_mutants(hostile.read_roles(), rng, count):
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        accepted += is_accepted(text, lambda: read_role(file))
    return accepted


@pytest.fixture(scope="module", autouse=True)
def import_everything() -> None:
    """Import everything before timing starts."""
    recipes = [recipe_layer(name) for name in recipe_names()]
    for recipe in recipes:
        is_accepted(recipe.source, partial(check_settings, recipe), patience=0)
    for game in ("openspiel:x", "pettingzoo:x", "textarena:x"):
        other = f"game.name={game}"
        assert not is_accepted(game, partial(check_settings, recipes[0], other), patience=0)


@pytest.fixture(autouse=True)
def empty_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder, where relative paths find nothing."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(4))
def test_mutated_experiments(seed: int) -> None:
    assert 0 < try_experiments(random.Random(seed), count := count_cases(50, 125)) < count


@pytest.mark.thorough
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(4))
def test_mutated_settings(seed: int) -> None:
    assert 0 < try_settings(random.Random(seed), count := count_cases(70, 175)) < count


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(3))
def test_mutated_roles(seed: int, tmp_path: Path) -> None:
    assert 0 < try_roles(random.Random(seed), 250, tmp_path) < 250


@pytest.mark.parametrize(
    "setting",
    [
        r'seats.patient.policy="patie\nnt"',
        r'seats={"docto\nr": {role: nano_doctor, policy: doctor}}',
        r'game.name="a\nb"',
        r'game.name="textarena:a\nb"',
        r'game.name="a\nb.py:C"',
        r'game.options={"illega\nl": end}',
        r'league={opponents: [{play: fixed, policy: "a\r\x85b"}]}',
    ],
)
def test_a_name_of_two_lines_is_refused_in_one(setting: str) -> None:
    layers = [recipe_layer("clinic_both-nano"), set_layer(setting)]
    assert not is_accepted(setting, lambda: check_experiment(compose(layers)))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("command", ["check", "run"])
def test_mutated_inputs_on_the_command_line(command: str, tmp_path: Path) -> None:
    rng, codes = random.Random(3), list[int]()
    written = tuple((name, text) for name, text in hostile.read_roles() if "game: negotiation" in text)
    for n in range(40):
        if command == "check":
            (name, text), file = next(hostile.generate_mutants(written, rng, 1)), tmp_path / f"role-{n}.yaml"
            file.write_text(text, encoding="utf-8", errors="surrogatepass")
            result = arena("check", "role", file, "--game", "negotiation")
        else:
            name, text = next(hostile.generate_mutants(hostile.read_experiments(), rng, 1))
            text = text if n % 2 else "no_such_field: 1\n" + text  # refused at the latest by that: nothing is to begin
            (tmp_path / "mine.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
            result = arena("run", "selfplay", "--config", tmp_path / "mine.yaml", "--set", "policies=1", "--out", "run")
        codes.append(result.code)
        if result.code:
            assert result.code == 2 and result.line, f"{name}: {text}"
            assert result.line.isprintable() and len(result.line) <= 1000
    assert set(codes) == ({0, 2} if command == "check" else {2})


@pytest.mark.parametrize("setting", ["evaluate.panel", "seats.opener.role", "policies.shared.model"])
def test_names_too_long_for_a_file_are_refused(setting: str) -> None:
    result = arena(
        "run", "selfplay", "--recipe", "negotiation-nano", "--set", f"{setting}={'x' * 5000}", "--out", "run"
    )
    assert result.code == 2 and result.line and len(result.line) <= 1000


@pytest.mark.slow
def test_hundred_thousand_mutations(tmp_path: Path) -> None:
    rng = random.Random(13)
    for _ in range(25):
        try_experiments(rng, 1500)
        try_settings(rng, 1500)
        try_roles(rng, 1000, tmp_path)
    for _ in range(300):
        name, setting = hostile.generate_setting(rng)
        result = arena("run", "selfplay", "--recipe", name, "--set", setting, "--set", "policies=1", "--out", "run")
        assert result.code == 2 and result.line and len(result.line) <= 1000, setting


@pytest.mark.parametrize(
    "settings",
    [
        ["learn.minibatches=100000000"],
        ["learn.minibatches=10000", "learn.epochs=10000"],
        ["policies.shared.imitate.minibatches=100000000"],
        ["policies.shared.imitate.minibatches=10000", "policies.shared.imitate.epochs=10000"],
        ["play.matches=100000000"],
        ["play.matches=1000000", "play.parts=[{branches: {count: 10000}}]"],
        ["iterations=100000000"],
        ["learn.token_budget=100000000"],
        ["credit.critic={value_head: {epochs: 100000000}}"],
        ["credit.critic={archer: {steps: 100000000}}"],
    ],
)
def test_endless_work_is_refused(settings: list[str]) -> None:
    """Regression: these were accepted, and the run never ended or filled the memory."""
    with pytest.raises(BAD_INPUT, match=r"less than or equal to|at most|more than a million"), limit_seconds(PATIENCE):
        check_settings(recipe_layer("negotiation-nano"), *settings)


@pytest.mark.parametrize(
    ("game", "option"),
    [
        ("sheriff", "max_items"),
        ("ultimatum", "pie"),
        ("haggle", "max_price"),
        ("first_price_auction", "max_value"),
        ("second_price_auction", "max_value"),
        ("public_goods", "endowment"),
    ],
)
def test_game_bounds_its_number_of_acts(game: str, option: str) -> None:
    """Regression: a game listed a thousand million acts, one for each value of a number."""
    with pytest.raises(ValueError, match="to 100000, not 1000000000"):
        games.start_match(Deal(game, {option: 10**9}, 0))
    with limit_seconds(PATIENCE):
        dealt = games.start_match(Deal(game, {option: 10**5}, 0))
        dealt.observe(dealt.agent_selection)
