"""Seat of a person at the web page, through JSON lines: `{"ask": …}` on stdout, `{"act": …, "talk": …}` on stdin.

An illegal act is refused with `{"wrong": …}`. At the end of the input the person leaves the match, as with Ctrl-D in
the terminal.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.facts import format_literal
from agents.players.human import MAX_LISTED, TALK_LENGTH, Human, HumanLeft, accepts_act, read_act
from agents.reply import to_one_line
from arena.play.contenders import HumanContender
from arena.play.match import MatchPlan, SeatedPlayer
from arena.rows import message_to_row
from games.abilities import PlainWords
from games.contracts import Act, Game, Message, View
from games.names import nearest

MAX_LINE = 100_000
"""Maximum characters of an input line."""


class PageSeat(Human):
    """Player for a person at the web page. It writes questions to stdout and reads acts from stdin, as JSON lines."""

    async def act(self, view: View) -> Act:
        """Ask the person until the answer is a legal act, and return it. Raises HumanLeft at the end of the input."""
        for name, data in self.pictures(view.messages).items():
            write_line({"image": name, "data": b64encode(data).decode()})
        write_line({"ask": self._make_question(view)})
        while True:
            line = sys.stdin.readline(MAX_LINE)
            if not line.endswith("\n"):
                raise HumanLeft(f"{view.seat} left the match")
            act_text, talk = _parse_answer(line)
            act = read_act(act_text, view.legal, numbered=False)
            if act is None and act_text and self.game is not None and accepts_act(self.game, act_text):
                act = act_text
            if act is not None:
                reply = f"{act} | {talk}" if talk else act
                write_line({"took": act, "talk": talk})
                return Act(reply, reply, talk, "", "stop")
            write_line({"wrong": f"'{act_text[:80]}' is not a legal act{nearest(act_text, view.legal or ())}"})

    def _make_question(self, view: View) -> dict[str, Any]:
        teller = self.teller
        return {
            "seat": view.seat, "turn": view.turn,
            "rules": teller.introduction(view.seat) if teller else view.rules,
            "messages": [_message_to_json(message) for message in view.messages],
            "words": teller.in_words(view.seat) if teller else "",
            "facts": [] if teller else [*_list_facts(view.public), *_list_facts(view.private)],
            "legal": list(view.legal[:MAX_LISTED]) if view.legal is not None and not teller else None,
        }  # fmt: skip


@dataclass(frozen=True)
class PageContender(HumanContender):
    """Contender for a person who plays at the web page."""

    def player(self, seat: str, plan: MatchPlan, game: Game, seed: int) -> SeatedPlayer:
        """Return a player that asks the person through JSON lines on stdout and stdin."""
        return PageSeat(self.console, game if isinstance(game, PlainWords) else None, game)


def write_line(value: Mapping[str, Any]) -> None:
    """Write the value as one JSON line to stdout and flush."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _message_to_json(message: Message) -> list[Any]:
    """Return a message as [sender, text] or, with images, [sender, text, images and their positions in the text]."""
    if not message.images:
        return [message.sender, message.text]
    row = message_to_row(message)
    images = [
        {"hash": image["hash"], "width": image["width"], "height": image["height"],
         "place": len(row["text"][: image["place"]].encode("utf-16-le", "surrogatepass")) // 2}
        for image in row["images"]
    ]  # fmt: skip
    return [row["sender"], row["text"], images]


def _parse_answer(line: str) -> tuple[str, str]:
    """Return the act and the talk of an input line; "" for each that is missing or not a string."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    fields = value if isinstance(value, dict) else {}
    act, talk = (fields.get(name) if isinstance(fields.get(name), str) else "" for name in ("act", "talk"))
    return to_one_line(str(act), 4000), to_one_line(str(talk).replace("|", " "), TALK_LENGTH)


def _list_facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else format_literal(value)) for name, value in facts.items()]
