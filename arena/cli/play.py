"""`arena play`: play one match at the terminal, between people and any other contenders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from arena.cli.console import PlainConsole, note
from arena.cli.contenders import Endpoint, Trust, make_endpoints
from arena.errors import ConfigError, StoreError
from arena.store.outputs import RECORDS, append_output, require_output
from games.contracts import UNREAD
from games.names import nearest

if TYPE_CHECKING:
    from arena.evaluate.specs import ContenderLoader
    from arena.play.contenders import Contender
    from arena.play.match import MatchPlan
    from arena.records import MatchRecord
    from games.contracts import Game

HUMAN = "human"
MIN_WIDTH = 36
"""Minimum terminal width, in characters, of a table with three short columns."""


def play(
    game: Annotated[str, typer.Option(help="Game (arena list games).", show_default=False)],
    seat: Annotated[
        list[str] | None,
        typer.Option(metavar="SEAT=WHO", help="Player of a seat, given by name or number.", show_default=False),
    ] = None,
    option: Annotated[list[str] | None, typer.Option(metavar="A=B", help="An option of the game; repeatable.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the deal and all players; default a new one.")
    ] = None,
    role: Annotated[str, typer.Option(help="Role of all models (arena list roles); default their own.")] = "",
    endpoint: Endpoint = None,
    trust: Trust = False,
    out: Annotated[Path | None, typer.Option(help="Append the match record to this JSON-lines file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the record as JSON; dialogue goes to stderr.")] = False,
    web: Annotated[bool, typer.Option("--web", help="Play the human seats in a browser (docs/view.md).")] = False,
    lines: Annotated[bool, typer.Option("--lines", hidden=True)] = False,
) -> None:
    """Play one match at the terminal, or with --web in a browser.

    WHO is human, a scripted policy (arena list policies), a run folder, a model's name, or endpoint:MODEL. A run brings
    the game options that it was trained with; --option overrides them. Scripted bargainers talk if the game allows it.

    Example: arena play --game kuhn_poker --seat 0=human --seat 1=cfr
    """
    import secrets

    from arena.cli.loop import wait
    from arena.config.sources import parse_game_options
    from arena.evaluate.evaluation import make_game
    from arena.evaluate.specs import ContenderLoader
    from arena.play.contenders import HumanContender, play_one
    from arena.play.match import Limits, MatchPlan
    from arena.play.settings import GameSpec
    from games.contracts import MatchId

    if web:
        play_in_browser()
    console, overrides = PlainConsole(stderr=as_json or lines), parse_game_options(option or [])
    settings = find_trained_options(game, seat or [], trust) | overrides
    table = make_game(GameSpec(name=game, options=settings))
    players = assign_seats(table, seat or [])
    require_output("--out", out, RECORDS)
    loader = ContenderLoader(
        role, lambda step: console.print(_make_text(step, "dim")), make_endpoints(endpoint), note, trust
    )
    others = load_others(game, table, players, loader)
    seed = secrets.randbelow(2**32) if seed is None else seed
    person: Contender = HumanContender(console)
    if lines:
        from arena.cli.seat import PageContender, write_line

        person = PageContender(console)
    contenders: dict[str, Contender] = {s: others.get(s, person) for s in players}
    seating = {s: contender.seating(game, s) for s, contender in contenders.items()}
    plan = MatchPlan(identity=MatchId(0, 0), game=game, options=settings, seed=seed, seats=seating)
    _show_plan(console, plan, players, settings != overrides)
    # the prompt handles Ctrl-C
    record = wait(play_one(plan, contenders, seed, Limits(), game=table), by_signal=False)
    _show_outcome(console, table, [s for s in players if s not in others], record)
    row = record.to_json()
    if out is not None:
        append_output("--out", out, RECORDS, json.dumps(row))
    if lines:
        write_line({"end": row})
    elif as_json:
        print(json.dumps(row))
    if record.status == "failed" and len(others) == len(players):
        raise typer.Exit(1)


def play_in_browser() -> None:
    """Replace this process by `arena view`, which plays this command's match in its page. Never returns."""
    import os
    import sys

    arguments = ["play", *(argument for argument in sys.argv[2:] if argument != "--web"), "--lines"]
    program = [sys.executable, "-P", "-m", "arena", "view", "--play", json.dumps(arguments)]
    os.execv(program[0], program)


def find_trained_options(name: str, assignments: Sequence[str], trust: bool) -> dict[str, Any]:
    """Return the game options, except `split`, with which the first run among the players was trained.

    `assignments` are `SEAT=WHO` options; `trust` allows code from a run's folder. Runs that do not play the game `name`
    are skipped. Returns {} if there is none.
    """
    from os.path import expanduser

    from arena.config.own_files import resolve_game_name
    from arena.evaluate.specs import read_spec
    from arena.panels.settings import RUN_WEIGHTS
    from arena.store.files import CONFIG

    for spec in (assignment.partition("=")[2].strip() for assignment in assignments):
        match = RUN_WEIGHTS.fullmatch(spec)
        if match is None or not Path(expanduser(match["path"]), CONFIG).is_file():
            continue
        if experiment := read_spec(spec, trust).experiment:
            own_name = resolve_game_name(name, experiment)
            for table in experiment.all_tables():
                if table.game.name == own_name:
                    return {key: value for key, value in table.game.options.items() if key != "split"}
    return {}


def assign_seats(game: Game, assignments: Sequence[str]) -> dict[str, str]:
    """Parse `SEAT=WHO` options. Returns the player of each seat, in the game's order.

    Raises ConfigError for a seat that is unknown, assigned twice or missing.
    """
    names: list[str] = list(game.possible_agents)
    assigned: dict[str, str] = {}
    for assignment in assignments:
        place, equals, player = (part.strip() for part in assignment.partition("="))
        if not equals or not player:
            raise ConfigError(f"--seat {assignment}: write SEAT=WHO, such as --seat {names[0]}={HUMAN}")
        name = names[int(place)] if place.isdecimal() and int(place) < len(names) else place
        if name not in names:
            known = ", ".join(f"{number} {name}" for number, name in enumerate(names))
            raise ConfigError(f"--seat: there is no seat '{place}'{nearest(place, names)} (the seats: {known})")
        if name in assigned:
            raise ConfigError(f"--seat: {name} is given twice: {assigned[name]} and {player}")
        assigned[name] = player
    for name in names:
        if name not in assigned:
            raise ConfigError(f"--seat: {name} has no player: add --seat {name}=random, or {name}={HUMAN}")
    return {name: assigned[name] for name in names}


def load_others(
    game_name: str, game: Game, players: Mapping[str, str], loader: ContenderLoader
) -> dict[str, Contender]:
    """Load and check the contenders of all seats that are not human. Scripted policies talk if they can."""
    from agents.players.scripted import add_remarks
    from arena.cli.loop import wait
    from arena.evaluate.casting import warn_unknown_games

    specs = list(dict.fromkeys(spec for spec in players.values() if spec != HUMAN))
    try:
        loaded = dict(zip(specs, wait(loader.load(*(add_remarks(spec, game) for spec in specs))), strict=True))
    except ConfigError as error:
        misspelt = [spec for spec in specs if "did you mean" not in str(error) and nearest(spec, [HUMAN])]
        raise ConfigError(f"{error}{nearest(misspelt[0], [HUMAN]) if misspelt else ''}") from None
    others = {seat: loaded[spec] for seat, spec in players.items() if spec != HUMAN}
    for seat, contender in others.items():
        contender.check(game_name, game, seat)
    for line in warn_unknown_games(others.values(), game_name):
        note(line)
    return others


def _show_plan(console: Console, plan: MatchPlan, players: Mapping[str, str], has_run_options: bool) -> None:
    """Print the game, seed and players by seat, and the game's options if they come from a run."""
    names = ", ".join(f"{seat} = {name}" for seat, name in players.items())
    console.print(_make_text(f"{plan.game}, seed {plan.seed}: {names}", "bold"))
    if has_run_options:
        options = f"options (from the run unless given): {_format_options(plan.options)}"
        console.print(_make_text(options, "dim"), soft_wrap=True)


def _show_outcome(console: Console, game: Game, people: Sequence[str], record: MatchRecord) -> None:
    """Print the result after the messages that people have not read, or after the whole match if none took part."""
    from agents.players.human import HumanLeft, show_messages
    from games.abilities import PlainWords
    from games.contracts import Deal

    teller = game if isinstance(game, PlainWords) else None
    if record.status == "failed":
        reason = record.reason.removeprefix(f"{HumanLeft.__name__}: ")
        console.print(_make_text(f"The match was not finished: {reason}", "yellow"), soft_wrap=True)
        return
    if people:
        show_messages(console, game.messages(people[0]), teller)
    else:
        from arena.cli.show import show_deal
        from arena.evaluate.deal_facts import replay_facts

        with suppress(StoreError):
            deal = Deal(record.game, record.options, record.seed)
            acts = [(turn.seat, turn.action) for turn in record.turns if turn.source not in UNREAD]
            show_deal(console, replay_facts(deal, acts).lines())
        console.print(_make_text(game.render(), ""), soft_wrap=True)
    for turn in record.turns:
        if not turn.valid and turn.seat not in people:
            console.print(
                _make_text(f"not a legal act, {turn.seat} wrote: {turn.raw.strip() or '(nothing)'}", "dim"),
                soft_wrap=True,
            )
    if teller:
        _show_epilogue(console, *teller.epilogue(people))
    payoffs = ", ".join(f"{seat} {value:+g}" for seat, value in record.payoffs.items())
    console.print(_make_text(f"payoffs: {payoffs}", "bold"), soft_wrap=True)


def _show_epilogue(console: Console, rows: Sequence[Sequence[str]], verdict: str) -> None:
    """Print the outcome as a table and a sentence. In a narrow terminal, cells are folded, then lines are wrapped."""
    from rich.measure import Measurement
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, head in enumerate(rows[0]):
        table.add_column(_make_text(head, ""), overflow="fold", no_wrap=not place)
    for row in rows[1:]:
        table.add_row(*(_make_text(cell, "") for cell in row))
    if not console.is_terminal or console.width < MIN_WIDTH:
        table.width = Measurement.get(console, console.options.update(width=10_000), table).maximum
    console.print()
    console.print(table, crop=False)
    console.print(_make_text(verdict, "bold"), soft_wrap=not console.is_terminal)


def _format_options(options: Mapping[str, Any]) -> str:
    """Return game options as text, such as `illegal=end, talk=false`."""
    return ", ".join(f"{name}={json.dumps(value).strip(chr(34))}" for name, value in options.items())


def _make_text(text: str, style: str) -> Text:
    """Return a styled text in which control characters are visible."""
    from agents.reply import remove_invisible

    return Text(remove_invisible(text, keep="\n"), style=style)
