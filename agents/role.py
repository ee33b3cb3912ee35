"""Roles: YAML files with a seat's prompt templates, reply format, sampling and memory.

The system text opens every match and should be the same in all of them, so that they share its tokens. Facts of one
match belong in the turn, under `{% if first %}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import count
from os.path import isdir
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from agents import strict_yaml
from agents.chat_images import Content
from agents.errors import RoleError
from agents.memory import ImageMemory, Memory
from agents.patterns import Pattern
from agents.reply import TALK, Reply, ReplySpec, remove_invisible
from agents.templates import MAX_TEXT, BadTemplate, compile_template, render_template
from games.contracts import ContentPart, Image, View
from games.names import nearest

BUILT_IN = Path(__file__).parent / "roles"
MESSAGE_LENGTH = 4_000
MIN_TEMPERATURE = 0.01
"""Lowest sampling temperature other than 0 (greedy). Logits divided by a much lower one would overflow."""
SYSTEM_VARIABLES = ("persona", "rules", "talk", "seat", "public", "private")
TURN_VARIABLES = (*SYSTEM_VARIABLES, "messages", "turn_number", "legal", "first")
DEFAULT_TURN = "{% for m in messages %}\n{{ m.sender }}: {{ m.text }}\n{% endfor %}"

SELECTIONS = ("cautious", "votes", "search")
"""Settings of `sampling` that select among several samples."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
OR_NULL: dict[str, JsonValue] = {"type": ["number", "null"]}


class Part(BaseModel):
    """Base model of a role file's sections: unknown keys and wrong types are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class Example(Part):
    """Example turn: an observation and the reply to it."""

    see: Text
    say: Text


class Cautious(Part):
    """Settings of cautious next-token sampling (`agents.players.cautious`): several trials at uncertain tokens."""

    most: Annotated[int, Field(ge=2, le=1_000)] = 40
    """Number of trials at maximum uncertainty."""
    low: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """Entropy in nats up to which there is a single trial."""
    high: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.5
    """Entropy in nats from which there are `most` trials."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low, {self.low:g}, must be less than high, {self.high:g}")
        return self


class Votes(Part):
    """Settings of self-consistency (`agents.players.voting`): a majority vote over several sampled replies."""

    samples: Annotated[int, Field(ge=2, le=1_000)] = 8
    """Number of replies sampled for each turn."""
    pattern: str | None = None
    """Regular expression whose last match in the game's text is the final act (its first group, if any); null is the
    full game text without talk."""

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            Pattern(pattern)
        return pattern


class Search(Part):
    """Settings of a search for a successful match (`arena.play.best_first`) in games that hide nothing."""

    order: Literal["best_first", "sample"] = "best_first"
    """`best_first` expands the likeliest path; `sample` plays whole matches, `width` at a time."""
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Number of replies sampled in a match."""
    width: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Number of replies sampled at each expanded state; for `sample` the number of concurrent matches."""
    alpha: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.0
    """A path's log-probability is divided by its depth to this power: 0 is plain, 1 normalises by depth."""


class Sampling(Part):
    """Sampling settings of a role's replies: temperature, truncation, length, and selection among several samples."""

    temperature: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False, json_schema_extra=OR_NULL)] = 1.0
    """0 (greedy), or 0.01 to 10. Unset or null: 1, or an endpoint's own default."""
    top_p: Annotated[float, Field(gt=0, le=1, json_schema_extra=OR_NULL)] = 1.0
    """Unset or null: 1, or an endpoint's own default."""
    top_k: Annotated[int, Field(ge=0, le=10**6)] = 0
    """0 keeps the full vocabulary."""
    max_tokens: Annotated[int, Field(ge=1, le=100_000)] = 64
    truncated: Literal["excused", "illegal"] = "illegal"
    """Handling of a reply that is cut at `max_tokens` and has no legal act: `illegal` penalises and learns it like any
    illegal act; `excused` waives the game's penalty and masks the reply in the loss."""
    stop: list[Annotated[str, Field(min_length=1)]] = []
    """A reply ends before the first of these texts."""
    cautious: Cautious | None = None
    """For frozen policies: keep the trial with the lowest perplexity."""
    votes: Votes | None = None
    """For frozen policies: keep a reply with the most frequent act."""
    search: Search | None = None
    """For frozen policies: search ahead for a successful match, and play it."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in ("temperature", "top_p")}

    @field_validator("temperature")
    @classmethod
    def _check_temperature(cls, temperature: float) -> float:
        if 0 < temperature < MIN_TEMPERATURE:
            raise ValueError(f"{temperature:g} is too low: give 0 (greedy), or {MIN_TEMPERATURE:g} to 10")
        return temperature

    @property
    def selection(self) -> str:
        """Name of the setting that selects among several samples; "" if replies are plain samples."""
        return next((name for name in SELECTIONS if getattr(self, name)), "")

    @model_validator(mode="after")
    def _check_selection(self) -> Self:
        if len(selections := [f"`{name}`" for name in SELECTIONS if getattr(self, name)]) > 1:
            raise ValueError(f"{' and '.join(selections)} each select among several samples: give one of them")
        return self


class Role(Part):
    """Role of a seat: its prompt templates, reply format, sampling settings and memory.

    `load_role` reads it from a file. The templates `system` and `turn` can use SYSTEM_VARIABLES and TURN_VARIABLES.
    """

    role: Name
    game: str | None = None
    """Game for which the role was written; documentation only."""
    persona: Text = ""
    system: Text = ""
    turn: Text = DEFAULT_TURN
    reply: ReplySpec = ReplySpec()
    sampling: Sampling = Sampling()
    memory: Memory = Memory()
    tools: list[str | dict[str, JsonValue]] = []
    """Tools of every seat with this role, besides the game's own: `calculator`, `python`, path/to/file.py:name, or a
    mapping (docs/tools.md). Relative paths start at the role's file."""
    images: ImageMemory | None = None
    """Limit on the images in a context, such as `{keep: 2}` or `{tokens: 512}`; null keeps all."""
    history: Literal["keep", "strip"] = "keep"
    """Whether later turns show the private field of the seat's earlier replies: `keep` or `strip`. The chat templates
    of many thinking models strip it."""
    examples: list[Example] = []

    @field_validator("system")
    @classmethod
    def _check_system(cls, text: str) -> str:
        compile_template(text, SYSTEM_VARIABLES)
        return text

    @field_validator("turn")
    @classmethod
    def _check_turn(cls, text: str) -> str:
        compile_template(text, TURN_VARIABLES)
        return text

    @field_validator("examples")
    @classmethod
    def _check_examples(cls, examples: list[Example], info: ValidationInfo) -> list[Example]:
        reply, sampling = info.data.get("reply"), info.data.get("sampling")
        for number, example in enumerate(examples, 1):
            if reply and sampling and not reply.parse(example.say, sampling.stop).ok:
                raise ValueError(f"example {number}: `say` does not have the reply format {reply.format}")
        return examples

    @model_validator(mode="after")
    def _check_history(self) -> Self:
        if self.history == "strip" and self.reply.private is None:
            raise ValueError("history strip removes the private field: name it (reply: {private: think, …})")
        if self.history == "strip" and self.memory.kind == "summary":
            raise ValueError("history strip does not work with memory summary: set history to keep")
        if self.sampling.search and self.memory.kind == "summary":
            raise ValueError("sampling.search cannot write summaries: use memory all or window")
        return self

    def render_system(self, view: View) -> str:
        """Render the system text, stripped. Raises RoleError with role, template and variable if rendering fails."""
        return self._render("system", self.system, SYSTEM_VARIABLES, self._collect_values(view))

    def render_turn(self, view: View, first: bool) -> str:
        """Render the text of one turn, stripped.

        `first` is True if the seat's stream starts here and needs the match's facts. The template's `messages` are
        those of the view, with `sender` and `text`. All lines of a text after the first are indented, so that no player
        can forge the start of a message. `turn_number` counts the match's acts from 1; `legal` is a list or none.
        Raises RoleError if rendering fails.
        """
        messages = [{"sender": m.sender, "text": _indent_message(m.text)} for m in view.messages]
        legal = None if view.legal is None else list(view.legal)
        more = {"messages": messages, "turn_number": view.turn + 1, "legal": legal, "first": first}
        return self._render("turn", self.turn, TURN_VARIABLES, self._collect_values(view) | more)

    def render_parts(self, view: View, first: bool) -> Content:
        """Render one turn like `render_turn`, for a model with vision: return its texts and images in order.

        An image whose placeholder the template cuts, as it may cut any text, is left out.
        """
        images = [image for message in view.messages for image in message.images]
        text = self.render_turn(view, first)
        if not images:
            return text
        # A character that does not occur in the text marks images, so that no text can forge one.
        mark = next(chr(code) for code in range(0x4E00, 0xA000) if chr(code) not in text)
        numbers = count()

        def mark_image(part: ContentPart) -> str:
            return f"{mark}{next(numbers)}{mark}" if isinstance(part, Image) else part

        messages = tuple(message._replace(parts=tuple(map(mark_image, message.parts))) for message in view.messages)
        *found, rest = re.split(f"{mark}([0-9]+){mark}", self.render_turn(view._replace(messages=messages), first))
        parts: list[ContentPart] = [
            images[int(part)] if place % 2 else re.sub(f"{mark}[0-9]*", "", part)
            for place, part in enumerate([*found, rest])
        ]
        return tuple(part for part in parts if part)

    def excuses(self, finish: str) -> bool:
        """Return True if a reply with this finish reason is excused from the penalty for an illegal act.

        Replies that were cut at `max_tokens` ("length") are excused if `sampling.truncated` is "excused".
        """
        return finish == "length" and self.sampling.truncated == "excused"

    def parse(self, text: str) -> Reply:
        """Parse any text up to the first stop text as a reply in this role's format; never raises."""
        return self.reply.parse(text, self.sampling.stop)

    def write(self, game_text: str, talk: bool = True) -> str:
        """Write a game text `ACT` or `ACT | talk` as a reply in this role's format. `talk=False` drops the talk."""
        if self.reply.is_whole:
            return self.reply.write(game_text)
        action, _, public = game_text.partition("|")
        return self.reply.write(action.strip(), public.strip() if talk else "")

    def _collect_values(self, view: View) -> dict[str, Any]:
        facts = {"seat": view.seat, "public": view.public, "private": view.private}
        return {
            "persona": self.persona,
            "rules": self.reply.adapt_rules(view.rules),
            "talk": TALK in view.rules,
            **facts,
        }

    def _render(self, field: str, text: str, variables: tuple[str, ...], values: Mapping[str, Any]) -> str:
        try:
            return render_template(compile_template(text, variables), values)
        except BadTemplate as error:
            raise RoleError(f"role {self.role}: {field}: {error}") from None


def shorten_message(text: str) -> str:
    """Return a message's text as models read it: without invisible characters, and cut to 4,000 characters."""
    return remove_invisible(text if len(text) <= MESSAGE_LENGTH else f"{text[: MESSAGE_LENGTH - 2]} …", keep="\n")


def _indent_message(text: str) -> str:
    return shorten_message(text).replace("\n", "\n  ")


def read_role(path: str | Path) -> Role:
    """Read and validate a role from a YAML file. Raises RoleError with file, line and field."""
    source = str(path)
    try:
        text = strict_yaml.read_text(path)
        data = strict_yaml.load(text, source)
    except strict_yaml.YamlError as error:
        raise RoleError(str(error)) from None
    if not isinstance(data, dict):
        raise RoleError(f"{source}:1: role: expected `key: value` lines, such as `role: buyer`")
    try:
        return Role.model_validate(data)
    except ValidationError as error:
        raise RoleError(strict_yaml.explain(error, text, source, Role)) from None


def list_roles(folders: Iterable[str | Path] = ()) -> dict[str, Path]:
    """Return the paths of the built-in roles and of the roles in the folders, by role name, sorted.

    Raises RoleError for a missing folder or a name that two files share.
    """
    paths: dict[str, Path] = {}
    for folder in (BUILT_IN, *map(Path, folders)):
        if not isdir(folder):
            raise RoleError(f"{folder}: the folder of roles does not exist or is not a folder")
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
            other = paths.get(path.stem, path)
            if not path.samefile(other):
                raise RoleError(f"{path}: role: the name '{path.stem}' is taken by {other}: rename it")
            paths[path.stem] = path
    return dict(sorted(paths.items()))


def load_role(name_or_path: str, folders: Iterable[str | Path] = ()) -> Role:
    """Load a role by name (built-in or from the folders) or by a .yaml or .yml path.

    Raises RoleError for an unknown name, an invalid file, or a role whose name differs from its file's.
    """
    if name_or_path.endswith((".yaml", ".yml")):
        return read_role(name_or_path)
    known = list_roles(folders)
    if name_or_path not in known:
        name = strict_yaml.escape_line(name_or_path, 80)
        hint = nearest(name_or_path, known) or f": known are {', '.join(known)}, or give a path ending in .yaml"
        raise RoleError(f"unknown role '{name}'{hint}")
    path = known[name_or_path]
    role = read_role(path)
    if role.role != name_or_path:
        raise RoleError(f"{path}:1: role: '{role.role}' is not the file's name: rename one of them")
    return role


def find_role_for(game: str, seat: str) -> str:
    """Return the name of the built-in role for a game's seat, SEAT or GAME_SEAT; "" if there is none.

    Trailing numbers are ignored: `solver_2` is a `solver`. Roles written for another game do not count.
    """
    kind = re.sub("_[0-9]+$", "", seat)
    files = [BUILT_IN / f"{name}.yaml" for name in (kind, f"{game}_{kind}")]
    return next((file.stem for file in files if file.is_file() and read_role(file).game in (game, None)), "")
