"""The experiment: layers over a recipe, and one clear line for whatever is wrong."""

from collections.abc import Iterator, Sequence
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
from arena.config.sources import Layer, file_layer, recipe_layer, recipe_names, recipe_of, set_layer, text_layer
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
    for found in list_experiments(compose_recipe([recipe_layer(name)])):
        try:
            tables = resolve_tables(found)
        except ConfigError as error:
            if "needs TextWorld" not in str(error):
                raise
            pytest.skip(str(error))
        for spec, table in zip(found.all_tables(), tables, strict=True):
            assert set(table.roles) == set(spec.seats) == set(table.make_game().possible_agents)


WHOLE = experiment_to_plain(compose([recipe_layer("clinic_both-nano")]))


def with_text(data: Any, path: Sequence[str | int], text: str) -> Any:
    """The same with this text at a path; "" there stands for the key above it."""
    if not path:
        return text
    step, *rest = path
    if rest == [""] and isinstance(data, dict):
        return {text if key == step else key: value for key, value in data.items()}
    at = data.items() if isinstance(data, dict) else enumerate(data)
    changed = {key: with_text(value, rest, text) if key == step else value for key, value in at}
    return changed if isinstance(data, dict) else list(changed.values())


def text_places(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all texts, and of all keys, each with "" at its end."""
    if isinstance(data, str):
        yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if isinstance(key, str):
            yield (*path, key, "")
        yield from text_places(value, (*path, key))


TEXTS = ["0908", "1e3", "0o17", "null", "on", "1:30", "2024-01-01", "a: b #c", "a\x85b\n"]


@pytest.mark.thorough
@pytest.mark.parametrize("text", TEXTS)
def test_every_text_of_a_setting_is_read_back_as_it_was(text: str) -> None:
    """By default each text at every third place, so that each place has three of the texts."""
    taken, step = 0, count_cases(3, 1)
    for path in list(text_places(WHOLE))[TEXTS.index(text) % step :: step]:
        try:
            given = compose([Layer("it", "", with_text(WHOLE, path, text))])
        except ConfigError:  # no value of this setting
            continue
        assert compose([text_layer("config.yaml", to_yaml(given))]) == given, path
        taken += 1
    assert taken > 3 // step


@pytest.mark.slow_after(12)
@pytest.mark.parametrize("name", [name for name in recipe_names() if "stages" not in recipe_layer(name).data])
@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_what_is_written_down_is_read_back_the_same(name: str, mode: Literal["shared", "separate"]) -> None:
    given = compose([recipe_layer(name), set_layer("learn.lr=1e-7")])
    if mode == "shared" and len({policy.model_dump_json() for policy in given.policies.values()}) > 1:
        with pytest.raises(ConfigError, match="'shared' would have two different initial settings"):
            with_policies(given, mode)
        return
    found = with_policies(given, mode)
    again = compose([text_layer("config.yaml", to_yaml(found))])
    assert again == found and to_yaml(again) == to_yaml(found)
    if (name, mode) == ("mars_transfer-small", "separate"):  # what a shared policy is shown, not each seat's can be
        with pytest.raises(ConfigError, match=r"nano_player.imitate.scripted: oracle plays .*, not ultimatum"):
            resolve_tables(again)
        return
    resolve_tables(again)


def test_later_layers_lie_over_earlier_ones_key_by_key() -> None:
    found = experiment("game.options.max_turns=8", text="learn: {grad_clip: 0.5}\ngame: {options: {talk: false}}\n")
    assert (found.learn.lr, found.learn.grad_clip) == (1e-3, 0.5)
    assert found.game and found.game.options == {"max_turns": 8, "talk": False}
    assert experiment("learn.lr=0.1", "learn.lr=0.2", text="learn: {lr: 0.5}").learn.lr == 0.2


def test_lists_are_replaced_whole() -> None:
    found = experiment("credit.stages=[cut_off]", text="credit: {stages: [valid_act, valid_act]}")
    assert [stage.name for stage in found.credit.stages] == ["cut_off"]


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
    found: object = experiment(assignment)
    for key in path:
        found = getattr(found, key)
    assert found == value


def test_unknown_keys_are_named_with_line_and_nearest() -> None:
    message = refusal(text="# mine\nlearn:\n  lr: 0.1\n  lrr: 1e-3\n")
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
        ("credit: {stages: [{valid_act: {bonus: lots}}]}\n", 1, "credit.stages"),
    ],
)
def test_bad_values_are_told_with_file_line_and_field(text: str, line: int, field: str) -> None:
    message = refusal(text=text)
    assert message.startswith(f"mine.yaml:{line}:") and field in message


def test_a_fault_is_told_of_the_layer_that_it_came_from() -> None:
    assert refusal("learn.lr=fast", text="learn: {lr: 1e-4}").startswith("--set learn.lr=fast")
    assert refusal("learn.grad_clip=0.1", text="seed: 1\nlearn: {lr: fast}").startswith("mine.yaml:2:")


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
        ("learn.loss=likelyhood", "unknown loss 'likelyhood' — did you mean 'likelihood'?"),
        ("credit.stages=[valid_acts]", "unknown stage 'valid_acts' — did you mean 'valid_act'?"),
        ("seats.opner={role: nano_opener, policy: shared}", "no seat 'opner' — did you mean 'opener'?"),
        ("game.options.turns=3", "game.options"),
    ],
)
def test_names_that_nobody_knows_are_told_with_the_nearest(assignment: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_tables(experiment(assignment))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_policies_apart_or_together() -> None:
    apart = with_policies(experiment(), "separate")
    assert set(apart.policies) == {"nano_opener", "nano_responder"}
    assert apart.seats and {seat: s.policy for seat, s in apart.seats.items()} == {
        "opener": "nano_opener",
        "responder": "nano_responder",
    }
    assert all(p == experiment().policies["shared"] for p in apart.policies.values())
    assert with_policies(apart, "shared") == experiment()


def test_brains_and_frozen_policies_stay_where_they_sit() -> None:
    mixed = experiment(text="policies: {old: {model: nano, train: false}}\nseats: {responder: {policy: old}}")
    seats = with_policies(mixed, "separate").seats
    assert seats and seats["responder"].policy == "old"
    assert with_policies(mixed, "separate").policies["old"].train is False
    script = with_policies(experiment("seats.responder.policy=conceder"), "separate")
    assert script.seats and script.seats["responder"].policy == "conceder" and set(script.policies) == {"nano_opener"}


def test_a_roles_own_policy_never_takes_a_frozen_ones_place() -> None:
    text = "policies: {nano_opener: {model: nano, train: false}}\nseats: {responder: {policy: nano_opener}}"
    with pytest.raises(ConfigError, match=r"policies\.nano_opener: .* the name that opener needs"):
        with_policies(experiment(text=text), "separate")


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
    (table,) = experiment().all_tables()
    assert (table.game, table.seats, table.share) == (experiment().game, experiment().seats, 1.0)


def test_several_games_are_several_tables_that_are_written_and_read_back() -> None:
    found = experiment(text=TABLES)
    assert [(t.game.name, t.share) for t in found.all_tables()] == [("negotiation", 3.0), ("kuhn_poker", 1.0)]
    assert [set(t.roles) for t in resolve_tables(found)] == [{"opener", "responder"}, {"first", "second"}]
    apart = with_policies(found, "separate")
    assert set(apart.policies) == {"nano_opener", "nano_responder", "nano_player"}
    assert with_policies(apart, "shared") == found
    for given in (found, apart):
        assert compose([text_layer("config.yaml", to_yaml(given))]) == given


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_tables_that_cannot_be_laid_are_told(text: str, told: str) -> None:
    assert told in refusal(text=text)


def test_several_games_replace_one_and_one_several() -> None:
    several = experiment(text=TABLES.replace("game: null\n", "").replace("seats: null\n", ""))
    assert several == experiment(text=TABLES)
    one = {key: value for key, value in strict_yaml.load(to_yaml(experiment()), "one").items() if key != "tables"}
    again = compose([text_layer("several", to_yaml(several)), Layer("one", "", one)])
    assert again.all_tables() == experiment().all_tables()


@pytest.mark.parametrize(
    ("old", "new", "told"),
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
def test_every_table_is_checked(old: str, new: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_tables(experiment(text=TABLES.replace(old, new)))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_some_of_who_are_imitated_must_play_each_game_of_the_policy() -> None:
    for scripts in ("random", "random, conceder"):
        resolve_tables(experiment(f"policies.shared.imitate={{scripted: [{scripts}]}}", text=TABLES))
    with pytest.raises(ConfigError, match=r"imitate\.scripted: map_reader plays maze, not negotiation"):
        resolve_tables(experiment("policies.shared.imitate={scripted: [random, map_reader]}", text=TABLES))
    with pytest.raises(
        ConfigError, match=r"^policies\.shared\.imitate\.scripted: conceder plays negotiation, not kuhn"
    ):
        resolve_tables(experiment("policies.shared.imitate={scripted: [conceder]}", text=TABLES))
    with pytest.raises(ConfigError, match=r"imitate\.against: conceder plays negotiation, not kuhn"):
        resolve_tables(experiment("policies.shared.imitate={scripted: [random], against: [conceder]}", text=TABLES))
    with pytest.raises(ConfigError, match="did you mean 'random'"):
        resolve_tables(experiment("policies.shared.imitate={scripted: [radnom]}", text=TABLES))


def test_one_name_is_one_role_in_a_run(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("role: nano_player\nsystem: hello\n")
    given = experiment(text=TABLES.replace("second: {role: nano_player", f"second: {{role: {tmp_path}/other.yaml"))
    with pytest.raises(ConfigError, match="two different roles are called 'nano_player'"):
        resolve_tables(given)


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
def test_matches_are_shared_out_by_largest_remainder(count: int, shares: list[float], expected: list[int]) -> None:
    assert apportion(count, shares) == expected and sum(expected) == count


# Leagues


def league(opponents: str, rest: str = "") -> str:
    return f"league:\n  opponents: [{opponents}]\n{rest}"


def test_a_league_is_read_and_written_back() -> None:
    text = league("{play: self}, {play: past, lag: 2, weight: 0.5, from: 2, until: 3}, {play: fixed, policy: mcts:9}")
    found = experiment(text=text + "  pool: {every: 1, keep: 3}\n")
    assert found.league is not None and found.league.opponents[1].since == 2
    assert "from: 2" in to_yaml(found) and compose([text_layer("config.yaml", to_yaml(found))]) == found
    assert experiment("league=null", text=text).league is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (league(""), "league.opponents"),
        (league("{play: pasts, lag: 1}"), "did you mean 'past'?"),
        (league("{play: past}"), "league.opponents[0]: `play: past` needs `lag`, such as `lag: 1`"),
        (league("{play: fixed}"), "`play: fixed` needs `policy`"),
        (league("{play: self, lag: 1}"), "`lag` belongs to `play: past`, not to `play: self`"),
        (league("{play: pfsp, policy: random}"), "`policy` belongs to `play: fixed`, not to `play: pfsp`"),
        (league("{play: past, lag: 0}"), "league.opponents[0].lag"),
        (league("{play: self, weight: -1.0}"), "league.opponents[0].weight"),
        (league("{play: self, from: 3, until: 2}"), "met from iteration 3 until 2: never"),
        (league("{play: self, wieght: 1.0}"), "did you mean 'weight'?"),
        (league("{play: self, weight: 0.0}"), "no opponent has a weight above 0 in iteration 1"),
        (league("{play: self, until: 2}"), "no opponent has a weight above 0 in iteration 3"),
        (league("{play: self, from: 2}, {play: pfsp, from: 3}"), "no opponent has a weight above 0 in iteration 1"),
        (league("{play: self}, {play: fixed, policy: shared}"), "fixed opponent 'shared' is a trained policy"),
        (league("{play: self}", "  pool: {keep: 1}"), "league.pool.keep"),
        (league("{play: self}", "seats: {opener: {policy: conceder}}"), "no game has two seats with trained policies"),
    ],
)
def test_leagues_that_cannot_be_played_are_told(text: str, told: str) -> None:
    assert told in refusal(text=text)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("conceeder", "league.opponents[0].policy: unknown policy 'conceeder' — did you mean 'conceder'?"),
        ("minimax", "league.opponents[0].policy: minimax"),
        ("mcts:many", "league.opponents[0].policy: scripted policy 'mcts:many': "),
    ],
)
def test_fixed_opponents_must_be_known_and_able_to_play(policy: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_tables(experiment(text=league(f"{{play: fixed, policy: '{policy}'}}")))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_frozen_policy_may_be_an_opponent_though_it_has_no_seat() -> None:
    text = "policies: {old: {model: nano, train: false}}\n" + league("{play: fixed, policy: old}")
    resolve_tables(experiment(text=text))
    with pytest.raises(ConfigError, match="unknown policy 'odl' — did you mean 'old'"):
        resolve_tables(experiment(text=text.replace("policy: old", "policy: odl")))


@pytest.mark.parametrize("game", ["leduc_poker", "public_goods", "openspiel:oh_hell(players=4)", "maze"])
def test_a_game_without_a_recipe_seats_language_models_everywhere(game: str) -> None:
    found = compose([recipe_of(game)])
    (table,) = resolve_tables(found)
    assert table.game.name == game and {role.role for role in table.roles.values()} == {"player"}


@pytest.mark.parametrize("file", ["0908.py", "a: b #'c\".py", "é\\x.py"])
def test_a_recipe_holds_the_names_of_any_file_and_seats(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text(
        "from games.tic_tac_toe import TicTacToe\nclass Own(TicTacToe):\n    seats = ('1', 'null')\n"
    )
    found = compose([recipe_of(f"{tmp_path / file}:Own")])
    assert found.game and found.game.name == f"{tmp_path / file}:Own" and list(found.seats or ()) == ["1", "null"]


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
def test_seats_for_which_a_role_was_written_take_it(game: str, roles: list[str]) -> None:
    assert [find_role_for(game, seat) for seat in games.make(game).possible_agents] == roles


def test_a_simulator_without_a_recipe_seats_the_roles_written_for_it_and_trains_on_its_own_split() -> None:
    (table,) = resolve_tables(compose([recipe_of("reasoning")]))
    assert [role.role for role in table.roles.values()] == ["solver"] and table.game.options["split"] == "train"


@pytest.mark.parametrize("text", ["3", "[game]", "game"])
def test_a_config_file_is_of_keys_and_values(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"own\.yaml:1: expected `key: value` lines"):
        file_layer(tmp_path / "own.yaml")


def test_every_field_of_an_experiment_is_explained() -> None:
    """As docs/experiments.md promises."""
    found, silent = [Experiment], []
    for spec in found:
        for name, field in spec.model_fields.items():
            silent += [] if field.description else [f"{spec.__name__}.{name}"]
            found += [kind for kind in _specs_in(field.annotation) if kind not in found]
    assert len(found) > 15 and silent == []


def _specs_in(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for inner in get_args(annotation) for kind in _specs_in(inner)]


def test_who_compares_within_a_deal_has_a_group_or_branches() -> None:
    """ARPO's group is a match with those that part from it."""
    assert "set play.group" in refusal("credit.estimator=grpo", "play.group=1")
    assert experiment("credit.estimator=grpo", "play.group=4").play.group == 4
    assert experiment("credit.estimator=grpo", "play.group=1", "play.parts=[branches]").play.max_matches == 32
