"""Tests of the top-level files: versions agree, files follow their schemas, commands exist."""

import re
import tomllib
from datetime import date
from typing import Any

import pytest
import yaml

from tests.pages import ROOT, find_blocks

CHANGES = (ROOT / "CHANGELOG.md").read_text("utf-8")
CITED: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = re.findall(r"^([a-z-]+):(?!=)", MAKEFILE, re.M)
WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
REQUIRED = {"cff-version", "message", "title", "authors"}
KNOWN = REQUIRED | {
    "abstract", "commit", "contact", "date-released", "doi", "identifiers", "keywords", "license", "license-url",
    "preferred-citation", "references", "repository", "repository-artifact", "repository-code", "type", "url",
    "version",
}  # fmt: skip
"""Keys of a citation file, version 1.2.0 of its schema."""


def test_the_citation_has_the_keys_of_its_schema() -> None:
    assert REQUIRED <= CITED.keys() <= KNOWN
    assert CITED["cff-version"] == "1.2.0" and CITED["type"] in ("software", "dataset")
    assert all(
        author.keys() <= {"name", "family-names", "given-names", "orcid", "email"} for author in CITED["authors"]
    )
    assert isinstance(CITED["date-released"], date) and CITED["license"] == PROJECT["license"]


def test_versions_agree() -> None:
    """Compares the project, the citation, and the newest version of the changelog."""
    versions = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", CHANGES, re.M)
    assert (PROJECT["version"], str(CITED["date-released"])) == versions[0] == (str(CITED["version"]), versions[0][1])
    order = [tuple(map(int, version.split("."))) for version, _ in versions]
    assert order == sorted(order, reverse=True)


def test_each_version_in_the_changelog_has_its_sections_once() -> None:
    unreleased, newest, *older = re.split(r"^## \[\d.*$", CHANGES, flags=re.M)
    for version in (unreleased, newest, *older):
        sections = re.findall(r"^### (.*)$", version, re.M)
        assert len(sections) == len(set(sections))
    assert {"Removed", "Renamed", "Fixed", "Security"} <= set(re.findall(r"^### (.*)$", newest, re.M))


def test_workflow_runs_the_ci_script() -> None:
    (job,) = WORKFLOW["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert job["strategy"]["matrix"]["python"][0] == lowest
    assert True in WORKFLOW or "on" in WORKFLOW, "YAML 1.1 reads `on` as true"


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name)
def test_issue_form_is_valid(form: Any) -> None:
    fields = yaml.safe_load(form.read_text("utf-8"))
    if form.name != "config.yml":
        assert {"name", "description", "body"} <= fields.keys()
        ids = [field["id"] for field in fields["body"]]
        assert len(ids) == len(set(ids)) and all(field["attributes"]["label"] for field in fields["body"])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_every_make_target_named_at_the_top_exists(page: str) -> None:
    """In text and in blocks: `make NAME`."""
    path = ROOT / page
    text = path.read_text("utf-8")
    named = re.findall(r"`make ([a-z-]+)`", text)
    named += re.findall(r"^\$ make ([a-z-]+)", "\n".join(block.text for block in find_blocks(path)), re.M)
    assert set(named) <= set(TARGETS), set(named) - set(TARGETS)
