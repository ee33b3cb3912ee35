"""Stage kind `offline`: learn from the log of another run, or of an earlier stage, without play."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from arena.errors import ConfigError
from arena.parts.paths import Folder
from arena.parts.spec import Positive
from arena.stages.base import StageContext

Method = Literal["bc", "filtered_bc", "awr", "mc", "ilql"]
Share = Annotated[float, Field(gt=0, le=1)]
_METHODS: Mapping[str, Sequence[Method]] = {
    "best": ("filtered_bc",), "at_least": ("filtered_bc",), "beta": ("awr", "mc", "ilql"),
    "gamma": ("awr", "mc", "ilql"), "expectile": ("ilql",),
}  # fmt: skip
"""Methods that use each setting."""


def offline(
    context: StageContext,
    *,
    log: Folder,
    iterations: Positive,
    method: Method = "awr",
    start: Literal["newest", "base"] = "newest",
    best: Share | None = None,
    at_least: float | None = None,
    beta: Annotated[float, Field(gt=0)] | None = None,
    gamma: Annotated[float, Field(ge=0, le=1)] | None = None,
    expectile: Annotated[float, Field(gt=0, lt=1)] | None = None,
) -> Mapping[str, Any]:
    """Learn offline from matches in `log`, a run's folder or `stage:NAME`, in random order, by weighted imitation.

    | method | weight of a turn |
    |---|---|
    | `bc` | 1: behaviour cloning |
    | `filtered_bc` | 1 for the share `best` (.25) of matches by return, per game and seat, and at least `at_least` |
    | `awr` | min(exp((R - V) / `beta`), 20), R the return and V its prediction by the critic `linear` |
    | `mc` | the same with Q - V, by the critic `monte_carlo` |
    | `ilql` | the same with Q - V, by the critic `ilql` with `expectile` (.7) |

    `beta` (1) is in units of the reward, and `gamma` (.99) discounts it. The log's games, roles and tokenizer must be
    this pipeline's. `start: base` trains the weights that the shared settings name, not those of the newest stage.
    Raises ConfigError for settings that the method does not use.
    """
    optional = {"best": best, "at_least": at_least, "beta": beta, "gamma": gamma, "expectile": expectile}
    if unused := [name for name, value in optional.items() if value is not None and method not in _METHODS[name]]:
        raise ConfigError(
            f"method {method} does not use `{unused[0]}`, which is for {' and '.join(_METHODS[unused[0]])}"
        )
    discount = 0.99 if gamma is None else gamma
    critics: dict[str, Any] = {
        "awr": "linear",
        "mc": {"monte_carlo": {"gamma": discount}},
        "ilql": {"ilql": {"gamma": discount, "expectile": expectile or 0.7}},
    }
    estimator: Any = {"awr": {"gae_turn": {"gamma": discount}}}.get(method, "archer")
    if method == "filtered_bc":
        share = best or (0.25 if at_least is None else 1.0)
        settings = make_imitation([{"top_returns": {"share": share, "at_least": at_least}}])
    else:
        settings = make_imitation([]) if method == "bc" else make_imitation([], estimator, critics[method], beta or 1.0)
    source = {"log": log, "shuffle": True}
    base = {name: {"model": spec["model"]} for name, spec in read_policies(context).items() if "model" in spec}
    begun = {"policies": base} if start == "base" else {}
    return {"iterations": iterations, "source": source, "league": None, **settings, **begun}


def make_imitation(
    select: list[Any], estimator: Any = "zero", critic: Any = None, beta: float = 1.0
) -> dict[str, dict[str, Any]]:
    """Return settings of credit and learning that imitate selected turns by -w log p.

    w = min(exp(A / beta), 20) with the estimator's advantage A: 1 for the estimator `zero`.
    """
    transforms = [{"exponential": {"beta": beta}}]
    credit = {"select": select, "estimator": estimator, "critic": critic, "transforms": transforms}
    learn = {"loss": "likelihood", "regularisers": {"kl": {"weight": 0.0}}, "replay": None, "demonstrations": None}
    return {"credit": credit, "learn": learn}


def read_policies(context: StageContext) -> dict[str, Mapping[str, Any]]:
    """Return the shared settings of the policies by name, not validated."""
    policies = context.shared.get("policies")
    policies = policies if isinstance(policies, Mapping) else {}
    return {name: spec for name, spec in policies.items() if isinstance(spec, Mapping)}
