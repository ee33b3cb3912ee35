"""A seat's observations and replies as chat messages."""

from collections.abc import Sequence

from agents.memory import plan
from agents.role import Role
from games.contracts import View

Chat = list[dict[str, str]]
"""Messages with `role` (system, user or assistant) and `content`."""


class Conversation:
    """Chat history of one seat in one match, built according to the role's memory and history settings.

    Call `ask` with each view and `said` with the reply. Examples are exchanges like any others. The caller decides when
    to write a summary (`ask_summary`); afterwards the conversation restarts from it.
    """

    def __init__(self, role: Role) -> None:
        self.role = role
        self._opening: Chat | None = None
        self._history: Chat = []
        """Two messages per exchange. Views of the history share this list."""
        self._begun = 0
        """Index of the first exchange in the chat; memory `window` drops earlier ones."""
        self._see = ""
        self._summed_up = False
        """Whether the last exchange is a summary."""

    @property
    def has_replies(self) -> bool:
        """Whether the seat has replied already."""
        return bool(self._history)

    def ask(self, view: View) -> Chat:
        """Return the chat messages that ask for a reply to `view`, the seat's present observation. Call `said` next.

        Drops earlier exchanges as the role's memory requires. Raises RoleError if rendering fails.
        """
        taken = len(self._history) // 2
        kept = 1 if self._summed_up else plan(self.role.memory, taken)
        self._summed_up = False
        fresh = self._opening is None or kept is not None
        if self._opening is None or kept is not None:
            self._opening, self._begun = self._opened(view), taken - (kept or 0)
        self._see = self.role.render_turn(view, first=fresh)
        return [*self._opening, *self._history[2 * self._begun :], {"role": "user", "content": self._see}]

    def ask_summary(self) -> Chat:
        """Return the chat messages that ask the seat for a summary of its conversation so far. Call `said` next."""
        self._see, self._summed_up = self.role.memory.ask, True
        return [*(self._opening or []), *self._history[2 * self._begun :], {"role": "user", "content": self._see}]

    def said(self, text: str) -> None:
        """Append the last request and this reply to the history, without the private field if the role strips it."""
        strip = self.role.history == "strip"
        self._history += _chat([(self._see, self.role.reply.without_private(text) if strip else text)])

    def _opened(self, view: View) -> Chat:
        system = self.role.render_system(view)
        opening = [{"role": "system", "content": system}] if system else []
        return opening + _chat([(example.see, example.say) for example in self.role.examples])


def _chat(exchanges: Sequence[tuple[str, str]]) -> Chat:
    pairs = (({"role": "user", "content": see}, {"role": "assistant", "content": say}) for see, say in exchanges)
    return [message for pair in pairs for message in pair]
