"""Game of one analyst who answers a question about tables with Python and SQL over several turns (after DataMind)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import IllegalAct, choice, flag, whole_number
from games.contracts import TOOL
from games.families.book import fold
from simulators.base import Script, Simulator, SimulatorFault
from simulators.confine.code import find_obstacle
from simulators.data_analysis import packaged, players, tables
from simulators.data_analysis.acts import read_act
from simulators.data_analysis.questions import TOLERANCE, Question, draw_question, join_tables
from simulators.data_analysis.session import DATABASE, ERROR, Session
from simulators.data_analysis.tables import KINDS, Data, Kind

ANALYST = "analyst"
RIGHT, WRONG = "right", "wrong"
TABLES, QUESTIONS = 100, 20
"""Maximum number of tables drawn for a match, and of questions drawn for each table."""
USAGE = "write code, sql or answer, and then the code, the statement or the answer"


class DataAnalysis(Simulator):
    """Game of one analyst, who answers a question about tables with Python and SQL.

    Acts: `code` (a cell of Python), `sql` (a read-only statement) and `answer`, which ends the match. Cells share
    variables, as in a notebook. Options in addition to Simulator's: depth 1 to 3, the maximum number of operations in a
    question; tables, their format: "csv", "json", "sqlite" (which SQL needs) or "mixed" (drawn for each match); source,
    "generated" or "packaged" (parts of tables from scikit-learn and statsmodels); terse, for tiny models: five to eight
    rows, one-letter names, short questions and results; max_turns.

    Reward part `right`: 1 for the right answer, with numbers within 0.01. The split is by table.
    """

    name = "data_analysis"
    seats = (ANALYST,)
    whole_acts = True
    blocks = True  # a step waits for the code
    metadata: ClassVar[dict[str, Any]] = {"name": "data_analysis_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {RIGHT: "the answer is right"}
    players: Mapping[str, Callable[[DataAnalysis, int], Script]] = players.PLAYERS

    def __init__(
        self,
        *,
        depth: int = 2,
        tables: Literal["csv", "json", "sqlite", "mixed"] = "mixed",
        source: Literal["generated", "packaged"] = "generated",
        terse: bool = False,
        max_turns: int = 10,
        **options: Any,
    ) -> None:
        self.depth, self.terse = whole_number("depth", depth, 1, 3), flag("terse", terse)
        self.tables = choice("tables", tables, *KINDS, "mixed")
        self.source = choice("source", source, "generated", "packaged")
        self.max_turns = whole_number("max_turns", max_turns, 1, 100)
        if self.source == "packaged" and self.terse:
            raise ValueError('source must be "generated" if terse is true')
        if self.source == "packaged" and not packaged.list_identities():
            raise ValueError(
                'source "packaged" needs scikit-learn or statsmodels: install the extra recommender or clinic'
            )
        if obstacle := find_obstacle():
            raise ValueError(obstacle)
        super().__init__(talk=False, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a table of the split, its format and a question about it."""
        depth = int(rng.integers(1, self.depth + 1))
        self.data, self.question = self._draw_question(rng, depth)
        kinds = KINDS if self.tables == "mixed" else (self.tables,)
        self.kind: Kind = kinds[int(rng.integers(len(kinds)))]
        self.session = Session(self.data, self.kind)
        self._runs = self._errors = 0
        self._is_right = False

    def _draw_identity(self, rng: np.random.Generator) -> str:
        if self.source == "generated":
            return str(int(rng.integers(2**32)))
        known = packaged.list_identities()
        return known[int(rng.integers(len(known)))]

    def _draw_question(self, rng: np.random.Generator, depth: int) -> tuple[Data, Question]:
        """Draw tables of the split and a question of this depth. Tables without a question in 20 draws are replaced."""
        for _ in range(TABLES):
            identity = self.draw_entity(lambda: self._draw_identity(rng), str)
            data = (
                tables.draw_tables(int(identity), self.terse)
                if self.source == "generated"
                else packaged.load_part(identity)
            )
            frame = join_tables(data)
            for _ in range(QUESTIONS):
                if question := draw_question(data, frame, rng, depth, self.terse):
                    return data, question
        raise SimulatorFault(f"none of {TABLES} tables allows a question of depth {depth}")

    @property
    def turns_left(self) -> int:
        """Remaining acts, the next one included."""
        return self.max_turns - self.turns

    def rules(self) -> str:
        """Return the rules: the acts, the place of the tables, and how answers are judged."""
        return (
            "Answer a question about tables. Write one act a turn: CODE and a cell of Python, SQL and a statement "
            "that reads (or either in a fence, ```python or ```sql), finally ANSWER number or ANSWER word. Tables "
            f"are csv or json files in the working folder, or in {DATABASE}, an SQLite database, which alone is open "
            "to SQL. In Python each is also a list of dicts by its name. Cells share names, as in a notebook, and "
            "show what they print and the value of a last expression. There is the standard library (csv, json, "
            "sqlite3, statistics): no pandas, no network. Give numbers with two decimals at least: they may be off by "
            f"{TOLERANCE}. {self.max_turns} acts in all."
        )

    def public(self) -> dict[str, Any]:
        """Return `question`, `tables` (a line each: name, columns, place, first row) and `left`, the remaining acts."""
        question = self.question.short if self.terse else self.question.words
        shown = [
            f"{table.name}({', '.join(table.columns)}): {len(table.rows)} rows in {self._locate(table.name)}, such as "
            f"{', '.join(map(str, table.rows[0]))}"
            for table in self.data.tables
        ]
        return {"question": question, "tables": shown, "left": self.turns_left}

    def _locate(self, name: str) -> str:
        return DATABASE if self.kind == "sqlite" else f"{name}.{self.kind}"

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the answer until code has run, unless it is public or has at most two characters."""
        answer = str(self.question.answer)
        is_known = self._runs > 0 or fold(answer) in fold(f"{self.public()} {self.rules()}")
        return {} if is_known or len(answer) <= 2 else {"answer": (answer,)}

    def play(self, seat: str, act: str) -> str:
        """Run a cell or a statement and send its output to the seat, or judge the answer. Returns "".

        Raises IllegalAct for any other act.
        """
        parsed = read_act(act)
        if parsed is None:
            raise IllegalAct(USAGE)
        if parsed.verb == "answer":
            self._is_right = self.question.is_right(parsed.text)
            self.pay(seat, RIGHT, float(self._is_right))
            self.end(RIGHT if self._is_right else WRONG, f"That is {RIGHT if self._is_right else WRONG}.")
            return ""
        if parsed.verb == "code":
            output = self.session.run_python(parsed.text)
        elif self.kind == "sqlite":
            output = self.session.run_sql(parsed.text, self.terse)
        else:
            output = f"{ERROR}there is no database: write Python"
        self._runs += 1
        self._errors += output.startswith(ERROR)
        if self.turns_left > 1:
            self.tell(output, seat, sender=TOOL)
        else:
            self.end("turns", "No acts are left.")
        return ""

    def figures(self) -> dict[str, float | bool | str]:
        """Return figures for the report.

        `score` is 1 and `success` True for a right answer. Also `depth`, the number of operations, and `operations`,
        their names; `tables`, their format; `runs` of code, and `errors`, the failed runs; `question` and `answer`.
        """
        return {
            "score": float(self._is_right), "success": self._is_right, "depth": self.question.depth,
            "operations": " ".join(self.question.kinds), "tables": self.kind, "runs": self._runs,
            "errors": self._errors, "question": self.question.words, "answer": str(self.question.answer),
        }  # fmt: skip

    @property
    def floor(self) -> float:
        """Success rate of the player `random`, measured over 600 matches per option."""
        return 0.06 if self.terse else 0.015
