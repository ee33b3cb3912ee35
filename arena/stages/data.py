"""Stage kinds that learn from a data set: `sft`, `dpo` and `kto`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from arena.errors import ConfigError
from arena.parts.paths import Folder
from arena.parts.spec import Name, Positive, Spec
from arena.play.settings import UnitsSpec
from arena.stages.base import StageContext, require_policy
from arena.store.files import CONFIG

Data = Folder
"""File or folder of a data set, `stage:NAME` for the matches of an earlier stage, or another run's folder."""
HeldOut = Annotated[float, Field(ge=0, lt=1)]
LearningRate = Annotated[float, Field(gt=0)]
Beta = Annotated[float, Field(gt=0)]


class Matches(Spec):
    """Matches of a run as a data set."""

    run: Folder
    """Folder of the run, or `stage:NAME`."""
    where: str = ""
    """SQL condition on the columns of its matches, as in `arena export --as parquet`."""


class Chats(Matches):
    """Chats of a run as a data set."""

    policies: list[Name] = Field(default=[])
    """Policies whose chats to use, including scripted ones; [] is the stage's own policy."""
    as_texts: bool = False
    """Learn every token of whole matches as plain texts, for continued pre-training."""


def sft(
    context: StageContext,
    /,
    *,
    policy: Name,
    data: Data | Chats,
    units: UnitsSpec | None = None,
    epochs: Positive = 1,
    batch: Positive = 32,
    held_out: HeldOut = 0.05,
    lr: LearningRate | None = None,
) -> Mapping[str, Any]:
    """Imitate chats, by the mean -log p of the assistant's tokens, or continue pre-training on texts.

    Each iteration is one optimiser step on `batch` rows. If `data` is a run or stage, the chats of `policy` are
    imitated, or those of `data.policies`. `units: {end: REGEX}` splits long replies into turns (MinD).
    """
    learn = {"loss": "likelihood", "aggregate": "token_mean"}
    source = _make_source(context, data, "chats", policy, epochs, batch, held_out)
    source |= {"units": units.model_dump()} if units else {}
    return _make_experiment(context, policy, source, learn, lr)


def dpo(
    context: StageContext,
    /,
    *,
    policy: Name,
    data: Data | Matches,
    epochs: Positive = 1,
    batch: Positive = 32,
    held_out: HeldOut = 0.05,
    beta: Beta = 0.1,
    lr: LearningRate | None = None,
) -> Mapping[str, Any]:
    """Learn from preference pairs by DPO, with the weights at the start of the stage as the frozen reference."""
    learn = {"loss": {"dpo": {"beta": beta, "reference": "initial"}}, "aggregate": "turn_mean"}
    return _make_experiment(
        context, policy, _make_source(context, data, "pairs", policy, epochs, batch, held_out), learn, lr
    )


def kto(
    context: StageContext,
    /,
    *,
    policy: Name,
    data: Folder,
    epochs: Positive = 1,
    batch: Annotated[Positive, Field(ge=2)] = 32,
    held_out: HeldOut = 0.05,
    beta: Beta = 0.1,
    desirable: Annotated[float, Field(ge=0)] = 1.0,
    undesirable: Annotated[float, Field(ge=0)] = 1.0,
    lr: LearningRate | None = None,
) -> Mapping[str, Any]:
    """Learn from completions labelled desirable or not by KTO, with the weights at the start as frozen reference."""
    loss = {"kto": {"beta": beta, "desirable": desirable, "undesirable": undesirable}}
    learn = {"loss": loss, "aggregate": "turn_mean"}
    source = {"data": data, "epochs": epochs, "batch": batch, "held_out": held_out}
    return _make_experiment(context, policy, source, learn, lr)


def _make_source(
    context: StageContext, data: Any, rows: str, policy: str, epochs: int, batch: int, held_out: float
) -> dict[str, Any]:
    """Return the settings `source`. `rows` (chats or pairs) is what to export from the matches if `data` is a run."""
    run, condition = (data.run, data.where) if isinstance(data, Matches) else (data, "")
    if run.startswith("stage:"):
        stage = run.removeprefix("stage:")
        if stage not in context.folders:
            raise ConfigError(f"data: there is no earlier stage '{stage[:64]}'")
        run = str(context.folders[stage])
    stages = {str(folder) for folder in context.folders.values()}
    if isinstance(data, Matches) or run in stages or (Path(run) / CONFIG).is_file():
        chats = data if isinstance(data, Chats) else Chats(run=run)
        policies = chats.policies or [policy]
        data = {"run": run, "where": condition, "rows": "texts" if chats.as_texts else rows, "policies": policies}
    return {"data": data, "epochs": epochs, "batch": batch, "held_out": held_out}


def _make_experiment(
    context: StageContext, policy: str, source: Mapping[str, Any], learn: Mapping[str, Any], lr: float | None
) -> Mapping[str, Any]:
    """Return an experiment in which one policy learns from the source, without the settings of play and credit.

    The number of iterations follows from the source's `epochs` when the stage starts.
    """
    require_policy(context, policy)
    others = [name for name in context.shared["policies"] if name != policy]
    frozen = {name: {"train": False, "imitate": None, "adapter": None} for name in others}
    shared = context.shared.get("learn") or {}
    regularisers = {name: {"weight": 0.0} for name in {"kl": None, **(shared.get("regularisers") or {})}}
    rate = {} if lr is None else {"lr": lr}
    return {
        **dict.fromkeys(("game", "seats", "tables", "league", "evaluate")),
        "iterations": 1,
        "source": source,
        "policies": {**frozen, policy: {"train": True, "imitate": None}},
        "play": {"parts": []},
        "credit": {"stages": [], "select": [], "transforms": [], "estimator": "mars", "critic": None},
        "learn": {
            **{"replay": None, "demonstrations": None, "epochs": 1, "minibatches": 1},
            **{"regularisers": regularisers, **learn, **rate},
        },
        "checkpoint": {"every": 100},
    }
