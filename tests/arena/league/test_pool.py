"""The pool: who is admitted, who retires, and what lies in the folder whenever the run is killed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.errors import StoreError
from arena.league.pool import Pool, find_past_weights, format_version, parse_version
from arena.league.settings import PoolSpec
from arena.store import checkpoints
from tests.factories.traces import flip_byte


def save(policy: str, folder: Path) -> None:
    (folder / "config.json").write_text(policy)
    (folder / "deep").mkdir()
    (folder / "deep" / "model.safetensors").write_text(policy)


def make(run: Path, every: int = 2, keep: int = 3, lag: int = 0, state: dict[str, list[int]] | None = None) -> Pool:
    return Pool(run, PoolSpec(every=every, keep=keep), lag, state)


def commit(pool: Pool, k: int) -> None:
    state = json.dumps({"league": {"pool": pool.state()}})

    def write(folder: Path) -> None:
        (folder / "state.json").write_text(state)

    checkpoints.write(pool.run, k, write)


def there(run: Path) -> list[str]:
    return sorted(folder.name for folder in (run / "league").iterdir())


def test_the_beginning_and_every_so_many_are_admitted(tmp_path: Path) -> None:
    pool = make(tmp_path)
    assert [k for k in range(5) if pool.admit(k, ["shared"], save)] == [0, 2, 4]
    assert pool.members == [0, 2, 4] and there(tmp_path) == ["shared@0", "shared@2", "shared@4"]
    assert (pool.path("shared", 2) / "deep" / "model.safetensors").read_text() == "shared"


def test_beyond_keep_the_oldest_but_the_first_retires(tmp_path: Path) -> None:
    pool = make(tmp_path, every=1, keep=3)
    for k in range(6):
        pool.admit(k, ["left", "right"], save)
        pool.sweep()
    assert pool.members == [0, 4, 5]
    assert there(tmp_path) == [f"{name}@{k}" for name in ("left", "right") for k in (0, 4, 5)]


def test_the_latest_are_kept_for_those_who_lag(tmp_path: Path) -> None:
    pool = make(tmp_path, every=5, keep=2, lag=2)
    for k in range(8):
        pool.admit(k, ["shared"], save)
        pool.sweep()
        assert pool.find_lagged(k, 2) == max(0, k - 2) and pool.find_lagged(k, 1) == max(0, k - 1)
    assert (pool.members, pool.recent) == ([0, 5], [5, 6, 7])
    assert there(tmp_path) == [f"shared@{k}" for k in (0, 5, 6, 7)]


def test_nothing_goes_that_a_checkpoint_still_lists(tmp_path: Path) -> None:
    """A run that is killed, or whose newest checkpoint is torn, finds every member of the one it goes back to."""
    pool = make(tmp_path, every=1, keep=2)
    for k in range(3):
        pool.admit(k, ["shared"], save)
        pool.sweep()
    commit(pool, 2)
    pool.admit(3, ["shared"], save)
    pool.sweep()
    assert pool.members == [0, 3] and there(tmp_path) == ["shared@0", "shared@2", "shared@3"]
    back = make(tmp_path, every=1, keep=2, state={"members": [0, 2], "recent": []})
    back.sweep()
    back.check(["shared"])
    assert there(tmp_path) == ["shared@0", "shared@2"], "what is newer than the checkpoint is gone"
    back.admit(3, ["shared"], save)
    commit(back, 3)
    checkpoints.prune(tmp_path, 1)
    back.sweep()
    assert there(tmp_path) == ["shared@0", "shared@3"]


def test_what_a_kill_left_half_written_is_swept(tmp_path: Path) -> None:
    def interrupted(policy: str, folder: Path) -> None:
        assert there(tmp_path) == [".shared@0.tmp"], "it does not appear under its name"
        save(policy, folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(tmp_path).admit(0, ["shared"], interrupted)
    assert there(tmp_path) == []
    (tmp_path / "league" / ".shared@0.tmp").mkdir()  # as a kill leaves it
    make(tmp_path).sweep()
    assert there(tmp_path) == []


def test_a_member_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"league/shared@4 is missing: restore it"):
        make(tmp_path, state={"members": [4], "recent": []}).check(["shared"])


def test_names_of_versions() -> None:
    assert format_version("shared", 12) == "shared@12" and parse_version("shared@12") == ("shared", 12)
    assert [parse_version(name) for name in ("shared", "mcts:100", "shared@reference", "@3")] == [None] * 4


def flipped(run: Path) -> None:
    flip_byte(run / "league" / "left@0" / "deep" / "model.safetensors")


def swapped(run: Path) -> None:
    league = run / "league"
    (league / "left@0").rename(league / "aside")
    (league / "left@2").rename(league / "left@0")
    (league / "aside").rename(league / "left@2")


def without_its_manifest(run: Path) -> None:
    (run / "league" / "left@0" / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (flipped, "left@0 is torn: deep/model.safetensors is not as it was written"),
        (swapped, "left@0 is of left@2: its folder was renamed"),
        (without_its_manifest, "left@0 is torn: it has no manifest.json"),
    ],
)
def test_weights_that_changed_are_never_played(tmp_path: Path, damage: Callable[[Path], None], told: str) -> None:
    pool = make(tmp_path)
    for k in range(3):
        pool.admit(k, ["left"], save)
    commit(pool, 2)
    pool.check(["left"])
    assert find_past_weights(tmp_path, "left", 0) == tmp_path / "league" / "left@0"
    damage(tmp_path)
    with pytest.raises(StoreError, match=told):
        make(tmp_path, state=pool.state()).check(["left"])
    with pytest.raises(StoreError, match=told):
        find_past_weights(tmp_path, "left", 0)


def test_the_pool_of_an_older_arena_has_no_manifests_and_is_taken(tmp_path: Path) -> None:
    pool = make(tmp_path)
    pool.admit(0, ["left"], save)
    without_its_manifest(tmp_path)
    make(tmp_path, state={"members": [0], "recent": []}).check(["left"])
    assert find_past_weights(tmp_path, "left", 0) and find_past_weights(tmp_path, "left", 1) is None
