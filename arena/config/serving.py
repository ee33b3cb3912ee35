"""Check that the engine of an experiment can serve its policies."""

from collections.abc import Sequence

from agents.adapter_config import is_adapter
from agents.engines.kinds import list_kinds_with
from agents.weights import resolve
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.play.tables import Table


def check_serving(experiment: Experiment, tables: Sequence[Table]) -> None:
    """Raise ConfigError if the engine lacks a capability that policies, league or roles need."""
    kind, capabilities, playing = experiment.engine.kind, experiment.engine.capabilities, experiment.playing()
    adapters = {name for name, policy in playing.items() if policy.adapter or is_adapter(resolve(policy.model))}
    full_weights = [name for name, policy in playing.items() if policy.train and name not in adapters]
    if adapters and not capabilities.serves_adapters:
        raise ConfigError(
            f"engine.kind: {kind} serves no adapters, and policy '{min(adapters)}' is one: set engine.kind to "
            f"{list_kinds_with('serves_adapters')}"
        )
    if not capabilities.serves_several and len(served := _list_served(experiment)) > 1:
        raise ConfigError(
            f"engine.kind: {kind} serves one policy, and this run has {', '.join(served)}: set engine.kind to "
            f"{list_kinds_with('serves_several')}"
        )
    # Starting a process for each past version would take too long.
    if capabilities.has_own_process and experiment.league and full_weights:
        raise ConfigError(
            f"engine.kind: {kind} serves past versions of adapters only: set policies.{full_weights[0]}.adapter, or "
            "in_process"
        )
    cautious = [
        role.role
        for table in tables
        for seat, role in table.roles.items()
        if role.sampling.cautious and table.holders.get(seat) in playing
    ]
    if cautious and not capabilities.records_entropy:
        raise ConfigError(
            f"role {cautious[0]}: sampling.cautious needs entropies, which engine {kind} does not report: set "
            f"engine.kind to {list_kinds_with('records_entropy')}, or leave cautious out"
        )


def _list_served(experiment: Experiment) -> list[str]:
    """Return descriptions of all weights that the engine serves."""
    past = ["past versions"] if experiment.league else []
    by_reference = experiment.learn.uses_reference or "reference" in experiment.credit.needs
    return [*experiment.playing(), *past, *(["reference weights"] if by_reference else [])]
