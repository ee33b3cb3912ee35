"""Pair a seat's tool calls with their results, for roles with the reply format `native`."""

from collections.abc import Sequence

from agents.role import shorten_message
from agents.tool_formats import ToolCall, ToolResult, make_call_id
from games.contracts import TOOL, Image, View


class PendingCalls:
    """Tool calls of a seat's last reply that await results. `count` is the number of calls in the match so far."""

    def __init__(self) -> None:
        self.count = 0
        self._last: tuple[ToolCall, ...] = ()

    def record(self, calls: Sequence[ToolCall]) -> None:
        """Replace the pending calls by those of a new reply."""
        self._last = tuple(calls)
        self.count += len(calls)

    def split(self, view: View) -> tuple[list[ToolResult], View]:
        """Return the results among a view's messages, and the view without them.

        Results belong to the pending calls in their order. Further results answer acts that were not calls in the
        model's own format; they get a new id.
        """
        texts = [shorten_message(message.text) for message in view.messages if message.sender == TOOL]
        results = [ToolResult(call.id, text, call.name) for call, text in zip(self._last, texts, strict=False)] + [
            ToolResult(make_call_id(self.count), text, TOOL) for text in texts[len(self._last) :]
        ]
        rest = tuple(message for message in view.messages if message.sender != TOOL)
        return results, view._replace(messages=rest)


def find_result_images(view: View) -> tuple[Image, ...]:
    """Return the images among a view's results of tools, in order."""
    return tuple(image for message in view.messages if message.sender == TOOL for image in message.images)
