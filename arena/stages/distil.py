"""Stage kind `distil`: learn from a teacher, on the student's own play or on the teacher's matches."""

from collections.abc import Mapping
from typing import Any, Literal

from arena.errors import ConfigError
from arena.parts.paths import Folder, ModelName
from arena.parts.spec import Name, Positive
from arena.stages.base import StageContext
from arena.stages.offline import Share, offline, read_policies


def distil(
    context: StageContext,
    *,
    iterations: Positive,
    mode: Literal["on_policy", "sequence"] = "on_policy",
    teacher: ModelName | None = None,
    policy: Name | None = None,
    estimate: Literal["k2", "exact"] | None = None,
    log: Folder | None = None,
    best: Share | None = None,
) -> Mapping[str, Any]:
    """Distil a teacher: the model `teacher` on the student's own play, or the matches in `log`.

    `on_policy`: the policies play, and the KL from `policy` (default: all) to `teacher`, such as `stage:sft` or
    `runs/big@20`, is minimised on the tokens that they sample; the games' rewards have no effect. By default its
    `estimate` is k2, whose mean gradient on the policy's own tokens is that of the reverse KL(student ‖ teacher) of
    each token, given the ones before it. `exact` sums over the vocabulary instead, as on-policy GKD with reverse KL
    does (Agarwal et al. 2024): less noise for more memory. Both need the same tokenizer.

    `sequence`: imitate the share `best` (.25) of the matches in `log`, a run's folder or `stage:NAME`, per game and
    seat, as `offline` with the method `filtered_bc`. The teacher may be a system of several policies: the student
    learns every seat that it holds in this experiment, so a student at all seats replaces them all, as in
    Chain-of-Agents (Li et al. 2025), which also writes their turns as one dialogue. For that, or for a teacher with
    another tokenizer, write a data set and use `sft`. Raises ConfigError for settings of the other mode.
    """
    optional = {"teacher": teacher, "policy": policy, "estimate": estimate, "log": log, "best": best}
    mode_settings = ("log", "best") if mode == "sequence" else ("teacher", "policy", "estimate")
    if unused := [name for name, value in optional.items() if value is not None and name not in mode_settings]:
        raise ConfigError(f"mode {mode} does not use `{unused[0]}`: it has {', '.join(mode_settings)}")
    if optional[mode_settings[0]] is None:
        raise ConfigError(f"mode {mode} needs `{mode_settings[0]}`")
    if log is not None:
        return offline(context, log=log, iterations=iterations, method="filtered_bc", best=best or 0.25)
    trained = [name for name, spec in read_policies(context).items() if spec.get("train", True)]
    return {
        "iterations": iterations,
        "policies": {name: {"reference": teacher} for name in ([policy] if policy else trained)},
        "credit": {"select": [], "estimator": "zero", "critic": None, "transforms": []},
        "learn": {
            "loss": "policy_gradient",
            "regularisers": {"kl": {"weight": 1.0, "estimate": estimate or "k2", "turns": None}},
            "replay": None,
            "demonstrations": None,
        },
    }
