"""Matches as chats: for each seat, the prompts rendered by its role and the model's replies.

The log has no prompts, so each match is replayed from its seed and logged acts, and the role renders each view again.
Seats of models and endpoints have chats, and seats of scripted players if the selection names them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from agents.chat import ChatFrame
from agents.conversation import Chat, Conversation
from agents.errors import ChatError, RoleError, WeightsError
from agents.policy import load_tokenizer_and_frame
from agents.role import Role
from agents.weights import resolve
from arena.config.own_files import require_own_tools, resolve_game_name, with_own_roles
from arena.config.saved_config import load_experiment
from arena.config.seating import resolve_tables
from arena.errors import StoreError
from arena.export.selection import Iteration, Row, Selection
from arena.play.making import deal_game, skip_ended_seats
from arena.play.texts import view_of
from arena.store import checkpoints
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
WITH_TOOLS = CHATS.append(pa.field("tools", pa.string()))
"""Columns of chats with native tools; `tools` is a JSON list of their definitions."""
TEXTS = pa.schema([("text", pa.string()), ("match", pa.string())])


class Reply(NamedTuple):
    """Logged reply of a model or endpoint, with its prompt, restored by replay, and the return from its turn on."""

    row: Row
    """Log row of the match."""
    turn: Row
    """Log row of the turn. `raw` is the reply's text; for a scripted player, its act in the role's reply format."""
    prompt: Chat
    """Messages that the model read before this reply."""
    message: dict[str, Any]
    """The reply as a message."""
    tools: str
    """JSON list of the seat's native tools; "" if it has none."""
    return_to_go: float
    """The seat's undiscounted return from this turn to the end of the match."""


@dataclass
class Chats:
    """Reader of a run's selected chats, which replays each match to restore its prompts.

    `rows` yields complete chats, `texts` plain texts, and `iterations` single replies. Matches that cannot be replayed
    are counted in `left_out`, by reason. `trust` allows code from the run's folder. With `native`, the tool calls and
    tool results of roles with native tools are separate messages, as their policy read them.
    """

    reader: RunReader
    selection: Selection
    trust: bool = False
    native: bool = False
    left_out: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Load the run's experiment and roles. Raises ConfigError if it, a role or a game cannot be loaded."""
        run = self.reader.path
        self.experiment = with_own_roles(run, load_experiment(run, trust=self.trust), self.trust)
        tables = resolve_tables(self.experiment)
        self.roles = {(table.game.name, role.role): role for table in tables for role in table.roles.values()}
        self._harnessed = {(table.game.name, seat) for table in tables for seat in table.harnesses}

    @property
    def has_tools(self) -> bool:
        """True if a role of the run has native tools and they are exported."""
        return self.native and any(role.reply.format == "native" for role in self.roles.values())

    def folders(self) -> dict[str, Path]:
        """Return the tokenizer folder of each selected policy: its newest checkpoint, else its initial model."""
        run, selected = self.reader.path, self.selection.policies
        newest = checkpoints.newest(run) if checkpoints.iterations(run) else None
        folders = {}
        for name, spec in self.experiment.policies.items():
            if not selected or name in selected:
                trained = newest.policy(name) if newest and spec.train else None
                folders[name] = trained if trained and trained.is_dir() else resolve(spec.model)
        return folders

    def _frame(self, policy: str) -> ChatFrame | None:
        """Return the policy's chat frame if chats have native tools, else None. None also if it cannot be loaded."""
        if not self.has_tools or policy not in (folders := self.folders()):
            return None
        try:
            return load_tokenizer_and_frame(folders[policy])[1]
        except (ChatError, WeightsError):
            return None

    def iterations(self) -> Iterator[tuple[int, Iterator[Reply]]]:
        """Yield each selected iteration's number with an iterator over the model replies in its finished matches.

        Replies come match by match, in order of play.
        """
        for iteration in self.selection.iterations_of(self.reader):
            finished = [row for row in iteration.matches if row["status"] == "finished"]
            yield iteration.number, chain.from_iterable(self._replies(iteration, row) for row in finished)

    def rows(self) -> Iterator[list[Row]]:
        """Yield chats as rows with the columns of `CHATS`, one list per iteration.

        A seat has one row per match, or one per context if its memory drops messages. `opening` is the number of
        messages before the first reply: system text, examples and first observation.
        """
        for _, replies in self.iterations():
            current: dict[tuple[str, str], Row] = {}
            rows: list[Row] = []
            for reply in replies:
                key = reply.row["id"], reply.turn["seat"]
                row = current.get(key)
                if row is None or row["messages"] != reply.prompt[: len(row["messages"])]:
                    row = current[key] = _make_chat_row(reply)
                    rows.append(row)
                row["messages"] = [*reply.prompt, reply.message]
                row["all_valid"] &= reply.turn["valid"]
            yield rows

    def texts(self) -> Iterator[list[Row]]:
        """Yield matches as plain texts: rows with the columns of `TEXTS`, one list per iteration.

        A seat has one row per match, with all its messages on separate lines. Messages that a later prompt repeats are
        written once.
        """
        for _, replies in self.iterations():
            prompts: dict[tuple[str, str], Chat] = {}
            rows: dict[tuple[str, str], Row] = {}
            for reply in replies:
                key = reply.row["id"], reply.turn["seat"]
                new = _find_new_messages(reply.prompt, prompts.get(key, []))
                prompts[key] = [*reply.prompt, reply.message]
                lines = [str(message["content"]) for message in (*new, reply.message)]
                if key in rows:
                    rows[key]["text"] = "\n".join([rows[key]["text"], *lines])
                else:
                    rows[key] = {"text": "\n".join(lines), "match": key[0]}
            yield list(rows.values())

    def _replies(self, iteration: Iteration, row: Row) -> list[Reply]:
        """Return the model replies of a match, or count it in `left_out` and return [] if it cannot be replayed."""
        try:
            return list(self._replay(row, iteration.returns(row)))
        except Exception as error:  # noqa: BLE001 a user's game, or an edited log, may raise anything
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            self.left_out[reason] = self.left_out.get(reason, 0) + 1
            return []

    def _replay(self, row: Row, returns: Mapping[int, float]) -> Iterator[Reply]:
        require_own_tools(self.reader.path, self.experiment, row["options"])
        name = resolve_game_name(row["game"], self.experiment)
        conversations = {
            seat: Conversation(self._role(name, player), self._frame(player["policy"]))
            for seat, player in self._model_seats(row).items()
        }
        if not conversations and any((row["game"], seat) in self._harnessed for seat in row["seats"]):
            raise StoreError("an agent program wrote the policy's prompts, and these are not logged")
        game = deal_game(Deal(name, row["options"], row["seed"]))
        if row["rules"] not in (0, game.rules_version):
            raise StoreError(f"the rules of {name} have changed since")
        for turn in row["turns"]:
            skip_ended_seats(game)
            seat, source = turn["seat"], turn.get("source", "policy")
            conversation = conversations.get(seat)
            if conversation and row["seats"][seat]["kind"] == "brain":
                turn = {**turn, "raw": self._role(name, row["seats"][seat]).write(turn["action"])}
            if source == "summary":
                if conversation:
                    prompt, message = conversation.ask_summary(), conversation.reply(turn["raw"])
                    yield Reply(row, turn, prompt, message, tools="", return_to_go=returns[turn["index"]])
                    conversation.record_reply(turn["raw"])
                continue
            if source in ("replaced", "request"):
                continue
            if not game.agents or game.agent_selection != seat:
                raise StoreError(f"{name} plays differently from the log")
            view = view_of(game, seat, turn["index"])
            if _list_texts(turn["messages"]) != [(message.sender, message.text) for message in view.messages]:
                raise StoreError(f"{name} shows other messages than the log has")
            if conversation:
                prompt = conversation.ask(view)
                if source == "policy":
                    tools = json.dumps(list(view.tools)) if view.tools and conversation.is_native else ""
                    message = conversation.reply(turn["raw"])
                    yield Reply(row, turn, prompt, message, tools=tools, return_to_go=returns[turn["index"]])
                conversation.record_reply(turn["raw"])
            game.step(turn["action"])

    def _model_seats(self, row: Row) -> Mapping[str, Mapping[str, Any]]:
        """Return the log entries of selected models and endpoints, by seat, and of scripted players selected by name.

        A scripted player's chat is what a model in its role would read and write.
        """
        selected_scripts = [("brain", policy) for policy in self.selection.policies]
        return {
            seat: player
            for seat, player in row["seats"].items()
            if (player["kind"] in ("model", "endpoint") or (player["kind"], player["policy"]) in selected_scripts)
            and self.selection.has(player)
            and (row["game"], seat) not in self._harnessed
        }

    def _role(self, game: str, player: Mapping[str, Any]) -> Role:
        role = self.roles.get((game, player["role"]))
        if role is None:
            raise RoleError(f"the run has no role {player['role']} in {game}")
        return role


def _find_new_messages(prompt: Chat, conversation: Chat) -> Chat:
    """Return the messages of a prompt that are not in the earlier `conversation`; at least the last message.

    Replies are never new: a role may show them without their private field.
    """
    remaining = iter(conversation)
    known = (message["role"] == "assistant" or message in remaining for message in prompt[:-1])
    return prompt[next((number for number, is_known in enumerate(known) if not is_known), len(prompt) - 1) :]


def _list_texts(messages: list[Row]) -> list[tuple[str, str]]:
    return [(message["sender"], message["text"]) for message in messages]


def _make_chat_row(first: Reply) -> Row:
    row, turn = first.row, first.turn
    return {
        "messages": [], "match": row["id"], "iteration": row["iteration"], "game": row["game"],
        **{name: turn[name] for name in ("seat", "role", "policy", "version")}, "first_turn": turn["index"],
        "payoff": row["payoffs"].get(turn["seat"]), "return": first.return_to_go, "all_valid": True,
        "opening": len(first.prompt), "source": row.get("source", "played"), "parent": row.get("parent", ""),
        "started": row["started"], "tools": first.tools or None,
    }  # fmt: skip
