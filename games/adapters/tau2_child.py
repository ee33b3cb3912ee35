"""Child process that runs the environments of a tau2 domain, started by `games.adapters.tau2`.

Requests are {load}, {rollout, task} and {rollout, reply}, each optionally with {drop}. A reply is {by, text},
{by, calls} or {by, text, end}, where `by` is "assistant" or "user". Imports no other module of Arena.
"""

import importlib
import os
import resource
from typing import Any

MEMORY = 16 << 30
GREETING = "Hi! How can I help you today?"
"""First message of tau2's agents."""


class Rollout:
    """Environment of one task, with the messages and tool calls so far."""

    def __init__(self, domain: str, task: Any) -> None:
        registry = importlib.import_module("tau2.registry").registry
        self.messages: list[Any] = []
        self.domain, self.task, self.env = domain, task, registry.get_env_constructor(domain)()
        start = task.initial_state
        self.env.set_state(
            getattr(start, "initialization_data", None),
            getattr(start, "initialization_actions", None),
            getattr(start, "message_history", None) or [],
        )
        kinds = importlib.import_module("tau2.data_model.message")
        self.kinds = {"assistant": kinds.AssistantMessage, "user": kinds.UserMessage}
        self.call = kinds.ToolCall
        self.add_message("assistant", GREETING)

    def add_message(self, by: str, text: str) -> None:
        """Add a message of the agent or the customer to the conversation."""
        self.messages.append(self.kinds[by](role=by, content=text))

    def call_tools(self, by: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Call tools. Returns a dict per call, with its result `text` and whether it is an `error`."""
        tool_calls = [self.call(requestor=by, **call) for call in calls]
        self.messages.append(self.kinds[by](role=by, content=None, tool_calls=tool_calls))
        answers = [self.env.get_response(call) for call in tool_calls]
        self.messages += answers
        return [{"text": str(answer.content), "error": bool(answer.error)} for answer in answers]

    def score(self, end: str) -> dict[str, Any]:
        """Return tau2's reward for the conversation, and its parts. `end` is tau2's termination reason."""
        data = importlib.import_module("tau2.data_model.simulation")
        evaluator = importlib.import_module("tau2.evaluator.evaluator")
        run = data.SimulationRun(
            id="arena", task_id=self.task.id, timestamp="", start_time="", end_time="", duration=0.0,
            termination_reason=data.TerminationReason(end), messages=self.messages,
        )  # fmt: skip
        kind = evaluator.EvaluationType.ALL
        result = evaluator.evaluate_simulation(run, self.task, kind, solo_mode=False, domain=self.domain)
        parts = {getattr(name, "value", str(name)): value for name, value in (result.reward_breakdown or {}).items()}
        return {"done": True, "reward": float(result.reward), "parts": parts}


class Server:
    """Request handler with a domain's tasks, and the running rollouts by number."""

    def __init__(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise litellm downloads prices
        importlib.import_module("loguru").logger.remove()  # otherwise every tool result is formatted and logged
        self.domain = ""
        self.tasks: dict[str, Any] = {}
        self.rollouts: dict[int, Rollout] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Handle a request and return its answer. `drop` lists rollouts to discard."""
        for number in request.get("drop", ()):
            self.rollouts.pop(number, None)
        if "load" in request:
            return self.load(request["load"])
        number = request["rollout"]
        if "task" in request:
            self.rollouts[number] = Rollout(self.domain, self.tasks[request["task"]])
            return self.describe(self.tasks[request["task"]])
        rollout, reply = self.rollouts[number], request["reply"]
        if reply.get("calls"):
            return {"answers": rollout.call_tools(reply["by"], reply["calls"])}
        if reply["text"]:
            rollout.add_message(reply["by"], reply["text"])
        return rollout.score(reply["end"]) if reply.get("end") else {}

    def load(self, domain: str) -> dict[str, Any]:
        """Load a domain. Returns its policy text, the tools of both seats, and task ids by split."""
        registry = importlib.import_module("tau2.registry").registry
        self.domain, env = domain, registry.get_env_constructor(domain)()
        self.tasks = {task.id: task for task in registry.get_tasks_loader(domain)(None)}
        agent_tools = [tool.openai_schema["function"] for tool in env.get_tools()]
        user_tools = [tool.openai_schema["function"] for tool in env.get_user_tools()] if env.user_tools else []
        splits = registry.get_task_splits_loader(domain)()
        return {"policy": env.get_policy(), "tools": {"assistant": agent_tools, "user": user_tools}, "splits": splits}

    @staticmethod
    def describe(task: Any) -> dict[str, Any]:
        """Return a task's persona and scenario, and its solution's calls and facts."""
        instructions, criteria = task.user_scenario.instructions, task.evaluation_criteria
        parts = {"": instructions} if isinstance(instructions, str) else instructions.model_dump()
        acts = [{"by": act.requestor, "name": act.name, "arguments": act.arguments} for act in criteria.actions or []]
        return {
            "persona": str(task.user_scenario.persona or ""),
            "scenario": {name: str(text) for name, text in parts.items() if text and name != "domain"},
            "solution": acts,
            "facts": list(criteria.communicate_info or []),
        }
