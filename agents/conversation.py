"""A seat's observations and replies as chat messages."""

from base64 import b64encode
from collections.abc import Sequence
from itertools import chain
from typing import Any

from agents.chat import ChatFrame
from agents.chat_images import Content, keep_newest
from agents.chat_parts import ACKNOWLEDGED
from agents.errors import RoleError
from agents.image_parts import inspect_image
from agents.memory import plan_restart
from agents.pending_calls import PendingCalls
from agents.role import Role
from agents.stream import ImageReader
from agents.tool_formats import read_calls
from agents.tool_turns import make_reply_message, make_result_message
from agents.tool_values import Definition
from games.contracts import ContentPart, View

Chat = list[dict[str, Any]]
"""Messages with `role` (system, user, assistant or tool) and `content`; with native tools as in OpenAI's API."""


class Conversation:
    """Chat history of one seat in one match, built according to the role's memory and history settings.

    Call `ask` with each view and `record_reply` with the reply. The role's examples look like earlier exchanges. The
    caller decides when to write a summary (`ask_summary`); afterwards the conversation restarts from it. With a `frame`
    and the reply format `native`, tool calls and results are separate messages.
    """

    def __init__(self, role: Role, frame: ChatFrame | None = None, picture: ImageReader | None = None) -> None:
        """Begin a conversation. `picture` returns an image's bytes by hash; without it, images are placeholder texts.

        Raises RoleError if the role limits images by tokens, whose number an endpoint does not report.
        """
        if picture and role.images and role.images.tokens is not None:
            raise RoleError(
                f"role {role.role}: images.tokens: an endpoint does not report them: limit images by `keep`"
            )
        self.role, self._picture = role, picture
        self._frame = frame if frame and role.reply.format == "native" and frame.tools else None
        self._calls = PendingCalls()
        self._opening: Chat | None = None
        self._history: list[Chat] = []
        """Messages of each exchange: the request, then the reply."""
        self._begun = 0
        """Index of the first exchange in the chat; memory `window` drops earlier ones."""
        self._request: Chat = []
        """Messages of the last request, which `record_reply` adds to the history."""
        self._tools: Sequence[Definition] = ()
        self._summed_up = False
        """Whether the last exchange is a summary."""

    @property
    def has_replies(self) -> bool:
        """Whether the seat has replied already."""
        return bool(self._history)

    @property
    def is_native(self) -> bool:
        """True if tool calls and results are separate messages."""
        return self._frame is not None

    def ask(self, view: View) -> Chat:
        """Return the chat messages that ask for a reply to `view`, the seat's new observation.

        Call `record_reply` next. Drops earlier exchanges as the role's memory requires. Raises RoleError if rendering
        fails.
        """
        exchanges = len(self._history)
        remembered = 1 if self._summed_up else plan_restart(self.role.memory, exchanges)
        self._summed_up = False
        is_first = self._opening is None or remembered is not None
        if self._opening is None or remembered is not None:
            self._opening = self._render_opening(view, alone=not remembered)
            self._begun = exchanges - (remembered or 0)
        self._request, self._tools = self._render_observation(view, is_first), view.tools
        return self._with_images([*self._opening, *self._list_remembered(), *self._request])

    def ask_summary(self) -> Chat:
        """Return the chat messages that ask the seat for a summary of its conversation. Call `record_reply` next."""
        self._request, self._summed_up = [{"role": "user", "content": self.role.memory.ask}], True
        return self._with_images([*(self._opening or []), *self._list_remembered(), *self._request])

    def record_reply(self, text: str) -> None:
        """Append the last request and this reply to the history, without the private field if the role strips it."""
        strip = self.role.history == "strip"
        kept_text = self.role.reply.without_private(text) if strip else text
        self._history.append([*self._request, self.reply(kept_text)])
        if self._frame:
            self._calls.record(read_calls(self._frame.tool_format, text, self._tools, self._calls.count).calls)

    def reply(self, text: str) -> dict[str, Any]:
        """Return a reply to the last request as a message; `record_reply` appends it to the history."""
        if self._frame and self._frame.tools:
            return make_reply_message(self._frame.tools, text, self._tools, self._calls.count)
        return {"role": "assistant", "content": text}

    def _with_images(self, chat: Chat) -> Chat:
        """Return the messages in OpenAI's format, with the images that the role's image memory keeps as data URLs."""
        if self._picture is None:
            return chat
        contents: list[Content] = [message["content"] for message in chat]
        keep = self.role.images.keep if self.role.images else None
        contents = contents if keep is None else keep_newest(contents, keep)
        return [
            {**message, "content": content if isinstance(content, str) else _encode_parts(content, self._picture)}
            for message, content in zip(chat, contents, strict=True)
        ]

    def _list_remembered(self) -> Chat:
        return [*chain.from_iterable(self._history[self._begun :])]

    def _render_observation(self, view: View, is_first: bool) -> Chat:
        if self._frame is None:
            render = self.role.render_parts if self._picture else self.role.render_turn
            return [{"role": "user", "content": render(view, is_first)}]
        results, rest = self._calls.split(view)
        text = self.role.render_turn(rest, first=is_first)
        if text and results and self._frame.tools and self._frame.tools.user_bridge is None:
            raise ValueError("the chat template has no user turn after a tool's result")
        return [
            *map(make_result_message, results),
            *([{"role": "user", "content": text}] if text or not results else []),
        ]

    def _render_opening(self, view: View, alone: bool) -> Chat:
        """Return messages with the system text and the examples. `alone`: no earlier exchange follows them.

        Without examples, a template with tool definitions in the first user turn may need an acknowledged empty turn.
        """
        system = self.role.render_system(view)
        opening = [{"role": "system", "content": system}] if system else []
        examples = [(example.see, example.say) for example in self.role.examples]
        if self._frame and not examples and self._frame.opens_turn(view.tools, system):
            examples = [] if alone and not self._calls.split(view)[0] else [("", ACKNOWLEDGED)]
        return opening + _make_exchanges(examples)


def _encode_parts(content: Sequence[ContentPart], picture: ImageReader) -> Chat:
    """Return texts and images as parts of an OpenAI message. Raises ValueError for an image that is not accepted."""
    parts: Chat = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
            continue
        data = picture(part.hash)
        url = f"data:{inspect_image(data).media};base64,{b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _make_exchanges(exchanges: Sequence[tuple[str, str]]) -> Chat:
    pairs = (({"role": "user", "content": user}, {"role": "assistant", "content": reply}) for user, reply in exchanges)
    return [message for pair in pairs for message in pair]
