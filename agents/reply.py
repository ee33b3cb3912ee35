"""Reply formats: split a reply into its public, game and private parts.

Parsing never raises. Each field is one line without control, bidi and other invisible characters, safe to log, show and
forward. The private part is cut out before the rest is parsed.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from games.untrusted_json import to_unique_dict

PUBLIC_LENGTH = 400
FIELD_LENGTH = 4_000
JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner, which emoji and many scripts need

TALK = " Talk may follow after |."
"""Sentence in a game's rules that allows talk."""

FieldName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")]


@dataclass(frozen=True)
class Reply:
    """Parsed reply: text for all players (`public`), act for the game (`action`) and thoughts (`private`).

    `ok` is False if the reply violates the format; `action` is then "".
    """

    public: str
    action: str
    private: str
    ok: bool

    @property
    def game_text(self) -> str:
        """Text for the game: the act, then "| " and the public part if there is one. Contains nothing private."""
        return f"{self.action} | {self.public}" if self.public else self.action


class ReplySpec(BaseModel):
    """Reply format of a role: `tagged` or `json` with named fields, or `free`, which is `ACT | talk` in one line.

    `whole` passes all lines except the private field to the game, for acts with code or tool calls. `native` is `whole`
    with the definitions, calls and results of tools in the form of the model's chat template. For an endpoint, or a
    template without tools, they are text.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)

    format: Literal["tagged", "json", "free", "whole", "native"] = "free"
    action: FieldName | None = None
    """Name of the field for the game."""
    public: FieldName | None = None
    """Name of the public field."""
    private: FieldName | None = None
    """Name of the private field."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [name for name in (self.action, self.public, self.private) if name is not None]
        if self.format == "free" and names:
            raise ValueError("format free has no fields: remove action, public and private")
        if self.is_whole and (self.action or self.public):
            raise ValueError(f"format {self.format} gives the game all but the private field: remove action and public")
        if self.format in ("tagged", "json") and self.action is None:
            raise ValueError(f"format {self.format} needs the name of its action field: add `action: act`")
        if len(set(names)) < len(names):
            raise ValueError("action, public and private must have different names")
        return self

    @property
    def is_whole(self) -> bool:
        """True if the game reads all lines except the private field."""
        return self.format in ("whole", "native")

    def parse(self, text: str, stop: Sequence[str] = ()) -> Reply:
        """Parse any text as a reply in this format; never raises. Ignores text after the first `stop` text."""
        for end in stop:
            text = text.partition(end)[0]
        match self.format:
            case "tagged":
                return self._parse_tagged(text)
            case "json":
                return self._parse_json(text)
            case "whole" | "native":
                return self._parse_whole(text)
        lines = remove_invisible(text, keep="\n").strip().split("\n")
        action, _, public = lines[0].partition("|")
        return _make_reply(action, public, "")

    def write(self, action: str, public: str = "", private: str = "") -> str:
        """Return a reply text that parses to these fields, for examples and scripted policies.

        Format `free` leaves out `private`, `whole` and `native` leave out `public`, the others leave out fields without
        a name.
        """
        if self.format == "free":
            return f"{action} | {public}" if public else action
        if self.is_whole:
            thought = f"<{self.private}>{private}</{self.private}>\n" if self.private and private else ""
            return f"{thought}{action}"
        pairs = [(self.private, private), (self.public, public), (self.action, action)]
        fields = {name: value for name, value in pairs if name is not None and value}
        if self.format == "json":
            return json.dumps(fields, ensure_ascii=False)
        return " ".join(f"<{name}>{value}</{name}>" for name, value in fields.items())

    def without_private(self, text: str) -> str:
        """Return a reply text without its private field, for the seat's own history; unchanged if it has none."""
        if self.private is None:
            return text
        if self.format == "json":
            fields = _parse_first_object(text)
            if self.private not in fields:
                return text
            return json.dumps(
                {name: value for name, value in fields.items() if name != self.private}, ensure_ascii=False
            )
        _, rest = _cut_out(text, self.private)
        return text if rest == text else rest.strip()

    def adapt_rules(self, rules: str) -> str:
        """Return a game's rules with their sentence on talk adapted to this format.

        Formats `free`, `whole` and `native` keep the bar "|"; the others name the public field, or drop the sentence
        without one.
        """
        if self.format not in ("tagged", "json"):
            return rules
        field = f"<{self.public}>…</{self.public}>" if self.format == "tagged" else f'"{self.public}"'
        return rules.replace(TALK, f" The others hear what is in {field}." if self.public else "")

    def _parse_tagged(self, text: str) -> Reply:
        private, text = _cut_out(text, self.private) if self.private else ("", text)
        public = _find_last(text, self.public) if self.public else ""
        return _make_reply(_find_last(text, str(self.action)), public, private)

    def _parse_whole(self, text: str) -> Reply:
        private, text = _cut_out(text, self.private) if self.private else ("", text)
        act = remove_invisible(text, keep="\n").strip()[:FIELD_LENGTH]
        return Reply("", act, to_one_line(private, FIELD_LENGTH), ok=bool(act))

    def _parse_json(self, text: str) -> Reply:
        fields = _parse_first_object(text)
        texts = [fields.get(name) if name else None for name in (self.action, self.public, self.private)]
        if not all(isinstance(value, str | None) for value in texts):
            return Reply("", "", "", ok=False)
        return _make_reply(*(value or "" for value in texts))


def remove_invisible(text: str, keep: str = "") -> str:
    """Remove control, bidi and other invisible characters from a text. Blanks not in `keep` become " ".

    With a line feed in `keep`, every kind of line break becomes one. Lone surrogates become U+FFFD.
    """
    if any("\ud800" <= char <= "\udfff" for char in text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if text.isascii() and text.isprintable():
        return text
    return "".join(_clean_character(char, keep) for char in text)


def to_one_line(text: str, limit: int) -> str:
    """Return the visible text in one line with single blanks, cut to `limit` characters."""
    return " ".join(remove_invisible(text).split())[:limit].rstrip()


def _clean_character(char: str, keep: str) -> str:
    if char in keep or char in JOINERS:
        return char
    if char.isspace():
        return "\n" if "\n" in keep and char in "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029" else " "
    return "" if unicodedata.category(char) in ("Cc", "Cf") else char


def _make_reply(action: str, public: str, private: str) -> Reply:
    # The game would read text after a bar in the act as talk.
    act = to_one_line(action.replace("|", " "), FIELD_LENGTH)
    return Reply(to_one_line(public, PUBLIC_LENGTH), act, to_one_line(private, FIELD_LENGTH), ok=bool(act))


def _find_last(text: str, tag: str) -> str:
    """Return the content of the last complete <tag>…</tag> in `text`, or ""."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    content, begin = "", text.find(opening)
    while begin >= 0 and (end := text.find(closing, begin)) >= 0:
        content = text[text.rfind(opening, begin, end) + len(opening) : end]
        begin = text.find(opening, end)
    return content


def _cut_out(text: str, tag: str) -> tuple[str, str]:
    """Return (content of the last complete tag, text without any such tags and their contents).

    An unclosed tag extends to the end of the text. One without an opening extends from its start, because the chat
    templates of many thinking models open the tag in the prompt.
    """
    pieces, inner, depth, begin, done = [], "", 0, 0, 0
    for number, mark in enumerate(re.finditer(f"<(/?){re.escape(tag)}>", text)):
        if number == 0 and mark[1]:
            inner, done = text[: mark.start()], mark.end()
        elif not mark[1]:
            if depth == 0:
                pieces.append(text[done : mark.start()])
                begin = mark.end()
            depth += 1
        elif depth:
            depth -= 1
            done = mark.end()
            if depth == 0:
                inner = text[begin : mark.start()]
    if depth == 0:
        pieces.append(text[done:])
    return inner, "\n".join(pieces)


def _parse_first_object(text: str) -> dict[str, Any]:
    """Parse the JSON object at the first "{"; {} if it is missing or malformed or has a duplicate key."""
    begin = text.find("{")
    try:
        decoded, _ = DECODER.raw_decode(text, begin) if begin >= 0 else ({}, 0)
    except (ValueError, RecursionError):
        return {}
    return dict(decoded)


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


# Unlike `games.untrusted_json.DECODER`, strict: a line break in a string is a violation of the format.
DECODER = json.JSONDecoder(object_pairs_hook=to_unique_dict, parse_constant=_reject_constant)
