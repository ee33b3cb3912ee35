"""Check before a run that the models' contexts have room for its matches."""

from collections.abc import Callable, Sequence

from agents.engines.base import Completion, Request
from agents.errors import ContextFull
from agents.model_config import NO_LIMIT
from agents.players.model import ChatPlayer, ScriptedPlayer
from agents.players.simple import Random
from agents.policy import Policy
from agents.stream import ImageReader
from arena.errors import ConfigError
from arena.play.lineup import make_seatings
from arena.play.match import Limits, MatchPlan, SeatedPlayer, play_match
from arena.play.tables import Table
from games.abilities import Pictures
from games.contracts import MatchId, View

TRIAL_SECONDS = 10.0
"""Maximum wall time of a trial match."""


async def check_contexts(
    tables: Sequence[Table],
    find_policy: Callable[[str], Policy | None],
    max_context: int,
    turns: int | None,
    shows_images: bool = True,
) -> list[str]:
    """Play one trial match per table with replies of maximum length, and return a note for each context that fills up.

    `find_policy` returns a policy without weights by its name, or None for other players. `max_context` is the engine's
    limit in tokens, and `turns` the limit per match. With `shows_images` the engine shows images to models with vision.
    Raises ConfigError if a model has no room for its first reply.
    """
    notes = []
    for table in tables:
        policies = {name: found for name in table.holders.values() if (found := find_policy(name))}
        trials = {
            seat: _TrialModel(table, seat, policies[name], min(policies[name].positions, max_context))
            for seat, name in table.holders.items()
            if name in policies and seat not in table.harnesses
        }
        players: dict[str, SeatedPlayer] = {seat: ScriptedPlayer(Random(0)) for seat in table.roles}
        game = table.make_game()
        picture = game.picture if shows_images and isinstance(game, Pictures) else None
        players |= {seat: trial.player(picture) for seat, trial in trials.items()}
        spec = table.game
        plan = MatchPlan(
            identity=MatchId(0, 0),
            game=spec.name,
            options=dict(spec.options),
            seed=0,
            seats=make_seatings(table, table.holders, policies),
        )
        await play_match(plan, game, players, Limits(turns, seconds=TRIAL_SECONDS), keep_turns=False)
        full = [trial for trial in trials.values() if trial.full]
        if blocked := [trial.full for trial in full if not trial.replies]:
            raise ConfigError(blocked[0])
        notes += [trial.full for trial in full]
    return notes


class _TrialModel:
    """Simulated model at a seat of a trial match: random acts and long talk, padded to a reply's maximum length."""

    def __init__(self, table: Table, seat: str, policy: Policy, context: int) -> None:
        self.game, self.seat, self.policy, self.context = table.game.name, seat, policy, context
        self.role, self.random = table.roles[seat], Random(0)
        self.replies = 0
        self.full = ""
        """Message about the full context; "" while it has room."""

    def player(self, picture: ImageReader | None) -> SeatedPlayer:
        """Create the seat's player. Only with memory `summary` does it know the context limit, to summarise in time."""
        positions = self.context if self.role.memory.kind == "summary" else NO_LIMIT
        return ChatPlayer(
            role=self.role,
            frame=self.policy.frame,
            policy=self.policy.name,
            key=self.seat,
            seed=(),
            write=self._write,
            positions=positions,
            picture=picture,
        )

    async def _write(self, view: View, request: Request, summary: bool = False) -> Completion:
        if len(request.ids) + request.max_tokens > self.context:
            self._overflow(len(request.ids), request.max_tokens)
        self.replies += 1
        act = () if summary else self._encode_act(view, request.max_tokens)
        ids = (*act, *[self.policy.frame.stop_id] * (request.max_tokens - len(act)))  # stop ids decode to no text
        return Completion(ids, (0.0,) * len(ids), "stop", 0)

    def _encode_act(self, view: View, max_tokens: int) -> Sequence[int]:
        """Encode a random legal act with long talk, or only talk if none are listed, in at most `max_tokens` ids."""
        frame, talk = self.policy.frame, " ".join(["so"] * (max_tokens // 4))
        act = self.random.act(view) or talk
        ids = frame.encode(self.role.write(f"{act} | {talk}"))
        return ids if len(ids) <= max_tokens else frame.encode(self.role.write(act))[:max_tokens]

    def _overflow(self, used: int, reply: int) -> None:
        numbers = f"{used:,} tokens and a reply of up to {reply:,}, of {self.context:,} that '{self.policy.name}' holds"
        remedy = f"lower sampling.max_tokens of role {self.role.role}"
        self.full = f"{self.game}: {self.seat} has no room for a reply ({numbers}): {remedy}"
        if self.replies:
            self.full = (
                f"{self.game}: the context of {self.seat} may be full after {self.replies} replies ({numbers}), which "
                f"ends the match: {remedy}, or give it memory window or summary"
            )
        raise ContextFull(numbers)
