"""Preflight: everything that can be refused is refused here, before a run's folder exists.

What comes back is what was prepared on the way: above all an experiment that can be resumed from anywhere.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import expanduser, isfile
from pathlib import Path

from agents.adapter_config import is_adapter
from agents.engines.loop import wait
from agents.engines.make import check_engine
from agents.errors import EndpointError
from agents.player import PREFIXES
from agents.players.model import BrainPlayer
from agents.players.servers import Endpoints, parsed
from agents.players.simple import Random
from agents.players.spend import EndpointSpec
from agents.policy import speech_of
from agents.role import Role
from agents.weights import available, check_weights, resolve
from arena.config.experiment import Experiment
from arena.config.paths import RUN_WEIGHTS, anchored
from arena.credit.gold import answer_in, gold_of
from arena.credit.names import check_declared
from arena.errors import ConfigError
from arena.evaluate.examination import asked, settled
from arena.evaluate.held_out import check_spec
from arena.evaluate.specs import read_spec
from arena.learn.machine import fitted
from arena.play.demonstrations import check_shown
from arena.play.lineup import endpoints_in
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.tables import Table, set_tables
from arena.records import Seating
from arena.store.files import CONFIG


@dataclass(frozen=True)
class Prepared:
    """A run that can begin."""

    experiment: Experiment
    """With absolute paths, a number of threads and a precision."""
    roles: Mapping[str, str]
    """What each role says, as a hash by the experiment's name for it."""
    notes: Sequence[str]
    """What the user should know before it begins, a line each."""


def preflight(experiment: Experiment, doing: Callable[[str], None]) -> Prepared:
    """Check an experiment against all that there is; `doing` hears what takes a while.

    ConfigError, RoleError, WeightsError, ChatError, EngineError or StoreError says in a line what, where and how to fix
    it.
    """
    experiment = _of_runs(experiment)
    tables = set_tables(experiment)
    check_gold(experiment, tables)
    check_declared(experiment, [table.make_game() for table in tables])
    check_spec(experiment)
    check_shown(experiment, tables)
    check_engine(experiment.engine)
    notes = [*check_endpoints(experiment, doing), *_check_weights(experiment, doing)]
    return Prepared(fitted(settled(anchored(experiment))), role_hashes(experiment, tables), notes)


def _of_runs(experiment: Experiment) -> Experiment:
    """With the folder of every policy that begins as another run's: it stays that version while the run goes on."""
    begun = {
        name: spec.model_copy(update={"model": _weights_of(name, spec.model)})
        for name, spec in experiment.policies.items()
    }
    return experiment.model_copy(update={"policies": begun})


def _weights_of(name: str, model: str) -> str:
    """A model as it is, or the folder that runs/first@12:opener means; without a policy, the one of the same name."""
    match = RUN_WEIGHTS.fullmatch(model)
    if match is None or not isfile(Path(expanduser(match["path"]), CONFIG)):
        return model
    folders = read_spec(model).folders
    if name not in folders and len(folders) != 1:
        raise ConfigError(
            f"policies.{name}.model: {model} has {', '.join(folders)}: write {model}:{next(iter(folders))}"
        )
    return str(folders.get(name) or next(iter(folders.values())))


def role_hashes(experiment: Experiment, tables: Sequence[Table]) -> dict[str, str]:
    """What each role says, as a hash: a role edited between kill and resume would be another run."""
    return {
        spec.seats[seat].role: hashlib.sha256(_words(role).encode()).hexdigest()
        for spec, table in zip(experiment.all_tables(), tables, strict=True)
        for seat, role in table.roles.items()
    }


def _words(role: Role) -> str:
    """All of a role; what came later to roles only where it is used, so that older runs know theirs again."""
    return role.model_dump_json(exclude={"history"} if role.history == "keep" else None)


def check_endpoints(experiment: Experiment, doing: Callable[[str], None]) -> list[str]:
    """ConfigError where a server that the run will ask cannot be reached, or will not be asked; notes on its models."""
    asked = _asked(experiment)
    if asked:
        doing(f"asking for {', '.join(asked)}")
    try:
        return wait(Endpoints(experiment.servers()).check(asked))
    except EndpointError as error:
        raise ConfigError(str(error)) from None


def servers_asked(experiment: Experiment) -> dict[str, EndpointSpec]:
    """The servers that a run will ask, by name."""
    servers, names = experiment.servers(), {parsed(spec)[0] for spec in _asked(experiment)}
    return {name: server for name, server in servers.items() if name in names}


def _asked(experiment: Experiment) -> list[str]:
    spec, panel = experiment.evaluate, asked(experiment)
    against = [*(panel.members if panel else ()), *(spec.against if spec and spec.games else ())]
    return [*endpoints_in(experiment), *(name for name in against if name.startswith(PREFIXES))]


def check_gold(experiment: Experiment, tables: Sequence[Table]) -> None:
    """ConfigError where credit asks for an answer and a game of trained policies, played at random, reports none."""
    gold = gold_of(experiment.credit)
    if gold is None:
        return
    for spec, table in zip(experiment.all_tables(), tables, strict=True):
        if any(experiment.trained(held.policy) for held in spec.seats.values()):
            game = table.make_game()
            seats = {seat: Seating(role.role, "random", 0, False, "brain") for seat, role in table.roles.items()}
            plan = MatchPlan("trial", 0, table.game.name, table.game.options, 0, seats)
            players = {seat: BrainPlayer(Random(0)) for seat in seats}
            record = wait(play_match(plan, game, players, _TRIAL, keep_turns=False))
            if record.status == "finished":
                answer_in(record.game, record.report, gold)


_TRIAL = Limits(turns=1000, seconds=10.0)


def _check_weights(experiment: Experiment, doing: Callable[[str], None]) -> list[str]:
    """Every model is on this machine, and its tokenizer makes a chat frame; no weights are loaded. Returns notes."""
    notes = []
    for model in dict.fromkeys(policy.model for policy in experiment.policies.values()):
        if any(known.name == model and known.state == "not fetched" for known in available()):
            doing(f"fetching {model}, once")
        folder = resolve(model)
        check_weights(folder)
        if speech_of(folder)[1].forgeable:
            notes.append(f"{folder.name}: plain text ends a turn in its chat template: players can write as others do")
    _check_learners(experiment)
    return notes


def _check_learners(experiment: Experiment) -> None:
    """ConfigError where weights, or an adapter, new or from a folder, cannot learn or be served as they are to."""
    if experiment.narrow and experiment.learn.zero_stage < 2:
        raise ConfigError(
            "precision: bf16-true leaves float32 masters to ZeRO: set learn.zero_stage to 2 or 3, or bf16"
        )
    for name, policy in experiment.policies.items():
        given = is_adapter(resolve(policy.model))
        if given and policy.adapter:
            raise ConfigError(f"policies.{name}: {policy.model} is an adapter already, which goes on: remove `adapter`")
        if not policy.train:
            continue
        if (given or policy.adapter) and experiment.narrow:
            raise ConfigError(f"policies.{name}: an adapter's base is held in bfloat16 anyway: set precision to bf16")
        if (given or policy.adapter) and experiment.learn.zero_stage == 3:
            raise ConfigError(f"policies.{name}: the base of an adapter stays whole: set learn.zero_stage to 0, 1 or 2")
        if not (given or policy.adapter) and experiment.league and experiment.engine.kind == "vllm":
            # a past version of whole weights would be a server of its own, for half a minute each
            raise ConfigError(
                f"engine.kind: vllm serves past versions of adapters only: set policies.{name}.adapter, or in_process"
            )
