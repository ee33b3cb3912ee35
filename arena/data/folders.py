"""Rows of Parquet files and of folders of the `datasets` library."""

import hashlib
from pathlib import Path
from typing import Any

from arena.errors import ConfigError, StoreError
from arena.store.files import explain_errors
from arena.store.manifest import fingerprint

INFO_FILE = "dataset_info.json"
SPLITS_FILE = "dataset_dict.json"


class DatasetFolder:
    """Rows of a folder written by `save_to_disk`, of a folder of Parquet files, or of one Parquet file.

    Rows are read from memory-mapped Arrow files. Null fields are left out, because Arrow gives all objects of a column
    the same fields.
    """

    def __init__(self, path: Path) -> None:
        """Open the data set. Raises ConfigError if the library is missing or the files are invalid."""
        self.path = path
        try:
            import datasets
        except ImportError:
            raise ConfigError(f"{path}: a folder or Parquet file needs a library: pip install datasets") from None
        if (path / SPLITS_FILE).is_file():
            raise ConfigError(f"{path}: it has several splits: name the folder of one")
        files = _find_files(path)
        with explain_errors(path, "reading"):
            digests = [(file.name, fingerprint(file)["sha256"]) for file in files]
        self.sha256 = hashlib.sha256(repr(digests).encode()).hexdigest()
        try:
            if (path / INFO_FILE).is_file():
                self._rows: Any = datasets.load_from_disk(str(path))
            else:
                self._rows = datasets.Dataset.from_parquet([str(file) for file in files])
        except Exception as error:  # noqa: BLE001 the library raises exceptions of many types for broken files
            raise ConfigError(f"{path}: {' '.join(str(error).split())[:200]}") from None
        if not len(self._rows):
            raise ConfigError(f"{path}: it has no rows")

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return row `number`, from 0, without null fields. Raises StoreError if its file can no longer be read."""
        try:
            row: dict[str, Any] = _without_nulls(self._rows[int(number)])
        except Exception as error:  # noqa: BLE001 see above
            raise StoreError(f"{self.locate(number)}: {' '.join(str(error).split())[:200]}") from None
        return row

    def locate(self, number: int) -> str:
        """Return a row's path and number, for error messages."""
        return f"{self.path}, row {number + 1}"

    def close(self) -> None:
        """Do nothing: the library unmaps unused files itself."""


def _find_files(path: Path) -> list[Path]:
    """Return the files of a data set in a fixed order. Raises ConfigError if there are none."""
    if path.is_file():
        return [path]
    pattern = "*.arrow" if (path / INFO_FILE).is_file() else "*.parquet"
    if not (files := sorted(path.glob(pattern))):
        raise ConfigError(f"{path}: not a folder of save_to_disk, and it has no Parquet files")
    return files


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
