"""Reward stages that query models, such as judges and reward models.

`@asks(make, ...)` marks such a stage. `make(context, state, **settings)` returns its `Measurer`, which computes the
stage's measure before credit assignment, keeps state between iterations, and reports metrics. The measures of
`arena.credit.measures` are computed from the run's trained policies instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from agents.engines.base import Engine, Request
from agents.errors import ContextFull, EndpointError
from agents.player import PREFIXES
from agents.players.servers import Endpoints, parse_endpoint
from agents.role import Sampling
from arena.errors import ConfigError, PlayError
from arena.parts.part_config import PartConfig, part
from arena.records import Trajectory
from games.names import nearest

if TYPE_CHECKING:
    from agents.chat import ChatFrame
    from agents.policy import Policy
    from agents.stream import Stream

MAX_CONCURRENT = 64
"""Maximum requests to an endpoint at once."""


class Question(NamedTuple):
    """Prompt to a model: the system text, which many questions share, and the user's text."""

    system: str
    user: str


class ModelReply(NamedTuple):
    """A model's reply, or the reason why there is none.

    `room`: the context is too short for it; `budget`: the stage's budget is spent; `failed`: the endpoint failed.
    """

    text: str | None
    failure: Literal["", "room", "budget", "failed"] = ""


class Budget:
    """Counter of a stage's calls and tokens, with limits for the whole run; None is no limit."""

    def __init__(self, calls: int | None, tokens: int | None, state: Mapping[str, int]) -> None:
        self._max_calls, self._max_tokens = calls, tokens
        self.calls, self.tokens = int(state.get("calls", 0)), int(state.get("tokens", 0))

    def state(self) -> dict[str, int]:
        """Return the counters."""
        return {"calls": self.calls, "tokens": self.tokens}

    def reserve(self, tokens: int) -> bool:
        """Count a call of at most `tokens` tokens, read and written. Returns False if it could exceed a limit."""
        if self._max_calls is not None and self.calls >= self._max_calls:
            return False
        if self._max_tokens is not None and self.tokens + tokens > self._max_tokens:
            return False
        self.calls, self.tokens = self.calls + 1, self.tokens + tokens
        return True

    def give_back(self, tokens: int) -> None:
        """Return reserved tokens that a call did not use."""
        self.tokens -= tokens


class Asker:
    """Client for replies outside of matches, from a run's frozen policies or from endpoints."""

    def __init__(self, policies: Mapping[str, Policy], engine: Engine, endpoints: Endpoints) -> None:
        self._policies, self._engine, self._endpoints = policies, engine, endpoints

    async def ask(
        self,
        name: str,
        questions: Sequence[Question],
        sampling: Sampling,
        seeds: Sequence[tuple[int, ...]],
        budget: Budget,
    ) -> list[ModelReply]:
        """Send all questions to a policy or endpoint and return the replies in order.

        A reply depends on its question and seed alone. The input tokens of endpoints are estimated. Raises PlayError if
        an endpoint answers none of several questions, so that the run stops.
        """
        if name in self._policies:
            return await self._ask_policy(self._policies[name], questions, sampling, seeds, budget)
        endpoint, model = self._endpoints.at(name), parse_endpoint(name)[1]
        semaphore, last_error = asyncio.Semaphore(MAX_CONCURRENT), ""

        async def ask_one(question: Question, seed: tuple[int, ...]) -> ModelReply:
            nonlocal last_error
            input_tokens = 16 + sum(len(text.encode("utf-8", "replace")) for text in question) // 3
            if not budget.reserve(input_tokens + sampling.max_tokens):
                return ModelReply(None, "budget")
            chat = [{"role": role, "content": text} for role, text in zip(("system", "user"), question, strict=True)]
            try:
                async with semaphore:
                    answer = await endpoint.ask(model, chat, sampling, seed[0] % 2**31)
            except ContextFull:
                budget.give_back(input_tokens + sampling.max_tokens)
                return ModelReply(None, "room")
            except EndpointError as error:
                last_error = str(error)
                return ModelReply(None, "failed")
            budget.give_back(sampling.max_tokens - min(answer.tokens, sampling.max_tokens))
            return ModelReply(answer.text)

        replies = await asyncio.gather(*(ask_one(*arguments) for arguments in zip(questions, seeds, strict=True)))
        if len(replies) > 1 and all(reply.failure == "failed" for reply in replies):
            raise PlayError(f"none of {len(replies)} questions was answered: {last_error}")
        return list(replies)

    def frame(self, name: str) -> ChatFrame:
        """Return the chat format of a policy of the run."""
        return self._policies[name].frame

    async def score(self, name: str, streams: Sequence[Stream]) -> list[NDArray[np.float32]]:
        """Return the log-probabilities of the streams' sampled tokens under a policy of the run, at temperature 1."""
        return await self._engine.score(name, streams, [1.0] * len(streams))

    async def _ask_policy(
        self,
        policy: Policy,
        questions: Sequence[Question],
        sampling: Sampling,
        seeds: Sequence[tuple[int, ...]],
        budget: Budget,
    ) -> list[ModelReply]:
        frame, max_tokens = policy.frame, sampling.max_tokens
        room = min(policy.positions, self._engine.max_context)
        replies, requests = [ModelReply(None)] * len(questions), dict[int, Request]()
        for index, (question, seed) in enumerate(zip(questions, seeds, strict=True)):
            ids = tuple([*frame.open(question.system), *frame.ask(question.user)])
            if len(ids) + max_tokens > room:
                replies[index] = ModelReply(None, "room")
            elif not budget.reserve(len(ids) + max_tokens):
                replies[index] = ModelReply(None, "budget")
            else:
                key = f"asked/{policy.name}/{index}"
                requests[index] = Request(
                    policy=policy.name, ids=ids, key=key, max_tokens=max_tokens, temperature=sampling.temperature,
                    top_p=sampling.top_p, top_k=sampling.top_k, stop_ids=frame.stop_ids, seed=seed,
                )  # fmt: skip
        completions = await self._engine.generate([*requests.values()]) if requests else []
        for index, completion in zip(requests, completions, strict=True):
            self._engine.forget(requests[index].key)
            budget.give_back(max_tokens - len(completion.ids))
            replies[index] = ModelReply(frame.decode(completion.ids))
        return replies


@dataclass(frozen=True)
class AskContext:
    """Services of a run for stages that query models."""

    asker: Asker
    rules: Callable[[str, int], str]
    """Function from a game's name and a deal's seed to the rules as players read them."""
    note: Callable[[str], None]
    """Function that shows a line to the user."""
    bf16: bool = False
    """True if the run's models compute products in bfloat16."""
    token_budget: int = 4096
    """Maximum tokens of a forward pass."""


class Measurer(Protocol):
    """Interface for computing the measure of a stage that queries models. Keeps state between iterations."""

    async def measure(self, k: int, trajectories: Sequence[Trajectory]) -> list[NDArray[np.float32]]:
        """Return one array per trajectory of iteration `k`, with an entry per turn.

        Called again whenever the iteration's trajectories change, always with all of them. NaN marks a trajectory
        without a value, which credit drops.
        """

    def report(self, k: int) -> dict[str, float]:
        """Return the metrics of iteration `k`. Called once, after the last `measure` of the iteration."""

    def state(self) -> Any:
        """Return the state for the checkpoint, as JSON."""


@dataclass(frozen=True)
class ExperimentFacts:
    """Facts about an experiment that a stage's `check` needs: seats, models, and how deals are played."""

    seats: Collection[str]
    """Seats of all games."""
    trained: Collection[str]
    """Seats of trained policies."""
    plays_deals_once: bool
    """True if each deal is played once."""
    has_replay: bool
    """True if earlier trajectories are replayed."""
    models: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Names or folders of the models of trained policies, by seat."""
    frozen: Mapping[str, str] = field(default_factory=dict)
    """Names or folders of the models of frozen policies, by policy."""


Check = Callable[..., None]
"""(ExperimentFacts, *, settings): raise ValueError if the stage cannot work in the experiment."""


def asks(make: Callable[..., Measurer], name_of: Callable[..., str], check: Check) -> Callable[[Any], Any]:
    """Return a decorator that marks a stage as asking models. `name_of(**settings)` returns its measure's name."""

    def mark(stage: Any) -> Any:
        stage.make, stage.check = make, check
        stage.needs = lambda **settings: (name_of(**settings),)
        return stage

    return mark


def find_asking_stages(stages: Sequence[PartConfig]) -> dict[str, PartConfig]:
    """Return the stages that ask models, by the name of their measure. Raises ValueError if two names are equal."""
    found: dict[str, PartConfig] = {}
    for stage in stages:
        if hasattr(part(stage.kind, stage.name), "make"):
            (name,) = stage.needs
            if name in found:
                raise ValueError(f"two stages measure {name}: give one of them another name")
            found[name] = stage
    return found


def create_measurers(
    stages: Sequence[PartConfig], context: AskContext, state: Mapping[str, Any]
) -> dict[str, Measurer]:
    """Create the measurers of the asking stages by measure name, each restored from its part of `state`."""
    measurers = {}
    for name, stage in find_asking_stages(stages).items():
        make: Any = part(stage.kind, stage.name).make  # type: ignore[attr-defined]
        measurers[name] = make(context, state.get(name, {}), **stage.with_defaults().settings)
    return measurers


def check_asking_stages(stages: Sequence[PartConfig], facts: ExperimentFacts, policies: Mapping[str, bool]) -> None:
    """Raise ConfigError unless each asking stage suits the experiment and asks a frozen policy or an endpoint.

    `policies` maps the run's policies to True if they are trained.
    """
    for stage in find_asking_stages(stages).values():
        label = f"credit.stages: {stage.name}"
        try:
            for name in stage.policies:
                if policies.get(name):
                    raise ValueError(f"policy '{name}' is trained: name a frozen one (`train: false`) or an endpoint")
                if name not in policies and not name.startswith(PREFIXES):
                    raise ValueError(f"unknown policy '{name}'{nearest(name, policies)}: add it to `policies`")
                if name not in policies:
                    parse_endpoint(name)
            check: Check = part(stage.kind, stage.name).check  # type: ignore[attr-defined]
            check(facts, **stage.with_defaults().settings)
        except (ValueError, EndpointError) as error:
            raise ConfigError(f"{label}: {error}") from None
