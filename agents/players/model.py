"""Players with token streams, whose replies a model or script writes, and scripted players without tokens."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Literal

from agents.chat import ChatFrame
from agents.chat_images import Content, as_text, find_images, find_spans, keep_newest, prepend_images, shift_spans
from agents.engines.base import Completion, Request
from agents.errors import ContextFull, RoleError
from agents.memory import plan_restart
from agents.model_config import NO_LIMIT
from agents.pending_calls import PendingCalls, find_result_images
from agents.player import ScriptedPolicy
from agents.players.writers import Writer, script_completion
from agents.role import Role
from agents.stream import ImageReader, MediaSpan, Stream
from agents.tool_formats import ToolResult
from games.contracts import Act, TurnSource, View


@dataclass(frozen=True)
class Exchange:
    """Token ids of an observation (`prompt`) and of the reply to it (`reply`), as they appear in later contexts."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    finish: Literal["stop", "length"]
    stripped: bool = False
    """Whether the reply differs from the sampled one: its private part was removed, or the act was replaced."""
    opened: bool = False
    """Whether `prompt` continues a user turn that tool definitions have opened."""
    media: tuple[MediaSpan, ...] = ()
    """Images in `prompt`."""
    results: tuple[ToolResult, ...] = ()
    """Native tool results in `prompt`."""
    content: Content = ""
    """Texts and images that follow the results in `prompt`."""


class ChatPlayer:
    """Player of one seat in one match through a chat template: renders observations, requests replies, parses acts.

    `streams` records the tokens in append-only streams, so that every sampled token has its true context. Memory `all`
    needs one. Memory `window` starts a new stream whenever exchanges leave the window, memory `summary` after each
    summary, history `strip` after a reply with a private part, and `images` when old images become placeholders.
    """

    def __init__(
        self,
        *,
        role: Role,
        frame: ChatFrame,
        policy: str,
        key: str,
        seed: tuple[int, ...],
        write: Writer,
        source: TurnSource = "policy",
        positions: int = NO_LIMIT,
        picture: ImageReader | None = None,
    ) -> None:
        """Create the player of `policy`, whose replies `write` returns. `key` is the prefix of its streams' names.

        Each reply's seed is `seed` followed by the turn. `positions` is the maximum number of tokens of a context with
        its reply. `picture` returns an image's bytes; without it, or without vision, texts stand in for images.
        """
        self.picture = picture if frame.image else None
        self.source = source
        self.context = min(role.memory.context or positions, positions)
        """Maximum number of tokens of a stream with the next reply, and with a summary if one may follow."""
        self.role, self.frame, self.policy, self.key, self.seed, self.write = role, frame, policy, key, seed, write
        self.calls = PendingCalls() if role.reply.format == "native" and frame.tools else None
        """Calls that await results in tool turns; None if the role or the chat template has no native tools."""
        self.streams: list[Stream] = []
        self.stream_keys: list[str] = []
        """Names of the streams, under which an engine may keep attention caches."""
        self._history: list[Exchange] = []
        self._first = 0
        """Index of the current stream's first exchange."""
        self._summaries = 0
        self._summed_up = False
        """Whether the last exchange is a summary, so that a new stream starts with it."""
        self.version = 0

    async def act(self, view: View) -> Act:
        """Return the act of one turn, or a summary if the context is full; the caller then shows the same view again.

        Extends `streams`; only sampled ids are marked as the policy's own. Raises ContextFull if the context has no
        room for a reply, and RoleError if even a new context has none.
        """
        history = self._without_old_images(view)
        if self._is_full(view, history):
            return await self._sum_up(view)
        drops, self._history = history is not self._history, history
        stream, closing, fresh = self._select_stream(view, drops)
        opened = fresh and self._first == len(self._history) and self._opens_turn(view, ())
        results, content = self._build_content(view, fresh)
        prompt, media = self._encode(results, content, opened)
        self._check_room(len(stream) + len(closing), len(prompt), fresh)
        stream.observe((*closing, *prompt), shift_spans(media, len(closing)))
        completion = await self.write(view, self._build_request(view, stream, self.role.sampling.max_tokens))
        raw = self._append_reply(view, stream, completion)
        exchange = self._make_exchange(prompt, completion, raw)
        self._history.append(replace(exchange, opened=opened, media=media, results=results, content=content))
        if self.calls:
            self.calls.record(self.frame.read_calls(completion.ids, view.tools, self.calls.count).calls)
        reply = self.role.parse(raw)
        count = len(completion.ids)
        excused = self.role.excuses(completion.finish)
        return Act(
            action=reply.game_text,
            raw=raw,
            public=reply.public,
            private=reply.private,
            finish=completion.finish,
            tokens=count,
            source=self.source,
            excused=excused,
        )

    def _build_content(self, view: View, first: bool) -> tuple[tuple[ToolResult, ...], Content]:
        """Return the tool results in the view for tool turns, and the content of the user turn: text and images.

        `first` is True if the turn opens a stream and must repeat the match's facts. Images of the results are moved to
        the beginning of the content, because tool turns cannot hold images.
        """
        if self.calls is None:
            results: list[ToolResult] = []
            content = self._render(view, first)
        else:
            results, rest = self.calls.split(view)
            content = prepend_images(find_result_images(view) if self.picture else (), self._render(rest, first))
            if results and self.frame.tools and self.frame.tools.user_bridge is None:
                content = as_text(content)
        (content,) = self._limit_images([content])
        return tuple(results), content

    def _encode(
        self, results: Sequence[ToolResult], content: Content, opened: bool = False
    ) -> tuple[tuple[int, ...], tuple[MediaSpan, ...]]:
        """Return the ids of the tool turns, the user turn and the reply's head, and the image spans among them."""
        ids = self.frame.answer(results, content) if results else self.frame.ask(content, opened)
        images = find_images(content)
        media = find_spans(ids, self.frame.image, images, self.picture) if self.picture and self.frame.image else ()
        return tuple(ids), tuple(media)

    def _without_old_images(self, view: View) -> list[Exchange]:
        """Return the history without the old images that the view's images displace from the context.

        Returns the same list if none is displaced.
        """
        if not (self.role.images and self.picture and self.streams):
            return self._history
        exchanges = self._history[self._first :]
        contents = [exchange.content for exchange in exchanges]
        *limited, _ = self._limit_images([*contents, self._build_content(view, False)[1]])
        if all(old is new for old, new in zip(contents, limited, strict=True)):
            return self._history
        return self._history[: self._first] + [
            exchange if content is exchange.content else self._replace_content(exchange, content)
            for exchange, content in zip(exchanges, limited, strict=True)
        ]

    def _limit_images(self, contents: Sequence[Content]) -> list[Content]:
        """Drop the oldest images beyond the role's limits. Raises RoleError if not even the newest image fits."""
        limits, token = self.role.images, self.frame.image
        images_in_context = [image for content in contents for image in find_images(content)]
        if limits is None or token is None or not images_in_context:
            return [*contents]
        sizes = [token.fit_image(image).tokens for image in images_in_context]
        if not (count := limits.count_kept(sizes)):
            raise RoleError(
                f"role {self.role.role}: images.tokens: {limits.tokens} tokens have no room for an image of "
                f"{sizes[-1]}: raise it, or limit the images' pixels"
            )
        return keep_newest(contents, count)

    def _replace_content(self, exchange: Exchange, content: Content) -> Exchange:
        """Return the exchange with its content replaced and encoded again."""
        prompt, media = self._encode(exchange.results, content, exchange.opened)
        return replace(exchange, prompt=prompt, media=media, content=content)

    def _render(self, view: View, first: bool) -> Content:
        return self.role.render_parts(view, first) if self.picture else self.role.render_turn(view, first)

    def _opens_turn(self, view: View, exchanges: Sequence[Exchange]) -> bool:
        """Return True if a stream with these exchanges begins with a user turn that tool definitions open."""
        if self.calls is None or self.role.examples:
            return False
        if not self.frame.opens_turn(view.tools, self.role.render_system(view)):
            return False
        return exchanges[0].opened if exchanges else not self.calls.split(view)[0]

    def _build_request(self, view: View, stream: Stream, max_tokens: int) -> Request:
        sampling = self.role.sampling
        return Request(
            policy=self.policy,
            ids=tuple(stream.ids),
            media=tuple(stream.media),
            key=self.stream_keys[-1],
            max_tokens=max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop_ids=self.frame.stop_ids,
            seed=(*self.seed, view.turn),
        )

    def _append_reply(self, view: View, stream: Stream, completion: Completion) -> str:
        """Append a reply to its stream, record the version of the weights, and return the reply's text."""
        stream.append_sampled(completion.ids, completion.logprobs, view.turn, completion.entropy)
        self.version = completion.version
        return self.frame.decode(completion.ids, marks=self.calls is not None)

    def _make_exchange(self, prompt: tuple[int, ...], completion: Completion, raw: str) -> Exchange:
        """Return the exchange as later contexts will contain it, without the private part if the role strips it."""
        if self.role.history == "strip" and (rest := self.role.reply.without_private(raw)) != raw:
            reply = script_completion(self.frame, rest, completion.finish, native=self.calls is not None).ids
            return Exchange(prompt, reply, completion.finish, stripped=True)
        return Exchange(prompt, completion.ids, completion.finish)

    def _select_stream(self, view: View, drops: bool = False) -> tuple[Stream, Sequence[int], bool]:
        """Return the stream for the next turn, the ids that close its last reply, and whether to repeat match facts.

        `drops` is True if old images were dropped. A new stream for this reason, or because private parts were
        stripped, keeps the key, so that engines reuse the common prefix.
        """
        kept_exchanges = 1 if self._summed_up else plan_restart(self.role.memory, len(self._history))
        self._summed_up = False
        if self.streams and kept_exchanges is None and not (drops or self._history[-1].stripped):
            return self.streams[-1], self.frame.close(self._history[-1].finish), False
        is_new = not self.streams or kept_exchanges is not None
        first = len(self._history) - kept_exchanges if kept_exchanges is not None else self._first
        stream = Stream()
        examples = [(example.see, example.say) for example in self.role.examples]
        tools, opens = (view.tools, self._opens_turn(view, self._history[first:])) if self.calls else ((), False)
        stream.observe(self.frame.open(self.role.render_system(view), examples, tools, opens))
        for exchange in self._history[first:]:
            stream.observe((*exchange.prompt, *exchange.reply, *self.frame.close(exchange.finish)), exchange.media)
        self.stream_keys.append(f"{self.key}/{len(self.streams)}" if is_new else self.stream_keys[-1])
        self.streams.append(stream)
        self._first = first
        return stream, (), is_new

    def fork(self, number: int) -> ChatPlayer:
        """Return an independent copy of the player with the same history; `number` is appended to its seed."""
        twin = ChatPlayer.__new__(ChatPlayer)
        twin.__dict__ = {**self.__dict__, "seed": (*self.seed, number), "_history": [*self._history]}
        twin.streams, twin.stream_keys = [*self.streams[:-1], *map(deepcopy, self.streams[-1:])], [*self.stream_keys]
        twin.calls = deepcopy(self.calls)
        return twin

    def replace_reply(self, view: View, act: str) -> Act:
        """Replace the last reply by `act` and return it as an Act; the match continues as if it had been the reply.

        Its tokens appear only as context of later streams and are not marked as the policy's own.
        """
        raw = self.role.write(act)
        ids = script_completion(self.frame, raw, native=self.calls is not None).ids
        if self.calls:
            self.calls.record(self.frame.read_calls(ids, view.tools, self.calls.count).calls)
        self._history[-1] = replace(self._history[-1], reply=ids, finish="stop", stripped=True)
        public = act.partition("|")[2].strip()
        return Act(action=act, raw=raw, public=public, private="", finish="script", tokens=0, source="patch")

    # -- memory `summary`, and the end of the context -------------------------------------------------------------

    async def _sum_up(self, view: View) -> Act:
        """Sample a summary at the end of the current stream, and return it as an act that the game does not see."""
        memory = self.role.memory
        stream, closing, _ = self._select_stream(view)
        prompt = tuple(self.frame.ask(memory.ask))
        stream.observe((*closing, *prompt))
        completion = await self.write(view, self._build_request(view, stream, memory.tokens), summary=True)
        raw = self._append_reply(view, stream, completion)
        self._history.append(Exchange(prompt, completion.ids, completion.finish))
        self._summaries, self._summed_up = self._summaries + 1, True
        return Act(
            action="",
            raw=raw,
            public="",
            private="",
            finish=completion.finish,
            tokens=len(completion.ids),
            source="summary",
        )

    def _is_full(self, view: View, history: Sequence[Exchange]) -> bool:
        """Return True if the stream with the exchanges `history` has no room for this turn, so that a summary is due.

        Always False without memory `summary`. Raises ContextFull if the role allows no further summary.
        """
        memory = self.role.memory
        if memory.kind != "summary" or not self.streams or self._summed_up:
            return False
        last = self._history[-1]
        growth = len(last.reply) - self.streams[-1].turns.count(self.streams[-1].turns[-1]) if last.stripped else 0
        growth += sum(len(new.prompt) - len(old.prompt) for new, old in zip(history, self._history, strict=True))
        closed = len(self.streams[-1]) + growth + len(self.frame.close(last.finish))
        used = closed + len(self._encode(*self._build_content(view, first=False))[0])
        if self._count_missing(used) <= 0:
            return False
        if self._summaries == memory.summaries:
            raise ContextFull(
                f"{self._make_overflow_error(used)}, and {self._summaries} summaries were written already"
            )
        return True

    def _check_room(self, used: int, new: int, fresh: bool) -> None:
        """Raise ContextFull if the context has no room for `used` and `new` tokens and a reply.

        Raises RoleError if a new stream (`fresh`) has no room even without the new tokens.
        """
        if self._count_missing(used + new) <= 0:
            return
        if fresh and (missing := self._count_missing(used)) > 0:
            if self.context == self.role.memory.context:
                raise RoleError(
                    f"role {self.role.role}: memory.context: {self.context} tokens have no room for the "
                    f"opening of a match, a reply and a summary: raise it by more than {missing}"
                )
            raise RoleError(
                f"role {self.role.role}: the opening of a match has {used:,} tokens, which with a reply of up to "
                f"{self.role.sampling.max_tokens:,} is {missing:,} more than the model holds, {self.context:,}: "
                "lower sampling.max_tokens, or shorten the role"
            )
        raise self._make_overflow_error(used + new)

    def _count_missing(self, used: int) -> int:
        """Return by how many tokens `used` tokens, a reply and a summary exceed the context; 0 or less if they fit."""
        memory, asking = self.role.memory, 0
        if memory.kind == "summary" and self._summaries < memory.summaries:
            asking = len(self.frame.close("length")) + len(self.frame.ask(memory.ask)) + memory.tokens
        return used + self.role.sampling.max_tokens + asking - self.context

    def _make_overflow_error(self, used: int) -> ContextFull:
        """Return the error for a reply that does not fit after `used` tokens."""
        return ContextFull.of(used, self.role.sampling.max_tokens, self.context)


class ScriptedPlayer:
    """Player of one seat that follows a scripted policy, without tokens or streams."""

    streams: Sequence[Stream] = ()
    stream_keys: Sequence[str] = ()
    version = 0
    waits = False

    def __init__(self, script: ScriptedPolicy) -> None:
        self.script = script

    async def act(self, view: View) -> Act:
        """Return the scripted policy's act."""
        return self.answer(view)

    def answer(self, view: View) -> Act:
        """Return the scripted policy's act, synchronously. A text after "|" is its talk."""
        text = self.script.act(view)
        return Act(text, text, text.partition("|")[2].strip() if "|" in text else "", "", "script")
