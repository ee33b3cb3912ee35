"""Small worlds in which a table of logits plays and learns through Arena's own records, credit and trainer.

Only the language model is replaced: a `Table` has one row of logits per token that may stand before a sampled one (the
state), one column per action. All else is the lab's: `Trajectory`, `assign`, `samples_of`, `PolicyTrainer` (DeepSpeed
and AdamW included). An arm of a study is a `CreditSpec` and a `LearnSpec`, nothing else.

A world says which tables there are and plays M matches at once; every array has one entry per row:

    class Bandit(World):
        name, seats = "bandit", {"player": ("player", "shared")}     # seat -> (role, policy); this is the default
        deals = 4                                                    # how many different deals there are
        def tables(self):                                            # policy -> first logits [states, actions]
            return {"shared": np.zeros((4, 10))}
        def play(self, matches):
            arm = matches.act("player", matches.deals)               # a turn: state ids [M] -> sampled actions [M]
            matches.reward("player", "win", arm == matches.deals)    # on that seat's latest turn
            matches.figure("success", arm == matches.deals)          # a curve: its mean over matches
        def evaluate(self, tables):                                  # optional, exact: policy -> probabilities [S, A]
            return {"exact": tables["shared"][range(4), range(4)].mean()}

`act`, `more`, `reward` and `note` take `rows`, the matches they are about (numbers or a mask; default all). `more` is a
further token of the seat's latest turn, after a state of its own. `note(seat, name, values)` appends one number to the
trajectory's array in `batch.measures[name]`. `probs[policy]` are the current probabilities, `rng` the world's own
randomness. `NEVER` is the logit of an action that a state does not have. `World.sampler` bends the distribution that
play samples from, `World.text` is what a state's message says (anchors compare messages), and with `World.features`
actions share weights.

`Learner(world, arm, seed, matches, group).run(steps)` learns until at least `steps` turns were played and gives curves
over turns: the world's figures, `zero_share` (turns with advantage 0) and `turns` (per match). Matches of one group
share deal and `seed`. There is no critic: `gae_turn` finds values of 0, so it is the bare return-to-go. Several
settings, arms, seeds and a verdict make a `Claim` (`claim.py`), which `study.py` runs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from agents.scoring import StreamScorer, score_streams
from agents.stream import Stream
from arena.config.experiment import LearnSpec
from arena.credit.assign import assign
from arena.credit.batch import TurnBatch
from arena.credit.samples import samples_of
from arena.credit.settings import CreditSpec
from arena.learn.trainer import PolicyTrainer
from arena.parts.schedules import Clock
from arena.records import Trajectory, Turn
from games.contracts import Message

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[Any] | slice
ALL = slice(None)
NEVER = -1e4
"""A logit so low that the action is never sampled, and has no gradient."""


class World:
    """Rules of a small world, for many matches at once."""

    name = "world"
    seats: ClassVar[Mapping[str, tuple[str, str]]] = {"player": ("player", "shared")}
    """Seat -> (role, policy)."""
    deals = 1
    features: Floats | None = None
    """[actions, D]: where given, a state's actions share D weights, and logits move by features · weights."""

    def tables(self) -> dict[str, Floats]:
        """Each policy's first logits, [states, actions]."""
        raise NotImplementedError

    def play(self, matches: "Matches") -> None:
        """Play all matches to their end."""
        raise NotImplementedError

    def evaluate(self, tables: Mapping[str, Floats]) -> dict[str, float]:
        """Exact figures of policies given as probabilities [states, actions]."""
        return {}

    def sampler(self, policy: str, probs: Floats) -> Floats:
        """The distributions that play samples from, given the trainer's."""
        return probs

    def text(self, state: int) -> str:
        """Return the text that a seat reads in a state."""
        return f"state {state}"


class Matches:
    """M matches of one iteration while they are played, and their records afterwards."""

    def __init__(
        self, world: World, probs: Mapping[str, Floats], deals: Ints, seeds: Ints, rng: np.random.Generator, k: int
    ) -> None:
        self.world, self.probs, self.deals, self.seeds, self.rng, self.iteration = world, probs, deals, seeds, rng, k
        self.count = len(deals)
        self.figures: dict[str, float] = {}
        self._behaviour = {policy: world.sampler(policy, p) for policy, p in probs.items()}
        self._sums = {policy: np.cumsum(p, -1) for policy, p in self._behaviour.items()}
        self._turns: dict[str, list[list[Turn]]] = {s: [[] for _ in range(self.count)] for s in world.seats}
        self._streams = {s: [Stream([_OPENING], [False], [0.0], [-1]) for _ in range(self.count)] for s in world.seats}
        self._notes: dict[str, dict[str, list[list[float]]]] = {s: {} for s in world.seats}
        self._indices = np.zeros(self.count, np.int64)

    def act(self, seat: str, states: Any, rows: Rows = ALL) -> Ints:
        """The seat takes a turn in each of these matches; its sampled actions."""
        role, policy = self.world.seats[seat]
        matches, seen, actions = self._sample(seat, states, rows, self._indices)
        for m, state, action in zip(matches, seen, actions.tolist(), strict=True):
            text, said = self.world.text(state), str(action)
            told = (Message.of("world", text),)
            turn = Turn(int(self._indices[m]), seat, role, policy, self.iteration, told, said, said, "", said, True, {},
                        "stop", 1, 0.0, text)  # fmt: skip
            self._turns[seat][m].append(turn)
            self._indices[m] += 1
        return actions

    def more(self, seat: str, states: Any, rows: Rows = ALL) -> Ints:
        """A further token of the seat's latest turn in each of these matches, after another state."""
        latest = np.array([turns[-1].index if turns else -1 for turns in self._turns[seat]])
        matches, _, actions = self._sample(seat, states, rows, latest)
        for m, action in zip(matches, actions.tolist(), strict=True):
            turn = self._turns[seat][m][-1]
            said = f"{turn.action} {action}"
            self._turns[seat][m][-1] = turn._replace(raw=said, public=said, action=said, tokens=turn.tokens + 1)
        return actions

    def reward(self, seat: str, name: str, values: Any, rows: Rows = ALL) -> None:
        """Add a named reward to the seat's latest turn; 0 is no reward."""
        matches = np.arange(self.count)[rows]
        for m, value in zip(matches.tolist(), _full(values, len(matches)).astype(float).tolist(), strict=True):
            if value:
                rewards = self._turns[seat][m][-1].rewards
                rewards[name] = rewards.get(name, 0.0) + value

    def note(self, seat: str, name: str, values: Any, rows: Rows = ALL) -> None:
        """Append a number to a measure of the seat's trajectory, for `batch.measures[name]`."""
        matches = np.arange(self.count)[rows]
        kept = self._notes[seat].setdefault(name, [[] for _ in range(self.count)])
        for m, value in zip(matches.tolist(), _full(values, len(matches)).astype(float).tolist(), strict=True):
            kept[m].append(value)

    def figure(self, name: str, values: Any) -> None:
        """A point of a curve: the mean of the values."""
        self.figures[name] = float(np.mean(values))

    def records(self) -> tuple[list[Trajectory], dict[str, list[NDArray[np.float32]]]]:
        """The trajectories with a turn, and what was noted of each."""
        found, places = [], []
        for m in range(self.count):
            for seat, (role, policy) in self.world.seats.items():
                if turns := self._turns[seat][m]:
                    name, stream = f"{self.iteration}-{m}", self._streams[seat][m]
                    found.append(
                        Trajectory(name, self.world.name, seat, role, policy, self.iteration, True, tuple(turns),
                                   (stream,), int(self.seeds[m]))
                    )  # fmt: skip
                    places.append((seat, m))
        names = {name for notes in self._notes.values() for name in notes}
        noted = {
            name: [np.array(self._notes[seat].get(name, {m: []})[m], np.float32) for seat, m in places]
            for name in names
        }
        return found, noted

    def _sample(self, seat: str, states: Any, rows: Rows, index: Ints) -> tuple[list[int], list[int], Ints]:
        policy = self.world.seats[seat][1]
        matches = np.arange(self.count)[rows]
        seen = _full(states, len(matches)).astype(np.int64)
        sums = self._sums[policy][seen]
        drawn = self.rng.random(len(matches)) * sums[:, -1]
        actions = np.minimum((sums <= drawn[:, None]).sum(-1), sums.shape[1] - 1)
        logprobs = np.log(self._behaviour[policy][seen, actions])
        for m, state, action, logprob in zip(matches.tolist(), seen.tolist(), actions, logprobs, strict=True):
            self._streams[seat][m].observe([state])
            self._streams[seat][m].wrote([action], [logprob], int(index[m]))
        return matches.tolist(), seen.tolist(), actions


_OPENING = 0
"""Every stream begins with the same id, as with a model's own: then all are scored in one forward."""


def _full(values: Any, size: int) -> NDArray[Any]:
    return np.broadcast_to(np.asarray(values), (size,))


class Table(torch.nn.Module):
    """Logits by state, in the shape of a causal language model: what follows a token depends on that token alone."""

    def __init__(self, logits: Floats, features: Floats | None = None) -> None:
        super().__init__()
        start = torch.from_numpy(logits).float()
        self.features = None if features is None else torch.from_numpy(features).float()
        self.start = None if features is None else start
        self.weights = torch.nn.Parameter(start if features is None else start.new_zeros(len(start), features.shape[1]))
        self.config = SimpleNamespace(get_text_config=lambda decoder: None)

    @property
    def logits(self) -> torch.Tensor:
        """[states, actions]"""
        if self.features is None or self.start is None:
            return self.weights
        return self.start + self.weights @ self.features.T

    @property
    def base_model(self) -> Callable[..., Any]:
        """The rows of the ids given; a shared opening needs no memory."""
        return self._rows

    def get_output_embeddings(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """The head: rows are logits already."""
        return lambda rows: rows

    def _rows(self, input_ids: torch.Tensor, **ignored: Any) -> Any:
        logits = self.logits
        rows = torch.nn.functional.embedding(input_ids.clamp(max=len(logits) - 1), logits)
        past = SimpleNamespace(batch_repeat_interleave=lambda times: None)
        return SimpleNamespace(last_hidden_state=rows, past_key_values=past)

    def probs(self) -> Floats:
        """[states, actions] in float64."""
        with torch.no_grad():
            return torch.softmax(self.logits.double(), -1).numpy()


@dataclass(frozen=True)
class Arm:
    """A way to learn."""

    credit: CreditSpec
    learn: LearnSpec


class Learner:
    """The loop of the lab in small: play, credit, learn."""

    def __init__(self, world: World, arm: Arm, seed: int, matches: int, group: int) -> None:
        self.world, self.matches, self.group, self.iteration, self.steps = world, matches, group, 0, 0
        self.credit = arm.credit
        self.rule = arm.learn.model_copy(update={"token_budget": 10**7})
        self.play_rng, self.credit_rng, self.learn_rng = (np.random.default_rng([seed, part]) for part in range(3))
        self.memory: dict[str, Any] = {}
        self.trainers = {p: PolicyTrainer(p, Table(t, world.features), self.rule) for p, t in world.tables().items()}
        self.references = {p: StreamScorer(deepcopy(t.model)) for p, t in self.trainers.items()}
        self.temperatures = {role: 1.0 for role, _ in world.seats.values()}

    def probs(self) -> dict[str, Floats]:
        """Every policy's current probabilities."""
        return {policy: trainer.model.probs() for policy, trainer in self.trainers.items()}

    def step(self) -> dict[str, float]:
        """One iteration; its figures."""
        self.iteration += 1
        groups = self.matches // self.group
        deals = np.repeat(self.play_rng.integers(self.world.deals, size=groups), self.group)
        seeds = np.repeat(np.arange(groups) + self.iteration * groups, self.group)
        played = Matches(self.world, self.probs(), deals, seeds, self.play_rng, self.iteration)
        self.world.play(played)
        found, noted = played.records()
        clock = Clock(self.iteration, self.iteration)
        batch = TurnBatch(found, clock, self.credit_rng, self.memory, noted | self._measured(found))
        credited = assign(batch, self.credit)
        for policy, trainer in self.trainers.items():
            samples = samples_of([c for c in credited if c.trajectory.policy == policy], self.temperatures)
            if self.rule.uses_reference:
                scored = score_streams(self.references[policy], [s.stream for s in samples], [1.0] * len(samples))
                samples = [s.with_reference(r) for s, r in zip(samples, scored, strict=True)]
            if samples:
                trainer.carry_out(trainer.plan(samples, self.learn_rng, clock))
        turns = sum(len(t.turns) for t in found)
        self.steps += turns
        advantages = np.concatenate([c.advantages for c in credited]) if credited else np.zeros(1)
        zero = float((np.abs(advantages) < 1e-9).mean())
        return played.figures | {"zero_share": zero, "turns": turns / self.matches}

    def run(self, steps: int, points: int = 40) -> dict[str, list[float]]:
        """Learn for at least so many turns; curves of `points` values, each the mean over its part of the way."""
        curves: dict[str, list[float]] = defaultdict(list)
        for point in range(1, points + 1):
            rows: list[dict[str, float]] = []
            while self.steps < steps * point / points or not rows:
                rows.append(self.step())
            exact = self.world.evaluate(self.probs())
            for name in rows[0]:
                curves[name].append(float(np.mean([row[name] for row in rows])))
            for name, value in exact.items():
                curves[name].append(float(value))
        return dict(curves)

    def _measured(self, found: Sequence[Trajectory]) -> dict[str, list[NDArray[np.float32]]]:
        """Return the measures of the trajectories' tokens by models, where credit asks for them."""
        wanted = self.credit.needs & {"old", "entropy", "reference"}
        said = {name: [np.zeros(0, np.float32)] * len(found) for name in wanted}
        if "values" in self.credit.needs:  # there is no critic: GAE over turns is the return-to-go
            said["values"] = [np.zeros(len(t.turns), np.float32) for t in found]
        for policy, trainer in self.trainers.items() if wanted else ():
            members = [i for i, t in enumerate(found) if t.policy == policy]
            streams = [found[i].streams[0] for i in members]
            heat = [1.0] * len(streams)
            scores = trainer.compute_scores(streams, heat)
            views = {"old": [s.logprobs for s in scores], "entropy": [s.entropy for s in scores]}
            if "reference" in wanted:
                views["reference"] = score_streams(self.references[policy], streams, heat)
            for name in wanted:
                for i, values in zip(members, views[name], strict=True):
                    said[name][i] = values
        return said
