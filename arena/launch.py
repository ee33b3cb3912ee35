"""Starting and going on: from an experiment to a finished run folder."""

import hashlib
import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from agents.weights import available, resolve
from arena.config import ConfigError, Experiment, to_yaml
from arena.doctor import environment
from arena.errors import Interrupted
from arena.gold import check_gold
from arena.lab import Lab, Watcher
from arena.league.held_out import check_spec
from arena.league.specs import experiment_of
from arena.seating import set_tables
from arena.store.run import RunFolder
from arena.threads import fastest


def start(experiment: Experiment, out: Path | None, watcher: Watcher) -> Path:
    """Check everything that can be checked, make the run folder, and run; returns the folder."""
    check_gold(experiment, set_tables(experiment))
    check_spec(experiment)
    experiment = _anchored(experiment, watcher)
    folder = out or _fresh(experiment.name)
    run = RunFolder.create(folder, to_yaml(experiment), environment() | {"roles": _role_hashes(experiment)})
    _point_latest(folder)
    _play(run, experiment, watcher)
    return folder


def go_on(folder: Path, watcher: Watcher) -> Path:
    """Continue a run from its newest valid checkpoint, as if it had never stopped."""
    run = RunFolder.open(folder)
    experiment = experiment_of(folder)
    _same_roles(run, experiment)
    _play(run, experiment, watcher)
    return folder


def _anchored(experiment: Experiment, watcher: Watcher) -> Experiment:
    """The same with absolute paths and a number of threads, so that it can be resumed from anywhere and compute alike.

    WeightsError where there is no model.
    """
    tables = []
    for table in experiment.all_tables():
        seats = {
            seat: s.model_copy(update={"role": _absolute(s.role)}) if s.role.endswith((".yaml", ".yml")) else s
            for seat, s in table.seats.items()
        }
        tables.append(table.model_copy(update={"seats": seats}))
    policies = {}
    for name, policy in experiment.policies.items():
        if any(known.name == policy.model and known.state == "not fetched" for known in available()):
            watcher.phase(0, f"fetching {policy.model}, once")
        here = _absolute(policy.model)
        policies[name] = policy.model_copy(update={"model": here}) if str(resolve(policy.model)) == here else policy
    roles = experiment.roles and _absolute(experiment.roles)
    threads = fastest() if experiment.threads == "auto" else experiment.threads
    settled = {"roles": roles, "policies": policies, "threads": threads}
    return experiment.with_tables(tables).model_copy(update=settled)


def _role_hashes(experiment: Experiment) -> dict[str, str]:
    """What each role says, as a hash: a role edited between kill and resume would be another run."""
    return {
        spec.seats[seat].role: hashlib.sha256(role.model_dump_json().encode()).hexdigest()
        for spec, table in zip(experiment.all_tables(), set_tables(experiment), strict=True)
        for seat, role in table.roles.items()
    }


def _same_roles(run: RunFolder, experiment: Experiment) -> None:
    begun = run.reader.environment().get("roles", {})
    for role, now in _role_hashes(experiment).items():
        if begun.get(role, now) != now:
            raise ConfigError(f"role {role} was changed since {run.path} began: restore it, or start a new run")


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().resolve())


def _play(run: RunFolder, experiment: Experiment, watcher: Watcher) -> None:
    """Hold the folder and run what is not committed yet."""
    try:
        with run.lock():
            Lab(run, experiment, watcher).run()
    except KeyboardInterrupt:
        again = f"arena resume {run.path}"
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
