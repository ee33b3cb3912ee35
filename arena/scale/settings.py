"""Settings of ranks, engines and tasks in separate processes."""

from typing import Annotated

from pydantic import Field, StringConstraints

from arena.parts.spec import Spec

Share = Annotated[float, Field(ge=0, le=1024)]
Seconds = Annotated[float, Field(gt=0, le=10**7)]
Workers = Annotated[int, Field(ge=1, le=1024)]


class WorkerResources(Spec):
    """Processors and GPUs that Ray reserves for one actor or task."""

    cpus: Share = 1.0
    """Number of processors. With fractions, several processes share a processor."""
    gpus: Share = 0.0
    """Number of GPUs. With fractions, a trainer and an engine can share a GPU."""
    nodes: Annotated[str, StringConstraints(pattern=r"^[A-Za-z][\w.-]{0,62}$")] | None = None
    """Custom Ray resource that a node must have. `engines` selects the nodes started with `ray start
    --resources='{"engines": 1}'`. Null allows any node."""


class ResourcesSpec(Spec):
    """Processors and GPUs of each trainer, engine and task."""

    trainer: WorkerResources = WorkerResources()
    """Resources of each rank."""
    engine: WorkerResources = WorkerResources()
    """Resources of each engine."""
    task: WorkerResources = WorkerResources(cpus=0.5)
    """Resources of each slow step of a simulator."""


class ScaleSpec(Spec):
    """Run on several processes with Ray. Requires `pip install 'arena-selfplay[scale]'`."""

    trainers: Workers = 1
    """Number of DeepSpeed ranks. Every trained policy learns on all of them."""
    engines: Workers = 1
    """Number of engines. Each serves all policies; matches are distributed among them."""
    tasks: Annotated[int, Field(ge=0, le=10**4)] = 0
    """Concurrent slow steps of simulators, as Ray tasks; 0 runs them in threads of the driver."""
    address: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Existing cluster to join: `auto` or host:port. Null starts one on this machine for this run."""
    resources: ResourcesSpec = ResourcesSpec()
    """Resources reserved for each process."""
    patience: Seconds = 60.0
    """Seconds without an answer to a ping after which a process counts as hung, and is killed and replaced."""
    deadline: Seconds = 1800.0
    """Maximum seconds of one call, such as a batch of replies or an update, before its process counts as hung."""
