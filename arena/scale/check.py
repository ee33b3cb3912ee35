"""Checks of a `scale` before anything is started."""

from math import ceil

from agents.engines.spec import EngineSpec
from arena.errors import ConfigError
from arena.scale.cluster import bundles, check_address, check_installed, described, processes, total
from arena.scale.settings import ScaleSpec


def check_scale(spec: ScaleSpec, engine: EngineSpec) -> None:
    """ConfigError where Ray is not installed, or no cluster could give what is asked for; Ray is not loaded."""
    check_installed()
    if spec.address is not None:
        check_address(spec.address)
    asked = spec.resources
    if asked.trainer.gpus > 1:
        raise ConfigError(
            f"scale.resources.trainer.gpus: {asked.trainer.gpus:g}: a rank computes on one: ask for more trainers"
        )
    if asked.engine.gpus > 1 and engine.kind != "vllm":
        raise ConfigError(
            f"scale.resources.engine.gpus: {asked.engine.gpus:g}: only vllm spreads a model over several GPUs: "
            "set engine.kind to vllm, or ask for more engines"
        )
    for kind, one in (("engine", asked.engine), ("task", asked.task), ("trainer", asked.trainer)):
        if one.gpus > 1 and one.gpus != int(one.gpus):
            raise ConfigError(f"scale.resources.{kind}.gpus: {one.gpus:g}: more than one GPU is given whole")
    if spec.address is None:
        _check_here(spec)


def _check_here(spec: ScaleSpec) -> None:
    """ConfigError where this machine has too few GPUs; processors can be shared."""
    wanted = total(bundles(spec))
    if not wanted["GPU"]:
        return
    import torch

    if wanted["GPU"] > (there := torch.cuda.device_count()):
        raise ConfigError(
            f"scale: {processes(spec)} take {described(wanted)}, and this machine has {there} GPUs: "
            f"join a cluster with scale.address, ask for "
            f"{ceil(wanted['GPU'] - there)} fewer, or for shares of one in scale.resources"
        )
