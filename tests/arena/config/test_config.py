"""The experiment: layers over a recipe, and one clear line per error."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from pydantic import BaseModel

import games
from agents import strict_yaml
from agents.role import find_role_for
from arena.config.experiment import Experiment
from arena.config.kinds import choose
from arena.config.layers import compose, to_yaml, with_policies
from arena.config.recipe import compose_recipe, list_experiments
from arena.config.saved_config import experiment_to_plain
from arena.config.seating import resolve_tables
from arena.config.sources import Layer, file_layer, get_game_recipe, recipe_layer, recipe_names, set_layer, text_layer
from arena.errors import ConfigError
from arena.parts.apportion import apportion
from tests.factories.thorough import count_cases

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


def make_experiment(*assignments: str, text: str = "") -> Experiment:
    layers = [text_layer("base.yaml", BASE), *([text_layer("mine.yaml", text)] if text else [])]
    return compose([*layers, *(set_layer(a) for a in assignments)])


def read_error(*assignments: str, text: str = "") -> str:
    with pytest.raises(ConfigError) as error:
        make_experiment(*assignments, text=text)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_resolves(name: str) -> None:
    for config in list_experiments(compose_recipe([recipe_layer(name)])):
        try:
            tables = resolve_tables(config)
        except ConfigError as error:
            if "needs TextWorld" not in str(error):
                raise
            pytest.skip(str(error))
        for spec, table in zip(config.all_tables(), tables, strict=True):
            assert set(table.roles) == set(spec.seats) == set(table.make_game().possible_agents)


FULL_CONFIG = experiment_to_plain(compose([recipe_layer("clinic_both-nano")]))


def replace_text(data: Any, path: Sequence[str | int], text: str) -> Any:
    """Return a copy with this text at a path; a final "" replaces the key itself."""
    if not path:
        return text
    step, *rest = path
    if rest == [""] and isinstance(data, dict):
        return {text if key == step else key: value for key, value in data.items()}
    items = data.items() if isinstance(data, dict) else enumerate(data)
    changed = {key: replace_text(value, rest, text) if key == step else value for key, value in items}
    return changed if isinstance(data, dict) else list(changed.values())


def list_text_paths(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Return the paths of all texts, and of all keys with a final ""."""
    if isinstance(data, str):
        yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if isinstance(key, str):
            yield (*path, key, "")
        yield from list_text_paths(value, (*path, key))


TEXTS = ["0908", "1e3", "0o17", "null", "on", "1:30", "2024-01-01", "a: b #c", "a\x85b\n"]


@pytest.mark.thorough
@pytest.mark.parametrize("text", TEXTS)
def test_texts_in_settings_round_trip(text: str) -> None:
    """By default each text is tried at every third path, so each path gets three of the texts."""
    accepted, step = 0, count_cases(3, 1)
    for path in list(list_text_paths(FULL_CONFIG))[TEXTS.index(text) % step :: step]:
        try:
            config = compose([Layer("it", "", replace_text(FULL_CONFIG, path, text))])
        except ConfigError:  # no value of this setting
            continue
        assert compose([text_layer("config.yaml", to_yaml(config))]) == config, path
        accepted += 1
    assert accepted > 3 // step


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", [name for name in recipe_names() if "stages" not in recipe_layer(name).data])
@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_experiments_round_trip_through_yaml(name: str, mode: Literal["shared", "separate"]) -> None:
    config = compose([recipe_layer(name), set_layer("learn.lr=1e-7")])
    if mode == "shared" and len({policy.model_dump_json() for policy in config.policies.values()}) > 1:
        with pytest.raises(ConfigError, match="'shared' would have two different initial settings"):
            with_policies(config, mode)
        return
    expected = with_policies(config, mode)
    reloaded = compose([text_layer("config.yaml", to_yaml(expected))])
    assert reloaded == expected and to_yaml(reloaded) == to_yaml(expected)
    if (name, mode) == ("mars_transfer-small", "separate"):  # what a shared policy is shown, not each seat's can be
        with pytest.raises(ConfigError, match=r"nano_player.imitate.scripted: oracle plays .*, not ultimatum"):
            resolve_tables(reloaded)
    elif name == "inspo-nano":  # one of its parts names a policy, which another mode does not have
        with pytest.raises(ConfigError, match=r"play\.parts: instructions: .*unknown policy 'solver'"):
            resolve_tables(reloaded)
    elif find_spec("textworld") or not name.startswith("textworld"):
        resolve_tables(reloaded)


def test_later_layers_override_key_by_key() -> None:
    config = make_experiment(
        "game.options.max_turns=8", text="learn: {grad_clip: 0.5}\ngame: {options: {talk: false}}\n"
    )
    assert (config.learn.lr, config.learn.grad_clip) == (1e-3, 0.5)
    assert config.game and config.game.options == {"max_turns": 8, "talk": False}
    assert make_experiment("learn.lr=0.1", "learn.lr=0.2", text="learn: {lr: 0.5}").learn.lr == 0.2


def test_lists_are_replaced() -> None:
    config = make_experiment("credit.stages=[cut_off]", text="credit: {stages: [valid_act, valid_act]}")
    assert [stage.name for stage in config.credit.stages] == ["cut_off"]


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("learn.lr=2e-5", ("learn", "lr"), 2e-5),
        ("seed=7", ("seed",), 7),
        ("threads=null", ("threads",), None),
        ("learn.betas=[0.8, 0.9]", ("learn", "betas"), (0.8, 0.9)),
        ("play.limits.seconds=null", ("play", "limits", "seconds"), None),
        ("credit.weights={deal: 0.5}", ("credit", "weights"), {"deal": choose("schedule", "constant", value=0.5)}),
    ],
)
def test_set_reads_its_value_as_yaml(assignment: str, path: tuple[str, ...], value: object) -> None:
    actual: object = make_experiment(assignment)
    for key in path:
        actual = getattr(actual, key)
    assert actual == value


def test_unknown_keys_get_line_and_nearest_match() -> None:
    message = read_error(text="# mine\nlearn:\n  lr: 0.1\n  lrr: 1e-3\n")
    assert message.startswith("mine.yaml:4:") and "learn.lrr" in message and "'lr'" in message
    message = read_error(text="iteration: 3\n")
    assert message.startswith("mine.yaml:1:") and "did you mean 'iterations'?" in message
    assert "--set lern.lr=1" in read_error("lern.lr=1") and "'learn'" in read_error("lern.lr=1")


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
        ("credit: {stages: [{valid_act: {bonus: lots}}]}\n", 1, "credit.stages"),
    ],
)
def test_bad_values_get_file_line_and_field(text: str, line: int, field: str) -> None:
    message = read_error(text=text)
    assert message.startswith(f"mine.yaml:{line}:") and field in message


def test_error_names_its_layer() -> None:
    assert read_error("learn.lr=fast", text="learn: {lr: 1e-4}").startswith("--set learn.lr=fast")
    assert read_error("learn.grad_clip=0.1", text="seed: 1\nlearn: {lr: fast}").startswith("mine.yaml:2:")


def test_missing_key_is_reported() -> None:
    with pytest.raises(ConfigError, match="iterations"):
        compose([text_layer("mine.yaml", "name: x\n")])


@pytest.mark.parametrize("assignment", ["learn.lr", "=3", "learn.lr=[1", "learn.lr=*a"])
def test_unreadable_set_gives_one_line(assignment: str) -> None:
    message = read_error(assignment)
    assert message.startswith(f"--set {assignment}")


def test_broken_files_and_recipes_give_one_line(tmp_path: Path) -> None:
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
    ("assignment", "message"),
    [
        ("game.name=negotiaton", "unknown game 'negotiaton' — did you mean 'negotiation'?"),
        ("seats.opener.role=nano_opner", "unknown role 'nano_opner' — did you mean 'nano_opener'?"),
        ("seats.opener.policy=sharde", "unknown policy 'sharde' — did you mean 'shared'?"),
        ("credit.estimator=marss", "unknown estimator 'marss' — did you mean 'mars'?"),
        ("learn.loss=likelyhood", "unknown loss 'likelyhood' — did you mean 'likelihood'?"),
        ("credit.stages=[valid_acts]", "unknown stage 'valid_acts' — did you mean 'valid_act'?"),
        ("seats.opner={role: nano_opener, policy: shared}", "no seat 'opner' — did you mean 'opener'?"),
        ("game.options.turns=3", "game.options"),
    ],
)
def test_unknown_names_get_the_nearest_match(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_tables(make_experiment(assignment))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_separate_and_shared_policies() -> None:
    separate = with_policies(make_experiment(), "separate")
    assert set(separate.policies) == {"nano_opener", "nano_responder"}
    assert separate.seats and {seat: s.policy for seat, s in separate.seats.items()} == {
        "opener": "nano_opener",
        "responder": "nano_responder",
    }
    assert all(p == make_experiment().policies["shared"] for p in separate.policies.values())
    assert with_policies(separate, "shared") == make_experiment()


def test_scripted_and_frozen_policies_keep_their_seats() -> None:
    mixed = make_experiment(text="policies: {old: {model: nano, train: false}}\nseats: {responder: {policy: old}}")
    seats = with_policies(mixed, "separate").seats
    assert seats and seats["responder"].policy == "old"
    assert with_policies(mixed, "separate").policies["old"].train is False
    script = with_policies(make_experiment("seats.responder.policy=conceder"), "separate")
    assert script.seats and script.seats["responder"].policy == "conceder" and set(script.policies) == {"nano_opener"}


def test_separate_policy_never_replaces_a_frozen_one() -> None:
    text = "policies: {nano_opener: {model: nano, train: false}}\nseats: {responder: {policy: nano_opener}}"
    with pytest.raises(ConfigError, match=r"policies\.nano_opener: .* the name that opener needs"):
        with_policies(make_experiment(text=text), "separate")


# Several games in one run

TABLES = """\
game: null
seats: null
tables:
  - game: {name: negotiation, options: {max_turns: 4}}
    seats: {opener: {role: nano_opener, policy: shared}, responder: {role: nano_responder, policy: shared}}
    share: 3.0
  - game: {name: kuhn_poker}
    seats: {first: {role: nano_player, policy: shared}, second: {role: nano_player, policy: shared}}
"""


def test_one_game_is_one_table() -> None:
    (table,) = make_experiment().all_tables()
    assert (table.game, table.seats, table.share) == (make_experiment().game, make_experiment().seats, 1.0)


def test_tables_round_trip() -> None:
    config = make_experiment(text=TABLES)
    assert [(t.game.name, t.share) for t in config.all_tables()] == [("negotiation", 3.0), ("kuhn_poker", 1.0)]
    assert [set(t.roles) for t in resolve_tables(config)] == [{"opener", "responder"}, {"first", "second"}]
    separate = with_policies(config, "separate")
    assert set(separate.policies) == {"nano_opener", "nano_responder", "nano_player"}
    assert with_policies(separate, "shared") == config
    for each in (config, separate):
        assert compose([text_layer("config.yaml", to_yaml(each))]) == each


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("game: null", "game: missing: give `game` and `seats`, or `tables`"),
        ("seats: null", "seats: missing"),
        ("tables: []\ngame: null\nseats: null", "tables"),
        (TABLES.replace("game: null", "game: {name: nim}"), "game: given together with `tables`"),
        (TABLES.replace("seats: null", "seats: {}"), "seats: given together with `tables`"),
        (TABLES.replace("share: 3.0", "share: 0.0"), "tables[0].share"),
        (TABLES.replace("share: 3.0", "share: 100.0"), "tables[1].share: too small for one of the 16 matches"),
        (TABLES.replace("share: 3.0", "shares: 3.0"), "tables[0].shares: unknown field — did you mean 'share'?"),
        (TABLES + "    seat: {}\n", "did you mean 'seats'?"),
    ],
)
def test_invalid_tables_are_reported(text: str, message: str) -> None:
    assert message in read_error(text=text)


def test_tables_and_game_replace_each_other() -> None:
    several = make_experiment(text=TABLES.replace("game: null\n", "").replace("seats: null\n", ""))
    assert several == make_experiment(text=TABLES)
    single_game = {
        key: value for key, value in strict_yaml.load(to_yaml(make_experiment()), "one").items() if key != "tables"
    }
    merged = compose([text_layer("several", to_yaml(several)), Layer("one", "", single_game)])
    assert merged.all_tables() == make_experiment().all_tables()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kuhn_poker", "kuhn_pokr", "tables[1].unknown game 'kuhn_pokr' — did you mean 'kuhn_poker'?"),
        ("{first: ", "{frist: ", "tables[1].seats: kuhn_poker has no seat 'frist' — did you mean 'first'?"),
        ("max_turns: 4", "turns: 4", "tables[0].game.options: "),
        ("first: {role: nano_player, policy: shared}", "first: {role: nano_player, policy: sharde}", "'shared'?"),
        (
            "first: {role: nano_player, policy: shared}",
            "first: {role: nano_player, policy: conceder}",
            "tables[1].seats.first.policy: conceder plays negotiation, not kuhn_poker",
        ),
    ],
)
def test_every_table_is_checked(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_tables(make_experiment(text=TABLES.replace(old, new)))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_imitated_scripts_must_cover_each_game() -> None:
    for scripts in ("random", "random, conceder"):
        resolve_tables(make_experiment(f"policies.shared.imitate={{scripted: [{scripts}]}}", text=TABLES))
    with pytest.raises(ConfigError, match=r"imitate\.scripted: map_reader plays maze, not negotiation"):
        resolve_tables(make_experiment("policies.shared.imitate={scripted: [random, map_reader]}", text=TABLES))
    with pytest.raises(
        ConfigError, match=r"^policies\.shared\.imitate\.scripted: conceder plays negotiation, not kuhn"
    ):
        resolve_tables(make_experiment("policies.shared.imitate={scripted: [conceder]}", text=TABLES))
    with pytest.raises(ConfigError, match=r"imitate\.against: conceder plays negotiation, not kuhn"):
        resolve_tables(
            make_experiment("policies.shared.imitate={scripted: [random], against: [conceder]}", text=TABLES)
        )
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        resolve_tables(make_experiment("policies.shared.imitate={scripted: [radnom]}", text=TABLES))


def test_role_names_are_unique_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("role: nano_player\nsystem: hello\n")
    config = make_experiment(
        text=TABLES.replace("second: {role: nano_player", f"second: {{role: {tmp_path}/other.yaml")
    )
    with pytest.raises(ConfigError, match="two different roles are called 'nano_player'"):
        resolve_tables(config)


@pytest.mark.parametrize(
    ("count", "shares", "expected"),
    [
        (16, [1.0], [16]),
        (16, [3.0, 1.0], [12, 4]),
        (10, [2.0, 1.0], [7, 3]),
        (10, [1.0, 1.0, 1.0], [4, 3, 3]),
        (7, [0.5, 0.25, 0.25], [3, 2, 2]),
        (3, [100.0, 1.0], [3, 0]),
        (21, [0.1, 0.2, 0.3, 0.4], [2, 4, 6, 9]),
    ],
)
def test_matches_are_apportioned_by_largest_remainder(count: int, shares: list[float], expected: list[int]) -> None:
    assert apportion(count, shares) == expected and sum(expected) == count


# Leagues


def make_league_section(opponents: str, rest: str = "") -> str:
    return f"league:\n  opponents: [{opponents}]\n{rest}"


def test_league_round_trip() -> None:
    text = make_league_section(
        "{play: self}, {play: past, lag: 2, weight: 0.5, from: 2, until: 3}, {play: fixed, policy: mcts:9}"
    )
    config = make_experiment(text=text + "  pool: {every: 1, keep: 3}\n")
    assert config.league is not None and config.league.opponents[1].since == 2
    assert "from: 2" in to_yaml(config) and compose([text_layer("config.yaml", to_yaml(config))]) == config
    assert make_experiment("league=null", text=text).league is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (make_league_section(""), "league.opponents"),
        (make_league_section("{play: pasts, lag: 1}"), "did you mean 'past'?"),
        (make_league_section("{play: past}"), "league.opponents[0]: `play: past` needs `lag`, such as `lag: 1`"),
        (make_league_section("{play: fixed}"), "`play: fixed` needs `policy`"),
        (make_league_section("{play: self, lag: 1}"), "`lag` belongs to `play: past`, not to `play: self`"),
        (make_league_section("{play: pfsp, policy: random}"), "`policy` belongs to `play: fixed`, not to `play: pfsp`"),
        (make_league_section("{play: past, lag: 0}"), "league.opponents[0].lag"),
        (make_league_section("{play: self, weight: -1.0}"), "league.opponents[0].weight"),
        (make_league_section("{play: self, from: 3, until: 2}"), "`from: 3` is after `until: 2`"),
        (make_league_section("{play: self, wieght: 1.0}"), "did you mean 'weight'?"),
        (make_league_section("{play: self, weight: 0.0}"), "no opponent has a weight above 0 in iteration 1"),
        (make_league_section("{play: self, until: 2}"), "no opponent has a weight above 0 in iteration 3"),
        (
            make_league_section("{play: self, from: 2}, {play: pfsp, from: 3}"),
            "no opponent has a weight above 0 in iteration 1",
        ),
        (
            make_league_section("{play: self}, {play: fixed, policy: shared}"),
            "fixed opponent 'shared' is a trained policy",
        ),
        (make_league_section("{play: self}", "  pool: {keep: 1}"), "league.pool.keep"),
        (
            make_league_section("{play: self}", "seats: {opener: {policy: conceder}}"),
            "no game has two seats with trained policies",
        ),
    ],
)
def test_invalid_leagues_are_reported(text: str, message: str) -> None:
    assert message in read_error(text=text)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("conceeder", "league.opponents[0].policy: unknown policy 'conceeder' — did you mean 'conceder'?"),
        ("minimax", "league.opponents[0].policy: minimax"),
        ("mcts:many", "league.opponents[0].policy: scripted policy 'mcts:many': "),
    ],
)
def test_fixed_opponents_must_be_known_and_able_to_play(policy: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve_tables(make_experiment(text=make_league_section(f"{{play: fixed, policy: '{policy}'}}")))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_frozen_policy_without_seat_can_be_an_opponent() -> None:
    text = "policies: {old: {model: nano, train: false}}\n" + make_league_section("{play: fixed, policy: old}")
    resolve_tables(make_experiment(text=text))
    with pytest.raises(ConfigError, match="unknown policy 'odl' — did you mean 'old'"):
        resolve_tables(make_experiment(text=text.replace("policy: old", "policy: odl")))


@pytest.mark.parametrize("game", ["leduc_poker", "public_goods", "openspiel:oh_hell(players=4)", "maze"])
def test_game_without_recipe_seats_language_models(game: str) -> None:
    config = compose([get_game_recipe(game)])
    (table,) = resolve_tables(config)
    assert table.game.name == game and {role.role for role in table.roles.values()} == {"player"}


@pytest.mark.parametrize("file", ["0908.py", "a: b #'c\".py", "é\\x.py"])
def test_generated_recipe_supports_any_file_and_seat_names(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text(
        "from games.tic_tac_toe import TicTacToe\nclass Own(TicTacToe):\n    seats = ('1', 'null')\n"
    )
    config = compose([get_game_recipe(f"{tmp_path / file}:Own")])
    assert config.game and config.game.name == f"{tmp_path / file}:Own" and list(config.seats or ()) == ["1", "null"]


@pytest.mark.parametrize(
    ("game", "roles"),
    [
        ("clinic", ["doctor"]),
        ("desk", ["desk_agent"]),
        ("reasoning", ["solver"]),
        ("proposer_solver", ["proposer", *["solver"] * 4]),
        ("debate", ["debater"] * 3),
        ("sql", ["sql_writer"]),
        ("hanabi", ["player", "player"]),  # `hanabi_player` is for two: its recipe names it
    ],
)
def test_seats_use_the_role_written_for_them(game: str, roles: list[str]) -> None:
    assert [find_role_for(game, seat) for seat in games.make(game).possible_agents] == roles


def test_simulator_without_recipe_uses_its_roles_and_train_split() -> None:
    (table,) = resolve_tables(compose([get_game_recipe("reasoning")]))
    assert [role.role for role in table.roles.values()] == ["solver"] and table.game.options["split"] == "train"


@pytest.mark.parametrize("text", ["3", "[game]", "game"])
def test_config_file_must_be_a_mapping(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"own\.yaml:1: expected `key: value` lines"):
        file_layer(tmp_path / "own.yaml")


def test_every_field_has_a_description() -> None:
    """As docs/experiments.md promises."""
    specs, undescribed = [Experiment], []
    for spec in specs:
        for name, field in spec.model_fields.items():
            undescribed += [] if field.description else [f"{spec.__name__}.{name}"]
            specs += [kind for kind in list_specs(field.annotation) if kind not in specs]
    assert len(specs) > 15 and undescribed == []


def list_specs(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for inner in get_args(annotation) for kind in list_specs(inner)]


def test_group_estimators_need_groups_or_branches() -> None:
    """In ARPO a group is a match with its branches."""
    assert "set play.group" in read_error("credit.estimator=grpo", "play.group=1")
    assert make_experiment("credit.estimator=grpo", "play.group=4").play.group == 4
    assert make_experiment("credit.estimator=grpo", "play.group=1", "play.parts=[branches]").play.max_matches == 32
