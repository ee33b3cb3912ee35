"""The chat frame: the only owner of tokenisation.

A conversation alternates frame and content. The frame (who speaks, where a turn ends) is cut once out of the
tokenizer's chat template and is the only source of control ids. Content of any origin is encoded by a copy of the
tokenizer without added tokens. Ids are concatenated; a stream is never rendered or tokenised again.
"""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, NamedTuple

from tokenizers import AddedToken, Tokenizer

from agents.chat_template import CLOCK, Chat, Refused, Rendered
from agents.errors import ChatError


class Parts(NamedTuple):
    """Texts that a chat template puts around a conversation's contents, and its treatment of system text and blanks."""

    system_head: str
    system_tail: str
    user_head: str
    reply_head: str
    """Text between a user's text and a past reply."""
    prompt: str
    """Text between the last user's text and the reply to sample."""
    reply_tail: str
    system: Literal["turn", "inline", "none"]
    """Place of the system text: its own turn, part of the first user turn, or not supported by the template."""
    trims: bool
    """Whether the template strips contents."""
    user_tail: str
    """Text after the last user's text if no reply is requested."""
    default: str
    """Text before the first user's head without a system text."""


class Head(NamedTuple):
    """Token ids that a chat template puts before a content, and trailing blanks to encode with its first word."""

    ids: list[int]
    lead: str


class ChatFrame:
    """Converts between texts and token ids in the turn format of one fast tokenizer's chat template.

    `open`, `ask` and `close` return a conversation's ids piece by piece; `encode` and `decode` convert contents. If the
    template has no system turn (`parts.system`), the system text opens the first example's user turn. Without examples
    it becomes a user turn of its own, answered with `ACKNOWLEDGED`.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Derive the turn format from `tokenizer.chat_template`.

        Raises ChatError for a slow tokenizer, a template that alters or reorders contents, or a missing end of turn.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ChatError("this tokenizer is no fast one (no tokenizer.json); convert and save it as one")
        blueprint = _bare(json.loads(backend.to_str()))
        rendered = Rendered(tokenizer, CHATS)
        self.parts = parts = _cut(rendered)
        self.prints_time = not (rendered.same(MARKED, LATER) and rendered.same(UNLED, LATER_UNLED))
        """Whether the template prints the time, which is fixed to `agents.chat_template.CLOCK`."""
        self.rewrites_thoughts = _rewrites_thoughts(parts, rendered)
        """Whether the template, unlike the frame, changes or drops thoughts in earlier replies."""
        added = blueprint["added_tokens"]
        self._framing = _build_tokenizer(blueprint, added, backend.model)
        blank = _blanks(added, backend)
        ids = {token["id"] for token in added if token not in blank}
        self.control_ids: frozenset[int] = frozenset(ids | set(tokenizer.all_special_ids))
        """Ids of all added and special tokens, except runs of blanks, which some tokenizers add as text."""
        special = set(tokenizer.all_special_ids)
        plain = (token for token in added if not token["special"] and token["id"] in ids - special)
        self.tags: dict[int, str] = {token["id"]: token["content"] for token in plain}
        """Texts of added tokens that are not special. They are decoded when sampled but never encoded from content."""
        self._plain = _build_tokenizer(blueprint, blank, backend.model)
        # A Unigram model reads the text "<0x0A>" as the byte: spelled out, only true bytes come from it.
        raw = backend.get_vocab() if blueprint["model"]["type"] == "Unigram" else {}
        self._unspeakable = self.control_ids | {raw[byte] for byte in BYTES if byte in raw}
        self._system, self._user = self._head(parts.system_head), self._head(parts.user_head)
        self._bridge, self._reply = self._head(parts.system_tail), self._head(parts.reply_head)
        self._prompt, self._tail = self._frame(parts.prompt), self._frame(parts.reply_tail)
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
    def longest_token(self) -> int:
        """Number of characters of the vocabulary's longest token."""
        return max(map(len, self._plain.get_vocab()))

    def with_letters(self, letters: str) -> frozenset[int]:
        """Return the ids of all tokens whose text contains at least one of these letters, without control ids."""
        ids = range(self._plain.get_vocab_size())
        texts = self._plain.decode_batch([[token] for token in ids], skip_special_tokens=False)
        wanted = set(letters)
        found = (token for token, text in zip(ids, texts, strict=True) if not wanted.isdisjoint(text))
        return frozenset(found) - self.control_ids

    @property
    def vocabulary(self) -> int:
        """Size of the vocabulary that encodes contents, without added tokens (except blanks)."""
        return int(self._plain.get_vocab_size())

    @property
    def forgeable(self) -> bool:
        """True if the text that ends a user turn has no control id (Llama 2's [/INST]), so any player can write it."""
        return self.control_ids.isdisjoint(self._prompt)

    def open(self, system: str, examples: Sequence[tuple[str, str]] = ()) -> list[int]:
        """Return the ids that open a conversation: the system text and the (observation, reply) examples as turns."""
        parts, user = self.parts, self._user
        if parts.system == "turn":
            ids = self._after(self._system, system) + self._frame(parts.system_tail)
        elif not system and parts.system_head.endswith(parts.user_head):
            ids = self._frame(parts.system_head.removesuffix(parts.user_head))
        else:
            examples = examples or [("", ACKNOWLEDGED)]
            ids = self._after(self._system, system)
            user = self._bridge if examples[0][0] or parts.system == "inline" else Head([], "")
        for see, say in examples:
            ids += self._after(user, see) + self._after(self._reply, say) + self._tail
            user = self._user
        return ids

    def ask(self, text: str) -> list[int]:
        """Return the ids of a user turn with this text, followed by the head of the assistant's reply."""
        return self._after(self._user, text) + self._prompt

    def close(self, finish: Literal["stop", "length"]) -> list[int]:
        """Return the ids that complete the turn after a sampled reply; a stopped one already contains its stop id."""
        return self._tail[self._stop_at :] if finish == "stop" else list(self._tail)

    def encode(self, text: str) -> list[int]:
        """Return the ids of text inside a turn, never control ids; text that only these could encode is left out."""
        text = _without_surrogates(text)
        encoding = self._plain.encode(text, add_special_tokens=False)
        if self._unspeakable.isdisjoint(encoding.ids):
            return list(encoding.ids)
        # Some vocabularies (Unigram, word-level) spell control tokens themselves: take those places apart.
        ids: list[int] = []
        done = 0
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token in self._unspeakable and end > done:
                ids += self._piece(text[done:start]) + self._spelled(text[max(start, done) : end])
                done = end
        return ids + self._piece(text[done:])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of sampled ids. Control ids are dropped, and broken UTF-8 becomes U+FFFD.

        Added tokens that are not special, such as <think> in some models, become their text.
        """
        kept = (token for token in ids if token in self.tags or token not in self.control_ids)
        pieces = (
            [self.tags[token] for token in run] if tagged else [self._plain.decode([*run], skip_special_tokens=False)]
            for tagged, run in groupby(kept, self.tags.__contains__)
        )
        return "".join(text for piece in pieces for text in piece)

    def knows(self, ids: Iterable[int]) -> bool:
        """Return True if all ids exist in the vocabulary, control ids included; an edited log may contain others."""
        return all(token >= 0 and self._framing.id_to_token(token) is not None for token in ids)

    def _piece(self, text: str) -> list[int]:
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return list(ids) if self._unspeakable.isdisjoint(ids) else self._spelled(text)

    def _spelled(self, text: str) -> list[int]:
        letters = (self._plain.encode(letter, add_special_tokens=False).ids for letter in text)
        return [token for ids in letters for token in ids if token not in self.control_ids]

    def _after(self, head: Head, text: str) -> list[int]:
        return head.ids + self.encode(head.lead + (text.strip() if self.parts.trims else text))

    def _head(self, text: str) -> Head:
        frame = text.rstrip(" ")
        return Head(self._frame(frame), text[len(frame) :])

    def _frame(self, text: str) -> list[int]:
        return list(self._framing.encode(text, add_special_tokens=False).ids)


def _without_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
STAGES = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def _bare(blueprint: dict[str, Any]) -> dict[str, Any]:
    """Change a parsed tokenizer.json to add no prefix blank, template, truncation or padding; return a copy."""
    for stage, parts in STAGES.items():
        node = blueprint.get(stage)
        steps = [] if node is None else node[parts] if node["type"] == "Sequence" else [node]
        kept = [_unprefixed(step) for step in steps if step["type"] not in ("Prepend", "Strip")]
        blueprint[stage] = {"type": "Sequence", parts: kept} if kept else None
    return blueprint | {"post_processor": None, "truncation": None, "padding": None}


def _unprefixed(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] == "Metaspace":
        return step | {"prepend_scheme": "never"}
    return step | {"add_prefix_space": False} if step["type"] == "ByteLevel" else step


def _build_tokenizer(blueprint: dict[str, Any], added: Sequence[dict[str, Any]], model: Any) -> Tokenizer:
    """Return a tokenizer with the steps of a parsed tokenizer.json, these added tokens only, and an existing model."""
    nothing = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    tokenizer = Tokenizer.from_str(json.dumps(blueprint | {"model": nothing, "added_tokens": []}))
    tokenizer.model = model
    for token in added:
        add = tokenizer.add_special_tokens if token["special"] else tokenizer.add_tokens
        add([AddedToken(**{name: value for name, value in token.items() if name != "id"})])
    return tokenizer


def _blanks(added: Sequence[dict[str, Any]], backend: Tokenizer) -> list[dict[str, Any]]:
    """Return the added tokens that are only blanks (Gemma's newlines) and are part of the model's own vocabulary."""
    blanks = [token for token in added if token["content"].isspace() and not token["special"]]
    vocabulary = backend.get_vocab(with_added_tokens=False) if blanks else {}
    return [token for token in blanks if vocabulary.get(token["content"]) == token["id"]]


SYSTEM, USERS, REPLIES = "sYs7m", ("uSr0q", "uSr1q", "uSr2q"), ("rPl0y", "rPl1y")
ACKNOWLEDGED = "Understood."
BRIDGE = "\n\n"
"""Text between the system text and the first user text, for templates without a system role."""
PROBE = ("Be brief.", "Hello?", "Take 1, please.", "I want 2.", "No deal: 3 or nothing!", "So?")

TURNS = (USERS[0], REPLIES[0], USERS[1], REPLIES[1], USERS[2])
MARKED, UNLED = Chat((SYSTEM, *TURNS), True), Chat(TURNS, False)
ENDED, BLANK = Chat(TURNS[:2], False, prompt=False), Chat((f"\n\n{USERS[0]}\n\n",), False)
THINKING = tuple(f"<think>\nHm.\n</think>\n\n{text}" if place in (2, 4) else text for place, text in enumerate(PROBE))


def _inline(texts: Sequence[str]) -> Chat:
    return Chat((texts[0] + BRIDGE + texts[1], *texts[2:]), False)


PROBED, PROBED_INLINE = Chat(PROBE, True), _inline(PROBE)
THOUGHTFUL, THOUGHTFUL_INLINE = Chat(THINKING, True), _inline(THINKING)
ASKED = Chat(USERS[:1], False, prompt=False)
AFTER = CLOCK.replace(year=2031, month=11, day=3, hour=17, minute=42, second=9)
LATER, LATER_UNLED = MARKED._replace(clock=AFTER), UNLED._replace(clock=AFTER)
CHATS = (
    MARKED, UNLED, ENDED, BLANK, PROBED, PROBED_INLINE, THOUGHTFUL, THOUGHTFUL_INLINE, ASKED, LATER, LATER_UNLED
)  # fmt: skip


def _rewrites_thoughts(parts: Parts, rendered: Rendered) -> bool:
    try:
        text = rendered.text(THOUGHTFUL_INLINE if parts.system == "none" else THOUGHTFUL)
    except Refused:
        return True
    return text != _composed(parts, THINKING)


def _cut(rendered: Rendered) -> Parts:
    """Derive the parts of a chat template by rendering marker words, and verify them by rendering other words.

    Raises ChatError if the template refuses plain turns or changes texts by their position.
    """
    try:
        parts = _parts(rendered)
        if _composed(parts, PROBE) == rendered.text(PROBED_INLINE if parts.system == "none" else PROBED):
            return parts
    except Refused as error:
        raise ChatError(f"the chat template refuses plain turns ({error}); set a plainer one") from error
    raise ChatError("the chat template changes texts by where they stand; set a plainer chat_template")


def _parts(rendered: Rendered) -> Parts:
    system: Literal["turn", "inline", "none"] = "inline"
    try:
        pieces = _split(rendered.text(MARKED), MARKED.texts)
    except (Refused, ChatError):
        system = "none"
        pieces = _split(rendered.text(UNLED), TURNS)
        pieces.insert(1, BRIDGE)
    head, bridge, reply_head, back, *_, prompt = pieces
    # What ends a reply is what stands after it both in the middle and at the end of a conversation.
    ending = rendered.text(ENDED).split(REPLIES[0])[-1]
    shared = (index for index, pair in enumerate(zip(back, ending, strict=False)) if len(set(pair)) > 1)
    tail = back[: next(shared, min(len(back), len(ending)))]
    user_head = back.removeprefix(tail)
    if system == "inline" and bridge.endswith(user_head):
        system, bridge = "turn", bridge.removesuffix(user_head)
    trims = f"{USERS[0]}\n\n" not in rendered.text(BLANK)
    user_tail = rendered.text(ASKED).split(USERS[0])[-1]
    default = rendered.text(UNLED).split(USERS[0])[0].removesuffix(user_head)
    return Parts(head, bridge, user_head, reply_head, prompt, tail, system, trims, user_tail, default)


def _split(rendered: str, markers: Sequence[str]) -> list[str]:
    """Return the texts before, between and after the markers. Raises ChatError unless each occurs once, in order."""
    pieces, rest = [], rendered
    for marker in markers:
        if rendered.count(marker) != 1 or marker not in rest:
            raise ChatError("the chat template leaves out or moves turns; set a plainer chat_template")
        piece, rest = rest.split(marker)
        pieces.append(piece)
    return [*pieces, rest]


def _composed(parts: Parts, texts: Sequence[str]) -> str:
    """Compose system, user, assistant, …, user texts with a chat template's parts, up to the prompt for a reply."""
    head = parts.user_head if parts.system == "turn" else ""
    rendered = parts.system_head + texts[0] + parts.system_tail
    for user, reply in zip(texts[1:-1:2], texts[2:-1:2], strict=True):
        rendered += head + user + parts.reply_head + reply + parts.reply_tail
        head = parts.user_head
    return rendered + head + texts[-1] + parts.prompt


def written(tokenizer: Any, frame: ChatFrame) -> str:
    """Return a text that identifies a tokenizer and its turn format: equal texts produce the same tokens."""
    return f"{tokenizer.backend_tokenizer.to_str()}{frame.parts}{sorted(frame.stop_ids)}"
