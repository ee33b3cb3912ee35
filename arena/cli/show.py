"""Output of `arena show`: runs, and matches as dialogues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from arena.cli.live import iteration_table, show_losses
from arena.cli.summary import Change, best_match, changes
from arena.cli.tables import Cell, cell, say, show_table, verdict
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
    """Print a run's metrics by iteration, its panel results, its changes, and the match to read next."""
    rows, evaluations = RunReader(path).metrics(), read_evaluations(path)
    if rows:
        console.print(iteration_table(rows, rows[-1]["iteration"]))
        show_losses(console, rows)
    else:
        say(console, _progress_before_first(path))
    if evaluations:
        from arena.cli.show_panel import show_run_panel  # which loads games and policies
        from arena.config.saved_config import experiment_of

        experiment = None
        with suppress(ConfigError):  # code in its folder is not trusted: who was met in training stays unknown
            experiment = experiment_of(path)
        show_run_panel(console, evaluations, experiment, path)
    if rows:
        show_changes(console, changes(path), rows)
    if (best := best_match(path)) is not None:
        console.print()
        say(console, f"a match to read: arena show {path} {best}")


def _progress_before_first(path: Path) -> str:
    """Return how far a run without a committed iteration is, and the command that resumes it."""
    resume = f"arena resume {path}"
    try:
        imitated = warm_start.read_progress(path)
    except StoreError as error:
        return f"no iteration is committed yet, and {error}: {resume} starts the imitation again"
    if checkpoints.iterations(path):
        return f"the warm start is over, and no iteration is committed yet: {resume} continues with the first"
    if imitated:
        saved = f"step {imitated.steps} of {imitated.total} of the imitation by policy '{imitated.policy}'"
        return f"no iteration is committed yet; saved is {saved}: {resume} continues there"
    return f"nothing is committed yet: {resume} starts"


def show_changes(console: Console, comparisons: Iterable[Change], rows: list[dict[str, Any]]) -> None:
    """Print figures of the last iteration against the first with 95 % intervals, and their theoretical values.

    `rows` are the run's metrics.
    """
    comparisons = list(comparisons)
    first, last = rows[0]["iteration"], rows[-1]["iteration"]
    solutions = list(dict.fromkeys(solution for change in comparisons for solution in change.theory))
    table: list[list[Cell]] = []
    for change in comparisons:
        figures: list[Cell] = [_full_interval(change.last)]
        if change.difference:
            moved = verdict(change.name, change.difference, _full_interval(change.difference))
            figures = [_full_interval(change.first), *figures, moved]
        table.append([change.name, *figures, *(cell(change.theory.get(s), "{:.2f}") for s in solutions)])
    title = f"{first} against {last} (95 % intervals; ≈ within noise)" if first != last else f"{last} (95 % intervals)"
    console.print()
    say(console, f"Iteration {title}")
    show_table(console, ("", *(("first", "last", "difference") if first != last else ("mean",)), *solutions), table)


def show_strength(
    console: Console,
    exploited: Mapping[str, tuple[Exploitability, Exploitability]],
    silent: Sequence[str],
    without_rivals: Sequence[str] = (),
) -> None:
    """Print the first and last exact exploitability by game.

    Also explains why payoffs say nothing in `silent` games, and win rates nothing in games `without_rivals`.
    """
    for game, (first, last) in exploited.items():
        moved = last.exploitability - first.exploitability
        shown = verdict("exploitability", Interval(moved, moved, moved), f"{moved:+.4f}")
        line = f"{game}: exploitability {first.exploitability:.4f} at first, {last.exploitability:.4f} at last (exact) "
        console.print(Text("\n").append(line).append(shown), soft_wrap=True)
    reasons = [
        f"{game}: what one learner wins the other loses, so payoffs say nothing of strength: see `arena eval` below, "
        "or give the run a `league` to play against"
        for game in silent
        if game not in exploited
    ]
    reasons += [
        f"{game}: its seats are no rivals, so a win rate would say nothing: compare payoffs and figures"
        for game in without_rivals
    ]
    for reason in reasons:
        console.print()
        say(console, reason)


def show_match(console: Console, path: Path, match: str) -> None:
    """Print a match as a dialogue: messages, replies, how the game read them, rewards and advantages."""
    reader = RunReader(path)
    row = reader.match(match)
    credit = {(c.match, c.turn): c for c in reader.credit(row["iteration"])}
    seats = ", ".join(f"{seat} = {_policy_name(s)} as {s['role']}" for seat, s in row["seats"].items())
    branch = f", a branch of {row['parent']} from turn {row['parent_turn'] + 1} on" if row.get("parent") else ""
    origin = row.get("source", "played")
    source = "" if origin in ("played", "branched") else f", {origin}"
    say(console, f"{row['game']} {row['id']} (seed {row['seed']}{source}{branch}): {seats}", "bold")
    show_deal(console, _deal_lines(path, row))
    for turn in row["turns"]:
        for message in turn["messages"]:
            if message["sender"] not in row["seats"] or message.get("images"):
                say(console, f"{message['sender']}: {_message_text(message, row['id'])}", "dim", indent=4)
            for image in message.get("images") or ():
                say(console, _image_line(reader, image), "dim", indent=8)
        _show_turn(console, turn, credit.get((row["id"], turn["index"])))
    payoffs = ", ".join(f"{seat} {value:g}" for seat, value in row["payoffs"].items())
    say(console, f"payoffs: {payoffs}" if payoffs else f"{row['status']}: {row['reason']}", "bold")
    if payoffs and row["reason"]:
        say(console, f"cut off: {row['reason']}", "yellow")
    if row["report"]:
        say(console, ", ".join(f"{name} {_number(value)}" for name, value in row["report"].items()), "dim")
    for depth, line in tree_lines(reader.log.read(row["iteration"], streams=False), row):
        say(console, line, "bold" if f" {row['id']} " in f" {line}" else "dim", 2 * depth)


def tree_lines(rows: Iterable[Mapping[str, Any]], row: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the tree of a match and its branches as (depth, line) pairs; [] if it has no branches.

    `rows` are the log rows of the match's iteration.
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
    """Return a match's log row with the facts of its deal as `facts`, or null if the deal cannot be repeated."""
    from arena.evaluate.deal_facts import facts_of_match

    row = RunReader(path).match(match)
    with suppress(StoreError):
        found = facts_of_match(path, row)
        return {**row, "facts": {"public": found.public, "private": found.private}}
    return {**row, "facts": None}


def show_deal(console: Console, lines: Iterable[str]) -> None:
    """Print the lines of a deal: the public facts, then each seat's."""
    for line in lines:
        say(console, line, "dim", indent=4)


def _deal_lines(path: Path, row: Mapping[str, Any]) -> Iterable[str]:
    from arena.evaluate.deal_facts import facts_of_match

    try:
        return list(facts_of_match(path, row).lines())
    except StoreError as error:
        return [str(error)]


def _message_text(message: Mapping[str, Any], match: str) -> str:
    try:
        return read_message(message).text
    except ValueError as error:
        raise StoreError(f"match {match} cannot be shown: {error}: restore the log from a copy") from None


def _image_line(reader: RunReader, image: Mapping[str, Any]) -> str:
    """Return an image's hash, type, size and file, or that the file is missing."""
    path = reader.log.blobs.folder / image["hash"]
    place = str(path) if reader.log.blobs.has(image["hash"]) else "not in log/blobs"
    return f"{image['hash']} {image['media']} {image['width']}x{image['height']}: {place}"


def _policy_name(seat: Mapping[str, Any]) -> str:
    """Return POLICY@VERSION. The name of a past version already ends in it; a scripted policy has no version."""
    is_past = str(seat["policy"]).endswith(f"@{seat['version']}")
    return str(seat["policy"]) if is_past or seat["kind"] == "brain" else f"{seat['policy']}@{seat['version']}"


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
    elif source == "request":
        notes.append("an answer to the seat's agent program, which the game does not read")
    elif source != "policy":
        notes.append(f"a {source}, not the policy's own")
    if turn["private"]:
        notes.append(f"thought: {turn['private']}")
    earned = ", ".join(f"{name} {value:+g}" for name, value in turn["rewards"].items()) or "nothing"
    notes.append(f"earned {earned}")
    if credit is not None:
        notes.append(f"reward {credit.reward:+.2f}, advantage {credit.advantage:+.2f}")
    say(console, " · ".join(notes), "dim", indent=4)


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _full_interval(ci: Interval) -> str:
    """Return `0.54 [0.49, 0.59]`, with dashes for unknown bounds."""
    estimate, low, high = (cell(value, "{:.2f}") for value in ci)
    return f"{estimate} [{low}, {high}]"
