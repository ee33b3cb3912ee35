"""Text-to-SQL game (MARS-SQL): select tables and columns, write SQL interactively, judge the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from games.base import ACTION_LENGTH, IllegalAct, choice, flag, to_one_line, whole_number
from games.contracts import TOOL
from games.families.book import fold
from games.slow import offload
from simulators.base import Script, Simulator
from simulators.sql.acts import (
    Result,
    WriterAct,
    make_result,
    read_names,
    read_sql,
    read_verdict,
    write_names,
    write_sql,
)
from simulators.sql.players import PLAYERS
from simulators.sql.questions import LEVELS, Question, draw_question
from simulators.sql.schemas import Schema, World, load_world, run_sql
from simulators.tools import Tool

GROUNDER, WRITER, JUDGE = "grounder", "writer", "judge"
RIGHT, LINKED, JUDGED = "right", "linked", "judged"
TURNS, MAX_SCHEMAS, LISTED = 5, 10_000, 12
"""Maximum turns of the writer, maximum number of databases, and maximum names that `legal` lists."""
MIN_PROBE_LENGTH = 10
"""Minimum characters of a result for leak probes; shorter texts occur by chance."""
DEALS, OTHERS = 500, 8
"""Number of questions used to measure the floor, and number of other questions that each is compared with."""


class Sql(Simulator):
    """Text-to-SQL game of a writer, or of a grounder, a writer and a judge (MARS-SQL).

    The question is about a generated database. The grounder names the tables and columns that the question needs, and
    the writer sees only these. The writer runs queries, reads their results, and ends with a solution, in at most
    `turns` acts. Then the judge reads the question and the writer's reasoning, solution and result, and says whether
    the solution is right.

    Options in addition to Simulator's: seats, "writer" (alone, with the whole schema) or "all"; schemas, the number of
    databases (a database is the entity of the split); levels of the questions, a number from 1 to 4 or a list; turns, 1
    to 5 (1: only the solution); team, whether all seats are paid `right` and nothing else; terse, for tiny models:
    databases of three tables and acts of few tokens.

    Reward parts: `right`, 1 to the writer for the right result; `linked`, the grounder's F1 of tables and columns
    against the true query's; `judged`, 1 to the judge for a right verdict. `right` and `judged` are paid at the end, so
    that no seat learns earlier what is right. Results are compared as sets of rows: the order of columns counts, but
    not their names, nor the order and duplicates of rows.
    """

    name = "sql"
    seats: tuple[str, ...] = (WRITER,)
    metadata: ClassVar[dict[str, Any]] = {"name": "sql_v0", "render_modes": ["ansi"]}
    blocks = True  # while queries run
    whole_acts = True  # SQL may contain "|", which otherwise separates an act from talk
    reward_parts: Mapping[str, str] = {
        RIGHT: "the solution has the right result", LINKED: "F1 of the named tables and columns",
        JUDGED: "the verdict is right",
    }  # fmt: skip
    players: Mapping[str, Callable[[Sql, int], Script]] = PLAYERS
    judge_seat = ""

    def __init__(
        self,
        *,
        seats: Literal["writer", "all"] = "writer",
        schemas: int = 40,
        levels: int | Sequence[int] = LEVELS,
        turns: int = TURNS,
        team: bool = False,
        terse: bool = False,
        **options: Any,
    ) -> None:
        self.seats = (WRITER,) if choice("seats", seats, "writer", "all") == "writer" else (GROUNDER, WRITER, JUDGE)
        self.schemas = whole_number("schemas", schemas, least=10, most=MAX_SCHEMAS)
        level_list = levels if isinstance(levels, list | tuple) and levels else [levels]
        self.levels = tuple(whole_number("levels", level, least=LEVELS[0], most=LEVELS[-1]) for level in level_list)
        self.max_turns = whole_number("turns", turns, least=1, most=TURNS)
        self.team, self.terse = flag("team", team), flag("terse", terse)
        if self.team and seats != "all":
            raise ValueError('seats must be "all" if team is true: the writer alone is no team')
        self.cooperative = self.team
        self.judge_seat = JUDGE if JUDGE in self.seats else ""
        super().__init__(talk=False, **options)

    def set_up(self, rng: np.random.Generator, options: Mapping[str, Any]) -> None:
        """Draw a database of the split and a question. The reset option `truth` replaces the question's true query."""
        self.index = self.draw_entity(lambda: int(rng.integers(self.schemas)), lambda n: f"{int(self.terse)} {n}")
        level = int(self.levels[rng.integers(len(self.levels))])
        self.question: Question = draw_question(self.world, level, rng)
        if truth := options.get("truth"):
            self.question = self.question._replace(sql=truth, rows=self.world.rows(truth))
        self.linked_names = frozenset(self.schema.names())
        self._unknown_count = self._queries = self._errors = self._acts = 0
        self._was_answered = False
        self.solution: WriterAct | None = None
        self.result = Result("", None)
        self.verdict: bool | None = None

    @property
    def world(self) -> World:
        """The match's database, shared with other matches."""
        return load_world(self.terse, self.index)

    @property
    def schema(self) -> Schema:
        """The database's tables."""
        return self.world.schema

    @property
    def is_right(self) -> bool:
        """True if there is a solution, and its result is that of the true query."""
        return self.result.rows is not None and self.result.rows == self.question.rows

    @property
    def turns_left(self) -> int:
        """Remaining acts of the writer, the next one included."""
        return self.max_turns - self._acts

    def rules(self) -> str:
        """Return the rules as text: the acts of each seat."""
        if self.terse:
            return "?sql asks, =sql answers."
        asks = "" if self.max_turns == 1 else "Before that you may run queries: write <sql>SELECT …</sql>. "
        writer = (
            f"Answer the question by one SQLite query, which only reads: write <solution>SELECT …</solution>. {asks}"
            f"You have {self.max_turns} turns in all. The result has just the columns that are asked for."
        )
        if self.seats == (WRITER,):
            return writer
        return (
            "A grounder names the tables and columns that a question to a database needs, keys of joins included: "
            f"<schema>table.column, …</schema>. A writer sees these and is told: {writer} A judge then says yes if "
            "the solution answers the question, or no."
        )

    def definitions(self, seat: str) -> Sequence[Mapping[str, Any]]:
        """Return the writer's tool `query`; nothing if it has only one turn or acts are terse."""
        return [Tool.of(self.query).definition] if seat == WRITER and self.max_turns > 1 and not self.terse else ()

    def public(self) -> dict[str, Any]:
        """Return `question` and the writer's `turns_left`."""
        return {"question": self.question.text, "turns_left": self.turns_left}

    def private(self, seat: str) -> dict[str, Any]:
        """Return the seat's `schema`; for the judge also the writer's `reasoning`, `sql` and `result`."""
        if seat == GROUNDER:
            return {"schema": self.schema.text()}
        facts = {"schema": self.schema.text(self.linked_names)}
        if seat == WRITER:
            return facts
        solution = self.solution or WriterAct("solution", "", "")
        result = self.result.text.replace("\n", "\n  ")  # indented, so that no cell can pass for another fact
        return {
            **facts,
            "reasoning": solution.reasoning,
            "sql": to_one_line(solution.sql, ACTION_LENGTH),
            "result": result,
        }

    def legal(self, seat: str) -> list[str]:
        """Return some simple legal acts. There are many others."""
        if seat == JUDGE:
            return ["yes", "no"]
        if seat == GROUNDER:
            return [write_names([name], self.terse) for name in self.schema.names()[:LISTED]]
        columns = sorted(name for name in self.linked_names if "." in name)[:LISTED]
        plain = ["SELECT 1", *("SELECT {1} FROM {0}".format(*name.split(".")) for name in columns)]
        plain = [sql.lower() if self.terse else sql for sql in plain]
        return [write_sql(sql, self.terse, final) for sql in plain for final in (True, False)[: self.turns_left]]

    def hidden(self) -> dict[str, tuple[str, ...]]:
        """Return the true query and its result. The result is left out if it is short or a query was answered."""
        rows = fold(" ".join(str(cell) for row in sorted(self.question.rows, key=str) for cell in row))
        is_secret = len(rows) >= MIN_PROBE_LENGTH and not self._was_answered
        secrets: dict[str, tuple[str, ...]] = {"query": (self.question.sql,)}
        return secrets | ({"result": (rows,)} if is_secret else {})

    def twin_deals(self, seat: str, rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return reset options for the same question with two different true queries."""
        one, two = rng.choice(len(self.question.wrong), size=2, replace=False).tolist()
        return {"truth": self.question.wrong[one]}, {"truth": self.question.wrong[two]}

    def next_seat(self, seat: str) -> str:
        """Return the seat to move: the grounder first, the writer until its solution, then the judge."""
        return JUDGE if self.solution and JUDGE in self.seats else WRITER

    def play(self, seat: str, act: str) -> str:
        """Play an act: names of the schema, a query, the solution, or the verdict. Returns ""."""
        if seat == GROUNDER:
            self.linked_names, self._unknown_count = read_names(act, self.schema)
            if not self.team:
                self.pay(seat, LINKED, self._score_linking()["link_f1"])
        elif seat == JUDGE:
            self.verdict = read_verdict(act)
            self._finish()
        else:
            self._write(read_sql(act, self.terse))
        return ""

    def query(self, sql: str) -> str:
        """Run a read-only SQLite query on the database and return its result."""
        return self._run_query(sql).text

    def _run_query(self, sql: str) -> Result:
        return make_result(offload(run_sql, self.terse, self.index, sql), self.terse)

    def _write(self, act: WriterAct) -> None:
        """Run the query or solution. A query's result is shown to the writer; a solution ends its part of the match.

        Raises IllegalAct for a query on the last turn.
        """
        if act.kind == "query" and self.turns_left == 1:
            raise IllegalAct("=sql" if self.terse else "this is the last turn: write <solution>…</solution>")
        self._acts += 1
        result = self._run_query(act.sql)
        if act.kind == "query":
            self._queries += 1
            self._errors += result.rows is None
            self._was_answered |= result.rows is not None
            note = "" if self.terse else f"\nYou have {self.turns_left} turn{'s'[: self.turns_left > 1]} left."
            self.tell(f"{result.text}{note}", WRITER, sender=TOOL)
            return
        self.solution, self.result = act, result
        if JUDGE not in self.seats:
            self._finish()

    def _finish(self) -> None:
        for seat in self.seats if self.team else (WRITER,):
            self.pay(seat, RIGHT, float(self.is_right))
        if self.verdict is not None and not self.team:
            self.pay(JUDGE, JUDGED, float(self.verdict == self.is_right))
        self.end("solved", "The solution is right." if self.is_right else "The solution is wrong.")

    def final_answer(self, seat: str) -> str:
        """Return the sorted rows of the writer's result as text; "" for other seats, or if there is no result."""
        return repr(sorted(self.result.rows, key=repr)) if seat == WRITER and self.result.rows is not None else ""

    def _score_linking(self) -> dict[str, float]:
        """Return precision, recall and F1 of the named tables and columns against the true query's."""
        true_names = frozenset(self.question.names)
        found = len(self.linked_names & true_names)
        precision, recall = found / (len(self.linked_names) + self._unknown_count), found / len(true_names)
        f1 = 2 * precision * recall / (precision + recall) if found else 0.0
        return {"link_f1": f1, "link_precision": precision, "link_recall": recall}

    def figures(self) -> dict[str, float | bool | str]:
        """Return `score` and `success` (a right solution), `level`, `queries`, `errors`, `had_error` and `repaired`.

        `errors` is the number of failed queries. `had_error` is True if there was one, and `repaired` if the solution
        is right nevertheless. With all seats also `link_f1`, `link_precision`, `link_recall`, and `judge_right` (False
        without a verdict).
        """
        shared: dict[str, float | bool | str] = {
            "score": float(self.is_right), "success": self.is_right, "level": self.question.level,
            "queries": self._queries, "errors": self._errors, "had_error": self._errors > 0,
            "repaired": bool(self._errors and self.is_right),
        }  # fmt: skip
        if self.seats == (WRITER,):
            return shared
        return {**shared, **self._score_linking(), "judge_right": self.verdict is self.is_right}

    @property
    def floor(self) -> float:
        """Success rate of the player `random`, measured on pairs of questions of the same level and database.

        With all seats it is the rate of a random grounder with an oracle as the writer, which needs all names.
        """
        game, hits = self.clone(), 0
        for seed in range(DEALS):
            game.reset(seed=seed)
            question, rng = game.question, np.random.default_rng([seed, 2])
            for _ in range(OTHERS):
                other = draw_question(game.world, question.level, rng)
                hits += other.rows == question.rows if game.seats == (WRITER,) else {*other.names} >= {*question.names}
        return hits / (DEALS * OTHERS)
