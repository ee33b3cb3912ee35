"""Start and resume runs, from an experiment to a finished run folder."""

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
from arena.build import Makers
from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.layers import to_yaml
from arena.config.saved_config import Change, as_plain, changes, experiment_of, recorded
from arena.config.sources import Layer
from arena.doctor import environment, versions
from arena.errors import BugError, ConfigError, DivergedError, Interrupted, OutOfMemory, RanksLost, debugging
from arena.evaluate.examination import examination, with_fixed_panel
from arena.export.run_rows import own_rows
from arena.lab import Lab
from arena.play.feed import Feed
from arena.play.lessons import EXPORTED_ROWS
from arena.play.steps import StepRunner, use_step_runner
from arena.play.watchers import LoggingWatcher, Watcher
from arena.preflight import preflight, servers_asked
from arena.process import ranks
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
    """Check the experiment, make its run folder, run it to the end, and return the folder.

    Without `out` the folder is a new one below runs/. The link `latest` beside it points to it. Raises ConfigError if a
    check fails.
    """
    check_alone()
    loading.forget()
    return await begin(experiment, out, watcher)


async def begin(experiment: Experiment, out: Path | None, watcher: Watcher, is_stage: bool = False) -> Path:
    """Do what `start` does, in a process that has checked where code may be loaded from.

    The link `latest` does not point to a stage of a pipeline, so leave it as it is for `is_stage`.
    """
    with TemporaryDirectory() as scratch:
        exported = own_rows(experiment, Path(scratch), watcher.note)
        prepared = await preflight(experiment, lambda what: watcher.phase(0, what), exported=exported)
        rows = {EXPORTED_ROWS: exported.read_bytes()} if exported else {}
    folder = out or fresh_folder(experiment.name)
    copies, known = own_files.gather(prepared.experiment)
    about = environment() | {own_files.FILES: known, "chat_clock": CLOCK.isoformat()}
    config = to_yaml(prepared.experiment)
    run = RunFolder.create(folder, config, with_command(about, as_plain(prepared.experiment)), copies | rows)
    own_files.trust_files(prepared.experiment)
    own_files.trust_servers(servers_asked(prepared.experiment).values())
    if not is_stage:
        point_latest(folder)
    for note in prepared.notes:
        watcher.note(note)
    with run.lock():
        await _run(run, own_files.with_own_roles(run.path, prepared.experiment), watcher)
    return folder


async def resume_run(folder: Path, watcher: Watcher, layers: Sequence[Layer] = (), trusted: bool = False) -> Path:
    """Resume a run from its newest valid checkpoint, with optional overrides in `layers`, and return its folder.

    Without overrides the result is bit-identical to an uninterrupted run. Without `trusted`, code and servers of the
    folder are refused unless a run on this machine was started with them.
    """
    check_alone()
    run = RunFolder.open(folder)
    folder = run.path
    loading.forget()
    saved = experiment_of(folder, trust=trusted)
    experiment = with_fixed_panel(experiment_of(folder, layers, trusted)) if layers else saved
    own_files.admit_servers(folder, servers_asked(experiment), saved.servers(), trusted)
    own_files.admit_harnesses(folder, experiment, saved, trusted)
    _check_iterations(run, experiment)
    prepared = await preflight(experiment, lambda what: watcher.phase(0, what), folder, trusted)
    for line in (*prepared.notes, *own_files.edited(folder)):
        watcher.note(line)
    experiment = prepared.experiment
    with run.lock():
        await _run(run, own_files.with_own_roles(folder, experiment), watcher, lambda: _record(run, experiment))
    return folder


def check_alone() -> None:
    """Raise ConfigError if a launcher started several processes, each of which would be a separate run."""
    variable, number = ranks()
    if number > 1:
        raise ConfigError(
            f"{variable}={number}: a launcher (torchrun, srun) started {number} processes, and each would be a "
            f"separate run: start one process without the launcher, with --scale trainers={number} for {number} ranks "
            f"(docs/scale.md); for separate runs unset {variable}"
        )


def _record(run: RunFolder, experiment: Experiment) -> list[Change]:
    """Write the resuming command and the present settings to the run folder, and return the settings that changed."""
    before = recorded(run.path)
    changed = changes(before, experiment) if before else []
    config = to_yaml(experiment) if before != experiment else run.reader.config()
    run.replace_settings(config, with_command(run.reader.environment(), as_plain(experiment), changed))
    return changed


def with_command(
    about: Mapping[str, Any], experiment: Mapping[str, Any], changed: Sequence[Change] = ()
) -> dict[str, Any]:
    """Return the content of environment.json with this command and its changed settings added, and the experiment."""
    command = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "versions": versions(),
        "changed": {change.field: [change.before, change.now] for change in changed},
    }
    return {**about, "commands": [*about.get("commands", []), command], "experiment": experiment}


def _check_iterations(run: RunFolder, experiment: Experiment) -> None:
    if experiment.iterations < (done := checkpoints.newest_committed(run.path)):
        raise ConfigError(f"iterations: {experiment.iterations}, but {run.path} has {done} committed: ask for more")


async def _run(
    run: RunFolder, experiment: Experiment, watcher: Watcher, opened: Callable[[], Sequence[Change]] = lambda: ()
) -> None:
    """Run the remaining iterations, and start the processes again if a trainer rank is lost, up to `RESTARTS` times.

    `opened` is called once the run's parts are built, and returns settings to note. The caller holds the folder's lock.
    """
    keys = [server.key_variable for server in experiment.servers().values() if server.key_variable]
    run.failures.secret_variables = keys
    with write_run_log(run.path, keys), _explained(run), closing(Feed(run.path)) as feed:
        _LOG.info("arena %s: %s", versions()["arena-selfplay"], " ".join(sys.argv))
        logged, again, reached = LoggingWatcher(watcher, feed), 0, -1
        while True:
            try:
                await _complete(run, experiment, logged, opened, again > 0)
                break
            except RanksLost as error:
                done = checkpoints.newest_committed(run.path)
                again, reached, opened = again + 1 if done == reached else 1, done, lambda: ()
                if again > RESTARTS:
                    raise
                logged.note(f"{error}: restarting after iteration {done} ({again} of {RESTARTS} restarts)")
        _LOG.info("the run is complete")


async def _complete(
    run: RunFolder, experiment: Experiment, watcher: LoggingWatcher, opened: Callable[[], Sequence[Change]], again: bool
) -> None:
    """Run from the newest checkpoint to the end, on the cluster's processes if the experiment has `scale`."""
    async with scaled(experiment, watcher.note, again) as makers:
        lab = await Lab.open(run, experiment, watcher, examination(run, experiment), makers)
        try:
            _LOG.info("continuing from iteration %d of %d", lab.done, experiment.iterations)
            for change in opened():
                watcher.note(f"from here on {change}")
            await lab.run()
            watcher.end()
        finally:
            await lab.close()


@asynccontextmanager
async def scaled(experiment: Experiment, note: Callable[[str], None], again: bool = False) -> AsyncIterator[Makers]:
    """Yield the experiment's factories: local ones, or with `scale` those of a cluster.

    The cluster's trainer processes start before and end after the context. `note` gets messages to the user. A run that
    starts `again` waits for nodes that replace lost ones.
    """
    if experiment.scale is None:
        yield Makers()
        return
    from arena.scale.cluster import open_cluster
    from arena.scale.engines import ScaledEngine
    from arena.scale.ranks import Ranks
    from arena.scale.trainer import ScaledTrainer
    from arena.scale.worker import START_SECONDS

    async with open_cluster(experiment.scale, note, again) as cluster:
        stepping_there = await _slow_steps(cluster)
        each = [cluster.trainer(rank) for rank in range(experiment.scale.trainers)]
        ranks = await Ranks.start(each, experiment.scale.deadline, START_SECONDS)
        for rank, actor in enumerate(ranks.actors):
            cluster.watchdog.watch(f"rank {rank}", actor.ping.remote, ranks.kill)
        try:
            with stepping_there:
                yield Makers(partial(ScaledEngine, cluster), partial(ScaledTrainer, ranks))
        finally:
            await ranks.close()


async def _slow_steps(cluster: "Cluster") -> AbstractContextManager[None]:
    """Return a context in which slow steps of games run as tasks of the cluster; an empty one without `scale.tasks`."""
    from arena.scale.tasks import RayCalls

    if not cluster.spec.tasks:
        return nullcontext()
    calls = RayCalls(cluster.task())
    await to_thread(calls.check)
    return use_step_runner(StepRunner(cluster.spec.tasks, calls))


@contextmanager
def _explained(run: RunFolder) -> Iterator[None]:
    """Convert errors that end the run into ones that say how to resume, and log them. A bug's match is stored, too."""
    again = f"arena resume {run.path}"
    try:
        with _logged_end():
            yield
    except BugError as error:
        if error.record and not run.failures.contains(error.record.id):
            run.failures.add(error.record)
        raise BugError(
            f"{error}; {run.path / FAILURES} has the traceback (arena show {run.path} --failures), "
            f"and ARENA_DEBUG=1 {again} reproduces it"
        ) from None
    except (DivergedError, RanksLost, EnginesLost) as error:
        raise type(error)(f"{error}; {again} continues from the last commit") from None
    except OutOfMemoryError as error:
        raise OutOfMemory(
            f"the GPU's memory is full ({first_line(error)}); committed iterations are safe. To need less: {again} "
            "with --set learn.gradient_checkpointing=true, learn.offload_reference=true, or a smaller "
            "learn.token_budget or engine.cache_mb; or start a new run with adapters, or with precision: bf16-true and "
            "learn.offload_optimizer"
        ) from None
    except (KeyboardInterrupt, CancelledError):
        raise Interrupted(f"interrupted; committed iterations are safe, and {again} continues") from None


@contextmanager
def _logged_end() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _LOG.error("ended by %s: %s", type(error).__name__, error, exc_info=debugging())
        raise


def fresh_folder(name: str) -> Path:
    """Return a path below runs/ that does not exist yet: the run's name, the present time and, if taken, a number."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-{stamp}"
    return next(p for n in range(1, 1000) if not (p := base if n == 1 else Path(f"{base}-{n}")).exists())


def point_latest(folder: Path) -> None:
    """Make the link `latest` beside the run folder point to it, if the file system supports links."""
    link = folder.parent / "latest"
    with suppress(OSError):
        if link.is_symlink() or not link.exists():
            beside = folder.parent / ".latest.new"
            beside.unlink(missing_ok=True)
            beside.symlink_to(folder.name)
            os.replace(beside, link)
