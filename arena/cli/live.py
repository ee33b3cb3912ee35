"""Output of a running experiment: a live table in a terminal, plain lines elsewhere, JSON lines for scripts."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from arena.cli.console import note
from arena.cli.progress import Pace, left
from arena.cli.tables import cell, say
from arena.plain import printable
from arena.records import MatchRecord, Turn
from arena.store.losses import summarise_failures

if TYPE_CHECKING:
    from arena.play.match import MatchPlan

Style = Literal["table", "lines", "json"]


class Screen:
    """Watcher (`arena.play.watchers.Watcher`) that shows a run on the console, as a live table, lines or JSON lines."""

    def __init__(self, console: Console, style: Style, iterations: int) -> None:
        self.console, self.style, self.iterations = console, style, iterations
        self.rows: list[dict[str, Any]] = []
        self._phase, self._turns, self._ended, self._failed, self._since = "starting", 0, 0, 0, monotonic()
        self._pace: Pace | None = None
        self._label, self._stage = "", ""
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def on_screen(self) -> AbstractContextManager[Any]:
        """Return a context that shows the live table, if the style has one."""
        return self._live if self.style == "table" else nullcontext()

    def phase(self, iteration: int, name: str) -> None:
        """Show a new phase and reset the counts of turns and matches; iteration 0 is before the first."""
        begins = f"iteration {iteration}: {name}" if iteration else name
        self._phase, self._since = f"{self._label}: {begins}" if self._label else begins, monotonic()
        self._turns = self._ended = self._failed = 0
        self._pace = None
        if self.style == "lines" and not iteration:
            self.console.print(Text(self._phase), soft_wrap=True)

    def stage(self, label: str, name: str, iterations: int) -> None:
        """Show the stage of a pipeline that begins or goes on, and forget the iterations of the one before."""
        self._label, self._stage, self.iterations, self.rows = label, name, iterations, []
        if self.style != "json":
            self.console.print(Text(label, style="bold"), soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a notice for the user on stderr, which scripts do not read."""
        note(text)

    def turn(self, plan: "MatchPlan", turn: Turn) -> None:
        """Add a turn to the phase's count."""
        self._turns += 1

    def progress(self, done: int, total: int) -> None:
        """Store how many steps of the phase are done; in style `lines` print it every `EVERY` seconds."""
        self._pace = self._pace or Pace(self._phase, total)
        if self._pace.is_due(done) and self.style == "lines":
            say(self.console, str(self._pace))

    def match(self, record: MatchRecord) -> None:
        """Add an ended match to the phase's count, and a failed one to the count of failures."""
        self._ended += 1
        self._failed += record.status == "failed"

    def iteration(self, row: dict[str, Any]) -> None:
        """Store a committed iteration's metrics, and print them in styles `json` and `lines`."""
        self.rows.append(row)
        if self.style == "json":
            stage = {"stage": self._stage} if self._stage else {}
            self.console.file.write(json.dumps(stage | _finite(row)) + "\n")
            self.console.file.flush()
        elif self.style == "lines":
            figures = cells(row, [row])
            self.console.print(Text("  ".join(f"{name} {value}" for name, value in figures.items())), soft_wrap=True)
            show_losses(self.console, [row])

    def _render(self) -> Group:
        seconds = monotonic() - self._since
        status = f"{self._pace or self._phase} · {seconds:.0f} s"
        if self._turns:
            status += f" · {self._turns} turns"
        if self._ended:
            status += f" · {self._ended} matches"
        if rest := self._left():
            status += f" · {rest}"
        if self._failed:
            status += f" ({self._failed} failed)"
        lost = [Text(printable(line), style="yellow")] if (line := summarise_failures(self.rows)) else []
        return Group(iteration_table(self.rows, self.iterations), *lost, Text(status, style="dim"))

    def _left(self) -> str:
        """Return the run's remaining time as text, estimated from the last 10 iterations; "" if unknown."""
        last = self.rows[-10:]
        seconds = sum(row["seconds"][part] for row in last for part in ("play", "learn", "commit"))
        to_come = self.iterations - self.rows[-1]["iteration"] if last else 0
        return left(len(last), len(last) + to_come, seconds)


def show_losses(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how many matches of these iterations failed or were abandoned, and why; nothing if none did."""
    if line := summarise_failures(rows):
        say(console, line, "yellow", indent=2)


def iteration_table(rows: list[dict[str, Any]], iterations: int) -> Table:
    """Return a table of metrics with a row for each of the latest 20 iterations. `iterations` is the run's total."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    latest = rows[-20:] or [{}]
    for name in cells(latest[-1], latest):
        table.add_column(name, justify="right")
    for row in rows[-20:]:
        table.add_row(*cells(row, latest).values())
    if rows:
        table.caption = f"{rows[-1]['iteration']} of {iterations} iterations"
        table.caption_justify = "left"
    return table


def cells(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a row's figures as text by column. The columns depend on all `rows` of the table."""
    learned = [stats for stats in _table(row, "learn").values() if isinstance(stats, Mapping)]
    seconds = _table(row, "seconds")
    cells = {
        "it": str(row.get("iteration", "")),
        "match/s": cell(number(row.get("matches_per_second"))),
        "tok/s": cell(number(row.get("tokens_per_second")), "{:.0f}"),
    }
    if any(_table(each, "panel") for each in rows):
        cells["panel"] = cell(number(_table(row, "panel").get("payoff")), "{:.2f}")
    cells["valid"] = cell(number(row.get("valid_rate")), "{:.2f}")
    if "deal" in _table(rows[-1], "report"):
        cells["deal"] = cell(number(_table(row, "report").get("deal")), "{:.2f}")
    if not all(each.get("zero_sum") for each in rows):
        cells["payoff"] = cell(number(row.get("mean_payoff")), "{:.2f}")
    else:  # the mean is always 0; what learners are paid against fixed opponents is not
        for name, shown in _fixed_opponents(rows[-1]).items():
            cells[f"payoff vs {shown}"] = cell(number(_table(row, "payoff_against").get(name)), "{:+.2f}")
    for role in _table(rows[-1], "reward"):
        cells[f"r {role}"] = cell(number(_table(row, "reward").get(role)), "{:+.2f}")
    return {
        **cells,
        "KL": cell(_mean([number(stats.get("kl")) for stats in learned]), "{:.3f}"),
        "entropy": cell(_mean([number(stats.get("entropy")) for stats in learned]), "{:.2f}"),
        "loss": cell(_mean([number(stats.get("loss")) for stats in learned]), "{:+.3f}"),
        "s": cell(sum(number(seconds.get(part)) or 0.0 for part in ("play", "learn", "commit")), "{:.0f}"),
    }


def _fixed_opponents(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of fixed opponents by key of `payoff_against`, without past versions of learners."""
    names = {key: key.rpartition(" vs ")[2].rpartition("/")[2] for key in _table(row, "payoff_against")}
    return {key: name for key, name in names.items() if not name.endswith("@past")}


def number(value: Any) -> float | None:
    """Return a logged value as a float; None if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _table(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = row.get(name)
    return found if isinstance(found, Mapping) else {}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _finite(value: Any) -> Any:
    """Return the value with None for NaN and infinity, which JSON lacks, also within nested dicts."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and value - value != 0 else value
