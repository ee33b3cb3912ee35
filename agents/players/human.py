"""Player for a person at the terminal. Texts of others are printed as plain text, never as markup or escapes."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.columns import Columns
from rich.console import Console
from rich.text import Text

from agents.facts import format_literal
from agents.reply import remove_invisible, to_one_line
from agents.stream import Stream
from games.abilities import Pictures, PlainWords
from games.contracts import REFEREE, Act, Game, Message, View
from games.names import nearest

MAX_SHOWN = 40
"""Maximum number of acts that are listed each turn."""
MAX_LISTED = 1000
"""Maximum number of acts that `?` lists."""
TALK_LENGTH = 400
"""Maximum number of characters of talk."""
MAX_IMAGE_BYTES = 2_900_000
"""Maximum bytes of an image, which must fit into a line of the page's child process."""
SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}
HELP = "Type an act or its number. Talk may follow after |, as in `1 | good luck`. ? lists all acts; Ctrl-D leaves."
PLAIN_HELP = "? says it all again and lists all acts; Ctrl-D leaves."
QUOTES = dict.fromkeys(map(ord, '"“”„‟«»＂'), "'")
"""Characters that could end a quotation early, each with its replacement."""


class HumanLeft(Exception):
    """Raised if the person stops playing."""


class Human:
    """Player at the terminal, who is shown a seat's view and asked until the answer is a legal act.

    If the game describes itself in words (`teller`), the words replace the facts and the numbered list of acts.
    """

    def __init__(self, console: Console, teller: PlainWords | None = None, game: Game | None = None) -> None:
        """Create the player. With the match's `game`, other wordings of acts are accepted if the game accepts them."""
        self.console, self.teller, self.game = console, teller, game
        self.streams: list[Stream] = []
        self.stream_keys: list[str] = []
        self.version = 0
        self._has_begun = False
        self._folder: Path | None = None
        """Folder of the images that were shown."""

    def pictures(self, messages: Sequence[Message]) -> dict[str, bytes]:
        """Return the bytes of the messages' images by hash. Leaves out large images and those that the game lacks."""
        pictures = {}
        for name in dict.fromkeys(image.hash for message in messages for image in message.images):
            with suppress(KeyError):
                data = self.game.picture(name) if isinstance(self.game, Pictures) else b""
                if 0 < len(data) <= MAX_IMAGE_BYTES and hashlib.sha256(data).hexdigest() == name:
                    pictures[name] = data
        return pictures

    async def act(self, view: View) -> Act:
        """Show the view, ask until the answer is a legal act, and return it. Raises HumanLeft if the input ends."""
        if not self._has_begun:
            self._has_begun = True
            self._print(f"You are {view.seat}. {PLAIN_HELP if self.teller else HELP}", "bold")
            self._print(self.teller.introduction(view.seat) if self.teller else view.rules)
        show_messages(self.console, view.messages, self.teller)
        self._write_pictures(view.messages)
        self._print(f"\n— turn {view.turn + 1}, {view.seat} —", "bold")
        if self.teller:
            self._print(self.teller.in_words(view.seat))
        else:
            show_facts(self.console, "public", view.public)
            show_facts(self.console, "private", view.private)
            self._list_acts(view, MAX_SHOWN)
        action, talk = self._ask_for_act(view)
        reply = f"{action} | {talk}" if talk else action
        return Act(reply, reply, talk, "", "stop")

    def _write_pictures(self, messages: Sequence[Message]) -> None:
        """Write the messages' images to files in a temporary folder, and print their paths."""
        media = {image.hash: image for message in messages for image in message.images}
        for name, data in self.pictures(messages).items():
            self._folder = self._folder or Path(tempfile.mkdtemp(prefix="arena-images-"))
            path = self._folder / f"{name[:16]}.{SUFFIXES.get(media[name].media, 'bin')}"
            path.write_bytes(data)
            self._print(f"{media[name].text}: {path}", "dim")

    def _ask_for_act(self, view: View) -> tuple[str, str]:
        while True:
            try:
                line = self.console.input(Text("> ", style="bold"))
            except (EOFError, KeyboardInterrupt):
                self.console.print()
                raise HumanLeft(f"{view.seat} left the match") from None
            except UnicodeDecodeError:
                line = ""
            act_text, _, talk = line.partition("|")
            act_text, talk = to_one_line(act_text, 4000), to_one_line(talk.replace("|", " "), TALK_LENGTH)
            if act_text in ("?", "help"):
                self._print_help(view)
            elif (act := read_act(act_text, view.legal, numbered=not self.teller)) is not None:
                return act, talk
            elif act_text and self.game is not None and accepts_act(self.game, act_text):
                return act_text, talk
            else:
                self._print(
                    f"'{act_text[:80]}' is not a legal act{nearest(act_text, view.legal or ())} (? for help)", "red"
                )

    def _print_help(self, view: View) -> None:
        self._print(PLAIN_HELP if self.teller else HELP)
        self._print(self.teller.introduction(view.seat) if self.teller else view.rules)
        self._list_acts(view, MAX_LISTED)
        if self.teller:
            self._print(self.teller.in_words(view.seat))

    def _list_acts(self, view: View, max_acts: int) -> None:
        if view.legal is None:
            self._print("Write any act that the rules allow.", "dim")
            return
        numbers = {} if self.teller else _number_acts(view.legal)
        have_numbers = all(act.endswith(f" {number}") for number, act in numbers.items())
        prefixes = {} if have_numbers else {act: f"{number}. " for number, act in numbers.items()}
        labels = [prefixes.get(act, "") + remove_invisible(act) for act in view.legal[:max_acts]]
        self.console.print(Columns([Text(name) for name in labels], padding=(0, 3)))
        if len(view.legal) > max_acts:
            self._print(f"… and {len(view.legal) - max_acts} more (? lists them)", "dim")

    def _print(self, text: str, style: str = "") -> None:
        self.console.print(Text(remove_invisible(text, keep="\n"), style=style), soft_wrap=not self.console.is_terminal)


def read_act(text: str, legal: tuple[str, ...] | None, numbered: bool = True) -> str | None:
    """Return the legal act with this text or number, else None. If `legal` is None, any text except "" is an act."""
    if legal is None:
        return text or None
    by_name = {_fold(act): act for act in legal}
    if _fold(text) in by_name:
        return by_name[_fold(text)]
    return _number_acts(legal).get(text) if numbered else None


def accepts_act(game: Game, act: str) -> bool:
    """Return True if the game would accept this text as an act of the seat to move. The game is unchanged."""
    try:
        trial = game.clone()
        seat = trial.agent_selection
        trial.step(act)
        return bool(trial.infos[seat].get("valid"))
    except Exception:  # noqa: BLE001 a user's game may raise anything; the person is asked again
        return False


def show_messages(console: Console, messages: tuple[Message, ...], teller: PlainWords | None = None) -> None:
    """Print messages with their senders. With `teller`, describes the acts of other seats in words."""
    for message in messages:
        words = in_words(message, teller) if teller else None
        line = words or Text.assemble((f"{remove_invisible(message.sender)}: ", "cyan"), remove_invisible(message.text))
        console.print(line, soft_wrap=not (words and console.is_terminal))


def in_words(message: Message, teller: PlainWords) -> Text | None:
    """Describe another seat's talk and act, such as `They: "Deal?" They want 2 hats.`

    Returns None for the referee's messages, and for acts that the game does not describe.
    """
    act, _, talk = message.text.partition("|")
    description = teller.act_in_words(act) if message.sender != REFEREE else ""
    if not description:
        return None
    remark = to_one_line(talk, TALK_LENGTH).translate(QUOTES)
    if not remark:
        return Text(remove_invisible(description))
    return Text.assemble(("They: ", "cyan"), (f'"{remark}"', "italic"), f" {remove_invisible(description)}")


def show_facts(console: Console, scope: str, facts: Mapping[str, Any]) -> None:
    """Print facts under the names that they have in role templates. Multi-line texts start below the name."""
    for name, value in facts.items():
        if isinstance(value, str) and "\n" in value:
            head, text = f"{scope}.{name}:\n", value
        else:
            head, text = f"{scope}.{name} = ", format_literal(value)
        console.print(Text.assemble((head, "dim"), remove_invisible(text, keep="\n")), soft_wrap=True)


def _number_acts(legal: tuple[str, ...]) -> dict[str, str]:
    """Return the legal acts by the number to type: an act's own number, as in PLAY 3, or else its position.

    Returns {} if some acts are numbers themselves.
    """
    if any(act.isdigit() for act in legal):
        return {}
    words = [act.rpartition(" ") for act in legal]
    own = {number: act for (_, _, number), act in zip(words, legal, strict=True) if number.isdigit()}
    if len(own) == len(legal) and len({before for before, _, _ in words}) == 1:
        return own
    return {str(place): act for place, act in enumerate(legal, 1)}


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()
