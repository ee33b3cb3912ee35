"""Every public function of the analysis has a working example."""

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import analysis
from tests.factories.made_run import make_run

MODULES = [f"analysis.{m.name}" for m in pkgutil.iter_modules(analysis.__path__) if m.name != "notebooks"]
ELSEWHERE = {"analysis.commands", "analysis.flatten", "analysis.panels"}
"""Modules without examples: the command line, `frames` and the plots show what they do."""


@pytest.mark.parametrize("name", ["analysis", *MODULES])
def test_the_examples_of_a_module_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "runs" / "latest", live=False)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    log = analysis.load("runs/latest")
    make_run(tmp_path / "other", live=False, shift=1.0)
    pair = {"first": "runs/latest", "second": tmp_path / "other"}
    known = {"analysis": analysis, "log": log, **pair, **vars(module)}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(module, extraglobs=known, optionflags=flags).failed == 0


@pytest.mark.parametrize("name", [name for name in MODULES if name not in ELSEWHERE])
def test_every_public_function_has_an_example(name: str) -> None:
    module = importlib.import_module(name)
    own = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == name]
    bare = [f.__name__ for f in own if not f.__name__.startswith("_") and ">>>" not in (f.__doc__ or "")]
    assert not bare
