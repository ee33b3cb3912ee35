"""The phone company's tools and policy. The agent sees only the account and must ask what the phone shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from simulators.desk.device.settings import SERVICE, SETTINGS, list_needed
from simulators.desk.goals import Goal, Write
from simulators.desk.phone.tables import MIN_ROAMING_DAYS, REPAIRS, PhoneTables
from simulators.desk.policy import Fact, Rule

TOP_UP = 2.0

RULES = (
    Rule(
        "unpaid", "A line with an unpaid bill is not resumed.", ("unpaid", "not paid", "owe"), ("resume_line",),
        lambda world, call: not world.fetch_row("SELECT 1 FROM bills WHERE line = ? AND NOT paid", call["line"]),
    ),
    Rule(
        "topped_up", "Data is added to a line once a month (see topped_up).", ("once a month", "already added"),
        ("add_data",), lambda world, call: not world.find_line(call["line"])["topped_up"],
    ),
    Rule(
        "too_new", f"Roaming is allowed only on lines of {MIN_ROAMING_DAYS} days or more (see since).",
        ("too new", f"{MIN_ROAMING_DAYS} days", "three months"), ("allow_roaming",),
        lambda world, call: world.days_since(world.find_line(call["line"])["since"]) >= MIN_ROAMING_DAYS,
    ),
)  # fmt: skip


def _write_guide() -> str:
    values = ", ".join(f"{name} ({each.good} or {each.bad})" for name, each in SETTINGS.items())
    calls, data = (
        ", ".join(f"{n} {SETTINGS[n].good}" for n in list_needed(s, abroad=False)) for s in ("calls", "data")
    )
    return (
        "The customer alone sees and changes its phone, as you tell it: LOOK setting, SET setting value, LOOK service "
        f"(try it again). Settings: {values}. Calls need an active line, {calls}. Mobile data needs an active line, "
        f"used below data_limit, {data}. Abroad both need roaming of the line, and data also data_roaming on. "
    )


class Phone(PhoneTables):
    """Phone domain of the desk: tools and rules for lines, and the customer's `handset`."""

    domain, rules = "phone", RULES
    reads = ("find_customer", "find_customer_by_name", "show_customer", "list_lines", "show_line", "list_bills")
    writes = (*REPAIRS.values(), "change_account_address")
    guide = _write_guide()
    instructions = (
        *(f"LOOK {name}" for name in (*SETTINGS, SERVICE)),
        *(f"SET {name} {value}" for name, each in SETTINGS.items() for value in each.values),
    )
    facts: ClassVar[Mapping[str, Fact]] = {"bill": Fact("how much the last bill was", "amount", ("bill", "bills"))}
    verbs: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "resume_line": ("resume", "reactivate", "unsuspend", "lift the suspension", "activate your line"),
        "add_data": ("add data", "more data", "add 2 gb", "top up", "extra data"),
        "allow_roaming": ("allow roaming", "enable roaming", "roaming on your line", "roaming for your line"),
        "change_account_address": ("address in", "account address", "address on"),
    }

    # Tools.

    def list_lines(self) -> list[dict[str, Any]]:
        """List the verified customer's lines.
        Returns dicts with line, name and status. Raises ValueError if nobody is verified.
        """
        return self.fetch_all(
            "SELECT id AS line, name, status FROM lines WHERE customer = ? ORDER BY id", self.require_verified()
        )

    def show_line(self, line: str) -> dict[str, Any]:
        """Show a line of the verified customer: status, since when, data used and its limit, roaming.
        Returns its row and notes it as looked up. Raises ValueError unless it is the verified customer's.
        """
        row = self._require_line(line)
        self.session.looked_up.add(line)
        del row["customer"]
        return row | {name: bool(row[name]) for name in ("topped_up", "roaming")}

    def list_bills(self, line: str) -> list[dict[str, Any]]:
        """List the bills of a line, the last one first.
        Returns dicts with day, amount and paid. Raises ValueError unless it is the verified customer's line.
        """
        bills = self.fetch_all(
            "SELECT day, amount, paid FROM bills WHERE line = ? ORDER BY day DESC", self._require_line(line)["id"]
        )
        return [bill | {"paid": bool(bill["paid"])} for bill in bills]

    def resume_line(self, line: str) -> dict[str, Any]:
        """Make a suspended line active again.
        Records broken rules (`record_write`) and returns the line. Raises ValueError for unknown or others' lines.
        """
        return self._write("resume_line", line, "status = 'active'")

    def add_data(self, line: str) -> dict[str, Any]:
        """Raise this month's data limit of a line by 2 GB.
        Records broken rules (`record_write`) and returns the line. Raises ValueError for unknown or others' lines.
        """
        return self._write("add_data", line, f"data_limit = data_limit + {TOP_UP}, topped_up = 1")

    def allow_roaming(self, line: str) -> dict[str, Any]:
        """Allow a line to be used abroad.
        Records broken rules (`record_write`) and returns the line. Raises ValueError for unknown or others' lines.
        """
        return self._write("allow_roaming", line, "roaming = 1")

    # Helpers of the tools.

    def _require_line(self, line: str) -> dict[str, Any]:
        customer, row = self.require_verified(), self.find_line(line)
        if row.get("customer") != customer:
            raise ValueError("this customer has no such line; see list_lines()")
        return row

    def _write(self, tool: str, line: str, values: str) -> dict[str, Any]:
        self._require_line(line)
        self.record_write(Write(tool, {"line": line}))
        self.execute(f"UPDATE lines SET {values} WHERE id = ?", line)
        return self.show_line(line)

    def draw_candidates(self, rng: np.random.Generator) -> list[Goal]:
        """Return []: the customer's goal comes from `cause_faults`."""
        return []

    def list_lookups(self, numbers: Sequence[str], mentions: Sequence[str]) -> list[str]:
        """Return read calls that help with a request about these lines, as text."""
        shows = [f'{tool}(line="{number}")' for number in numbers for tool in ("show_line", "list_bills")]
        return ["show_customer()", "list_lines()", *shows]

    def list_marks(self, write: Write) -> list[str]:
        """Return []: the words are those of `list_further_marks`."""
        return []

    def list_possible_writes(self, numbers: Sequence[str]) -> list[Write]:
        """Return all repairs of these lines, needed or not."""
        return [Write(tool, {"line": number}) for number in numbers for tool in REPAIRS.values()]

    def list_further_marks(self, goal: Goal) -> list[str]:
        """Return words for the complaint, the line (if looked up), and the customer's statements about the phone."""
        words = [thing.split()[-1] for thing in goal.mentions] + ["abroad"] * goal.ask.endswith("abroad")
        if goal.subject in self.session.looked_up:
            line, resume_breaches = (
                self.find_line(goal.subject),
                self.find_broken_rules(Write("resume_line", {"line": goal.subject})),
            )
            words += ["suspended"] * (line["status"] != "active") + ["owing"] * bool(resume_breaches)
            words += ["empty"] * (line["used"] >= line["data_limit"]) + ["topped_up"] * bool(line["topped_up"])
            words += ["barred"] * (not line["roaming"]) + ["new"] * (self.days_since(line["since"]) < MIN_ROAMING_DAYS)
        return words + [f"{name}_{value}" for name, value in self.handset.reported_values.items()]
