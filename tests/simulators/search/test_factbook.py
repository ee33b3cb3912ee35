"""A real corpus: country profiles become pages, and questions whose answers are on the pages."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from simulators.search import Search
from simulators.search.corpus import load_corpus
from simulators.search.factbook import main


def make_profile(
    name: str, capital: str, borders: str = "", point: str = "Mont Haut 1,234 m", code: str = ".xx"
) -> dict[str, Any]:
    return {
        "Government": {
            "Country name": {
                "conventional short form": {"text": name},
                "conventional long form": {"text": f"Realm of {name}"},
            },
            "Capital": {"name": {"text": capital}},
        },
        "Geography": {
            "Land boundaries": {"border countries": {"text": borders}},
            "Elevation extremes": {"highest point": {"text": point}},
        },
        "Communications": {"Internet country code": {"text": f"{code} ++ note: new"}},
        "Economy": {"text": 7},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    land = tmp_path / "package" / "land"
    land.mkdir(parents=True)
    borders_of_aru = "Bor 1,200.5 km, Cel 801 km (two parts)"
    for code, country in {
        "aa": make_profile("Aru", "Ar", borders_of_aru),
        "bb": make_profile("Bor", "Bo-Town", "Aru 1,200.5 km", point="unnamed location 3 m; 4 m"),
        "cc": make_profile("none", "Ce"),
        "dd": make_profile("Dar", ""),
    }.items():
        (land / f"{code}.json").write_text(json.dumps(country))
    return tmp_path / "package"


def test_profiles_become_pages_and_questions_of_one_and_two_hops(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "countries.jsonl"
    assert main([str(folder), str(file)]) == ""
    pages, questions = load_corpus(str(file))
    assert [*pages] == ["Aru", "Bor", "Realm of none"], (
        "countries without a short name use the long one; those without a capital have no page"
    )
    assert "The capital of Bor: Bo-Town." in pages["Bor"] and "note" not in pages["Bor"]
    by_text = {question.text: question for question in questions}
    assert by_text["What is the highest point of Aru?"].answers == ("Mont Haut",)
    two_hop = by_text["What is the capital of the neighbour with which Aru shares its longest border?"]
    assert (two_hop.answers, two_hop.evidence, two_hop.hops) == (("Bo-Town",), frozenset({"Aru", "Bor"}), 2)
    assert "What is the highest point of Bor?" not in by_text, "two heights are no short answer"
    assert all(any(question.answer in pages[title] for title in question.evidence) for question in questions)
    game = Search(pages=str(file), show="pages", results=1)
    game.reset(seed=0)
    assert main([str(folder), str(file)]) == f"{file}: cannot be written: File exists"


@pytest.mark.parametrize("broken", [b"[]", b'{"Government": {"Country name": [1]}}', b'{"Government": "x"}'])
def test_profile_of_another_form_is_skipped(folder: Path, tmp_path: Path, broken: bytes) -> None:
    (folder / "land" / "ee.json").write_bytes(broken)
    assert main([str(folder), str(tmp_path / "out.jsonl")]) == ""
    assert len(load_corpus(str(tmp_path / "out.jsonl"))[0]) == 3


@pytest.mark.parametrize("broken", [b"{", b"\xff", b"[" * 10**5, b" " * (10**6 + 1)])
def test_invalid_profile_is_reported_with_its_file(folder: Path, tmp_path: Path, broken: bytes) -> None:
    (folder / "land" / "ee.json").write_bytes(broken)
    message = main([str(folder), str(tmp_path / "out.jsonl")])
    assert "ee.json: the profile" in message and "\n" not in message and not (tmp_path / "out.jsonl").exists()


def test_corpus_is_written_atomically_and_overwrites_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    existing, other = tmp_path / "there.jsonl", tmp_path / "other.jsonl"
    existing.write_text("mine")
    assert "cannot be written: File exists" in main([str(folder), str(existing)]) and existing.read_text() == "mine"
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "cannot be written: No space left" in main([str(folder), str(other)])
    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == ["there.jsonl"] and not [*tmp_path.glob(".*")]


def test_folder_without_profiles_is_reported(tmp_path: Path) -> None:
    assert "there are no profiles" in main([str(tmp_path), "out.jsonl"])
    assert main([]).startswith("usage: ")
