"""Learning from a data set in place of matches: an iteration's samples, and the loss on held-out rows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agents.computing import compute
from arena.data.rows import DataSet, RowOrder
from arena.data.samples import RowEncoder
from arena.data.units import UnitSplitter
from arena.errors import ConfigError
from arena.learn.samples import Sample
from arena.learn.settings import DemonstrationsSpec
from arena.play.settings import RunRows, SourceSpec
from arena.play.source import PlayedMatches
from arena.play.watchers import Watcher
from arena.policies import Policies
from arena.store.run import RunFolder

if TYPE_CHECKING:
    from arena.data.rows import RowKind

LOSS_OF_KIND: dict[RowKind, str] = {"chats": "likelihood", "texts": "likelihood", "pairs": "dpo", "labels": "kto"}
"""Loss by kind of row."""
EXPORTED_ROWS = "data/rows.jsonl"
"""Path in the run folder of the rows that were exported from another run."""


class DataSource:
    """Source of a run that learns from a data set. It has no matches; policies learn from its `samples`."""

    def __init__(
        self, run: RunFolder, spec: SourceSpec, policies: Policies, watcher: Watcher, *, seed: int, iterations: int
    ) -> None:
        """Open the data set. Raises ConfigError if its hash is not the recorded one, or if it cannot be read."""
        self.spec, self.policies, self.watcher, self._iterations = spec, policies, watcher, iterations
        self.rows = open_rows(spec, run.path)
        self._order = RowOrder(len(self.rows), seed, spec.held_out, spec.epochs)
        self._has_warned = False
        self._held_out: dict[str, tuple[list[Sample], list[np.ndarray]]] = {}
        """Held-out samples of each policy, with their log-probabilities under its reference weights, if needed."""

    async def matches(self, k: int) -> PlayedMatches:
        """Return no matches."""
        self.watcher.phase(k, "reading the data set")
        return PlayedMatches([], [])

    async def close(self) -> None:
        """Close the data set."""
        self.rows.close()

    async def samples(self, name: str, k: int) -> tuple[list[Sample], dict[str, float]]:
        """Return a policy's samples for iteration `k`, and metrics: the number of `rows` and how many are `too_long`.

        Shows a note when rows are too long for the first time.
        """
        numbers = self._order.batch(k, self.spec.batch)
        encoder = self._encoder(name)
        encoded = await compute(encoder.samples, numbers)
        if encoded.too_long and not self._has_warned:
            self._has_warned = True
            self.watcher.note(
                f"{encoded.too_long} of {len(numbers)} rows are longer than the context of '{name}', "
                f"{encoder.max_tokens:,} tokens: such rows are left out and counted (learn.{name}.too_long)"
            )
        return encoded.samples, {"rows": float(len(numbers)), "too_long": float(encoded.too_long)}

    async def held_out(self, name: str, k: int) -> dict[str, float]:
        """Return metrics of a policy on the held-out rows, or {} in iterations without this evaluation."""
        is_due = k == 1 or k % self.spec.held_out_every == 0 or k == self._iterations
        if not self._order.held_out or not is_due:
            return {}
        if name not in self._held_out:
            samples = (await compute(self._encoder(name).samples, self._order.held_out)).samples
            samples = [sample for sample in samples if sample.learned.any()]
            needs_reference = self.rows.kind in ("pairs", "labels") and self.policies.uses_reference
            base = await self.policies.with_references(name, samples) if needs_reference else samples
            zeros = [np.zeros(len(s.advantages), np.float32) for s in samples]
            references = [zero if s.reference is None else s.reference for s, zero in zip(base, zeros, strict=True)]
            self._held_out[name] = samples, references
        samples, references = self._held_out[name]
        if not samples:
            return {}
        scores = await self.policies.trainers[name].score([s.stream for s in samples], [1.0] * len(samples))
        logprobs = [np.asarray(score.logprobs, np.float64) for score in scores]
        if self.rows.kind in ("chats", "texts"):
            loss = -float(np.concatenate(logprobs).mean())
            return {"held_out_loss": loss, "held_out_perplexity": float(np.exp(min(loss, 700.0)))}
        ratios = np.array([(logprob - base).sum() for logprob, base in zip(logprobs, references, strict=True)])
        signs = np.array([sample.advantages[0] for sample in samples])
        settings = self.policies.rule.loss.with_defaults().settings
        return score_preferences(ratios, signs, settings["beta"], is_paired=self.rows.kind == "pairs")

    def _encoder(self, name: str) -> RowEncoder:
        policy = self.policies[name]
        units = UnitSplitter(self.spec.units.end, self.spec.units.between) if self.spec.units else None
        return RowEncoder(self.rows, policy.frame, min(policy.positions, self.policies.engine.max_context), units)


def score_preferences(ratios: np.ndarray, signs: np.ndarray, beta: float, is_paired: bool) -> dict[str, float]:
    """Return the accuracy, and for pairs the loss, on held-out preferences.

    `ratios` are the completions' log-ratios of the policy to its reference. `signs` are 1 for the better completions
    and -1 for the others. The accuracy of pairs, which follow each other, is the share whose better completion has the
    higher ratio; their loss is that of `dpo`. The accuracy of labelled completions is that share of all (desirable,
    undesirable) couples; NaN without any. Equal ratios count half.
    """
    preferred, rejected = ratios[signs > 0], ratios[signs < 0]
    gaps = preferred - rejected if is_paired else (preferred[:, None] - rejected[None, :]).ravel()
    accuracy = float((gaps > 0).mean() + 0.5 * (gaps == 0).mean()) if len(gaps) else float("nan")
    if not is_paired:
        return {"held_out_accuracy": accuracy}
    return {"held_out_accuracy": accuracy, "held_out_loss": float(np.logaddexp(0.0, -beta * gaps).mean())}


class RowDemonstrations:
    """Rows of a data set that policies imitate in every update, in addition to play (`learn.demonstrations.data`)."""

    def __init__(self, spec: DemonstrationsSpec, seed: int) -> None:
        """Open the data set. Raises ConfigError if its hash is not the recorded one, or if it cannot be read."""
        assert spec.data is not None
        self.rows = open_data(Path(spec.data), spec.sha256, "learn.demonstrations.data")
        self._order, self._size = RowOrder(len(self.rows), seed), spec.matches

    def samples(self, encoder: RowEncoder, k: int) -> list[Sample]:
        """Return the demonstrations of iteration `k`, without rows that the policy's context cannot hold."""
        return encoder.samples(self._order.batch(k, self._size), "demonstration").samples


def open_rows(spec: SourceSpec, run: Path | None = None) -> DataSet:
    """Open the data set of a source, in the run's folder if it was exported from another run.

    Raises ConfigError if its hash is not the recorded one, or if it cannot be read.
    """
    if isinstance(spec.data, RunRows):
        assert run is not None
        return open_data(run / EXPORTED_ROWS, spec.sha256, "source.data")
    assert spec.data is not None
    return open_data(Path(spec.data), spec.sha256, "source.data")


def open_data(path: Path, sha256: str | None, field: str) -> DataSet:
    """Open a data set. Raises ConfigError, naming `field`, if its hash is not `sha256` or if it cannot be read."""
    rows = DataSet(path)
    if sha256 not in (None, rows.sha256):
        with suppress(ConfigError):  # changed rows may be malformed, too
            rows.check()  # which hashes the images
    if sha256 not in (None, rows.sha256):
        rows.close()
        raise ConfigError(f"{field}: {path} was changed since the run began: restore it, or start a new run")
    return rows
