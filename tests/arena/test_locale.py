"""Where Python does not use UTF-8, one line says so before anything is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("utf8", ["0", "1"])
def test_a_folder_whose_name_is_not_ascii(tmp_path: Path, utf8: str) -> None:
    """In LC_ALL=C with PYTHONUTF8=0 a run in such a folder ended in a traceback of a library."""
    folder = tmp_path / "gr\u00f6\u00dfe"
    folder.mkdir()
    result = subprocess.run(
        [sys.executable, "-P", "-m", "arena", "init", "role", "mine", "--to", str(folder)],
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": utf8, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
    )
    if utf8 == "1":
        assert result.returncode == 0 and (folder / "mine.yaml").is_file()
        return
    assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (2, b"", 1)
    assert b"set PYTHONUTF8=1, or LC_ALL=C.UTF-8" in result.stderr
    assert not list(folder.iterdir())
