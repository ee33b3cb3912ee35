"""Starting and going on: from an experiment to a finished run folder."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import OutOfMemoryError

from agents.model_config import first_line
from arena.config import own_files, trust
from arena.config.experiment import Experiment
from arena.config.kept import Change, as_plain, changes, experiment_of, recorded
from arena.config.layers import Layer, to_yaml
from arena.doctor import environment, versions
from arena.errors import ConfigError, DivergedError, Interrupted, OutOfMemory
from arena.evaluate.examination import examination, settled
from arena.evaluate.held_out import check_spec
from arena.lab import Lab
from arena.learn.machine import fitted
from arena.play.tables import set_tables
from arena.play.watchers import Watcher
from arena.preflight import check_endpoints, preflight, role_hashes, servers_asked
from arena.store import checkpoints
from arena.store.run import RunFolder
from games.adapters import loading


def start(experiment: Experiment, out: Path | None, watcher: Watcher) -> Path:
    """Check everything that can be checked, make the run folder, and run; returns the folder."""
    loading.forget()
    prepared = preflight(experiment, lambda what: watcher.phase(0, what))
    folder = out or _fresh(experiment.name)
    copies, known = own_files.gather(prepared.experiment)
    about = environment() | {"roles": dict(prepared.roles), own_files.FILES: known}
    config = to_yaml(prepared.experiment)
    run = RunFolder.create(folder, config, _with_command(about, prepared.experiment, []), copies)
    own_files.remember(prepared.experiment)
    trust.remember_servers(servers_asked(prepared.experiment).values())
    _point_latest(folder)
    for note in prepared.notes:
        watcher.note(note)
    with run.lock(), _lab(run, own_files.at_home(folder, prepared.experiment), watcher) as lab:
        lab.run()
    return folder


def go_on(folder: Path, watcher: Watcher, layers: Sequence[Layer] = (), trusted: bool = False) -> Path:
    """Continue a run from its newest valid checkpoint, as if it had never stopped, or with some settings changed.

    Code in its folder, and servers that it would ask, are refused without `trusted` where no run began with them here.
    """
    run = RunFolder.open(folder)
    loading.forget()
    kept = experiment_of(folder, trust=trusted)
    experiment = settled(experiment_of(folder, layers, trusted)) if layers else kept
    trust.admit_servers(folder, servers_asked(experiment), kept.servers(), trusted)
    _check_iterations(run, experiment)
    tables = set_tables(at_home := own_files.at_home(folder, experiment, trusted))
    check_spec(at_home)
    if own_files.FILES not in run.reader.environment():  # of an older Arena
        _same_roles(run, role_hashes(experiment, tables))
    for line in (*check_endpoints(experiment, lambda what: watcher.phase(0, what)), *own_files.edited(folder)):
        watcher.note(line)
    experiment = fitted(experiment)
    with run.lock(), _lab(run, own_files.at_home(folder, experiment), watcher) as lab:
        for change in _record(run, experiment):
            watcher.note(f"from here on {change}")
        lab.run()
    return folder


def _record(run: RunFolder, experiment: Experiment) -> list[Change]:
    """Keep that the run went on, with which command, and what it changed: this is returned."""
    before = recorded(run.path)
    changed = changes(before, experiment) if before else []
    config = to_yaml(experiment) if before != experiment else run.reader.config()
    run.amend(config, _with_command(run.reader.environment(), experiment, changed))
    return changed


def _with_command(about: Mapping[str, Any], experiment: Experiment, changed: Sequence[Change]) -> dict[str, Any]:
    """An environment with one more command, and the experiment that holds from now on."""
    command = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "versions": versions(),
        "changed": {change.field: [change.before, change.now] for change in changed},
    }
    return {**about, "commands": [*about.get("commands", []), command], "experiment": as_plain(experiment)}


def _check_iterations(run: RunFolder, experiment: Experiment) -> None:
    done = max(checkpoints.iterations(run.path), default=0)
    if experiment.iterations < done:
        raise ConfigError(f"iterations: {experiment.iterations}, and {done} of {run.path} are committed: ask for more")


def _same_roles(run: RunFolder, roles: Mapping[str, str]) -> None:
    begun = run.reader.environment().get("roles", {})
    for role, now in roles.items():
        if begun.get(role, now) != now:
            raise ConfigError(f"role {role} was changed since {run.path} began: restore it, or start a new run")


@contextmanager
def _lab(run: RunFolder, experiment: Experiment, watcher: Watcher) -> Iterator[Lab]:
    """The lab of what is not committed yet; the caller holds the folder."""
    again = f"arena resume {run.path}"
    try:
        with closing(Lab(run, experiment, watcher, examination(run, experiment))) as lab:
            yield lab
    except DivergedError as error:
        raise DivergedError(f"{error}; {again} goes on from the last commit") from None
    except OutOfMemoryError as error:
        raise OutOfMemory(
            f"the GPU's memory is full ({first_line(error)}): nothing that was committed is lost; {again} with "
            "--set learn.gradient_checkpointing=true, learn.offload_reference=true, or a smaller learn.token_budget or "
            "engine.cache_mb needs less; so does a new run of adapters, or with precision: bf16-true and "
            "learn.offload_optimizer"
        ) from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; nothing that was committed is lost, {again} goes on") from None


def _fresh(name: str) -> Path:
    """A folder under runs/ that does not exist yet, named by the time of day."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path("runs") / f"{name}-{stamp}"
    return next(p for n in range(1, 1000) if not (p := base if n == 1 else Path(f"{base}-{n}")).exists())


def _point_latest(folder: Path) -> None:
    """`runs/latest` follows the newest run, where the file system has links."""
    link = folder.parent / "latest"
    with suppress(OSError):
        if link.is_symlink() or not link.exists():
            beside = folder.parent / ".latest.new"
            beside.unlink(missing_ok=True)
            beside.symlink_to(folder.name)
            os.replace(beside, link)
