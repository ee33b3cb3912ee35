"""One seat of a game as a multi-turn environment of verifiers 0.1, whose dataset is a range of seeds."""

from __future__ import annotations

import asyncio
from typing import Any

import verifiers as vf
from datasets import Dataset

from arena.export.environments.episode import Episode, Task, deal

INSTRUCTIONS = "You play a game by text. Each time reply with your act alone, as the rules word it."


class GameEnv(vf.MultiTurnEnv):  # type: ignore[misc]  # verifiers is untyped here
    """Environment in which a rollout is a match: replies are the learner's acts, and user turns are what it observes.

    The reward is the payoff (`payoff`) less penalties for illegal acts (`illegal`). A match that a limit of turns,
    tokens or seconds cuts short is abandoned, which costs the seat its stake.
    """

    def __init__(self, task: Task, **settings: Any) -> None:
        self.task = task
        super().__init__(rubric=vf.Rubric(funcs=[payoff, illegal], parser=settings["parser"]), **settings)

    async def setup_state(self, state: vf.State) -> None:
        """Deal the row's seed and make the prompt: the system turn, and the first observation as the user's."""
        episode = await asyncio.to_thread(deal, self.task, state["info"]["seed"])
        state["episode"] = episode
        system = [message for message in state["prompt"] if message["role"] == "system"]
        state["prompt"] = [*system, observed(episode)]

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        """Play the reply as the learner's act and return the next observation as a user turn."""
        episode = state["episode"]
        act = str(self.parser.parse_answer(messages) or "").strip()
        await asyncio.to_thread(episode.act, act)
        if episode.done:
            state["final_env_response"] = [observed(episode)]
        return [observed(episode)]

    @vf.cleanup
    async def settle(self, state: vf.State) -> None:
        """Abandon the match if it has not ended, keep its rewards for the rubric, and release its resources."""
        if episode := state.pop("episode", None):
            episode.abandon()
            state["payoff"], state["illegal"] = episode.payoff, episode.reward - episode.payoff
            episode.close()


def observed(episode: Episode) -> vf.UserMessage:
    """Return what the seat newly observes as a user's message, with pictures if there are any."""
    if not episode.images:
        return vf.UserMessage(content=episode.text)
    pictures = [{"type": "image_url", "image_url": {"url": image.url}} for image in episode.images]
    return vf.UserMessage(content=[{"type": "text", "text": episode.text}, *pictures])


async def payoff(state: vf.State) -> float:
    """Return the payoff of the learner's seat; 0 if the match could not be dealt."""
    return float(state.get("payoff", 0.0))


async def illegal(state: vf.State) -> float:
    """Return what illegal acts cost, 0 or less."""
    return float(state.get("illegal", 0.0))


def load_environment(
    task: Task, num_train_examples: int = 1000, num_eval_examples: int = 100, **settings: Any
) -> GameEnv:
    """Return the environment of a task: training on the first seeds from 0, evaluation on those that follow.

    `settings` are those of `vf.MultiTurnEnv`, such as `max_turns`, `system_prompt` and `parser`; by default thoughts in
    <think> are cut out of replies.
    """
    rows = [{"question": task.game, "info": {"seed": seed}} for seed in range(num_train_examples + num_eval_examples)]
    given: dict[str, Any] = {"system_prompt": INSTRUCTIONS, "parser": vf.MaybeThinkParser(), **settings}
    held_out = Dataset.from_list(rows[num_train_examples:]) if num_eval_examples else None
    return GameEnv(task.checked(), dataset=Dataset.from_list(rows[:num_train_examples]), eval_dataset=held_out, **given)
