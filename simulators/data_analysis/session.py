"""Python and SQL sessions of a match. Cells run in a sandbox without pandas.

A session stores only the code of its cells, so that a match can be cloned. A new process for each cell runs all
earlier ones first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from games.slow import offload
from simulators.confine.code import run_python
from simulators.confine.sql import Database, Limits
from simulators.data_analysis.tables import Data, Kind

SECONDS = 2.0
"""Maximum CPU seconds of a cell together with all earlier ones."""
OUTPUT = 1_500
"""Maximum number of bytes of a cell's output."""
MAX_CODE = 30_000
"""Maximum number of characters of all cells together."""
ERROR = "Error: "
DATABASE = "data.db"
END = "\x04"
"""Last character of the standard error of a cell that ran to its end, so that warnings do not count as errors."""

CELL = f"""
import ast, contextlib, io, json, sqlite3, sys
job = json.load(sys.stdin)
for name, text in job["files"].items():
    with open(name, "w") as file:
        file.write(text)
if job["script"]:
    with contextlib.closing(sqlite3.connect({DATABASE!r})) as database:
        database.executescript(job["script"])
space = {{"__name__": "__main__"}}
for name, columns, rows in job["tables"]:
    space[name] = [dict(zip(columns, row)) for row in rows]
def run(text):
    tree = ast.parse(text, "<cell>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), space)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)
        if value is not None:
            print(value)
try:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for text in job["earlier"]:
            run(text)
    run(job["cell"])
    sys.stdout.flush()
    sys.__stderr__.write({END!r})
except BaseException as error:
    sys.__stdout__.flush()
    print(f"{ERROR}{{type(error).__name__}}: {{error}}", file=sys.stderr)
"""
"""Program that runs a cell. It writes the files, defines each table as a list of dicts, and runs all cells in one
namespace. It prints the value of the cell's last expression; the output of earlier cells is dropped."""


@dataclass
class Session:
    """Python and SQL session over tables."""

    data: Data
    kind: Kind
    cells: list[str] = field(default_factory=list)
    """Python cells that ran without an error."""

    def run_python(self, cell: str) -> str:
        """Run a cell after all earlier ones and return its output, or an error text.

        A cell with an error is not run again before later cells.
        """
        if sum(map(len, self.cells)) + len(cell) > MAX_CODE:
            return f"{ERROR}all cells may have {MAX_CODE:,} characters"
        job = {
            "files": self.data.to_files(self.kind), "script": self.data.to_sql() if self.kind == "sqlite" else "",
            "tables": [(table.name, table.columns, table.rows) for table in self.data.tables],
            "earlier": self.cells, "cell": cell,
        }  # fmt: skip
        outcome = offload(run_python, CELL, seconds=SECONDS, output_bytes=OUTPUT, stdin=json.dumps(job))
        text = "".join(char for char in outcome.observation() if char == "\n" or char.isprintable()).rstrip()
        if not outcome.reason and outcome.stderr.endswith(END):
            self.cells.append(cell)
            return text or "[no output]"
        if not outcome.reason and not outcome.stderr:
            return f"{ERROR}the cell ended its process"
        return text if text.startswith(ERROR) else f"{ERROR}{text}"

    def run_sql(self, statement: str, terse: bool) -> str:
        """Run one read-only SQL statement and return its rows, or an error text.

        The rows are JSON or, if `terse`, only values with `;` between rows.
        """
        text = offload(run_query, self.data.to_sql(), statement)
        return _format_values(text) if terse and not text.startswith(ERROR) else text


def run_query(script: str, statement: str) -> str:
    """Create a database with the SQL `script`, run a model-written statement on it, and return the result."""
    return Database(script, Limits(characters=OUTPUT)).query(statement)


def _format_values(text: str) -> str:
    """Return the values of a query's JSON result, with `;` between rows, or the text itself if it was cut."""
    try:
        rows = json.loads(text)["rows"]
    except (ValueError, KeyError, TypeError):
        return text
    return "; ".join(" ".join(map(str, row)) for row in rows) or "-"
