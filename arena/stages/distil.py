"""The kind `distil`: learn from a teacher, on the student's own play or on the teacher's matches."""

from collections.abc import Mapping
from typing import Any, Literal

from arena.parts.spec import Name, Positive
from arena.stages.base import StageContext
from arena.stages.offline import Share, offline


def distil(
    context: StageContext,
    *,
    teacher: str,
    iterations: Positive,
    mode: Literal["on_policy", "sequence"] = "on_policy",
    policy: Name | None = None,
    best: Share | None = None,
) -> Mapping[str, Any]:
    """Distil a teacher into a policy.

    `on_policy`: the policies play, and the KL from `policy` (default: all) to the model `teacher`, such as
    `runs/big@20`, is minimised on the tokens that they sample; the games' rewards have no effect. The KL's estimate is
    k2, whose mean gradient on the policy's own tokens is that of the reverse KL(student ‖ teacher) of each token, given
    the ones before it. Both must have the same tokenizer. Source: Agarwal et al. 2024 (GKD), on-policy with reverse KL.

    `sequence`: imitate the share `best` (.25) of the matches of the run `teacher`, or `stage:NAME`, per game and seat,
    as `offline` with the method `filtered_bc`. The teacher may be a system of several policies: the student learns
    every seat that it holds in this experiment, so one at all seats becomes all of them (Chain-of-Agents, Li et al.
    2025). To write several seats' turns as one dialogue, or for another tokenizer, use `sft` on exported chats.
    """
    if mode == "sequence":
        if policy is not None:
            raise ValueError("mode sequence does not use `policy`: it trains the policies at this experiment's seats")
        filtered = {"method": "filtered_bc", "best": best or 0.25}
        return offline(context, log=teacher, iterations=iterations, **filtered)  # type: ignore[arg-type]
    if best is not None:
        raise ValueError("mode on_policy does not use `best`, which is for sequence")
    policies = context.shared.get("policies", {})
    students = [policy] if policy else [name for name, spec in policies.items() if spec.get("train", True)]
    return {
        "iterations": iterations,
        "policies": {name: {"reference": teacher} for name in students},
        "credit": {"stages": [], "weights": {}, "select": [], "estimator": "zero", "critic": None, "transforms": []},
        "learn": {
            "loss": "policy_gradient",
            "regularisers": {"kl": {"weight": 1.0, "estimate": "k2", "turns": None}},
            "replay": None,
            "demonstrations": None,
        },
    }
