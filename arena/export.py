"""A trained policy as a plain model folder, for anything that reads Hugging Face checkpoints."""

import shutil
from pathlib import Path

from agents.names import nearest
from arena.store import checkpoints
from arena.store.files import StoreError, explained
from arena.store.run import RunFolder


def export(run: Path, policy: str, to: Path, iteration: int | None = None) -> int:
    """Copy a policy's weights, config and tokenizer out of a checkpoint; returns the checkpoint's iteration.

    The newest valid checkpoint if no iteration is given. StoreError for a run without one, an unknown policy,
    or a target that already holds something.
    """
    folder = RunFolder.open(run)
    checkpoint = folder.newest_valid() if iteration is None else checkpoints.given(run, iteration)
    if checkpoint is None:
        raise StoreError(f"{run} has no valid checkpoint yet: let it run, or arena resume {run}")
    known = sorted(p.name for p in (checkpoint.folder / "policies").iterdir())
    if policy not in known:
        raise StoreError(f"{run} has no policy '{policy}'{nearest(policy, known)} (it has: {', '.join(known)})")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoreError(f"{to} already holds something: choose another --to")
    beside = to.with_name(f".{to.name}.exporting")
    with explained(to):
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(checkpoint.policy(policy), beside, ignore=shutil.ignore_patterns("optimizer.safetensors"))
        if to.exists():
            to.rmdir()
        beside.replace(to)
    return checkpoint.iteration
