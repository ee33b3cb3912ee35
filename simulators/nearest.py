"""Nearest-neighbour search and clustering of unit vectors with faiss, independent of the number of threads.

Up to 20,000 vectors the index is flat (exact; a query takes under a millisecond). Larger ones use inverted lists (IVF),
which build in seconds and, unlike a graph (HNSW), are equal for any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulators.embedding import Vectors

FLAT = 20_000
"""Maximum number of vectors of an exact index."""
PROBES = 12
"""Inverted lists examined per query, of 2 sqrt(n)."""


def build_index(vectors: Vectors) -> Any:
    """Return a faiss index that finds the largest inner products with these unit vectors [n, d].

    It is exact for up to 20,000 vectors, else approximate. Raises ValueError if faiss is not installed.
    """
    faiss, (count, width) = _import_faiss(), vectors.shape
    flat = faiss.IndexFlatIP(width)
    if count <= FLAT:
        flat.add(vectors)
        return flat
    index = faiss.IndexIVFFlat(flat, width, int(2 * count**0.5), faiss.METRIC_INNER_PRODUCT)
    with _limit_to_one_thread(faiss):
        index.train(vectors)
        index.add(vectors)
    index.nprobe = PROBES
    return index


def kmeans(vectors: Vectors, clusters: int, seed: int) -> tuple[NDArray[np.int64], Vectors]:
    """Cluster vectors [n, d] by k-means. Raises ValueError without faiss.

    Returns the index of each vector's nearest centroid [n], and the centroids [at most `clusters`, d].
    """
    faiss, (count, width) = _import_faiss(), vectors.shape
    found = faiss.Kmeans(width, min(clusters, count), niter=20, seed=seed, min_points_per_centroid=1)
    with _limit_to_one_thread(faiss):
        found.train(vectors)
        _, nearest = found.index.search(vectors, 1)
    return np.asarray(nearest[:, 0], np.int64), np.asarray(found.centroids, np.float32)


@contextmanager
def _limit_to_one_thread(faiss: Any) -> Iterator[None]:
    """Limit faiss to one thread within the context, because the order of sums over threads changes the clusters."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ValueError(f"nearest vectors need faiss: pip install 'arena-selfplay[recommender]' ({error})") from None
    return faiss
