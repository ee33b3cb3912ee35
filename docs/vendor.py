"""Update the viewer's JavaScript libraries in `analysis/view/static/vendor`: `python docs/vendor.py` (needs npm).

Each is pinned by version and by the hash of its package. The published modules have two changes: imports by package
name become imports by file, because the page has no build step, and references to source maps are removed.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "analysis" / "view" / "static" / "vendor"
PACKAGES = {
    "preact@11.2.0": (
        "sha512-/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"},
    ),
    "htm@3.1.1": (
        "sha512-983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "htm.js"},
    ),
    "uplot@1.6.32": (
        "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"},
    ),
}
"""SHA-512 of each package's archive, and the names under which its files are stored."""


def main() -> None:
    """Download the packages, check their hashes, and write their files and licences."""
    licences = []
    for package, (integrity, files) in PACKAGES.items():
        data = _download(package)
        found = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        if found != integrity:
            raise SystemExit(f"{package} does not have the pinned hash: {found}")
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for source, name in files.items():
                (VENDOR / name).write_text(rewrite_imports(_read_member(archive, source)), "utf-8")
            licences.append(f"{package}\n\n{_read_member(archive, 'LICENSE').strip()}\n")
    (VENDOR / "LICENSES.txt").write_text(f"\n{'-' * 80}\n\n".join(licences), "utf-8")


def rewrite_imports(text: str) -> str:
    """Rewrite the module's imports by file, and remove its reference to a source map.

    >>> rewrite_imports('import{options as n}from"preact";')
    'import{options as n}from"./preact.js";'
    """
    return re.sub(r"\n?//# sourceMappingURL=\S+", "", text.replace('from"preact"', 'from"./preact.js"')).strip() + "\n"


def _download(package: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (path,) = Path(folder).iterdir()
        return path.read_bytes()


def _read_member(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(f"package/{name}")
    assert file is not None
    return file.read().decode("utf-8")


if __name__ == "__main__":
    main()
