"""Memory needs of an experiment by training method, and the largest settings that fit on a machine."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agents.adapter_config import AdapterSpec
from agents.precision import Precision
from arena.config.experiment import Experiment
from arena.fits.formulas import (
    ComputeConfig,
    LearningWorkload,
    Parts,
    PlayWorkload,
    Shape,
    estimate_loading,
    estimate_play,
    estimate_play_between_updates,
    estimate_update,
)
from arena.fits.machine import Device

CONTEXT = 1024
"""Default number of tokens of a dialogue."""
FRESH, SAMPLED = 2, 2
"""Assumed ratios of the context to the first prompt, and of a pass's tokens to the sampled ones among them. Most games
have shorter first prompts and fewer sampled tokens."""
SEARCH_LIMIT = 1 << 14
"""Upper limit of the search for the largest settings."""


@dataclass(frozen=True)
class TrainingMethod:
    """Training method to compare: precision, adapter rank (None trains all weights), and number of trained policies."""

    name: str
    precision: Precision
    rank: int | None
    learners: int


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Memory needs of a training method, in bytes by purpose, and the largest settings that fit."""

    way: TrainingMethod
    asked: bool
    """True for the experiment's own method."""
    loading: Parts
    """Loading a model."""
    play: Parts
    """Play with frozen weights, as in `arena play` and `arena eval`."""
    learning: Parts
    """An update."""
    between: Parts
    """Play between a run's updates."""
    fits: bool
    """True if a run with the experiment's settings fits."""
    fits_play: bool
    """True if play with frozen weights fits."""
    in_flight: int
    """Largest `play.in_flight` with which a run fits; 0 if none does."""
    token_budget: int
    """Largest `learn.token_budget` with which a run fits; 0 if none does."""

    @property
    def run(self) -> int:
        """Peak bytes of a run after loading."""
        return max(sum(self.learning.values()), sum(self.between.values()))

    def row(self) -> dict[str, Any]:
        """Return the needs as nested dicts of plain values, for JSON."""
        return {**asdict(self), "way": {**asdict(self.way), "precision": str(self.way.precision)}}


@dataclass(frozen=True, kw_only=True)
class MemoryPlanner:
    """Comparison of the memory needs of a model and an experiment with a machine's memory. Call `compute_needs`."""

    shape: Shape
    files: int
    """Bytes of the model's weight files."""
    experiment: Experiment
    context: int
    devices: Sequence[Device]
    packs: bool = True
    """True if the processor's bfloat16 products use packed matrices, as in `ComputeConfig`."""

    @property
    def gpu(self) -> Device | None:
        """First CUDA device, which a run would use; None if it computes on the CPU."""
        return next((device for device in self.devices if device.kind == "cuda"), None)

    def compute_needs(self, methods: Sequence[TrainingMethod], asked: TrainingMethod) -> list[MemoryNeed]:
        """Return the memory needs of each method. The one equal to `asked` is marked as the experiment's own."""
        return [self.compute_need(method, method == asked) for method in methods]

    def compute_need(self, method: TrainingMethod, asked: bool) -> MemoryNeed:
        """Return a method's memory needs and the largest settings that fit. `asked` marks the experiment's own."""
        config = ComputeConfig(method.precision, self.gpu is not None, self.packs)
        files = self.files or 2 * self.shape.parameters
        parts = estimate_loading(self.shape, config, files, frozen=method.rank is not None)
        play = estimate_play(self.shape, config, self._make_play_workload(self.experiment.play.in_flight))
        budget, in_flight = self.experiment.learn.token_budget, self.experiment.play.in_flight
        loads = self._fits_main_memory(parts)

        def run_fits(tokens: int, matches: int) -> bool:
            return loads and all(map(self._fits_device, self._estimate_run(method, config, tokens, matches)))

        learning, between = self._estimate_run(method, config, budget, in_flight)
        return MemoryNeed(
            way=method,
            asked=asked,
            loading=parts,
            play=play,
            learning=learning,
            between=between,
            fits=run_fits(budget, in_flight),
            fits_play=loads and self._fits_device(play),
            in_flight=find_largest(lambda matches: run_fits(min(budget, 256), matches)),
            token_budget=find_largest(lambda tokens: run_fits(tokens, 1)),
        )

    def _estimate_run(
        self, method: TrainingMethod, config: ComputeConfig, tokens: int, matches: int
    ) -> tuple[Parts, Parts]:
        """Return the bytes of an update with a token budget of `tokens`, and of play of `matches` between updates."""
        workload = self._make_learning_workload(method, tokens)
        update = estimate_update(self.shape, config, workload)
        return update, estimate_play_between_updates(self.shape, config, workload, self._make_play_workload(matches))

    def _make_play_workload(self, matches: int) -> PlayWorkload:
        engine, tables = self.experiment.engine, self.experiment.all_tables()
        policies = self.experiment.policies
        seats = max((sum(seat.policy in policies for seat in table.seats.values()) for table in tables), default=1)
        cache_bytes = len(policies) * (engine.cache_mb << 20)
        rows, streams = min(matches, engine.max_batch), matches * max(1, seats)
        return PlayWorkload(rows, streams, self.context, self.context // FRESH, cache_bytes)

    def _make_learning_workload(self, method: TrainingMethod, tokens: int) -> LearningWorkload:
        rule = self.experiment.learn
        return LearningWorkload(
            tokens=tokens,
            sampled=tokens // SAMPLED,
            learners=method.learners,
            rank=method.rank,
            reference=rule.uses_reference,
            checkpointing=rule.gradient_checkpointing,
        )

    def _fits_main_memory(self, parts: Parts) -> bool:
        total = self.devices[0].total
        return not total or sum(parts.values()) <= total

    def _fits_device(self, parts: Parts) -> bool:
        if self.gpu is None:
            return self._fits_main_memory(parts)
        return sum(parts.values()) - parts["libraries"] <= self.gpu.total


def list_methods(
    experiment: Experiment, precision: Precision, adapters: int | None
) -> tuple[list[TrainingMethod], TrainingMethod]:
    """Return the training methods to compare, and the experiment's own among them.

    They train all weights or adapters, in fp32 or bf16. bf16-true is added if it is the `precision`. `adapters`
    overrides the experiment's number of adapters.
    """
    learn = [policy for policy in experiment.policies.values() if policy.train]
    adapter_spec = next((policy.adapter for policy in learn if policy.adapter), None)
    count = max(1, len(learn) if adapters is None else adapters)
    rank = (adapter_spec or AdapterSpec()).rank
    adapter = f"{count} adapters" if count > 1 else "an adapter"
    full = f"all weights, {count} times" if count > 1 else "all weights"
    methods = [
        TrainingMethod(name, Precision(number), r, count)
        for name, r in ((full, None), (f"{adapter} of rank {rank}", rank))
        for number in ("fp32", "bf16")
    ]
    pure_bf16 = replace(methods[0], precision=Precision.BF16_TRUE)
    wants_adapter = bool(adapters) or (adapters is None and adapter_spec is not None)
    if precision is Precision.BF16_TRUE:
        return [*methods, pure_bf16], pure_bf16
    return methods, next(
        method for method in methods if method.precision is precision and (method.rank is not None) == wants_adapter
    )


def find_largest(fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `SEARCH_LIMIT` that fits, by bisection; 0 if 1 does not. `fits` is monotone."""
    low, high = 0, SEARCH_LIMIT + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
