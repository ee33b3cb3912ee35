"""The pool: past versions of a run's trained policies, stored in its folder as opponents.

All policies are admitted together, so a member is an iteration. Beyond `keep` members, the second oldest retires: the
newest are the strongest opponents, and the first is the fixed reference that shows forgetting.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from arena.errors import StoreError
from arena.league.settings import PoolSpec
from arena.store import checkpoints, manifest
from arena.store.files import TEMPORARY, remove, require_safe_name, write_folder
from arena.store.state import STATE
from games.plain_files import read_plain

_VERSION = re.compile(r"([A-Za-z0-9_-]+)@(\d+)")
Save = Callable[[str, Path], None]
"""(policy, empty folder): write the policy's current weights to the folder in Hugging Face layout."""


def format_version(policy: str, version: int) -> str:
    """Return the name of a policy's past version, such as `shared@12`."""
    return f"{policy}@{version}"


def parse_version(name: str) -> tuple[str, int] | None:
    """Return (policy, version) of a name such as `shared@12`; None for other names."""
    match = _VERSION.fullmatch(name)
    return (match[1], int(match[2])) if match else None


class Pool:
    """Pool of past versions of a run's policies; their weights are in the run's folder under `league/POLICY@VERSION/`.

    A version is an iteration. The opponent `pfsp` draws from `members`. The opponent `past` also uses `recent`, the
    newest version and the `lag` versions before it. Both lists ascend. `admit` adds versions, `sweep` removes unused
    weights.
    """

    def __init__(self, run: Path, spec: PoolSpec, lag: int, state: Mapping[str, list[int]] | None = None) -> None:
        """Restore the pool from a checkpoint's `state`, or create an empty one in the folder of `run`."""
        self.run, self.folder, self.spec, self.lag = run, run / "league", spec, lag
        self.members: list[int] = list(state["members"]) if state else []
        self.recent: list[int] = list(state["recent"]) if state else []
        self.sealed: list[int] = list(state.get("sealed", [])) if state else []
        """Versions with a manifest."""
        self.in_use: set[int] = set()
        """Versions that running matches still use, in the pool or not."""

    def admit(self, k: int, policies: Iterable[str], save: Save) -> bool:
        """Admit the policies' weights after iteration `k` if it is a multiple of `every` or `lag` is positive.

        Writes them with `save`. Beyond `keep` members, the second oldest retires. Returns True if weights were written.
        """
        if k % self.spec.every == 0:
            self.members.append(k)
            if len(self.members) > self.spec.keep:
                del self.members[1]
        self.recent = [j for j in (*self.recent, k) if j > k - self.lag - 1] if self.lag else []
        if k not in self.versions:
            return False
        for policy in policies:
            self._write(policy, k, save)
        self.sealed = sorted({*self.sealed, k} & self.versions)
        return True

    def _write(self, policy: str, k: int, save: Save) -> None:
        def fill(folder: Path) -> None:
            save(policy, folder)
            manifest.seal(folder, {"name": format_version(policy, k)})

        write_folder(self.path(policy, k), fill)

    @property
    def versions(self) -> set[int]:
        """Versions (iterations) that can be opponents."""
        return {*self.members, *self.recent}

    def find_lagged(self, current: int, lag: int) -> int:
        """Return the version `lag` updates before version `current`, or the oldest available if that is later."""
        return max(current - lag, min(self.versions))

    def path(self, policy: str, version: int) -> Path:
        """Return the folder of a past version's weights."""
        return self.folder / format_version(require_safe_name(policy, "policy"), version)

    def state(self) -> dict[str, list[int]]:
        """Return the pool's lists of versions as JSON for the checkpoint, without `held` if no version is in use."""
        in_use = {"held": sorted(self.in_use)} if self.in_use else {}
        return {"members": self.members, "recent": self.recent, "sealed": self.sealed, **in_use}

    def sweep(self) -> None:
        """Remove unfinished folders, and weights that no running match, checkpoint or list of this pool refers to.

        Weights of older checkpoints stay, because they are needed if a newer checkpoint is torn.
        """
        if not self.folder.is_dir():
            return
        listed = self.versions | self.in_use | _find_listed_versions(self.run)
        for folder in sorted(self.folder.iterdir()):
            parsed = parse_version(folder.name)
            if folder.name.endswith(TEMPORARY) or (parsed and parsed[1] not in listed):
                remove(folder)

    def check(self, policies: Iterable[str]) -> None:
        """Raise StoreError if the weights of one of the policies' versions are missing or damaged."""
        for policy in policies:
            for version in sorted(self.versions):
                _verify(self.path(policy, version), version in self.sealed)


def find_past_weights(run: Path, policy: str, version: int) -> Path | None:
    """Return the folder of a past version's weights in a run's pool; None if absent. Raises StoreError if damaged."""
    folder = run / "league" / format_version(require_safe_name(policy, "policy"), version)
    if not folder.is_dir():
        return None
    _verify(folder, any(version in state.get("sealed", ()) for state in _read_pool_states(run)))
    return folder


def _verify(folder: Path, sealed: bool) -> None:
    if not folder.is_dir():
        raise StoreError(f"{folder} is missing: restore it, or start a new run")
    if sealed or (folder / manifest.MANIFEST).exists():
        name = manifest.verify(folder, "past version").get("name")
        if name != folder.name:
            raise StoreError(f"past version {folder} is of {name}: its folder was renamed")


def _find_listed_versions(run: Path) -> set[int]:
    """Return all versions that the run's readable checkpoints list."""
    return {version for state in _read_pool_states(run) for versions in state.values() for version in versions}


def _read_pool_states(run: Path) -> Iterator[dict[str, list[int]]]:
    """Yield each readable checkpoint's pool: versions by list, `members`, `recent`, `sealed` and, if any, `held`."""
    for k in checkpoints.iterations(run):
        try:
            state = json.loads(read_plain(checkpoints.folder_of(run, k) / STATE))["league"]["pool"]
            yield {name: [int(version) for version in versions] for name, versions in state.items()}
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            continue  # a torn checkpoint
