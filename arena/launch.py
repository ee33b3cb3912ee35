"""Start and resume runs: from an experiment to a finished run folder."""

import logging
import os
import sys
from asyncio import CancelledError, to_thread
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from torch import OutOfMemoryError

from agents.chat_template import CLOCK
from agents.errors import EnginesLost
from agents.model_config import first_line
from arena.build import Factories
from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.layers import to_yaml
from arena.config.saved_config import Change, experiment_to_plain, list_changes, load_experiment, read_recorded
from arena.config.sources import Layer
from arena.doctor import describe_environment, list_versions
from arena.errors import BugError, ConfigError, DivergedError, Interrupted, OutOfMemory, RanksLost, is_debugging
from arena.evaluate.examination import make_examination, with_fixed_panel
from arena.export.run_rows import export_own_rows
from arena.lab import Lab
from arena.play.feed import Feed
from arena.play.lessons import EXPORTED_ROWS
from arena.play.steps import StepRunner, use_step_runner
from arena.play.watchers import LoggingWatcher, Watcher
from arena.preflight import find_used_servers, preflight
from arena.process import find_launched_ranks
from arena.store import checkpoints
from arena.store.failures import FAILURES
from arena.store.run import RunFolder
from arena.store.runlog import write_run_log
from games.adapters import loading

if TYPE_CHECKING:
    from arena.scale.cluster import Cluster

_LOG = logging.getLogger(__name__)
RESTARTS = 5
"""Maximum restarts of a run's processes after a rank died or hung, without a commit in between."""


async def start(experiment: Experiment, out: Path | None, watcher: Watcher) -> Path:
    """Check an experiment, create its run folder, run it to the end, and return the folder.

    Without `out`, the folder is a new one in runs/. The link `latest` beside it is made to point to it. Raises
    ConfigError if a check fails.
    """
    check_single_process()
    loading.reset()
    return await start_checked(experiment, out, watcher)


async def start_checked(experiment: Experiment, out: Path | None, watcher: Watcher, is_stage: bool = False) -> Path:
    """Start a run as `start` does, but without its check of this process.

    With `is_stage`, for a stage of a pipeline, the link `latest` is not changed.
    """
    with TemporaryDirectory() as scratch:
        exported = export_own_rows(experiment, Path(scratch), watcher.note)
        prepared = await preflight(experiment, lambda step: watcher.phase(0, step), exported=exported)
        rows = {EXPORTED_ROWS: exported.read_bytes()} if exported else {}
    folder = out or choose_fresh_folder(experiment.name)
    copies, known = own_files.read_named_files(prepared.experiment)
    about = describe_environment() | {own_files.FILES: known, "chat_clock": CLOCK.isoformat()}
    config = to_yaml(prepared.experiment)
    run = RunFolder.create(folder, config, add_command(about, experiment_to_plain(prepared.experiment)), copies | rows)
    own_files.trust_experiment(prepared.experiment, find_used_servers(prepared.experiment).values())
    if not is_stage:
        update_latest_link(folder)
    for note in prepared.notes:
        watcher.note(note)
    with run.lock():
        await _run(run, own_files.with_own_roles(run.path, prepared.experiment), watcher)
    return folder


async def resume_run(folder: Path, watcher: Watcher, layers: Sequence[Layer] = (), trusted: bool = False) -> Path:
    """Resume a run from its newest valid checkpoint, with overrides in `layers`, and return its folder.

    Without overrides, the result is bit-identical to an uninterrupted run. Code and servers that the folder names are
    refused, unless `trusted` is set or a run on this machine was started with them.
    """
    check_single_process()
    run = RunFolder.open(folder)
    folder = run.path
    loading.reset()
    saved = load_experiment(folder, trust=trusted)
    experiment = with_fixed_panel(load_experiment(folder, layers, trusted)) if layers else saved
    own_files.admit_experiment(folder, experiment, find_used_servers(experiment).values(), saved, trusted)
    _check_iterations(run, experiment)
    prepared = await preflight(experiment, lambda step: watcher.phase(0, step), folder, trusted)
    for line in (*prepared.notes, *own_files.list_edited_files(folder)):
        watcher.note(line)
    experiment = prepared.experiment
    with run.lock():
        await _run(run, own_files.with_own_roles(folder, experiment), watcher, lambda: _record_resume(run, experiment))
    return folder


def check_single_process() -> None:
    """Raise ConfigError if a launcher started several processes, because each would be a separate run."""
    variable, number = find_launched_ranks()
    if number > 1:
        raise ConfigError(
            f"{variable}={number}: a launcher (torchrun, srun) started {number} processes, and each would be a "
            f"separate run: start one process without the launcher, with --scale trainers={number} for {number} ranks "
            f"(docs/scale.md); for separate runs unset {variable}"
        )


def _record_resume(run: RunFolder, experiment: Experiment) -> list[Change]:
    """Write the command and the present settings to the run folder. Returns the settings that have changed."""
    before = read_recorded(run.path)
    changed = list_changes(before, experiment) if before else []
    config = to_yaml(experiment) if before != experiment else run.reader.config()
    run.replace_settings(config, add_command(run.reader.environment(), experiment_to_plain(experiment), changed))
    return changed


def add_command(
    about: Mapping[str, Any], experiment: Mapping[str, Any], changed: Sequence[Change] = ()
) -> dict[str, Any]:
    """Return a run's environment.json: `about`, plus the experiment, this command and the settings it changed."""
    command = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "versions": list_versions(),
        "changed": {change.field: [change.before, change.now] for change in changed},
    }
    return {**about, "commands": [*about.get("commands", []), command], "experiment": experiment}


def _check_iterations(run: RunFolder, experiment: Experiment) -> None:
    if experiment.iterations < (done := checkpoints.newest_committed(run.path)):
        raise ConfigError(
            f"iterations: {experiment.iterations}, but {run.path} has {done} committed: set a higher total"
        )


async def _run(
    run: RunFolder, experiment: Experiment, watcher: Watcher, on_open: Callable[[], Sequence[Change]] = lambda: ()
) -> None:
    """Run the remaining iterations. If a trainer rank is lost, restart all processes, up to `RESTARTS` times.

    `on_open` is called once the run's parts are built, and returns the settings that changed, for notes. The caller
    holds the folder's lock.
    """
    keys = [server.key_variable for server in experiment.servers().values() if server.key_variable]
    run.failures.secret_variables = keys
    with write_run_log(run.path, keys), _explain_errors(run), closing(Feed(run.path)) as feed:
        _LOG.info("arena %s: %s", list_versions()["arena-selfplay"], " ".join(sys.argv))
        logged, restarts, last_committed = LoggingWatcher(watcher, feed), 0, -1
        while True:
            try:
                await _run_to_end(run, experiment, logged, on_open, restarts > 0)
                break
            except RanksLost as error:
                committed = checkpoints.newest_committed(run.path)
                restarts = restarts + 1 if committed == last_committed else 1
                last_committed, on_open = committed, lambda: ()
                if restarts > RESTARTS:
                    raise
                logged.note(f"{error}: restarting after iteration {committed} ({restarts} of {RESTARTS} restarts)")
        _LOG.info("the run is complete")


async def _run_to_end(
    run: RunFolder,
    experiment: Experiment,
    watcher: LoggingWatcher,
    on_open: Callable[[], Sequence[Change]],
    is_restart: bool,
) -> None:
    """Run from the newest checkpoint to the end, on a cluster if the experiment has `scale`."""
    async with open_factories(experiment, watcher.note, is_restart) as factories:
        lab = await Lab.open(run, experiment, watcher, make_examination(run, experiment), factories)
        try:
            _LOG.info("continuing from iteration %d of %d", lab.done, experiment.iterations)
            for change in on_open():
                watcher.note(f"from here on {change}")
            await lab.run()
            watcher.end()
        finally:
            await lab.close()


@asynccontextmanager
async def open_factories(
    experiment: Experiment, note: Callable[[str], None], is_restart: bool = False
) -> AsyncIterator[Factories]:
    """Yield factories of the experiment's engine and trainers, in this process or, with `scale`, on a cluster.

    Leaving the context ends the cluster's trainer processes. `note` gets messages to the user. With `is_restart`, waits
    for nodes that replace lost ones.
    """
    if experiment.scale is None:
        yield Factories()
        return
    from arena.scale.cluster import open_cluster
    from arena.scale.engines import ScaledEngine
    from arena.scale.ranks import Ranks
    from arena.scale.trainer import ScaledTrainer
    from arena.scale.worker import START_SECONDS

    async with open_cluster(experiment.scale, note, is_restart) as cluster:
        remote_steps = await _offload_slow_steps(cluster)
        trainers = [cluster.get_trainer_options(rank) for rank in range(experiment.scale.trainers)]
        ranks = await Ranks.start(trainers, experiment.scale.deadline, START_SECONDS)
        for rank, actor in enumerate(ranks.actors):
            cluster.watchdog.watch(f"rank {rank}", actor.ping.remote, ranks.kill)
        try:
            with remote_steps:
                yield Factories(partial(ScaledEngine, cluster), partial(ScaledTrainer, ranks))
        finally:
            await ranks.close()


async def _offload_slow_steps(cluster: "Cluster") -> AbstractContextManager[None]:
    """Return a context in which games' slow steps run as tasks on the cluster, if `scale.tasks` is set."""
    from arena.scale.tasks import RayCalls

    if not cluster.spec.tasks:
        return nullcontext()
    calls = RayCalls(cluster.get_task_options())
    await to_thread(calls.check)
    return use_step_runner(StepRunner(cluster.spec.tasks, calls))


@contextmanager
def _explain_errors(run: RunFolder) -> Iterator[None]:
    """Log errors that end the run, and add to their messages how to resume. Stores the match of a bug as a failure."""
    resume = f"arena resume {run.path}"
    try:
        with _log_end():
            yield
    except BugError as error:
        if error.record and not run.failures.contains(error.record.id):
            run.failures.add(error.record)
        raise BugError(
            f"{error}; {run.path / FAILURES} has the traceback (arena show {run.path} --failures), "
            f"and ARENA_DEBUG=1 {resume} reproduces it"
        ) from None
    except (DivergedError, RanksLost, EnginesLost) as error:
        raise type(error)(f"{error}; {resume} continues from the last commit") from None
    except OutOfMemoryError as error:
        raise OutOfMemory(
            f"the GPU's memory is full ({first_line(error)}); committed iterations are safe. To need less: {resume} "
            "with --set learn.gradient_checkpointing=true, learn.offload_reference=true, or a smaller "
            "learn.token_budget or engine.cache_mb; or start a new run with adapters, or with precision: bf16-true and "
            "learn.offload_optimizer"
        ) from None
    except (KeyboardInterrupt, CancelledError):
        raise Interrupted(f"interrupted; committed iterations are safe, and {resume} continues") from None


@contextmanager
def _log_end() -> Iterator[None]:
    """Log the exception that ends the run."""
    try:
        yield
    except BaseException as error:
        _LOG.error("ended by %s: %s", type(error).__name__, error, exc_info=is_debugging())
        raise


def choose_fresh_folder(name: str) -> Path:
    """Return a new path in runs/: the run's name, the present time and, if that exists already, a number."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-{stamp}"
    return next(p for n in range(1, 1000) if not (p := base if n == 1 else Path(f"{base}-{n}")).exists())


def update_latest_link(folder: Path) -> None:
    """Make the link `latest` beside the run folder point to it, if the file system supports links."""
    link = folder.parent / "latest"
    with suppress(OSError):
        if link.is_symlink() or not link.exists():
            new = folder.parent / ".latest.new"
            new.unlink(missing_ok=True)
            new.symlink_to(folder.name)
            os.replace(new, link)
