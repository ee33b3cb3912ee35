"""User-named files: only regular files within the size limit are read, without blocking."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agents import strict_yaml
from agents.errors import RoleError
from agents.role import load_role
from arena.config.sources import file_layer
from arena.errors import ConfigError, StoreError
from arena.panels.settings import load_panel
from games.plain_files import read_plain
from simulators.recommender import ratings
from tests.factories.hostile import limit_seconds

READERS: dict[str, tuple[Callable[[str], object], type[Exception] | tuple[type[Exception], ...]]] = {
    "itself": (lambda path: read_plain(path, 100), OSError),
    "yaml": (strict_yaml.read_text, strict_yaml.YamlError),
    "experiment": (lambda path: file_layer(Path(path)), ConfigError),
    "role": (load_role, RoleError),
    "panel": (load_panel, (ConfigError, StoreError)),
    "ratings": (ratings.load_ratings, ValueError),
}


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder", "nothing"])
@pytest.mark.parametrize("reader", READERS)
def test_refuses_non_regular_file_in_one_line(tmp_path: Path, reader: str, kind: str) -> None:
    path = tmp_path / "named.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    read, error = READERS[reader]
    with pytest.raises(error) as refused, limit_seconds(5):
        read(str(path))
    assert len(str(refused.value).splitlines()) == 1
    if kind in ("pipe", "zero"):
        assert re.search("no regular file", str(refused.value))


def test_refuses_files_above_the_size_limit(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 101)
    assert read_plain(tmp_path / "large", 101) == b"x" * 101
    with pytest.raises(OSError, match="larger than"):
        read_plain(tmp_path / "large", 100)
    with pytest.raises(OSError, match="larger than"):  # /proc/self/maps reports size 0
        read_plain("/proc/self/maps", 10)
