"""Views and acts with texts that a log can hold, so that what is played is what is logged.

Lone surrogates, which no UTF-8 file holds, become U+FFFD before a game or a player reads them.
"""

from arena.plain import clean_text
from games.contracts import Act, Game, Message, View


def view_of(game: Game, seat: str, turn: int = 0) -> View:
    """Return the game's view for a seat that is to move, with messages as the log keeps them."""
    view = View.of(game, seat, turn)
    if all(text.isascii() for said in view.messages for text in (said.sender, *said.parts) if isinstance(text, str)):
        return view
    return view._replace(messages=tuple(_clean_message(said) for said in view.messages))


def clean_act(act: Act) -> Act:
    """Return the act with texts as the log keeps them."""
    texts = act.action, act.raw, act.public, act.private
    if all(text.isascii() for text in texts):
        return act
    action, raw, public, private = map(clean_text, texts)
    return act._replace(action=action, raw=raw, public=public, private=private)


def _clean_message(message: Message) -> Message:
    parts = tuple(clean_text(part) if isinstance(part, str) else part for part in message.parts)
    return Message(clean_text(message.sender), parts)
