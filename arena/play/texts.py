"""Clean-up of texts before games and players read them, so that the log has exactly the texts that they read.

Lone surrogates, which UTF-8 and thus the log cannot encode, become U+FFFD.
"""

from arena.plain import clean_text
from games.contracts import Act, Game, Message, View


def view_of(game: Game, seat: str, turn: int = 0) -> View:
    """Return the game's view for the seat to move at this turn, with lone surrogates replaced in its messages."""
    view = View.of(game, seat, turn)
    if all(
        text.isascii()
        for message in view.messages
        for text in (message.sender, *message.parts)
        if isinstance(text, str)
    ):
        return view
    return view._replace(messages=tuple(_clean_message(message) for message in view.messages))


def clean_act(act: Act) -> Act:
    """Return the act with each lone surrogate in its texts replaced by U+FFFD."""
    texts = act.action, act.raw, act.public, act.private
    if all(text.isascii() for text in texts):
        return act
    action, raw, public, private = map(clean_text, texts)
    return act._replace(action=action, raw=raw, public=public, private=private)


def _clean_message(message: Message) -> Message:
    parts = tuple(clean_text(part) if isinstance(part, str) else part for part in message.parts)
    return Message(clean_text(message.sender), parts)


def normalise_act(act: str) -> str:
    """Return an act without talk, with single blanks and folded case, to compare acts."""
    return " ".join(act.partition("|")[0].split()).casefold()
