"""PettingZoo's cooperative pong as a text game, an adapter written by following docs/new-adapter.md."""

import os
from collections.abc import Mapping
from typing import ClassVar

from games.adapters.foreign import ForeignGame, OwnRandom
from games.base import IllegalAct, whole_number

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

ACTS = ("stay", "up", "down")


class Pong(ForeignGame):
    """Cooperative pong with the acts stay, up and down, each held for `hold` frames; each frame in play pays."""

    name, library, seats = "cooperative_pong", "PettingZoo", ("left", "right")
    metadata: ClassVar = {"name": "cooperative_pong_v0", "render_modes": ["ansi"]}
    reward_parts: Mapping[str, str] = {"held": "the environment's reward for a ball that is still in play"}
    stakes = 100.0
    cooperative = True

    def __init__(self, *, max_turns=100, hold=10, **options):
        super().__init__("cooperative pong", self.seats, **options)
        self.max_turns = whole_number("max_turns", max_turns, least=2, most=10_000)
        self.hold = whole_number("hold", hold, least=1, most=100)

    def set_up(self, rng, options):
        self._random, self._seed = OwnRandom(rng), int(rng.integers(2**31))
        self._origin, self._joint, self._chosen = OwnRandom.__copy__(self._random), [], {}
        with self._random.activate():
            self.env = self._make_env()

    def _make_env(self):
        from pettingzoo.butterfly import cooperative_pong_v6

        env = cooperative_pong_v6.parallel_env(max_cycles=10**6)
        env.reset(seed=self._seed)
        return env

    def copy_env(self):
        """Rebuild the environment by replaying its acts, since pygame's surfaces cannot be copied."""
        if self.env is None:
            return None
        twin = OwnRandom.__copy__(self._origin)
        with twin.activate():
            env = self._make_env()
            for joint in self._joint:
                _advance(env, joint, self.hold)
        return env

    def rules(self):
        return (
            "Two paddles keep a ball in play. Each turn both write up, down or stay; it lasts for some frames. "
            "The ball must not leave at the left or the right."
        )

    def public(self):
        game = self.env.aec_env.unwrapped.env
        ball = game.ball._rect
        return {
            "ball": [int(ball.x), int(ball.y)],
            "paddles": [int(game.p0.rects[0].centery), int(game.p1.rects[0].centery)],
            "turns_left": self.max_turns - self.turns,
        }

    def legal(self, seat):
        return list(ACTS)

    def play(self, seat, act):
        word = act.strip().lower()
        if word not in ACTS:
            raise IllegalAct("write stay, up or down")
        self._chosen[seat] = ACTS.index(word)
        if seat == "right":
            self._joint.append((self._chosen["left"], self._chosen["right"]))
            with self._random.activate():
                reward, is_over = _advance(self.env, self._joint[-1], self.hold)
            if reward:
                for player in self.seats:
                    self.pay(player, "held", reward)
            if is_over or self.turns + 1 >= self.max_turns:
                self.end("over" if is_over else "turns", "The match is over.")
        return ""  # the other player chooses without seeing this act


def _advance(env, joint, hold):
    """Hold the acts for `hold` frames; return their reward and whether the ball was lost."""
    total = 0.0
    for _ in range(hold):
        _, rewards, ends, cuts, _ = env.step(dict(zip(("paddle_0", "paddle_1"), joint, strict=True)))
        total += float(rewards["paddle_0"])
        if all(ends.values()) or all(cuts.values()):
            return total, True
    return total, False
