"""Output of `arena show`: runs, and matches as dialogues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from arena.cli.live import make_iteration_table, show_losses
from arena.cli.summary import Change, compute_changes, find_best_match
from arena.cli.tables import Cell, format_difference, format_number, show_line, show_table
from arena.errors import ConfigError, StoreError
from arena.plain import printable
from arena.rows import identity_from_row
from arena.rows import message_from_row as read_message
from arena.statistics import Interval
from arena.store import checkpoints, warm_start
from arena.store.evaluations import read_evaluations
from arena.store.reader import RunReader
from games.contracts import ILLEGAL

if TYPE_CHECKING:
    from arena.evaluate.exploitability import Exploitability


def show_run(console: Console, path: Path) -> None:
    """Print a run's metrics by iteration, its panel results, its changes, and a match worth reading."""
    rows, evaluations = RunReader(path).metrics(), read_evaluations(path)
    if rows:
        console.print(make_iteration_table(rows, rows[-1]["iteration"]))
        show_losses(console, rows)
    else:
        show_line(console, _describe_start(path))
    if evaluations:
        from arena.cli.show_panel import show_run_panel  # which loads games and policies
        from arena.config.saved_config import load_experiment

        experiment = None
        with suppress(ConfigError):  # untrusted code in its folder: the opponents in training stay unknown
            experiment = load_experiment(path)
        show_run_panel(console, evaluations, experiment, path)
    if rows:
        show_changes(console, compute_changes(path), rows)
    if (best := find_best_match(path)) is not None:
        console.print()
        show_line(console, f"a match to read: arena show {path} {best}")


def _describe_start(path: Path) -> str:
    """Describe the progress of a run without a committed iteration, and name the command that resumes it."""
    resume = f"arena resume {path}"
    try:
        warm = warm_start.read_progress(path)
    except StoreError as error:
        return f"no iteration is committed yet, and {error}: {resume} starts the imitation again"
    if checkpoints.iterations(path):
        return f"the warm start is over, and no iteration is committed yet: {resume} continues with the first"
    if warm:
        saved = f"step {warm.steps} of {warm.total} of the imitation by policy '{warm.policy}'"
        return f"no iteration is committed yet; saved is {saved}: {resume} continues there"
    return f"nothing is committed yet: {resume} starts"


def show_changes(console: Console, comparisons: Iterable[Change], rows: list[dict[str, Any]]) -> None:
    """Print a table that compares figures of the first and last iteration, with 95 % intervals and theoretical values.

    `rows` are the run's metrics.
    """
    comparisons = list(comparisons)
    first, last = rows[0]["iteration"], rows[-1]["iteration"]
    solutions = list(dict.fromkeys(solution for change in comparisons for solution in change.theory))
    table: list[list[Cell]] = []
    for change in comparisons:
        figures: list[Cell] = [_format_full_interval(change.last)]
        if change.difference:
            formatted = format_difference(change.name, change.difference, _format_full_interval(change.difference))
            figures = [_format_full_interval(change.first), *figures, formatted]
        table.append([change.name, *figures, *(format_number(change.theory.get(s), "{:.2f}") for s in solutions)])
    title = f"{first} against {last} (95 % intervals; ≈ within noise)" if first != last else f"{last} (95 % intervals)"
    console.print()
    show_line(console, f"Iteration {title}")
    show_table(console, ("", *(("first", "last", "difference") if first != last else ("mean",)), *solutions), table)


def show_strength(
    console: Console,
    exploitability: Mapping[str, tuple[Exploitability, Exploitability]],
    uninformative: Sequence[str],
    without_rivals: Sequence[str] = (),
) -> None:
    """Print the first and last exact exploitability by game.

    Also explains why payoffs do not measure strength in `uninformative` games, and win rates in games
    `without_rivals`.
    """
    for game, (first, last) in exploitability.items():
        difference = last.exploitability - first.exploitability
        text = format_difference("exploitability", Interval(difference, difference, difference), f"{difference:+.4f}")
        line = f"{game}: exploitability {first.exploitability:.4f} at first, {last.exploitability:.4f} at last (exact) "
        console.print(Text("\n").append(line).append(text), soft_wrap=True)
    reasons = [
        f"{game}: what one learner wins the other loses, so payoffs say nothing about strength: see `arena eval` below,"
        " or give the run a `league` to play against"
        for game in uninformative
        if game not in exploitability
    ]
    reasons += [
        f"{game}: its seats are not rivals, so a win rate is not meaningful: compare payoffs and figures"
        for game in without_rivals
    ]
    for reason in reasons:
        console.print()
        show_line(console, reason)


def show_match(console: Console, path: Path, match: str) -> None:
    """Print a match as a dialogue: messages, replies, how the game read them, rewards and advantages."""
    reader = RunReader(path)
    row = reader.match(match)
    credit = {(c.match, c.turn): c for c in reader.credit(row["iteration"])}
    seats = ", ".join(f"{seat} = {_format_policy(s)} as {s['role']}" for seat, s in row["seats"].items())
    branch = f", a branch of {row['parent']} from turn {row['parent_turn'] + 1} on" if row.get("parent") else ""
    origin = row.get("source", "played")
    source = "" if origin in ("played", "branched") else f", {origin}"
    show_line(console, f"{row['game']} {row['id']} (seed {row['seed']}{source}{branch}): {seats}", "bold")
    show_deal(console, _list_deal_lines(path, row))
    for turn in row["turns"]:
        for message in turn["messages"]:
            if message["sender"] not in row["seats"] or message.get("images"):
                show_line(console, f"{message['sender']}: {_read_message_text(message, row['id'])}", "dim", indent=4)
            for image in message.get("images") or ():
                show_line(console, _describe_image(reader, image), "dim", indent=8)
        _show_turn(console, turn, credit.get((row["id"], turn["index"])))
    payoffs = ", ".join(f"{seat} {value:g}" for seat, value in row["payoffs"].items())
    show_line(console, f"payoffs: {payoffs}" if payoffs else f"{row['status']}: {row['reason']}", "bold")
    if payoffs and row["reason"]:
        show_line(console, f"cut off: {row['reason']}", "yellow")
    if row["report"]:
        show_line(console, ", ".join(f"{name} {_format_value(value)}" for name, value in row["report"].items()), "dim")
    for depth, line in list_branch_lines(reader.log.read(row["iteration"], streams=False), row):
        show_line(console, line, "bold" if f" {row['id']} " in f" {line}" else "dim", 2 * depth)


def list_branch_lines(rows: Iterable[Mapping[str, Any]], row: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the tree of a match and its branches as (depth, line) pairs; [] if it has no branches.

    `rows` are the log rows of the match's iteration.
    """
    root = identity_from_row(row).lineage()[0]
    tree = {str(identity): node for node in rows if (identity := identity_from_row(node)).lineage()[0] == root}
    if len(tree) < 2:
        return []
    branches: dict[str, list[str]] = {}
    for match, node in sorted(tree.items(), key=lambda item: item[1].get("parent_turn", -1)):
        parent = str(node.get("parent") or "")
        branches.setdefault(parent if parent in tree else "", []).append(match)

    def lines(match: str, depth: int) -> Iterator[tuple[int, str]]:
        node = tree[match]
        payoffs = ", ".join(f"{seat} {value:g}" for seat, value in node["payoffs"].items()) or node["status"]
        yield depth, f"{match} ({payoffs})" + (f" from turn {node['parent_turn'] + 1} on" if node.get("parent") else "")
        for branch in branches.get(match, []):
            yield from lines(branch, depth + 1)

    return [(0, "branches:"), *(line for top in branches[""] for line in lines(top, 1))]


def match_to_json(path: Path, match: str) -> dict[str, Any]:
    """Return a match's log row with the facts of its deal as `facts`, or null if the deal cannot be reproduced."""
    from arena.evaluate.deal_facts import recover_facts

    row = RunReader(path).match(match)
    with suppress(StoreError):
        facts = recover_facts(path, row)
        return {**row, "facts": {"public": facts.public, "private": facts.private}}
    return {**row, "facts": None}


def show_deal(console: Console, lines: Iterable[str]) -> None:
    """Print the lines of a deal: the public facts, then each seat's."""
    for line in lines:
        show_line(console, line, "dim", indent=4)


def _list_deal_lines(path: Path, row: Mapping[str, Any]) -> Iterable[str]:
    from arena.evaluate.deal_facts import recover_facts

    try:
        return list(recover_facts(path, row).lines())
    except StoreError as error:
        return [str(error)]


def _read_message_text(message: Mapping[str, Any], match: str) -> str:
    try:
        return read_message(message).text
    except ValueError as error:
        raise StoreError(f"match {match} cannot be shown: {error}: restore the log from a copy") from None


def _describe_image(reader: RunReader, image: Mapping[str, Any]) -> str:
    """Return an image's hash, type, size and file, or that the file is missing."""
    path = reader.log.blobs.folder / image["hash"]
    location = str(path) if reader.log.blobs.has(image["hash"]) else "not in log/blobs"
    return f"{image['hash']} {image['media']} {image['width']}x{image['height']}: {location}"


def _format_policy(seat: Mapping[str, Any]) -> str:
    """Return POLICY@VERSION, or only the name for scripted policies and past versions (which have @VERSION in it)."""
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
    rewards = ", ".join(f"{name} {value:+g}" for name, value in turn["rewards"].items()) or "nothing"
    notes.append(f"earned {rewards}")
    if credit is not None:
        notes.append(f"reward {credit.reward:+.2f}, advantage {credit.advantage:+.2f}")
    show_line(console, " · ".join(notes), "dim", indent=4)


def _format_value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _format_full_interval(ci: Interval) -> str:
    """Return `0.54 [0.49, 0.59]`, with dashes for unknown bounds."""
    estimate, low, high = (format_number(value, "{:.2f}") for value in ci)
    return f"{estimate} [{low}, {high}]"
