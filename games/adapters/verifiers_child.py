"""Child process that runs rollouts of one verifiers 0.1 environment, started by `games.adapters.verifiers`.

Requests are {load, settings}, {rollout, split, row, seed} and {rollout, reply}, each with {drop}. The environment's own
rollout loop runs, with a client that waits for the next reply in place of a model. Only one rollout advances at a time,
each with its own random state. Imports no other module of Arena.
"""

import asyncio
import importlib
import random
import resource
import sys
from typing import Any

MEMORY = 16 << 30


def to_plain(message: Any) -> dict[str, Any]:
    """Return a message's role and text, with placeholders for parts that are not text."""
    content = getattr(message, "content", "")
    if isinstance(content, list):
        parts = [part if isinstance(part, dict) else part.model_dump() for part in content]
        content = "\n".join(str(part.get("text", f"[{part.get('type', 'part')}]")) for part in parts)
    return {"role": str(message.role), "text": str(content or "")}


class Rollout:
    """Rollout of the environment, which pauses whenever it needs a reply."""

    def __init__(self, env: Any, row: dict[str, Any], seed: int) -> None:
        self.env, self.row, self.seen_count = env, row, 0
        self.state: Any = None
        self.tools: list[dict[str, Any]] = []
        self.conversation: list[Any] = []
        self.reply: asyncio.Future[dict[str, Any]] | None = None
        self.changed = asyncio.Event()
        self.random = random.Random(seed).getstate()
        self.numpy = numpy_state(seed)
        self.task: asyncio.Task[None] | None = None

    async def advance(self, reply: dict[str, Any] | None) -> dict[str, Any]:
        """Start the rollout or send it a reply, and run it to its next prompt or its end.

        Returns the new messages, with the tools or, at the end, the rewards.
        """
        random.setstate(self.random)
        set_numpy_state(self.numpy)
        self.changed.clear()
        if self.task is None:
            self.task = asyncio.create_task(self.run())
        elif self.reply is not None:
            self.reply.set_result(reply or {})
        waiting = asyncio.create_task(self.changed.wait())
        await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        self.random, self.numpy = random.getstate(), numpy_state(None)
        if self.task.done():
            self.task.result()
            return self.summarise_end()
        new_messages = self.conversation[self.seen_count :]
        self.seen_count = len(self.conversation) + 1  # the next reply is the agent's own
        return {"messages": [to_plain(message) for message in new_messages], "tools": self.tools}

    async def run(self) -> None:
        """Run the environment's rollout, then score it with the rubric."""
        env, rubric = self.env, self.env.rubric
        state = self.state = await env.rollout(self.row, make_client(self), "arena", {})
        if state.get("error") is not None:
            raise RuntimeError(f"{type(state['error']).__name__}: {state['error']}")
        if env.requires_group_rollouts:
            await rubric.score_group([state])
        else:
            await rubric.score_rollout(state)
        await rubric.cleanup(state)

    def summarise_end(self) -> dict[str, Any]:
        """Return the reward, metrics, stop reason, and the messages after the last reply."""
        state = self.state
        messages = [*state["prompt"], *(state.get("completion") or [])]
        metrics = {str(name): float(value) for name, value in (state.get("metrics") or {}).items()}
        return {
            "messages": [to_plain(message) for message in messages[self.seen_count :]],
            "done": True,
            "reward": float(state.get("reward") or 0.0),
            "metrics": metrics,
            "stop": str(state.get("stop_condition") or "over"),
        }

    async def wait_for_reply(self, prompt: list[Any], tools: list[Any] | None) -> dict[str, Any]:
        """Publish a prompt of the environment, and wait for the reply."""
        if len(prompt) < self.seen_count or prompt[: len(self.conversation)] != self.conversation:
            self.seen_count = 0  # the environment rewrote the conversation
        self.conversation, self.tools = list(prompt), [tool.model_dump(exclude_none=True) for tool in tools or ()]
        self.reply = asyncio.get_running_loop().create_future()
        self.changed.set()
        return await self.reply


def numpy_state(seed: int | None) -> Any:
    """Return the state of numpy's global generator, or that for a seed. Returns None if numpy is not loaded."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    return numpy.random.get_state() if seed is None else numpy.random.RandomState(seed).get_state()


def set_numpy_state(state: Any) -> None:
    """Set the state of numpy's global generator, unless it is None."""
    if state is not None:
        sys.modules["numpy"].random.set_state(state)


def make_client(rollout: Rollout) -> Any:
    """Return a client for verifiers that answers each prompt with the rollout's next reply."""
    clients, types = importlib.import_module("verifiers.clients"), importlib.import_module("verifiers.types")
    vf = importlib.import_module("verifiers")

    async def get_response(self: Any, prompt: Any, model: str, *_: Any, tools: Any = None, **__: Any) -> Any:
        reply = await rollout.wait_for_reply(prompt, tools)
        if reply.get("stop"):
            raise vf.OverlongPromptError("Arena's limit of turns")
        calls = [types.ToolCall(**call) for call in reply.get("calls", ())] or None
        message = types.ResponseMessage(
            content=reply["text"], tool_calls=calls, finish_reason="tool_calls" if calls else "stop", is_truncated=False
        )
        return types.Response(id="arena", created=0, model=model, usage=None, message=message)

    methods: dict[str, Any] = dict.fromkeys(clients.Client.__abstractmethods__)
    return type("Bridge", (clients.Client,), {**methods, "get_response": get_response})(None)


def load(name: str, settings: dict[str, Any]) -> Any:
    """Create an environment by verifiers' `load_environment` for an id, or by the callable in `module:callable`."""
    vf = importlib.import_module("verifiers")
    if not hasattr(vf, "load_environment") or not hasattr(vf, "MultiTurnEnv"):
        raise RuntimeError("verifiers 0.2 and later have no MultiTurnEnv: pip install 'verifiers<0.2'")
    module, colon, member = name.partition(":")
    env = (
        getattr(importlib.import_module(module), member)(**settings) if colon else vf.load_environment(name, **settings)
    )
    if not isinstance(env, vf.MultiTurnEnv):
        raise RuntimeError(f"{name} is not a MultiTurnEnv but a {type(env).__name__}")
    return env


class Server:
    """Request handler with the environment, its data rows by split, and the running rollouts by number."""

    def __init__(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        self.loop = asyncio.new_event_loop()
        self.env: Any = None
        self.rows: dict[str, Any] = {}
        self.rollouts: dict[int, Rollout] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Handle a request and return its answer. If verifiers wraps an error in its own, raises the original error."""
        try:
            return self.loop.run_until_complete(self.advance(request))
        except Exception as error:  # noqa: BLE001 environments of others fail in any way
            raise (error.__cause__ or error) from None

    async def advance(self, request: dict[str, Any]) -> dict[str, Any]:
        """Discard the rollouts in `drop`, then load the environment or advance the requested rollout."""
        for number in request.get("drop", ()):
            rollout = self.rollouts.pop(number, None)
            if rollout is not None and rollout.task is not None:
                rollout.task.cancel()
        if "load" in request:
            self.env = load(request["load"], request["settings"])
            self.rows = {"train": self.env.get_dataset(), "test": self.env.get_eval_dataset()}
            return {split: len(rows) for split, rows in self.rows.items()}
        number = request["rollout"]
        if "row" in request:
            row = self.rows[request["split"]][request["row"]]
            self.rollouts[number] = Rollout(self.env, row, request["seed"])
        answer = await self.rollouts[number].advance(request.get("reply"))
        if answer.get("done"):
            del self.rollouts[number]
        return answer
