"""The pool: admission, retirement, and the folder's state after a kill."""

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


def make_pool(
    run: Path, every: int = 2, keep: int = 3, lag: int = 0, state: dict[str, list[int]] | None = None
) -> Pool:
    return Pool(run, PoolSpec(every=every, keep=keep), lag, state)


def commit(pool: Pool, k: int) -> None:
    state = json.dumps({"league": {"pool": pool.state()}})

    def write(folder: Path) -> None:
        (folder / "state.json").write_text(state)

    checkpoints.write(pool.run, k, write)


def list_members(run: Path) -> list[str]:
    return sorted(folder.name for folder in (run / "league").iterdir())


def test_start_and_every_nth_iteration_are_admitted(tmp_path: Path) -> None:
    pool = make_pool(tmp_path)
    assert [k for k in range(5) if pool.admit(k, ["shared"], save)] == [0, 2, 4]
    assert pool.members == [0, 2, 4] and list_members(tmp_path) == ["shared@0", "shared@2", "shared@4"]
    assert (pool.path("shared", 2) / "deep" / "model.safetensors").read_text() == "shared"


def test_oldest_but_the_first_retires_beyond_keep(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, every=1, keep=3)
    for k in range(6):
        pool.admit(k, ["left", "right"], save)
        pool.sweep()
    assert pool.members == [0, 4, 5]
    assert list_members(tmp_path) == [f"{name}@{k}" for name in ("left", "right") for k in (0, 4, 5)]


def test_recent_versions_are_kept_for_lagged_opponents(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, every=5, keep=2, lag=2)
    for k in range(8):
        pool.admit(k, ["shared"], save)
        pool.sweep()
        assert pool.find_lagged(k, 2) == max(0, k - 2) and pool.find_lagged(k, 1) == max(0, k - 1)
    assert (pool.members, pool.recent) == ([0, 5], [5, 6, 7])
    assert list_members(tmp_path) == [f"shared@{k}" for k in (0, 5, 6, 7)]


def test_members_listed_by_a_checkpoint_are_kept(tmp_path: Path) -> None:
    """A run that resumes from an older checkpoint finds all members listed there."""
    pool = make_pool(tmp_path, every=1, keep=2)
    for k in range(3):
        pool.admit(k, ["shared"], save)
        pool.sweep()
    commit(pool, 2)
    pool.admit(3, ["shared"], save)
    pool.sweep()
    assert pool.members == [0, 3] and list_members(tmp_path) == ["shared@0", "shared@2", "shared@3"]
    restored = make_pool(tmp_path, every=1, keep=2, state={"members": [0, 2], "recent": []})
    restored.sweep()
    restored.check(["shared"])
    assert list_members(tmp_path) == ["shared@0", "shared@2"], "what is newer than the checkpoint is gone"
    restored.admit(3, ["shared"], save)
    commit(restored, 3)
    checkpoints.prune(tmp_path, 1)
    restored.sweep()
    assert list_members(tmp_path) == ["shared@0", "shared@3"]


def test_partial_members_are_swept(tmp_path: Path) -> None:
    def save_and_interrupt(policy: str, folder: Path) -> None:
        assert list_members(tmp_path) == [".shared@0.tmp"], "it does not appear under its name"
        save(policy, folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_pool(tmp_path).admit(0, ["shared"], save_and_interrupt)
    assert list_members(tmp_path) == []
    (tmp_path / "league" / ".shared@0.tmp").mkdir()  # as a kill leaves it
    make_pool(tmp_path).sweep()
    assert list_members(tmp_path) == []


def test_missing_member_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"league/shared@4 is missing: restore it"):
        make_pool(tmp_path, state={"members": [4], "recent": []}).check(["shared"])


def test_version_names() -> None:
    assert format_version("shared", 12) == "shared@12" and parse_version("shared@12") == ("shared", 12)
    assert [parse_version(name) for name in ("shared", "mcts:100", "shared@reference", "@3")] == [None] * 4


def flip_weights(run: Path) -> None:
    flip_byte(run / "league" / "left@0" / "deep" / "model.safetensors")


def swap_members(run: Path) -> None:
    league = run / "league"
    (league / "left@0").rename(league / "aside")
    (league / "left@2").rename(league / "left@0")
    (league / "aside").rename(league / "left@2")


def remove_manifest(run: Path) -> None:
    (run / "league" / "left@0" / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_weights, "left@0 is damaged: deep/model.safetensors is not as it was written"),
        (swap_members, "left@0 is of left@2: its folder was renamed"),
        (remove_manifest, "left@0 is damaged: it has no manifest.json"),
    ],
)
def test_damaged_members_are_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    pool = make_pool(tmp_path)
    for k in range(3):
        pool.admit(k, ["left"], save)
    commit(pool, 2)
    pool.check(["left"])
    assert find_past_weights(tmp_path, "left", 0) == tmp_path / "league" / "left@0"
    damage(tmp_path)
    with pytest.raises(StoreError, match=message):
        make_pool(tmp_path, state=pool.state()).check(["left"])
    with pytest.raises(StoreError, match=message):
        find_past_weights(tmp_path, "left", 0)


def test_pool_without_manifests_is_accepted(tmp_path: Path) -> None:
    pool = make_pool(tmp_path)
    pool.admit(0, ["left"], save)
    remove_manifest(tmp_path)
    make_pool(tmp_path, state={"members": [0], "recent": []}).check(["left"])
    assert find_past_weights(tmp_path, "left", 0) and find_past_weights(tmp_path, "left", 1) is None
