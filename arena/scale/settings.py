"""Settings of ranks, engines and tasks in processes of their own."""

from typing import Annotated

from pydantic import Field, StringConstraints

from arena.parts.spec import Spec

Share = Annotated[float, Field(ge=0, le=1024)]
Seconds = Annotated[float, Field(gt=0, le=10**7)]
Workers = Annotated[int, Field(ge=1, le=1024)]


class WorkerResources(Spec):
    """Processors and GPUs that Ray reserves for one actor or task."""

    cpus: Share = 1.0
    """Processors; a share of one lets several use it."""
    gpus: Share = 0.0
    """GPUs; a trainer and an engine that have parts of the same one take turns on it."""


class ResourcesSpec(Spec):
    """Processors and GPUs of each trainer, engine and task."""

    trainer: WorkerResources = WorkerResources()
    """Of each rank."""
    engine: WorkerResources = WorkerResources()
    """Of each engine."""
    task: WorkerResources = WorkerResources(cpus=0.5)
    """Of each slow step of a simulator."""


class ScaleSpec(Spec):
    """A run on several processes, by Ray; needs `pip install 'arena-selfplay[scale]'`."""

    trainers: Workers = 1
    """DeepSpeed ranks; every trained policy learns on all of them."""
    engines: Workers = 1
    """Engines, each with all policies; the matches are shared out among them."""
    tasks: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Slow steps of simulators at once, as Ray tasks; with 0 they are threads beside the event loop."""
    address: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """The cluster: `auto` or host:port joins one that is there; null starts one here, for this run alone."""
    resources: ResourcesSpec = ResourcesSpec()
    """What is reserved for each of them."""
    patience: Seconds = 60.0
    """Seconds without a sign of life after which a process counts as hung: it is ended and replaced."""
    deadline: Seconds = 1800.0
    """Seconds that one call may take, such as a batch of replies or an update, before its process counts as hung."""
