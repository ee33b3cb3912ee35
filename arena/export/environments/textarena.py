"""TextArena environment of a game with all seats as players."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import textarena

from arena.export.environments.episode import GAME_LOCK, Task, lock_game
from arena.export.environments.names import slugify
from arena.export.environments.observation import FactMemory, format_legal_acts, indent
from arena.plain import clean_text
from arena.play.making import skip_ended_seats
from arena.play.texts import view_of
from games.contracts import ILLEGAL, Game

KIND = textarena.ObservationType


class GameEnv(textarena.Env):  # type: ignore[misc]  # textarena is untyped
    """TextArena environment in which player N plays the game's seat N. Acts are texts, without brackets.

    A player's prompt has the rules and the first facts. Later observations are other players' acts, messages of the
    game, changed facts and legal acts. A player's reward is its payoff less penalties for illegal acts. `close` returns
    the rewards, and infos with the reason why the match ended.
    """

    def __init__(self, game: str, options: Mapping[str, Any] | None = None) -> None:
        with GAME_LOCK:
            self.game: Game = Task(game, options or {}).make()
        self.seats = list(self.game.possible_agents)

    def reset(self, num_players: int, seed: int | None = None) -> None:
        """Deal a new match. The seed is that of `arena play --seed`.

        Raises ValueError if `num_players` differs from the game's number of seats.
        """
        if num_players != len(self.seats):
            raise ValueError(f"{self.game.name} has {len(self.seats)} players, not {num_players}")
        self.state = textarena.State(num_players=num_players)
        names = dict(enumerate(self.seats))
        self.state.standard_resets(game_state={}, role_mapping=dict(names), secret_roles=names)
        self._facts = {seat: FactMemory() for seat in self.seats}
        self._penalties = dict.fromkeys(self.seats, 0.0)
        with lock_game(self.game):
            self.game.reset(seed=seed)
            self._observe_next()

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        """Play the current player's act. Returns whether the match is over, and the act's validity. Never raises."""
        if self.state.done:
            return True, {}
        player = self.state.current_player_id
        seat = self.seats[player]
        with lock_game(self.game):
            self.game.step(clean_text(action))
        for name in self.seats:
            self._penalties[name] += self.game.infos[name].get("rewards", {}).get(ILLEGAL, 0.0)
        valid = bool(self.game.infos[seat].get("valid"))
        self.state.game_info[player]["turn_count"] += 1
        self.state.game_info[player]["invalid_move"] |= not valid
        self.state.step_info = {"valid": valid}
        with lock_game(self.game):
            self._observe_next()
        done, info = self.state.step()
        return done, info

    def close(self) -> tuple[dict[int, float] | None, dict[int, dict[str, Any]]]:
        """Release the game's resources and return rewards (None before the end) and infos, by player."""
        self.game.close()
        rewards, infos = self.state.close()
        return rewards, infos

    def _observe_next(self) -> None:
        """Add the next player's observation. At the match's end, add all players' last observations and rewards."""
        game = self.game
        if not _is_over(game):
            skip_ended_seats(game)
            self.state.current_player_id = self.seats.index(game.agent_selection)
            return self._observe(game.agent_selection)
        for player, seat in enumerate(self.seats):
            self._tell(player, seat)
            self.state.game_info[player]["reason"] = game.ended
        payoffs = game.payoffs()
        self.state.rewards = {player: payoffs[seat] + self._penalties[seat] for player, seat in enumerate(self.seats)}
        self.state.done = True

    def _observe(self, seat: str) -> None:
        player, view, memory = self.seats.index(seat), view_of(self.game, seat), self._facts[seat]
        is_first, facts = not memory.has_shown_rules, memory.lines(view)
        if is_first:
            self.state.add_observation("\n".join(facts), KIND.PROMPT, to_id=player)
            facts = []
        self._tell(player, seat)
        if board := "\n".join([*facts, *format_legal_acts(view.legal)]):
            self.state.add_observation(board, KIND.GAME_BOARD, to_id=player)

    def _tell(self, player: int, seat: str) -> None:
        """Add the seat's new messages to the player's observations, each with its sender's number."""
        for message in self.game.messages(seat):
            sender = self.seats.index(message.sender) if message.sender in self.seats else textarena.GAME_ID
            kind = KIND.GAME_MESSAGE if sender == textarena.GAME_ID else KIND.PLAYER_ACTION
            self.state.add_observation(indent(clean_text(message.text)), kind, from_id=sender, to_id=player)


def _is_over(game: Game) -> bool:
    return not game.agents or all(game.terminations.values()) or all(game.truncations.values())


def register(task: Task) -> str:
    """Register the task for `textarena.make` and return its id, such as `arena/kuhn_poker-v0`.

    With this id, all of a player's observations are joined to one text; with the suffix `-raw` they are lists.
    """
    name = f"arena/{slugify(task.game)}-v0"
    kwargs = {"game": task.game, "options": dict(task.options)}
    wrappers = {"default": [textarena.wrappers.LLMObservationWrapper], "-raw": []}
    textarena.envs.registration.register_with_versions(name, GameEnv, wrappers, **kwargs)
    return name
