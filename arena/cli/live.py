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
from arena.cli.progress import Pace, format_remaining
from arena.cli.tables import format_number, show_line
from arena.plain import printable
from arena.play.watchers import Watcher
from arena.records import MatchRecord, Turn
from arena.store.losses import summarise_failures

if TYPE_CHECKING:
    from arena.play.match import MatchPlan

Style = Literal["table", "lines", "json"]


class Screen(Watcher):
    """Watcher that shows a run on the console, as a live table, lines or JSON lines."""

    def __init__(self, console: Console, style: Style, iterations: int) -> None:
        self.console, self.style, self.iterations = console, style, iterations
        self.rows: list[dict[str, Any]] = []
        self._phase, self._turns, self._match_count, self._failed, self._phase_start = "starting", 0, 0, 0, monotonic()
        self._pace: Pace | None = None
        self._label, self._stage = "", ""
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def on_screen(self) -> AbstractContextManager[Any]:
        """Return a context that shows the live table, if the style has one."""
        return self._live if self.style == "table" else nullcontext()

    def phase(self, iteration: int, name: str) -> None:
        """Show a new phase and reset the counts of turns and matches; iteration 0 is before the first."""
        phase = f"iteration {iteration}: {name}" if iteration else name
        self._phase, self._phase_start = f"{self._label}: {phase}" if self._label else phase, monotonic()
        self._turns = self._match_count = self._failed = 0
        self._pace = None
        if self.style == "lines" and not iteration:
            self.console.print(Text(self._phase), soft_wrap=True)

    def stage(self, label: str, name: str, iterations: int) -> None:
        """Show the stage of a pipeline that starts or resumes, and clear the iterations of the one before."""
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
        """Store how many steps of the phase are done; in style `lines` print it every `REPORT_INTERVAL` seconds."""
        self._pace = self._pace or Pace(self._phase, total)
        if self._pace.is_due(done) and self.style == "lines":
            show_line(self.console, str(self._pace))

    def match(self, record: MatchRecord) -> None:
        """Add an ended match to the phase's count, and a failed one to the count of failures."""
        self._match_count += 1
        self._failed += record.status == "failed"

    def iteration(self, row: dict[str, Any]) -> None:
        """Store a committed iteration's metrics, and print them in styles `json` and `lines`."""
        self.rows.append(row)
        if self.style == "json":
            stage = {"stage": self._stage} if self._stage else {}
            self.console.file.write(json.dumps(stage | _replace_nonfinite(row)) + "\n")
            self.console.file.flush()
        elif self.style == "lines":
            figures = format_row(row, [row])
            self.console.print(Text("  ".join(f"{name} {value}" for name, value in figures.items())), soft_wrap=True)
            show_losses(self.console, [row])

    def _render(self) -> Group:
        seconds = monotonic() - self._phase_start
        status = f"{self._pace or self._phase} · {seconds:.0f} s"
        if self._turns:
            status += f" · {self._turns} turns"
        if self._match_count:
            status += f" · {self._match_count} matches"
        if remaining := self._format_remaining_time():
            status += f" · {remaining}"
        if self._failed:
            status += f" ({self._failed} failed)"
        losses_line = [Text(printable(line), style="yellow")] if (line := summarise_failures(self.rows)) else []
        return Group(make_iteration_table(self.rows, self.iterations), *losses_line, Text(status, style="dim"))

    def _format_remaining_time(self) -> str:
        """Return the run's remaining time as text, estimated from the last 10 iterations; "" if unknown."""
        last = self.rows[-10:]
        seconds = sum(row["seconds"][part] for row in last for part in ("play", "learn", "commit"))
        remaining = self.iterations - self.rows[-1]["iteration"] if last else 0
        return format_remaining(len(last), len(last) + remaining, seconds)


def show_losses(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print how many matches of these iterations failed or were abandoned, and why; nothing if none did."""
    if line := summarise_failures(rows):
        show_line(console, line, "yellow", indent=2)


def make_iteration_table(rows: list[dict[str, Any]], iterations: int) -> Table:
    """Return a table of metrics with a row for each of the latest 20 iterations. `iterations` is the run's total."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    latest = rows[-20:] or [{}]
    for name in format_row(latest[-1], latest):
        table.add_column(name, justify="right")
    for row in rows[-20:]:
        table.add_row(*format_row(row, latest).values())
    if rows:
        table.caption = f"{rows[-1]['iteration']} of {iterations} iterations"
        table.caption_justify = "left"
    return table


def format_row(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return a row's figures as text by column. The columns depend on all `rows` of the table."""
    learned = [stats for stats in _get_mapping(row, "learn").values() if isinstance(stats, Mapping)]
    seconds = _get_mapping(row, "seconds")
    texts = {
        "it": str(row.get("iteration", "")),
        "match/s": format_number(finite_or_none(row.get("matches_per_second"))),
        "tok/s": format_number(finite_or_none(row.get("tokens_per_second")), "{:.0f}"),
    }
    if any(_get_mapping(each, "panel") for each in rows):
        texts["panel"] = format_number(finite_or_none(_get_mapping(row, "panel").get("payoff")), "{:.2f}")
    texts["valid"] = format_number(finite_or_none(row.get("valid_rate")), "{:.2f}")
    if "deal" in _get_mapping(rows[-1], "report"):
        texts["deal"] = format_number(finite_or_none(_get_mapping(row, "report").get("deal")), "{:.2f}")
    if not all(each.get("zero_sum") for each in rows):
        texts["payoff"] = format_number(finite_or_none(row.get("mean_payoff")), "{:.2f}")
    else:  # the mean is always 0; what learners are paid against fixed opponents is not
        for name, opponent in _list_fixed_opponents(rows[-1]).items():
            texts[f"payoff vs {opponent}"] = format_number(
                finite_or_none(_get_mapping(row, "payoff_against").get(name)), "{:+.2f}"
            )
    for role in _get_mapping(rows[-1], "reward"):
        texts[f"r {role}"] = format_number(finite_or_none(_get_mapping(row, "reward").get(role)), "{:+.2f}")
    return {
        **texts,
        "KL": format_number(_mean([finite_or_none(stats.get("kl")) for stats in learned]), "{:.3f}"),
        "entropy": format_number(_mean([finite_or_none(stats.get("entropy")) for stats in learned]), "{:.2f}"),
        "loss": format_number(_mean([finite_or_none(stats.get("loss")) for stats in learned]), "{:+.3f}"),
        "s": format_number(
            sum(finite_or_none(seconds.get(part)) or 0.0 for part in ("play", "learn", "commit")), "{:.0f}"
        ),
    }


def _list_fixed_opponents(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the fixed opponents, without past versions of learners, by key of `payoff_against`."""
    names = {key: key.rpartition(" vs ")[2].rpartition("/")[2] for key in _get_mapping(row, "payoff_against")}
    return {key: name for key, name in names.items() if not name.endswith("@past")}


def finite_or_none(value: Any) -> float | None:
    """Return a logged value as a float; None if it is not a finite number."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _get_mapping(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the row's value `name` if it is a mapping, else {}."""
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _replace_nonfinite(value: Any) -> Any:
    """Return the value with None for NaN and infinity, which JSON lacks, also within nested dicts."""
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    return None if isinstance(value, float) and value - value != 0 else value
