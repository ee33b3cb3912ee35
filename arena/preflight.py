"""Preflight: check everything that can be refused before a run's folder is made or changed.

What comes back is what was prepared on the way: above all an experiment that can be resumed from anywhere.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import expanduser, isfile
from pathlib import Path
from typing import Any

from agents.adapter_config import is_adapter
from agents.chat import written
from agents.chat_template import CLOCK
from agents.computing import compute
from agents.engines.make import check_engine
from agents.errors import EndpointError, ScriptedPolicyError
from agents.memory import OF_SUMMARY
from agents.player import PREFIXES
from agents.players.model import ScriptedPlayer
from agents.players.scripted import check_scripted
from agents.players.servers import Endpoints, parsed
from agents.players.simple import Random
from agents.players.spend import EndpointSpec
from agents.policy import Policy, tokenizer_and_frame
from agents.role import Role
from agents.weights import available, check_weights, resolve
from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.kept import experiment_of
from arena.config.seating import set_tables
from arena.credit.gold import answer_in
from arena.credit.names import check_declared
from arena.credit.rewards.information_gain import gold_of
from arena.errors import ConfigError
from arena.evaluate.examination import asked, settled
from arena.evaluate.held_out import check_spec
from arena.evaluate.specs import read_spec
from arena.learn.corrections import CORRECTION
from arena.learn.machine import fastest_precision, fastest_threads
from arena.panels.settings import RUN_WEIGHTS
from arena.parts.paths import anchored
from arena.play.contexts import check_contexts
from arena.play.demonstrations import check_demonstrations
from arena.play.match import MATCH, Limits, MatchPlan, play_match
from arena.play.settings import SeatSpec
from arena.play.tables import Table
from arena.records import Seating
from arena.scale.check import check_scale
from arena.store import checkpoints
from arena.store.contents import check_newest
from arena.store.files import CONFIG
from arena.store.reader import LogReader, RunReader
from arena.trackers.settings import check_installed
from games.abilities import Pictures
from games.contracts import Image, MatchId


@dataclass(frozen=True)
class Prepared:
    """A checked experiment, ready to start."""

    experiment: Experiment
    """With absolute paths, a number of threads and a precision."""
    roles: Mapping[str, str]
    """Hash of each role's text, by the experiment's name for it."""
    notes: Sequence[str]
    """Notes for the user before it begins, a line each."""


async def preflight(
    experiment: Experiment, doing: Callable[[str], None], begun: Path | None = None, trusted: bool = False
) -> Prepared:
    """Check an experiment against all that there is; `doing` is called with each slow step.

    The same for a new run and for one that was `begun` in this folder, which plays its own copies of files, and whose
    experiment holds from anywhere already. `trusted`: the user says that its code may run.

    ConfigError, RoleError, WeightsError, ChatError, EngineError or StoreError says in a line what, where and how to fix
    it.
    """
    experiment = experiment if begun else _of_runs(experiment)
    played = own_files.with_own_roles(begun, experiment, trusted) if begun else experiment
    tables = set_tables(played)
    await check_gold(played, tables)
    check_expert(played, tables)
    marks = [MATCH] if played.play.patch else []
    check_declared(played.credit, played.learn.replay, [table.make_game() for table in tables], marks)
    check_spec(played)
    check_demonstrations(
        played.learn.demonstrations, tables, [name for name, policy in played.policies.items() if policy.train]
    )
    check_log(experiment, trusted)
    check_engine(played.engine)
    check_installed(experiment.tracker)
    if played.scale:
        check_scale(played.scale, played.engine)
    notes = [*await check_endpoints(played, doing), *_check_weights(played, tables, doing), *_unseen(tables)]
    notes += [*await check_contexts(tables, _without_weights(played), played.engine.max_context, _turns(played))]
    notes += _uncorrected(played)
    ready = experiment if begun else _with_iterations(settled(anchored(experiment)))
    return Prepared(await compute(fitted, ready), role_hashes(experiment, tables), notes)


def fitted(experiment: Experiment) -> Experiment:
    """The experiment with `auto` settings replaced by the fastest on this machine."""
    threads = fastest_threads() if experiment.threads == "auto" else experiment.threads
    precision = experiment.precision
    if precision == "auto":
        precision = fastest_precision(threads)
    return experiment.model_copy(update={"threads": threads, "precision": precision})


def _of_runs(experiment: Experiment) -> Experiment:
    """The experiment with the folder of every policy that begins as another run's: it stays that version."""
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
    """Hashes of the roles' contents: a role edited between kill and resume would make another run of it."""
    return {
        spec.seats[seat].role: hashlib.sha256(_words(role).encode()).hexdigest()
        for spec, table in zip(experiment.all_tables(), tables, strict=True)
        for seat, role in table.roles.items()
    }


def _words(role: Role) -> str:
    """All of a role; what came later to roles only where it is used, so that older runs know theirs again."""
    unused: dict[str, Any] = {"history": True} if role.history == "keep" else {}
    if role.memory.kind != "summary":
        unused["memory"] = set(OF_SUMMARY)
    unused["sampling"] = {rule for rule in ("cautious", "votes") if getattr(role.sampling, rule) is None}
    unused["sampling"] |= {"truncated"} if role.sampling.truncated == "excused" else set()
    return role.model_dump_json(exclude=unused)


async def check_endpoints(experiment: Experiment, doing: Callable[[str], None]) -> list[str]:
    """ConfigError where a server that the run will ask cannot be reached, or will not be asked; notes on its models."""
    asked = _asked(experiment)
    if asked:
        doing(f"asking for {', '.join(asked)}")
    try:
        return await Endpoints(experiment.servers()).check(asked)
    except EndpointError as error:
        raise ConfigError(str(error)) from None


def servers_asked(experiment: Experiment) -> dict[str, EndpointSpec]:
    """The servers that a run will ask, by name."""
    servers, names = experiment.servers(), {parsed(spec)[0] for spec in _asked(experiment)}
    return {name: server for name, server in servers.items() if name in names}


def _asked(experiment: Experiment) -> list[str]:
    spec, panel = experiment.evaluate, asked(experiment)
    against = [*(panel.members if panel else ()), *(spec.against if spec and spec.games else ())]
    return [*_endpoints_in(experiment), *(name for name in against if name.startswith(PREFIXES))]


def _endpoints_in(experiment: Experiment) -> list[str]:
    """The models behind endpoints that hold some seat in a run, or may take one."""
    held = [seat.policy for table in experiment.all_tables() for seat in table.seats.values()]
    opponents = [opponent.policy or "" for opponent in experiment.league.opponents] if experiment.league else []
    return [name for name in dict.fromkeys([*held, *opponents]) if name.startswith(PREFIXES)]


def check_expert(experiment: Experiment, tables: Sequence[Table]) -> None:
    """ConfigError where the expert that patches learners' acts cannot play their seats."""
    if experiment.play.patch is None:
        return
    for spec, table in zip(experiment.all_tables(), tables, strict=True):
        for seat, held in spec.seats.items():
            if experiment.trained(held.policy):
                try:
                    check_scripted(experiment.play.patch.expert, table.make_game(), seat)
                except ScriptedPolicyError as error:
                    raise ConfigError(f"play.patch.expert: {error}") from None


def check_log(experiment: Experiment, trusted: bool = False) -> None:
    """ConfigError or StoreError where `source.log` holds no matches that this run's policies could have played.

    Games, options, roles and tokenizers have to be alike.
    """
    if experiment.source is None:
        return
    place = Path(experiment.source.log)
    if not (committed := committed_iterations(place)):
        raise ConfigError(f"source.log: {place} has no iteration to learn from")
    if (experiment.source.iterations or 0) > committed:
        asked = experiment.source.iterations
        raise ConfigError(f"source.iterations: {asked}, and {place} has {committed} that are committed")
    _check_images(RunReader(place).log, experiment.source.iterations or committed)
    other = experiment_of(place, trust=trusted)
    for table in experiment.all_tables():
        theirs = next((t for t in other.all_tables() if t.game == table.game), None)
        if theirs is None:
            played = " or ".join(f"{t.game.name} {t.game.options}" for t in other.all_tables())
            raise ConfigError(f"source.log: {place} played {played}, and never {table.game.name} {table.game.options}")
        for seat, held in table.seats.items():
            if experiment.trained(held.policy):
                _check_seat(place, seat, (experiment, held), (other, theirs.seats[seat]))


def _check_images(log: LogReader, iterations: int) -> None:
    """ConfigError where a log names an image that is not there; bytes are checked when they are read."""
    for image in {image for k in range(1, iterations + 1) for image in log.images(k)}:
        if not log.blobs.has(image):
            raise ConfigError(f"source.log: {log.blobs.folder} lacks the image {image}: restore it from a copy")


def committed_iterations(run: Path) -> int:
    """Return how many iterations of a run count; StoreError if it is no run, or its logs are not what was committed."""
    run = RunReader(run).path
    check_newest(run)
    return checkpoints.newest(run).iteration if checkpoints.iterations(run) else 0


def _with_iterations(experiment: Experiment) -> Experiment:
    """The experiment with a log that stays as it is while another run may go on."""
    source = experiment.source
    if source is None or source.iterations:
        return experiment
    whole = source.model_copy(update={"iterations": committed_iterations(Path(source.log))})
    return experiment.model_copy(update={"source": whole})


def _check_seat(place: Path, seat: str, own: tuple[Experiment, SeatSpec], their: tuple[Experiment, SeatSpec]) -> None:
    """ConfigError unless one run's policy could have written what another's wrote at a seat."""
    (experiment, held), (other, sat) = own, their
    if sat.role != held.role:
        raise ConfigError(f"source.log: {place} played {seat} as {sat.role}: set seats.{seat}.role to that")
    if sat.policy not in other.policies:
        raise ConfigError(f"source.log: at {seat} of {place} sat {sat.policy}, whose tokens nobody knows")
    models = experiment.policies[held.policy].model, other.policies[sat.policy].model
    ours, theirs = (written(*tokenizer_and_frame(resolve(model))) for model in models)
    if ours != theirs:
        raise ConfigError(
            f"source.log: policies.{held.policy} ({models[0]}) writes other tokens than {models[1]} there"
        )


async def check_gold(experiment: Experiment, tables: Sequence[Table]) -> None:
    """ConfigError where credit asks for an answer and a game of trained policies, played at random, reports none."""
    gold = gold_of(experiment.credit.stages)
    if gold is None:
        return
    for spec, table in zip(experiment.all_tables(), tables, strict=True):
        if any(experiment.trained(held.policy) for held in spec.seats.values()):
            game = table.make_game()
            seats = {seat: Seating(role.role, "random", 0, False, "brain") for seat, role in table.roles.items()}
            plan = MatchPlan(MatchId(0, 0), table.game.name, table.game.options, 0, seats)
            players = {seat: ScriptedPlayer(Random(0)) for seat in seats}
            record = await play_match(plan, game, players, _TRIAL, keep_turns=False)
            if record.status == "finished":
                answer_in(record.game, record.report, gold)


def _unseen(tables: Sequence[Table]) -> list[str]:
    """A note for each game whose messages hold images: policies read text."""
    names = dict.fromkeys(table.game.name for table in tables if isinstance(table.make_game(), Pictures))
    placeholder = Image("0" * 64, "image/png", 64, 48).text
    return [f"{name} shows images, which no policy sees: each reads {placeholder} in its place" for name in names]


def _uncorrected(experiment: Experiment) -> list[str]:
    """A note where replies of older versions are learned as if the present weights had written them."""
    corrections = [part.name for part in experiment.learn.loss.parts if part.kind is CORRECTION]
    if not experiment.overlaps or corrections != ["uncorrected"]:
        return []
    loss, lag = experiment.learn.loss.name, experiment.play.lag
    return [
        f"replies may be {lag} version{'s' * (lag > 1)} old when they are learned, and nothing weighs that: "
        f"learn.loss.{loss}.correction=truncated does"
    ]


_TRIAL = Limits(turns=1000, seconds=10.0)


def _turns(experiment: Experiment) -> int:
    """Return the most turns of a trial match."""
    return min(experiment.play.limits.turns or 1000, 1000)


def _without_weights(experiment: Experiment) -> Callable[[str], Policy | None]:
    """Return a function from a policy's name to what is known of it before its weights are loaded."""

    def find(name: str) -> Policy | None:
        if name not in experiment.policies:
            return None
        folder = resolve(experiment.policies[name].model)
        return Policy.load(name, folder, folder, train=False)

    return find


def _check_weights(experiment: Experiment, tables: Sequence[Table], doing: Callable[[str], None]) -> list[str]:
    """Every model is on this machine, and its tokenizer makes a chat frame; no weights are loaded. Returns notes."""
    notes = []
    for model in dict.fromkeys(policy.model for policy in experiment.policies.values()):
        if any(known.name == model and known.state == "not fetched" for known in available()):
            doing(f"fetching {model}, once")
        folder = resolve(model)
        check_weights(folder)
        frame, keeps = (
            tokenizer_and_frame(folder)[1],
            any(r.history == "keep" for t in tables for r in t.roles.values()),
        )
        if frame.forgeable:
            notes.append(f"{folder.name}: plain text ends a turn in its chat template: players can write as others do")
        if frame.prints_time:
            notes.append(
                f"{folder.name}: its chat template prints the time: in every run it is {CLOCK:%d %b %Y, %H:%M}"
            )
        if frame.rewrites_thoughts and keeps:
            notes.append(
                f"{folder.name}: its chat template rewrites thoughts of earlier replies; roles with history keep read "
                "them as they were written (docs/export.md)"
            )
    _check_learners(experiment)
    return notes


def _check_learners(experiment: Experiment) -> None:
    """ConfigError where weights, or an adapter, new or from a folder, cannot learn or be served as they are to."""
    if experiment.precision == "bf16-true" and experiment.learn.zero_stage < 2:
        raise ConfigError(
            "precision: bf16-true leaves float32 masters to ZeRO: set learn.zero_stage to 2 or 3, or bf16"
        )
    for name, policy in experiment.policies.items():
        given = is_adapter(resolve(policy.model))
        if given and policy.adapter:
            raise ConfigError(f"policies.{name}: {policy.model} is an adapter already, which goes on: remove `adapter`")
        if not policy.train:
            continue
        if (given or policy.adapter) and experiment.precision == "bf16-true":
            raise ConfigError(f"policies.{name}: an adapter's base is held in bfloat16 anyway: set precision to bf16")
        if (given or policy.adapter) and experiment.learn.zero_stage == 3:
            raise ConfigError(f"policies.{name}: the base of an adapter stays whole: set learn.zero_stage to 0, 1 or 2")
        if not (given or policy.adapter) and experiment.league and experiment.engine.kind == "vllm":
            # a past version of whole weights would be a server of its own, for half a minute each
            raise ConfigError(
                f"engine.kind: vllm serves past versions of adapters only: set policies.{name}.adapter, or in_process"
            )
