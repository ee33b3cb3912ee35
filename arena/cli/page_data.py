"""Data for the page (`arena view`, `arena report`) that a run's log does not contain.

The analysis package imports no games, credit or tokenizers, so `analysis.commands` passes these functions to it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import games
from arena.errors import StoreError
from arena.play.making import SEAT_TOOLS
from arena.store import checkpoints
from games.abilities import Mark
from games.contracts import Deal
from games.plain_files import read_plain

TURN_FACTS = ("offer", "offered", "turn", "turns_left", "splits", "legal")
"""Facts that are left out, because they change with the turn or follow from other facts."""
MAX_TOKENIZER = 50 * 10**6
"""Maximum bytes of a tokenizer file."""


def deal_facts(game: str, options: str, seed: int, acts: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Return a match's public facts (key "") and each seat's private facts when it first moves.

    `options` is JSON; `acts` are the match's (seat, act) pairs. Returns {} if the game or tools are not part of Arena,
    whose code never runs here, or if the log was edited or has other rules.

    >>> deal_facts("kuhn_poker", "{}", 7, [("first", "BET"), ("second", "FOLD")])["first"]
    {'card': 'Q'}
    """
    from arena.evaluate.deal_facts import replay_facts

    if game not in games.GAMES or SEAT_TOOLS in options:
        return {}
    try:
        facts_of_deal = replay_facts(Deal(game, json.loads(options), seed), acts)
    except (StoreError, ValueError, TypeError):
        return {}
    facts = {"": facts_of_deal.public, **facts_of_deal.private}
    return {
        seat: {k: v for k, v in own.items() if k not in TURN_FACTS and v is not None} for seat, own in facts.items()
    }


def find_marks(game: str, options: str, seed: int, acts: Iterable[tuple[str, str]]) -> list[list[Mark]]:
    """Return, by act, the places in images that it names. Takes what `deal_facts` takes; [] where that returns {}."""
    from arena.evaluate.deal_facts import replay_marks

    if game not in games.GAMES or SEAT_TOOLS in options:
        return []
    try:
        return replay_marks(Deal(game, json.loads(options), seed), acts)
    except (StoreError, ValueError, TypeError):
        return []


def list_theory_values(game: str) -> Mapping[str, float]:
    """Return the theoretical values that one of Arena's games states, by name; {} for other games."""
    if game not in games.GAMES:
        return {}
    return {name: float(value) for name, value in games.GAMES[game].theory.items()}


def compare_estimators(run: Path, estimators: str, iteration: int, trust: bool = False) -> list[dict[str, Any]]:
    """Return an iteration's turns as rows: `match`, `turn`, `reward`, and an advantage under each estimator's name.

    `estimators` is a list as for `arena credit`. Raises ConfigError for an unknown estimator, or one that needs
    more than the log. Runs an event loop, so do not call it inside one.
    """
    from arena.cli.credit import parse_estimators
    from arena.config.saved_config import load_experiment
    from arena.credit.compare import compare

    experiment = load_experiment(run, trust=trust)
    estimator_parts = parse_estimators(estimators)
    work = compare(
        run, experiment.credit, estimator_parts, [iteration], seed=experiment.seed, length=experiment.iterations
    )
    comparison = asyncio.run(work)
    table = comparison.turns[["match", "turn", "reward", *comparison.estimators]]
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return rows


def list_estimators() -> list[dict[str, str]]:
    """Return a row of texts per estimator of advantages, as `arena list estimators` prints."""
    from arena.cli.catalogue import list_entries

    return list_entries("estimators")


def token_texts(run: Path, policy: str, ids: Sequence[int]) -> list[str]:
    """Return the text of each token id, by the tokenizer in the newest checkpoint that has the policy.

    Returns [] if there is no such tokenizer. Partial characters are `�`, negative ids "". Loads no weights.
    """
    name = policy.partition("@")[0]
    for number in reversed(checkpoints.iterations(run)):
        folder = checkpoints.folder_of(run, number) / "policies"
        policies = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
        if name in policies and (path := _tokenizer_file(policies[name])):
            tokenizer = _load_tokenizer(path)
            if tokenizer is None:
                return []
            return [tokenizer.decode([id], skip_special_tokens=False) if id >= 0 else "" for id in ids]
    return []


def _tokenizer_file(folder: Path) -> Path | None:
    """Return the tokenizer file of a model's folder, or of an adapter's base model if it is on this machine."""
    from agents.weights import list_models

    if not (folder / "tokenizer.json").is_file():
        try:
            base = json.loads(read_plain(folder / "adapter_config.json", MAX_TOKENIZER))["base_model_name_or_path"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        known = {model.name: model.path for model in list_models() if model.state == "ready"}
        folder = known.get(str(base), Path(str(base)))
    path = folder / "tokenizer.json"
    return path if path.is_file() and path.stat().st_size <= MAX_TOKENIZER else None


@lru_cache(4)
def _load_tokenizer(path: Path) -> Any:
    """Return the tokenizer of a file; None if it cannot be read or the library is missing."""
    try:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001 the library raises plain Exception for files that it cannot read
        return None
