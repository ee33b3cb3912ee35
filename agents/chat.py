"""The chat frame: converts conversations to token ids. No other module does.

A conversation alternates frame and content. The frame (who speaks, where a turn ends) is extracted once from the
tokenizer's chat template and is the only source of control ids. All content is encoded by a copy of the tokenizer
without added tokens. Ids are concatenated; a stream is never rendered or tokenised again.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

from tokenizers import Tokenizer

from agents.chat_images import (
    Content,
    ImageMarkup,
    ImageToken,
    as_text,
    derive_markup,
    find_images,
    prepend_text,
    strip_content,
)
from agents.chat_parts import ACKNOWLEDGED, LATER, LATER_NO_SYSTEM, MARKED, NO_SYSTEM, derive_parts, rewrites_thoughts
from agents.content_tokenizer import build_tokenizer, find_blank_tokens, strip_blueprint
from agents.errors import ChatError
from agents.tool_formats import FORMATS, Reading, ToolCall, ToolResult, read_calls, write_calls
from agents.tool_turns import ToolParts, cut_tools, render_definitions
from agents.tool_values import Definition
from games.contracts import Image


class Head(NamedTuple):
    """Token ids that a chat template puts before a content, and trailing spaces to encode with its first word."""

    ids: list[int]
    lead: str


class ChatFrame:
    """Converter between texts and token ids in the turn format of one fast tokenizer's chat template.

    `open`, `ask` and `close` return a conversation's ids piece by piece; `encode` and `decode` convert contents. If the
    template has no system turn (`parts.system`), the system text opens the first example's user turn. Without examples
    it becomes a user turn of its own, answered with `ACKNOWLEDGED`.
    """

    def __init__(self, tokenizer: Any, image: ImageToken | None = None) -> None:
        """Derive the turn format from `tokenizer.chat_template`; `image` is the placeholder of a model with vision.

        Raises ChatError for a slow tokenizer, a template that alters or reorders contents, or a missing end of turn.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ChatError("this is not a fast tokenizer (it has no tokenizer.json): convert it to one and save it")
        blueprint = strip_blueprint(json.loads(backend.to_str()))
        self._tokenizer = tokenizer
        rendered, parts = derive_parts(tokenizer, has_images=image is not None)
        self.parts = parts
        self.prints_time = not (rendered.is_same(MARKED, LATER) and rendered.is_same(NO_SYSTEM, LATER_NO_SYSTEM))
        """Whether the template prints the time, which is fixed to `agents.chat_template.CLOCK`."""
        self.rewrites_thoughts = rewrites_thoughts(parts, rendered)
        """Whether the template changes or drops thoughts in earlier replies, which the frame never does."""
        added = blueprint["added_tokens"]
        self._framing = build_tokenizer(blueprint, added, backend.model)
        blank = find_blank_tokens(added, backend)
        ids = {token["id"] for token in added if token not in blank}
        self.control_ids: frozenset[int] = frozenset(ids | set(tokenizer.all_special_ids))
        """Ids of all added and special tokens, except runs of whitespace, which some tokenizers add as text."""
        special = set(tokenizer.all_special_ids)
        plain = (token for token in added if not token["special"] and token["id"] in ids - special)
        self.tags: dict[int, str] = {token["id"]: token["content"] for token in plain}
        """Texts of added tokens that are not special. They are decoded when sampled but never encoded from content."""
        self._plain = build_tokenizer(blueprint, blank, backend.model)
        # A Unigram model encodes the text "<0x0A>" as that byte. Forbidden ids are spelled out, so only true bytes
        # become byte tokens.
        raw = backend.get_vocab() if blueprint["model"]["type"] == "Unigram" else {}
        self._forbidden_ids = self.control_ids | {raw[byte] for byte in BYTE_TOKENS if byte in raw}
        self._system, self._user = self._encode_head(parts.system_head), self._encode_head(parts.user_head)
        self.image = image
        """Placeholder of an image; None for a model without vision."""
        self._bridge, self._reply = self._encode_head(parts.system_tail), self._encode_head(parts.reply_head)
        self._prompt, self._tail = self._encode_frame(parts.prompt), self._encode_frame(parts.reply_tail)
        ends = [place for place, token in enumerate(self._tail) if token in self.control_ids]
        self._stop_at = ends[0] + 1 if ends else 0
        stop = self._tail[ends[0]] if ends else tokenizer.eos_token_id
        if stop is None:
            raise ChatError("neither chat template nor tokenizer ends a turn; set tokenizer.eos_token")
        self.stop_id: int = stop
        """Token that ends a reply in the template."""
        self.stop: str = tokenizer.convert_ids_to_tokens(stop)
        """Text of `stop_id`."""
        self.stop_ids: frozenset[int] = frozenset({stop, tokenizer.eos_token_id} - {None})
        """Ids that end a sampled reply: the template's end of turn and the end of text."""

    @cached_property
    def _image_markup(self) -> ImageMarkup:
        """Texts that the template puts around an image. Raises ChatError if the model has no vision."""
        if self.image is None:
            raise ChatError("the conversation has images, but the model has no vision")
        return derive_markup(self._tokenizer, self.parts, self.image)

    @cached_property
    def longest_token_length(self) -> int:
        """Number of characters of the vocabulary's longest token."""
        return max(map(len, self._plain.get_vocab()))

    def find_tokens_with(self, characters: str) -> frozenset[int]:
        """Return the ids of all tokens whose text contains any of these characters, without control ids."""
        ids = range(self._plain.get_vocab_size())
        texts = self._plain.decode_batch([[token] for token in ids], skip_special_tokens=False)
        found = (
            token for token, text in zip(ids, texts, strict=True) if any(character in text for character in characters)
        )
        return frozenset(found) - self.control_ids

    @property
    def vocabulary_size(self) -> int:
        """Size of the vocabulary that encodes contents, without added tokens (except whitespace)."""
        return int(self._plain.get_vocab_size())

    @property
    def is_forgeable(self) -> bool:
        """True if the text that ends a user turn has no control id (Llama 2's [/INST]), so any player can write it."""
        return self.control_ids.isdisjoint(self._prompt)

    @cached_property
    def tools(self) -> ToolParts | None:
        """The template's tool turns; None if it has none that the frame can compose."""
        return cut_tools(self._tokenizer, self.parts)

    @property
    def tool_format(self) -> str:
        """Name of the format in which this template's models write calls (`agents.tool_formats`)."""
        return self.tools.format if self.tools else "plain"

    def open(
        self,
        system: str,
        examples: Sequence[tuple[str, str]] = (),
        tools: Sequence[Definition] = (),
        keep_open: bool = False,
    ) -> list[int]:
        """Return the ids that open a conversation: the system text and the (observation, reply) examples as turns.

        The template determines the place of the definitions of `tools`. If it puts them in the first user turn, that
        is the first example's turn or, without examples, a turn of its own, answered with `ACKNOWLEDGED`. `keep_open`
        leaves the latter open instead: continue with `ask(text, opened=True)` if `opens_turn(tools, system)`. Raises
        ChatError if definitions contain control tokens.
        """
        parts, user = self.parts, self._user
        if tools and self.tools:
            return self._open_with_tools(system, examples, tools, keep_open)
        if parts.system == "turn":
            ids = self._encode_after(self._system, system) + self._encode_frame(parts.system_tail)
        elif not system and parts.system_head.endswith(parts.user_head):
            ids = self._encode_frame(parts.system_head.removesuffix(parts.user_head))
        else:
            examples = examples or [("", ACKNOWLEDGED)]
            ids = self._encode_after(self._system, system)
            user = self._bridge if examples[0][0] or parts.system == "inline" else Head([], "")
        return ids + self._encode_exchanges(user, examples)

    def opens_turn(self, tools: Sequence[Definition], system: str) -> bool:
        """Return True if tool definitions or the system text are part of the first user turn, before its text."""
        return bool(tools and self.tools) and not self._render_definitions(tools, system)[1].endswith(
            self.parts.user_head
        )

    def ask(self, content: Content, opened: bool = False) -> list[int]:
        """Return the ids of a user turn with this content, followed by the head of the assistant's reply.

        `opened` is True if `open` has already begun this turn. Images need a model with vision (`image`).
        """
        begins_with_image = bool(content) and isinstance(content[0], Image)
        user = self._encode_head(self._image_markup.user_head) if begins_with_image else self._user
        return self._encode_after(Head([], "") if opened else user, content) + self._prompt

    def answer(self, results: Sequence[ToolResult], text: Content = "") -> list[int]:
        """Return the ids of tool turns with results, of a user turn unless `text` is empty, and of a reply's head.

        If the template has no tool turns, a user turn has a line `tool: …` for each result.
        """
        parts = self.tools
        if not parts:
            lines = "\n".join(f"{result.name or 'tool'}: {result.text}" for result in results)
            return self.ask(prepend_text(f"{lines}\n", text) if text else lines)
        *around, end = parts.result
        if text and parts.user_bridge is None:
            results = [*results[:-1], replace(results[-1], text=f"{results[-1].text}\n\n{as_text(text)}")]
        ids: list[int] = []
        for place, result in enumerate(results):
            slots = {"text": parts.quote(_replace_surrogates(result.text)), "id": result.id, "name": result.name}
            heads = [around[0] if place == 0 else parts.between, *around[2::2]]
            for head, slot in zip(heads, around[1::2], strict=True):
                framed = self._encode_head(head)
                ids += framed.ids + self.encode(framed.lead + slots[slot])
        if text and parts.user_bridge is not None:
            return (
                ids
                + self._encode_after(self._encode_head(parts.user_bridge + self.parts.user_head), text)
                + self._prompt
            )
        return ids + self._encode_frame(end)

    def write_calls(self, speech: str, calls: Sequence[ToolCall]) -> list[int]:
        """Return the ids of speech and calls as this template's models write them, without the end of the turn.

        Only the format's own marks are control ids. Raises ChatError for calls that the format cannot express.
        """
        gap = self.tools.gap if self.tools and self.tools.gap is not None else "\n"
        ids = self.encode(speech + gap) if speech else []
        for mark, text in write_calls(self.tool_format, calls):
            ids += self._encode_frame(mark) + self.encode(text)
        return ids

    def read_calls(self, ids: Iterable[int], tools: Sequence[Definition] = (), first: int = 0) -> Reading:
        """Read speech and tool calls from sampled ids; never raises. See `agents.tool_formats.read_calls`."""
        return read_calls(self.tool_format, self.decode(ids, marks=True), tools, first)

    def close(self, finish: Literal["stop", "length"]) -> list[int]:
        """Return the ids that complete the turn after a sampled reply. A stopped reply already contains its stop id."""
        return self._tail[self._stop_at :] if finish == "stop" else list(self._tail)

    def encode(self, text: str) -> list[int]:
        """Return the ids of text inside a turn, never control ids. Drops text that only control ids could encode."""
        text = _replace_surrogates(text)
        encoding = self._plain.encode(text, add_special_tokens=False)
        if self._forbidden_ids.isdisjoint(encoding.ids):
            return list(encoding.ids)
        # Some vocabularies (Unigram, word-level) turn text into control tokens: encode it letter by letter there.
        ids: list[int] = []
        done = 0
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token in self._forbidden_ids and end > done:
                ids += self._encode_piece(text[done:start]) + self._encode_by_letter(text[max(start, done) : end])
                done = end
        return ids + self._encode_piece(text[done:])

    def encode_reply(self, text: str, marks: bool = False) -> list[int]:
        """Return the ids of a text to learn as the policy's own reply, with tags as tokens (the inverse of `decode`).

        With `marks`, so are the marks of tool calls.
        """
        tokens = {tag: token for token, tag in (self.tags | (self._call_marks if marks else {})).items()}
        pattern = "|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))
        parts = re.split(f"({pattern})", _replace_surrogates(text)) if tokens else [text]
        return [token for part in parts for token in ([tokens[part]] if part in tokens else self.encode(part))]

    def encode_document(self, text: str) -> list[int]:
        """Return the ids of a plain text to learn, between the tokens that begin and end a text outside a chat."""
        end = self.stop_id if self._tokenizer.eos_token_id is None else self._tokenizer.eos_token_id
        return [*(token for token in self._tokenizer("")["input_ids"] if token != end), *self.encode(text), end]

    def decode(self, ids: Iterable[int], marks: bool = False) -> str:
        """Return the text of sampled ids. Control ids are dropped, and broken UTF-8 becomes U+FFFD.

        Added tokens that are not special, such as <think> in some models, become their text. With `marks`, so do the
        marks of tool calls, special or not.
        """
        tags = self.tags | self._call_marks if marks else self.tags
        visible = (token for token in ids if token in tags or token not in self.control_ids)
        pieces = (
            [tags[token] for token in run] if tagged else [self._plain.decode([*run], skip_special_tokens=False)]
            for tagged, run in groupby(visible, tags.__contains__)
        )
        return "".join(text for piece in pieces for text in piece)

    def has_ids(self, ids: Iterable[int]) -> bool:
        """Return True if all ids are in the vocabulary, including control ids. An edited log may contain others."""
        return all(token >= 0 and self._framing.id_to_token(token) is not None for token in ids)

    @cached_property
    def _call_marks(self) -> dict[int, str]:
        """Text of each control token that marks tool calls in this template's format, by id."""
        ids = {mark: self._framing.token_to_id(mark) for mark in FORMATS[self.tool_format].marks}
        return {token: mark for mark, token in ids.items() if token in self.control_ids}

    def _open_with_tools(
        self, system: str, examples: Sequence[tuple[str, str]], tools: Sequence[Definition], keep_open: bool
    ) -> list[int]:
        before, between = self._render_definitions(tools, system)
        in_user_turn = not between.endswith(self.parts.user_head)
        first = self._encode_head(between) if in_user_turn else self._user
        ids = self._encode_after(self._encode_head(before), system)
        if not in_user_turn:
            ids += self._encode_frame(between.removesuffix(self.parts.user_head))
        elif keep_open and not examples:
            return ids + self._encode_frame(between)
        return ids + self._encode_exchanges(first, examples or ([("", ACKNOWLEDGED)] if in_user_turn else []))

    def _render_definitions(self, tools: Sequence[Definition], system: str) -> tuple[str, str]:
        """Return the template's texts before and after the system text, including these tool definitions.

        Raises ChatError if a definition contains a control token or cannot be printed.
        """
        plain = json.loads(_replace_surrogates(json.dumps(list(tools), ensure_ascii=False)))
        for text in _find_texts(plain):
            if not self.control_ids.isdisjoint(self._encode_frame(text)):
                raise ChatError(f"the definition of a tool contains a control token: {text[:80]!r}")
        return render_definitions(self._tokenizer, self.parts, plain, bool(system))

    def _encode_exchanges(self, user: Head, examples: Sequence[tuple[str, str]]) -> list[int]:
        """Return the ids of (observation, reply) turns; `user` is the head of the first user turn."""
        ids: list[int] = []
        for observation, reply in examples:
            ids += self._encode_after(user, observation) + self._encode_after(self._reply, reply) + self._tail
            user = self._user
        return ids

    def _encode_piece(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return list(ids) if self._forbidden_ids.isdisjoint(ids) else self._encode_by_letter(text)

    def _encode_by_letter(self, text: str) -> list[int]:
        letters = (self._plain.encode(letter, add_special_tokens=False).ids for letter in text)
        return [token for ids in letters for token in ids if token not in self.control_ids]

    def _encode_after(self, head: Head, content: Content) -> list[int]:
        if self.parts.trims:
            content = strip_content(content, bool(find_images(content)) and self._image_markup.trims)
        ids, lead = list(head.ids), head.lead
        for part in [content] if isinstance(content, str) else content:
            encoded = (
                self.encode(lead) + self._encode_image(part) if isinstance(part, Image) else self.encode(lead + part)
            )
            ids, lead = ids + encoded, ""
        return ids

    def _encode_image(self, image: Image) -> list[int]:
        """Return the placeholder ids of an image, with the ids that the template and the processor put around them."""
        token, markup = self.image, self._image_markup
        ids = [token.id] * token.fit_image(image).tokens if token else []
        return self._encode_frame(markup.before) + ids + self._encode_frame(markup.after)

    def _encode_head(self, text: str) -> Head:
        frame = text.rstrip(" ")
        return Head(self._encode_frame(frame), text[len(frame) :])

    def _encode_frame(self, text: str) -> list[int]:
        return list(self._framing.encode(text, add_special_tokens=False).ids)


def _find_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, including keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _find_texts(part)


def _replace_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def fingerprint(tokenizer: Any, frame: ChatFrame) -> str:
    """Return a text that identifies a tokenizer and its turn format: equal texts produce the same tokens."""
    return f"{tokenizer.backend_tokenizer.to_str()}{frame.parts}{sorted(frame.stop_ids)}"
