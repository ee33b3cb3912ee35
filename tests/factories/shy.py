"""A valid PettingZoo environment with unusual properties: agents are numbers, and only the agent to move observes."""

from typing import ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv


class Shy(AECEnv):  # type: ignore[misc]  # pettingzoo is not checked
    """Environment whose agents are numbers and observe only in their own turn."""

    metadata: ClassVar = {"name": "shy_v0", "render_modes": []}

    def __init__(self, agents=(0, 1, 2), rounds=2):
        self.possible_agents, self.rounds = list(agents), rounds

    def observation_space(self, agent):
        return spaces.Discrete(1000)

    def action_space(self, agent):
        return spaces.Discrete(3, start=1)

    def reset(self, seed=None, options=None):
        self.agents, self.taken = list(self.possible_agents), 0
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[object, dict[str, object]] = {agent: {} for agent in self.agents}
        self.sums, self.agent_selection = dict.fromkeys(self.agents, 0), self.agents[0]

    def observe(self, agent):
        if agent != self.agent_selection:
            raise RuntimeError(f"{agent} is not to move")
        return np.int64(self.sums[agent])

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            return self._was_dead_step(action)
        self.sums[agent] += action
        self.taken += 1
        self._clear_rewards()
        if self.taken == self.rounds * len(self.possible_agents):
            self.terminations = dict.fromkeys(self.agents, True)
            self.rewards = {agent: float(self.sums[agent]) for agent in self.agents}
        order = self.possible_agents
        self.agent_selection = order[(order.index(agent) + 1) % len(order)]
        self._accumulate_rewards()
