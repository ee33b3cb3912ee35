"""Output of `arena eval`, `arena tournament` and `arena exploit` as tables."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from arena.cli.tables import (
    Cell,
    format_difference,
    format_interval,
    format_number,
    make_table,
    print_table,
    show_line,
    show_table,
)
from arena.evaluate.evaluation import Result, compute_change, make_game
from arena.evaluate.exploitability import Exploitability
from arena.evaluate.tournament import Standings
from arena.panels.settings import PanelGame
from arena.plain import printable
from arena.play.settings import GameSpec
from arena.statistics import Interval

MAX_NAME = 40
"""Maximum characters of a contender's name in a table."""


def shorten_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short name per contender: the last part of its path, or the full name if two would be equal."""
    full_names = list(dict.fromkeys(names))
    rules: tuple[Callable[[str], str], ...] = (lambda n: _last_part(n).rpartition(".py:")[2], _last_part, lambda n: n)
    for rule in rules:
        short = {n: _truncate(rule(n)) for n in full_names}
        if len(set(short.values())) == len(short):
            return short
    return {n: n for n in full_names}


def _last_part(name: str) -> str:
    return name if name.startswith("endpoint:") else name.rstrip("/").rpartition("/")[2]


def _truncate(name: str) -> str:
    """Shorten a name to `MAX_NAME` characters by cutting its middle."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[1 - MAX_NAME // 2 :]}"


def format_game(game: GameSpec | PanelGame) -> str:
    """Return a game's name with its options: `kuhn_poker (illegal=end, talk=false)`."""
    changed_options = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in (game.options or {}).items()
    }
    options = ", ".join(f"{name}={value}" for name, value in changed_options.items())
    return f"{game.name} ({options})" if options else game.name


def show_results(console: Console, results: Sequence[Result]) -> None:
    """Print a table per game with a row per opponent, then the game's own figures and warnings."""
    show_line(console, f"{results[0].contender} (95 % intervals)", "bold")
    short = shorten_names(dict.fromkeys(_name_opponent(r) for r in results))
    for game in {format_game(r.game): r.game for r in results}.values():
        console.print()
        show_line(console, format_game(game), "bold")
        game_results = [r for r in results if r.game == game]
        is_rated = any(r.scored for r in game_results)
        rows: list[list[Cell]] = []
        for r in game_results:
            rates = [
                format_interval(r.rate("win")),
                *(format_number(r.rate(n).estimate, "{:.2f}") for n in ("draw", "loss")),
            ]
            cells = [
                short[_name_opponent(r)],
                str(r.matches),
                *(rates if is_rated else ()),
                format_interval(r.mean("payoff")),
            ]
            rows.append([*cells, format_number(r.mean("invalid").estimate, "{:.1%}")])
        outcome_names = ("win", "draw", "loss") if is_rated else ()
        show_table(console, ("against", "matches", *outcome_names, "payoff", "illegal"), rows)
        if line := explain_no_win_rate(game_results):
            show_line(console, line, "dim")
        for r in game_results:
            figures = [
                f"{name} {format_interval(r.mean(name))}"
                for name in r.figures
                if name not in ("payoff", "win", "invalid")
            ]
            show_line(console, f"{short[_name_opponent(r)]}: {' · '.join(figures)}", "dim")
            print_warnings(console, [r])


def explain_no_win_rate(results: Sequence[Result]) -> str:
    """Return why a game whose seats are not rivals has no win rate; "" for other games."""
    game = make_game(results[0].game)
    if game.rivals or len(results[0].seats) < 2:
        return ""
    seats = " and ".join(results[0].seats)
    return f"{seats} are not rivals, so a win rate is not meaningful: compare payoffs and the game's figures"


GENERAL = ("payoff", "win", "invalid")
"""Figures of all games, which are printed first."""
NAMES = {"invalid": "illegal", "win": "win rate"}
"""Names of figures in tables, if they differ."""


def show_differences(console: Console, before: Sequence[Result], after: Sequence[Result]) -> None:
    """Print every figure of the results before and after training, with the difference paired by deal."""
    show_line(console, f"{after[0].contender} before and after training, on the same deals (95 % intervals)", "bold")
    short = shorten_names(dict.fromkeys(_name_opponent(r) for r in after))
    for game in {format_game(r.game): r.game for r in after}.values():
        console.print()
        show_line(console, format_game(game), "bold")
        rows: list[list[Cell]] = []
        for old, new in zip(before, after, strict=True):
            if new.game != game:
                continue
            others = {"itself": "with itself", "alone": "alone"}
            rows.append([others.get(_name_opponent(new), f"against {short[_name_opponent(new)]}")])
            shared = [name for name in (*GENERAL, *new.figures) if name in new.figures and name in old.figures]
            for name in dict.fromkeys(shared):
                change = compute_change(old, new, name)
                cells = [f"  {NAMES.get(name, name)}", format_interval(old.mean(name)), format_interval(new.mean(name))]
                rows.append([*cells, format_difference(name, change, format_interval(change))])
        show_table(console, ("", "before", "after", "difference"), rows)


def _name_opponent(r: Result) -> str:
    return "itself" if r.against == r.contender else r.against or "alone"


def print_warnings(console: Console, results: Iterable[Result]) -> None:
    """Print warnings of matches that an illegal act ended, and of attempts that failed."""
    for r in results:
        for side, name in (("own", r.contender), ("other", r.against)):
            if r.illegal[side]:
                matches = f"{r.illegal[side]} of {r.matches} matches"
                _print_text(
                    console, f"! {r.game.name}, {_name_opponent(r)}: an illegal act of {name} ended {matches}", "yellow"
                )
        for reason, count in r.failed.items():
            _print_text(
                console, f"! {r.game.name}, {_name_opponent(r)}: {count} failed and played again: {reason}", "yellow"
            )


def show_standings(console: Console, s: Standings) -> None:
    """Print a tournament's ranking, every pair's payoffs, the share of intransitive triples, and the failures."""
    _print_text(
        console, f"{format_game(s.game)}: {s.matches} matches, {s.deals} deals per pair (95 % intervals)", "bold"
    )
    is_rated, short = "elo" in s.table, shorten_names(map(str, s.table.index))
    ratings = ("score", "Elo\n(Bradley–Terry)") if is_rated else ()
    table = make_table("", "payoff", *ratings)
    for name, row in s.table.iterrows():
        cells = [short[str(name)], format_interval(Interval(row["payoff"], row["low"], row["high"]))]
        if is_rated:
            elo = format_interval(Interval(row["elo"], row["elo_low"], row["elo_high"]), "{:+.0f}")
            cells += [f"{row['score']:.2f}", elo]
        table.add_row(*map(Text, cells))
    print_table(console, table)
    names = list(s.table.index)
    _print_text(console, "\npayoff of row " + ("against column" if is_rated else "with column"), "bold")
    matrix = make_table("", *(str(place) for place, _ in enumerate(names, 1)))
    for place, name in enumerate(names, 1):
        payoffs = [format_number(s.payoffs.loc[name, other], "{:+.2f}") for other in names]
        matrix.add_row(*map(Text, [f"{place} {short[str(name)]}", *payoffs]))
    print_table(console, matrix)
    if s.cycles:
        share, rotational = map(format_interval, s.cycles)
        _print_text(console, f"\nintransitive triples {share} · rotational part of the payoffs {rotational}", "bold")
    for name, count in s.illegal.items():
        _print_text(console, f"! an illegal act of {name} ended {count} matches", "yellow")
    for reason, count in s.failed.items():
        _print_text(console, f"! {count} failed and played again: {reason}", "yellow")


def show_exploitabilities(console: Console, game: GameSpec, exploitabilities: Mapping[str, Exploitability]) -> None:
    """Print a row per contender: NashConv, exploitability, gains, value and legal mass."""
    first, short = next(iter(exploitabilities.values())), shorten_names(exploitabilities)
    first_seat, *_ = seats = list(first.gains)
    show_line(console, f"{format_game(game)}: exact, over {first.states:,} information states", "bold")
    columns = ("", "NashConv", "exploitability", f"gain\n{' / '.join(seats)}", f"value\n{first_seat}", "legal\nmass")
    rows = []
    for name, e in exploitabilities.items():
        gains, mass = " / ".join(map(_format_exact, e.gains.values())), format_number(e.legal_mass, "{:.3g}")
        rows.append(
            [
                short[name],
                _format_exact(e.nash_conv),
                _format_exact(e.exploitability),
                gains,
                _format_exact(e.value[first_seat]),
                mass,
            ]
        )
    show_table(console, columns, rows)
    show_line(
        console, "gain: of a best response there; legal mass: share of replies that are exactly a legal act", "dim"
    )


def _format_exact(value: float) -> str:
    """Return the value with four decimals, without the solver's rounding errors and without a negative zero."""
    return f"{round(value, 9) + 0.0:.4f}"


def _print_text(console: Console, text: str, style: str) -> None:
    console.print(Text("\n".join(map(printable, text.split("\n"))), style=style), soft_wrap=True)
