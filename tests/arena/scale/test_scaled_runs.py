"""Runs that learn on two ranks commit what one rank commits; each goes on from the other's checkpoints.

Warm start, a critic that begins as the policy, a regulariser that remembers, adapters, checkpoints.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

import agents
from arena.learn.trainer import local_trainer
from tests.factories.labs import run_with_trainers
from tests.factories.scaled import max_difference

ray = pytest.importorskip("ray")

from arena.scale.ranks import Ranks  # noqa: E402
from arena.scale.trainer import ScaledTrainer  # noqa: E402

pytestmark = pytest.mark.slow

ROLES = Path(agents.__file__).parent / "roles"
IMITATE = "{scripted: [random], matches: 4, epochs: 2, minibatches: 2, lr: 1e-5}"
CONFIG = f"""\
name: scaled
iterations: 1
threads: 1
game: {{name: negotiation, options: {{illegal: retry, max_turns: 4, talk: false}}}}
policies: {{shared: {{model: nano, imitate: {IMITATE}}}}}
seats:
  opener: {{role: strict_opener, policy: shared}}
  responder: {{role: strict_responder, policy: shared}}
play: {{matches: 4, in_flight: 4}}
learn: {{lr: 2e-5, minibatches: 2, warmup_steps: 3, grad_clip: 0, regularisers: {{kl: {{}}, entropy_band: {{}}}}}}
credit: {{estimator: {{gae_turn: {{}}}}, critic: value_head}}
checkpoint: {{every: 1, keep: 9}}
"""
SEPARATE = [
    "policies={"
    + ", ".join(f"{name}: {{model: nano, adapter: {{rank: 4}}, imitate: {IMITATE}}}" for name in ("buyer", "seller"))
    + "}",
    "seats={opener: {role: strict_opener, policy: buyer}, responder: {role: strict_responder, policy: seller}}",
]


def roles_that_learn_from_cut_replies(folder: Path) -> Path:
    """Write the seats' roles so that a reply without an end, as untrained weights write, is illegal and not excused."""
    folder.mkdir()
    for seat in ("opener", "responder"):
        role = yaml.safe_load((ROLES / f"nano_{seat}.yaml").read_text("utf-8"))
        role |= {"role": f"strict_{seat}", "sampling": {**role["sampling"], "truncated": "illegal"}}
        (folder / f"strict_{seat}.yaml").write_text(yaml.safe_dump(role))
    return folder


def committed(folder: Path, k: int) -> dict[str, np.ndarray]:
    """Weights and first moments of all policies and critics after an iteration."""
    found: dict[str, Any] = {}
    for file in sorted((folder / "checkpoints" / f"{k:04d}").rglob("*.safetensors")):
        found |= {f"{file.parent.name}.{name}": value for name, value in load_file(file).items() if "_sq" not in name}
    return found


@pytest.mark.parametrize("stage", [0, 2, 3])
@pytest.mark.parametrize("changes", [[], SEPARATE], ids=["one policy", "an adapter for each"])
def test_two_ranks_commit_what_one_does(tmp_path: Path, ranks: Ranks, stage: int, changes: list[str]) -> None:
    """One rank all the way, and layouts 2 → 1 → 2, the one without ZeRO, that go on from each other's checkpoints."""
    on_two, zero = partial(ScaledTrainer, ranks), [f"learn.zero_stage={stage}"]
    changes = [f"roles={roles_that_learn_from_cut_replies(tmp_path / 'roles')}", *changes]
    run_with_trainers(CONFIG, tmp_path / "one", local_trainer, "iterations=3", *changes)
    for last, by, more in ((1, on_two, zero), (2, local_trainer, []), (3, on_two, zero)):
        run_with_trainers(CONFIG, tmp_path / "many", by, f"iterations={last}", *more, *changes)
    for k in range(4):
        one, many = (committed(tmp_path / name, k) for name in ("one", "many"))
        assert one.keys() == many.keys() and one
        assert max_difference(one, many) < 1e-5, f"after iteration {k}"
    first, last_ = (committed(tmp_path / "many", k) for k in (1, 3))
    assert max_difference(first, last_) > 2e-5, "something was learned"
