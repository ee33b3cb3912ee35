"""Runs on two ranks commit the same as on one rank; each resumes from the other's checkpoints.

Warm start, a critic that begins as the policy, a regulariser that remembers, adapters, checkpoints.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from arena.learn.trainer import create_local_trainer
from tests.factories.labs import run_with_trainers
from tests.factories.scaled import max_difference

ray = pytest.importorskip("ray")

from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402

pytestmark = pytest.mark.slow

IMITATE = "{scripted: [random], matches: 4, epochs: 2, minibatches: 2, lr: 1e-5}"
CONFIG = f"""\
name: scaled
iterations: 1
threads: 1
game: {{name: negotiation, options: {{illegal: retry, max_turns: 4, talk: false}}}}
policies: {{shared: {{model: nano, imitate: {IMITATE}}}}}
seats:
  opener: {{role: nano_opener, policy: shared}}
  responder: {{role: nano_responder, policy: shared}}
play: {{matches: 4, in_flight: 4}}
learn: {{lr: 2e-5, minibatches: 2, warmup_steps: 3, grad_clip: 0, regularisers: {{kl: {{}}, entropy_band: {{}}}}}}
credit: {{estimator: {{gae_turn: {{}}}}, critic: value_head}}
checkpoint: {{every: 1, keep: 9}}
"""
SEPARATE = [
    "policies={"
    + ", ".join(f"{name}: {{model: nano, adapter: {{rank: 4}}, imitate: {IMITATE}}}" for name in ("buyer", "seller"))
    + "}",
    "seats={opener: {role: nano_opener, policy: buyer}, responder: {role: nano_responder, policy: seller}}",
]


def read_checkpoint(folder: Path, k: int) -> dict[str, np.ndarray]:
    """Return weights and first moments of all policies and critics after an iteration."""
    arrays: dict[str, Any] = {}
    for file in sorted((folder / "checkpoints" / f"{k:04d}").rglob("*.safetensors")):
        arrays |= {f"{file.parent.name}.{name}": value for name, value in load_file(file).items() if "_sq" not in name}
    return arrays


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("changes", [[], SEPARATE], ids=["one policy", "an adapter for each"])
def test_two_ranks_commit_the_same_as_one(tmp_path: Path, ranks: Ranks, stage: int, changes: list[str]) -> None:
    """Compare one rank throughout with ranks 2 → 1 → 2 (one without ZeRO), resumed from each other's checkpoints."""
    on_two, zero = partial(ScaledTrainer, ranks), [f"learn.zero_stage={stage}"]
    run_with_trainers(CONFIG, tmp_path / "one", create_local_trainer, "iterations=3", *changes)
    for last, make_trainer, settings in ((1, on_two, zero), (2, create_local_trainer, []), (3, on_two, zero)):
        run_with_trainers(CONFIG, tmp_path / "many", make_trainer, f"iterations={last}", *settings, *changes)
    for k in range(4):
        one_rank, several_ranks = (read_checkpoint(tmp_path / name, k) for name in ("one", "many"))
        assert one_rank.keys() == several_ranks.keys() and one_rank
        assert max_difference(one_rank, several_ranks) < 1e-5, f"after iteration {k}"
    first_checkpoint, last_checkpoint = (read_checkpoint(tmp_path / "many", k) for k in (1, 3))
    assert max_difference(first_checkpoint, last_checkpoint) > 2e-5, "the weights changed"
