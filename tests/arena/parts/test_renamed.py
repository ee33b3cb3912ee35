"""Old keys are refused with their new names; what an older Arena wrote into a folder is read all the same."""

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from analysis.frames import load
from arena.config.kept import as_kept, experiment_of, recorded
from arena.config.layers import compose, to_yaml
from arena.config.sources import file_layer, recipe_layer, set_layer, text_layer
from arena.errors import ConfigError, StoreError
from arena.evaluate.study.plan import EXPERIMENT, plan
from arena.parts.renamed import SETTINGS, old_keys, translated
from arena.store.manifest import digest
from arena.store.reader import RunReader
from tests.factories.commands import arena
from tests.factories.made_run import make_run

NEW = "policies.shared.imitate={scripted: [random], matches: 4}"
OLD = {
    "learn.shown={brains: [random], matches: 2}": "learn.demonstrations={scripted: [random], matches: 2}",
    NEW.replace("scripted", "brains"): NEW,
}
KEPT = Path("analysis/notebooks/example/bargain")
"""A run that was played before settings were renamed."""
STEPS = st.sampled_from(sorted({step for keys in SETTINGS.items() for key in keys for step in key.split(".")} | {"x"}))
TREES = st.recursive(st.integers() | st.none(), lambda inner: st.dictionaries(STEPS, inner, max_size=4), max_leaves=12)


@pytest.mark.parametrize(("old", "new"), OLD.items())
def test_an_old_key_is_refused_with_the_new_one(old: str, new: str, tmp_path: Path) -> None:
    key, named = old.partition("=")[0], new.partition("=")[0]
    told = arena("run", "selfplay", "--recipe", "negotiation-nano", "--set", old, "--out", str(tmp_path / "run"))
    assert told.code == 2 and "\n" not in told.line and f"{named}" in told.line and key in told.line
    assert "is called" in told.line and not (tmp_path / "run").exists()
    compose([recipe_layer("negotiation-nano"), set_layer(new)])


def test_a_file_is_refused_with_the_line_of_the_key() -> None:
    text = "learn:\n  lr: 1e-5\n  shown:\n    brains: [random]\n"
    with pytest.raises(ConfigError) as caught:
        compose([recipe_layer("negotiation-nano"), text_layer("mine.yaml", text)])
    assert str(caught.value) == "mine.yaml:3: learn.shown is called learn.demonstrations now: rename it"


def test_every_old_key_has_a_new_one_that_an_experiment_takes() -> None:
    given = compose([recipe_layer("negotiation-nano"), set_layer("learn.demonstrations={scripted: [random]}")])
    plain = given.model_dump(mode="json", by_alias=True)
    for new in SETTINGS.values():
        inner: Any = plain
        for step in new.split("."):
            inner = next(iter(inner.values())) if step == "*" else inner[step]


@pytest.mark.parametrize("old", OLD)
def test_an_old_run_folder_is_read_with_todays_keys(old: str, tmp_path: Path) -> None:
    """Its config and the experiment in its environment, as `arena resume`, `show` and `report` read them."""
    given = set_layer(old)
    text = to_yaml(compose([recipe_layer("negotiation-nano"), as_kept(given)]))
    wanted = compose([text_layer("new", text)])
    layer = text_layer("old", text.replace("demonstrations:", "shown:").replace("scripted:", "brains:"))
    assert list(old_keys(layer.data)) and compose([as_kept(layer)]) == wanted


def test_a_kept_run_is_read_and_analysed() -> None:
    assert "brains:" in (KEPT / "config.yaml").read_text("utf-8"), "an older Arena wrote it"
    found = experiment_of(KEPT)
    assert found.policies["shared"].imitate and found.policies["shared"].imitate.scripted
    assert recorded(KEPT) in (None, found)
    assert not [name for name in load(KEPT).frame("runs").columns if "shown" in name or "brains" in name]


@pytest.mark.parametrize("name", ["experiment", "versions", "roles", "files", "commands"])
@pytest.mark.parametrize("value", ["x", 3, ["x"], {"learn": "x"}], ids=str)
def test_an_environment_that_is_none_is_refused_in_one_line(name: str, value: Any, tmp_path: Path) -> None:
    """Though its hash is right: whoever edits the one may edit the other."""
    run = make_run(tmp_path / "run").path
    body = {**RunReader(run).environment(), name: value}
    (run / "environment.json").write_text(json.dumps(body | {"sha256": digest(body)}))
    if isinstance(value, dict) and name != "commands":
        assert len(load(run).frame("runs")) == 1, "a field of a stranger's"
        return
    with pytest.raises(StoreError, match=r"environment\.json is damaged: .* restore it from a copy$"):
        load(run).frame("runs")
    assert "environment.json is damaged" in arena("report", run, "--out", tmp_path / "page.html").line


def test_a_kept_study_is_gone_on_with(tmp_path: Path) -> None:
    """Its own file is written with today's keys, which its runs are started from."""
    experiment = compose([recipe_layer("mars-nano")])
    fresh = plan(experiment, tmp_path / "study", ["mars"], 1, lambda it: it)
    place = fresh.folder / EXPERIMENT
    place.write_text(place.read_text("utf-8").replace("scripted:", "brains:").replace("demonstrations:", "shown:"))
    again = plan(experiment, fresh.folder, ["mars"], 1, lambda it: it)
    assert again.experiment == fresh.experiment and compose([file_layer(place)]) == fresh.experiment


@given(TREES)
def test_translating_leaves_no_old_key_and_loses_nothing(tree: Any) -> None:
    """Unless a setting is there under both names: then the old one stays, and is refused."""
    new = translated(tree)
    both = [path for path, name in old_keys(new) if _holds(new, name.split("."))]
    assert len(both) == len(list(old_keys(new)))
    assert len(json.dumps(new).split(":")) == len(json.dumps(tree).split(":"))
    assert translated(new) == new


def _holds(tree: Any, steps: list[str]) -> bool:
    for step in steps:
        if not isinstance(tree, dict) or step not in tree:
            return False
        tree = tree[step]
    return True
