"""Runs and matches as a person reads them. All text of models is shown as plain text, never as markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from arena.cli.live import cell, iteration_table, show_losses
from arena.cli.summary import Change, best_match, changes
from arena.cli.tables import print_table, verdict
from arena.errors import ConfigError, StoreError
from arena.plain import printable
from arena.rows import identity_of
from arena.rows import message as read_message
from arena.statistics import Interval
from arena.store import checkpoints, warm_start
from arena.store.evaluations import read_evaluations
from arena.store.reader import RunReader
from games.contracts import ILLEGAL

if TYPE_CHECKING:
    from arena.evaluate.exploitability import Exploitability


def show_run(console: Console, path: Path) -> None:
    """A run's iterations, what changed, and which matches to read."""
    reader = RunReader(path)
    rows, judged = reader.metrics(), read_evaluations(path)
    if rows:
        console.print(iteration_table(rows, rows[-1]["iteration"]))
        show_losses(console, rows)
    else:
        console.print(_plain(_begun(path), ""), soft_wrap=True)
    if judged:
        from arena.cli.show_panel import show_run_panel  # which loads what plays
        from arena.config.saved_config import experiment_of

        experiment = None
        with suppress(ConfigError):  # code in its folder that nobody trusts: whom it met is then not told
            experiment = experiment_of(path)
        show_run_panel(console, judged, experiment, path)
    if rows:
        show_changes(console, changes(path), rows)
    if (best := best_match(path)) is not None:
        console.print(Text(f"\na match to read: arena show {path} {best}"), soft_wrap=True)


def _begun(path: Path) -> str:
    """Say how far a run is that has committed no iteration."""
    again = f"arena resume {path}"
    try:
        imitated = warm_start.progress(path)
    except StoreError as error:
        return f"no iteration is committed yet, and {error}: {again} begins the imitation again"
    if checkpoints.iterations(path):
        return f"the warm start is over, and no iteration is committed yet: {again} goes on with the first"
    if imitated:
        kept = f"step {imitated.steps} of {imitated.total} of the imitation by policy '{imitated.policy}'"
        return f"no iteration is committed yet; kept is {kept}: {again} goes on from there"
    return f"nothing is committed yet: {again} begins"


def show_changes(console: Console, comparisons: Iterable[Change], rows: list[dict[str, Any]]) -> None:
    """The last iteration against the first, or the only one, with 95 % intervals; and theory, where there is one."""
    comparisons = list(comparisons)
    table = Table(box=None, pad_edge=False, header_style="bold")
    first, last = rows[0]["iteration"], rows[-1]["iteration"]
    solutions = list(dict.fromkeys(solution for change in comparisons for solution in change.theory))
    for name in ("", *(("first", "last", "difference") if first != last else ("mean",)), *solutions):
        table.add_column(name, overflow="fold", no_wrap=bool(name))
    for change in comparisons:
        figures: list[str | Text] = [_interval(change.last)]
        if change.difference:
            told = verdict(change.name, change.difference, _interval(change.difference))
            figures = [_interval(change.first), *figures, told]
        table.add_row(change.name, *figures, *(cell(change.theory.get(s), "{:.2f}") for s in solutions))
    title = f"{first} against {last} (95 % intervals; ≈ within noise)" if first != last else f"{last} (95 % intervals)"
    console.print(Text(f"\nIteration {title}"))
    print_table(console, table)


def show_strength(
    console: Console,
    exploited: Mapping[str, tuple[Exploitability, Exploitability]],
    silent: Sequence[str],
    without_rivals: Sequence[str] = (),
) -> None:
    """Print the first and last exploitability, where that is exact; and where payoffs or wins say nothing."""
    for game, (first, last) in exploited.items():
        moved = last.exploitability - first.exploitability
        shown = verdict("exploitability", Interval(moved, moved, moved), f"{moved:+.4f}")
        line = f"{game}: exploitability {first.exploitability:.4f} at first, {last.exploitability:.4f} at last (exact) "
        console.print(Text("\n").append(line).append(shown), soft_wrap=True)
    for game in silent:
        if game not in exploited:
            why = f"{game}: what one learner wins the other loses, so payoffs say nothing of strength: see `arena eval`"
            console.print(Text(f"\n{why} below, or give the run a `league` to play against"), soft_wrap=True)
    for game in without_rivals:
        why = f"{game}: its seats are no rivals, so a win rate would say nothing: compare payoffs and figures"
        console.print(Text(f"\n{why}"), soft_wrap=True)


def show_match(console: Console, path: Path, match: str) -> None:
    """One match as a dialogue: what was said, what the game read, what it earned and was credited."""
    reader = RunReader(path)
    row = reader.match(match)
    credit = {(c.match, c.turn): c for c in reader.credit(row["iteration"])}
    seats = ", ".join(f"{seat} = {_holder(s)} as {s['role']}" for seat, s in row["seats"].items())
    branch = f", a branch of {row['parent']} from turn {row['parent_turn'] + 1} on" if row.get("parent") else ""
    source = "" if (of := row.get("source", "played")) in ("played", "branched") else f", {of}"
    head = f"{row['game']} {row['id']} (seed {row['seed']}{source}{branch}): {seats}"
    console.print(_plain(head, "bold"), soft_wrap=True)
    show_deal(console, _lines_of_deal(path, row))
    for turn in row["turns"]:
        for message in turn["messages"]:
            if message["sender"] not in row["seats"] or message.get("images"):
                said = _text(message, row["id"])
                console.print(_plain(f"{message['sender']}: {said}", "dim", indent=4), soft_wrap=True)
        _show_turn(console, turn, credit.get((row["id"], turn["index"])))
    ended = ", ".join(f"{name} {_number(value)}" for name, value in row["report"].items())
    payoffs = ", ".join(f"{seat} {value:g}" for seat, value in row["payoffs"].items())
    console.print(_plain(f"payoffs: {payoffs}" if payoffs else f"{row['status']}: {row['reason']}", "bold"))
    if payoffs and row["reason"]:
        console.print(_plain(f"cut off: {row['reason']}", "yellow"), soft_wrap=True)
    if ended:
        console.print(_plain(ended, "dim"), soft_wrap=True)
    for depth, line in tree_lines(reader.log.read(row["iteration"], streams=False), row):
        console.print(_plain(line, "bold" if f" {row['id']} " in f" {line}" else "dim", 2 * depth), soft_wrap=True)


def tree_lines(rows: Iterable[Mapping[str, Any]], row: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The match that a match stems from and all its branches: a line for each, with its depth; none without any.

    `rows` are those of the match's iteration.
    """
    root = identity_of(row).line()[0]
    alike = {str(identity): one for one in rows if (identity := identity_of(one)).line()[0] == root}
    if len(alike) < 2:
        return []
    below: dict[str, list[str]] = {}
    for match, one in sorted(alike.items(), key=lambda item: item[1].get("parent_turn", -1)):
        parent = str(one.get("parent") or "")
        below.setdefault(parent if parent in alike else "", []).append(match)

    def lines(match: str, depth: int) -> Iterator[tuple[int, str]]:
        one = alike[match]
        paid = ", ".join(f"{seat} {value:g}" for seat, value in one["payoffs"].items()) or one["status"]
        yield depth, f"{match} ({paid})" + (f" from turn {one['parent_turn'] + 1} on" if one.get("parent") else "")
        for branch in below.get(match, []):
            yield from lines(branch, depth + 1)

    return [(0, "branches:"), *(line for top in below[""] for line in lines(top, 1))]


def match_json(path: Path, match: str) -> dict[str, Any]:
    """A match's row of the log, with what was dealt as `facts`; null where that cannot be dealt again."""
    from arena.evaluate.deal_facts import facts_of_match

    row = RunReader(path).match(match)
    with suppress(StoreError):
        found = facts_of_match(path, row)
        return {**row, "facts": {"public": found.public, "private": found.private}}
    return {**row, "facts": None}


def show_deal(console: Console, lines: Iterable[str]) -> None:
    """Say what was dealt, a line for all and one for each seat."""
    for line in lines:
        console.print(_plain(line, "dim", indent=4), soft_wrap=True)


def _lines_of_deal(path: Path, row: Mapping[str, Any]) -> Iterable[str]:
    from arena.evaluate.deal_facts import facts_of_match

    try:
        return list(facts_of_match(path, row).lines())
    except StoreError as error:
        return [str(error)]


def _text(message: Mapping[str, Any], match: str) -> str:
    try:
        return read_message(message).text
    except ValueError as error:
        raise StoreError(f"match {match} cannot be shown: {error}: restore the log from a copy") from None


def _holder(seat: Mapping[str, Any]) -> str:
    """A policy and its version; a past one's name holds it, and a scripted policy has none."""
    past = str(seat["policy"]).endswith(f"@{seat['version']}")
    return str(seat["policy"]) if past or seat["kind"] == "brain" else f"{seat['policy']}@{seat['version']}"


def _show_turn(console: Console, turn: dict[str, Any], credit: Any) -> None:
    line = Text(f"{turn['index'] + 1:>2}. {printable(turn['seat'])}: ", style="cyan")
    line.append(printable(turn["raw"].strip() or "(nothing)"), style="default" if turn["valid"] else "red")
    console.print(line, soft_wrap=True)
    notes = [] if turn["valid"] else ["not a legal act"]
    if turn["finish"] == "length":
        excused = not turn["valid"] and ILLEGAL not in turn["rewards"]
        notes.append(f"cut at its limit of {turn['tokens']} tokens{', excused and not learned' if excused else ''}")
    if (source := turn.get("source", "policy")) == "summary":
        notes.append("a summary, which the game does not read")
    elif source == "replaced":
        notes.append("not read by the game: another act was put in its place")
    elif source != "policy":
        notes.append(f"a {source}, not the policy's own")
    if turn["private"]:
        notes.append(f"thought: {turn['private']}")
    earned = ", ".join(f"{name} {value:+g}" for name, value in turn["rewards"].items()) or "nothing"
    notes.append(f"earned {earned}")
    if credit is not None:
        notes.append(f"reward {credit.reward:+.2f}, advantage {credit.advantage:+.2f}")
    console.print(_plain(" · ".join(notes), "dim", indent=4), soft_wrap=True)


def _plain(text: str, style: str, indent: int = 0) -> Text:
    return Text(" " * indent + printable(text), style=style)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _interval(interval: Any) -> str:
    estimate, low, high = (cell(value, "{:.2f}") for value in interval)
    return f"{estimate} [{low}, {high}]"
