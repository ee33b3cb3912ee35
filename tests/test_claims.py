"""Tests of docs/claims_pages.py: the pages agree with the kept results, and the results with their recipes."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import median

import claims_pages
import pytest

from arena.config.recipe import compose_recipe
from arena.config.sources import recipe_layer
from arena.evaluate.study.family import correct_family
from arena.evaluate.study.plot import draw
from arena.evaluate.study.results import read
from tests.legible import find_overlaps

RESULTS, FILES = claims_pages.RESULTS, claims_pages.FILES


def test_the_pages_agree_with_the_results() -> None:
    pages = dict(claims_pages.build_pages())
    docs = claims_pages.DOCS
    assert pages.keys() == {docs / "claims.md", docs / "papers.md", *(docs / "claims").iterdir()}
    for page, text in pages.items():
        assert page.read_text("utf-8") == text, "renew it: python docs/claims_pages.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kept_study_belongs_to_its_recipe(file: Path) -> None:
    study = read(file)
    stated = compose_recipe([recipe_layer(study.name)]).study
    assert stated and {study.spec.arm, *study.spec.verdict.better_than} <= set(stated.names)
    assert file.stem == f"study-{study.name}"


@pytest.mark.parametrize("file", FILES[:2], ids=lambda file: file.stem)
def test_a_study_s_plot_is_legible(file: Path) -> None:
    assert not find_overlaps(draw(read(file)))


def test_a_study_under_another_rule_than_its_recipe_is_marked() -> None:
    study = read(RESULTS / "study-gra-nano.json")
    stated = compose_recipe([recipe_layer(study.name)]).study
    assert stated
    assert not claims_pages.has_changed_rule(replace(study, spec=stated))
    changed = stated.model_copy(update={"last": stated.last + 1})
    assert claims_pages.has_changed_rule(replace(study, spec=changed))


def test_exceptions_name_their_studies() -> None:
    study = read(RESULTS / "study-gra-nano.json")
    assert claims_pages.describe_exceptions(correct_family([study])) == ""
    other = study.spec.model_copy(update={"first_seed": 0})
    text = claims_pages.describe_exceptions(correct_family([replace(study, spec=other)]))
    assert "seed 0 as well, on which recipes were tried: `gra-nano`." in text and "ten" not in text


def test_turns_are_those_of_the_oracle_and_of_random_play() -> None:
    assert claims_pages.describe_turns({"oracle": {"turns": 14.0}, "random": {"turns": 6.26}}) == "6.3–14.0"
    assert claims_pages.describe_turns({"oracle": {"turns": 2.04}, "random": {"turns": 2.0}}) == "2.0"
    assert claims_pages.describe_turns({"oracle": {"left out": "none"}, "random": {"turns": 1.5}}) == "1.5"
    assert claims_pages.describe_turns({}) == "–"


def test_papers_have_the_verdicts_of_their_recipes() -> None:
    def get_verdict(recipe: str) -> str:
        page = f"{claims_pages.VERDICTS}| A paper | a part | {recipe} | a file | old |\n\n## Parts\n"
        (row,) = re.findall(r"\| A paper .*", claims_pages.update_verdicts(page, correct_family(studies)))
        return str(row.split(" | ")[-1].removesuffix(" |"))

    studies = [read(RESULTS / f"study-{name}.json") for name in ("mint-nano", "gra-nano")]
    alone = {row.results.name: row.verdict for row in correct_family(studies)}
    assert get_verdict("`mint-nano`") == alone["mint-nano"] == "holds"
    assert get_verdict("`gra-nano`, `ufo-nano`") == f"{alone['gra-nano']}, not run"
    assert get_verdict("not yet") == get_verdict("`clinic`") == "–"


def test_a_study_without_a_result_is_listed() -> None:
    names = [read(file).name for file in FILES]
    waiting = claims_pages.find_unrun_studies(names)
    assert names[0] in claims_pages.find_unrun_studies(names[1:])
    assert names[0] not in waiting and "clinic" not in waiting


def test_hours_sum_the_minutes_of_all_studies() -> None:
    hours = claims_pages.describe_hours([90.0, 30.0, 60.0])
    assert re.findall(r"\d+(?:\.\d+)?", hours) == ["3.0", "0.5", "1", "40"], (
        "all, those of at most 40 minutes, how many"
    )


def test_swapped_arms_swap_the_verdict() -> None:
    study = read(RESULTS / "study-mint-nano.json")
    treatment, control = study.curves["directed"], study.curves["undirected"]
    swapped = replace(study, curves={**study.curves, "directed": control, "undirected": treatment})
    assert [row.verdict for result in (study, swapped) for row in correct_family([result])] == ["holds", "contradicted"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_stated_minutes_are_near_the_median_run(file: Path) -> None:
    record = json.loads(file.read_text("utf-8"))
    median_minutes = median(run["seconds"] for run in record["runs"]) / 60
    assert median_minutes / 2 <= record["study"]["minutes"] <= max(1.0, 2 * median_minutes)
