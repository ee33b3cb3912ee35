"""Matches as chats: each seat's messages as its role rendered them, and its replies.

A log keeps what was said, not the prompts around it. Every match is dealt again and its acts are put to the game; the
role renders what the seat saw, system text and examples included. Only seats that models or endpoints held have chats.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

import games
from agents.conversation import Chat, Conversation
from agents.errors import RoleError
from agents.role import Role
from arena.config.own_files import same_game, with_own_roles
from arena.config.saved_config import experiment_of
from arena.config.seating import set_tables
from arena.errors import StoreError
from arena.export.selection import Iteration, Row, Selection
from arena.play.texts import view_of
from arena.store.reader import RunReader
from games.contracts import Deal

MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
CHATS = pa.schema(
    [
        ("messages", MESSAGES),
        *((name, pa.string()) for name in ("match", "game", "seat", "role", "policy", "source", "parent", "started")),
        *((name, pa.int64()) for name in ("iteration", "version", "first_turn", "opening")),
        *((name, pa.float64()) for name in ("payoff", "return")),
        ("all_valid", pa.bool_()),
    ]
)


class Said(NamedTuple):
    """One reply of a model, and all that stood before it."""

    row: Row
    """The match's."""
    turn: Row
    prompt: Chat
    worth: float
    """What its seat earned from there to the end of the match."""


@dataclass
class Chats:
    """The chats of a run; `left_out` counts the matches that could not be dealt again, by reason."""

    reader: RunReader
    selection: Selection
    trust: bool = False
    left_out: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """ConfigError where the experiment, or a role or game of it, cannot be had."""
        run = self.reader.path
        self.experiment = with_own_roles(run, experiment_of(run, trust=self.trust), self.trust)
        tables = set_tables(self.experiment)
        self.roles = {(table.game.name, role.role): role for table in tables for role in table.roles.values()}

    def iterations(self) -> Iterator[tuple[int, Iterator[Said]]]:
        """Every reply of the chosen seats in finished matches, in the order of play, an iteration at a time."""
        for iteration in self.selection.of(self.reader):
            finished = [row for row in iteration.matches if row["status"] == "finished"]
            yield iteration.number, chain.from_iterable(self._said(iteration, row) for row in finished)

    def rows(self) -> Iterator[list[Row]]:
        """Rows of `CHATS`: one for each seat of a match, or for each context where its memory drops some of it.

        `opening` counts the messages before the first reply: system text, examples, and what was seen first.
        """
        for _, said in self.iterations():
            found: dict[tuple[str, str], Row] = {}
            done: list[Row] = []
            for one in said:
                key = one.row["id"], one.turn["seat"]
                row = found.get(key)
                if row is None or row["messages"] != one.prompt[: len(row["messages"])]:
                    row = found[key] = _chat_row(one)
                    done.append(row)
                row["messages"] = [*one.prompt, {"role": "assistant", "content": one.turn["raw"]}]
                row["all_valid"] &= one.turn["valid"]
            yield done

    def _said(self, iteration: Iteration, row: Row) -> list[Said]:
        """The replies of a match; none, counted, where it cannot be dealt again as it was."""
        try:
            return list(self._walk(row, iteration.returns(row)))
        except Exception as error:  # noqa: BLE001 a game of others, or an edited log, may fail in any way
            why = " ".join(str(error).split())[:200] or type(error).__name__
            self.left_out[why] = self.left_out.get(why, 0) + 1
            return []

    def _walk(self, row: Row, worth: Mapping[int, float]) -> Iterator[Said]:
        name = same_game(row["game"], self.experiment)
        talking = {seat: Conversation(self._role(name, held)) for seat, held in self._held(row).items()}
        game = games.deal(Deal(name, row["options"], row["seed"]))
        if row["rules"] not in (0, game.rules_version):
            raise StoreError(f"the rules of {name} were changed since")
        for turn in row["turns"]:
            while game.agents and (game.terminations[game.agent_selection] or game.truncations[game.agent_selection]):
                game.step(None)
            seat = turn["seat"]
            if turn.get("source") == "summary":
                if seat in talking:
                    yield Said(row, turn, talking[seat].ask_summary(), worth[turn["index"]])
                    talking[seat].said(turn["raw"])
                continue
            if turn.get("source") == "replaced":
                continue
            if not game.agents or game.agent_selection != seat:
                raise StoreError(f"{name} goes another way than the log")
            view = view_of(game, seat, turn["index"])
            if _texts(turn["messages"]) != [(message.sender, message.text) for message in view.messages]:
                raise StoreError(f"{name} shows something else than it did")
            if seat in talking:
                prompt = talking[seat].ask(view)
                if turn.get("source", "policy") == "policy":
                    yield Said(row, turn, prompt, worth[turn["index"]])
                talking[seat].said(turn["raw"])
            game.step(turn["action"])

    def _held(self, row: Row) -> Mapping[str, Mapping[str, Any]]:
        """The chosen seats that models or endpoints held."""
        seats = row["seats"].items()
        return {
            seat: held for seat, held in seats if held["kind"] in ("model", "endpoint") and self.selection.has(held)
        }

    def _role(self, game: str, held: Mapping[str, Any]) -> Role:
        role = self.roles.get((game, held["role"]))
        if role is None:
            raise RoleError(f"the run has no role {held['role']} in {game}")
        return role


def _texts(messages: list[Row]) -> list[tuple[str, str]]:
    return [(message["sender"], message["text"]) for message in messages]


def _chat_row(one: Said) -> Row:
    row, turn = one.row, one.turn
    return {
        "messages": [], "match": row["id"], "iteration": row["iteration"], "game": row["game"], "seat": turn["seat"],
        "role": turn["role"], "policy": turn["policy"], "version": turn["version"], "first_turn": turn["index"],
        "payoff": row["payoffs"].get(turn["seat"]), "return": one.worth, "all_valid": True,
        "opening": len(one.prompt),
        "source": row.get("source", "played"), "parent": row.get("parent", ""),
        "started": row["started"],
    }  # fmt: skip
