"""Preflight: check an experiment and determine its final settings, before its run folder is created or changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import expanduser, isfile
from pathlib import Path

from agents.chat import fingerprint
from agents.computing import compute
from agents.engines.make import check_engine
from agents.errors import EndpointError
from agents.player import PREFIXES
from agents.players.model import ScriptedPlayer
from agents.players.servers import Endpoints, parse_endpoint
from agents.players.simple import Random
from agents.players.spend import EndpointSpec
from agents.policy import Policy, load_tokenizer_and_frame
from agents.weights import resolve
from arena.config import own_files
from arena.config.data_sets import with_data_sets
from arena.config.experiment import Experiment
from arena.config.models import check_models
from arena.config.saved_config import load_experiment
from arena.config.seating import resolve_tables
from arena.config.serving import check_serving
from arena.credit.asking import ExperimentFacts, check_asking_stages
from arena.credit.gold import get_answer
from arena.credit.names import check_declared
from arena.credit.rewards.information_gain import find_gold
from arena.errors import ConfigError
from arena.evaluate.examination import get_panel, with_fixed_panel
from arena.evaluate.held_out import check_spec
from arena.evaluate.specs import read_spec
from arena.learn.corrections import CORRECTION
from arena.learn.machine import find_fastest_precision, find_fastest_threads
from arena.panels.settings import RUN_WEIGHTS
from arena.parts.paths import anchor_paths
from arena.play.contexts import check_contexts
from arena.play.demonstrations import check_demonstrations
from arena.play.match import Limits, MatchPlan, play_match
from arena.play.parts.base import get_declaration
from arena.play.settings import SeatSpec
from arena.play.tables import Table
from arena.records import Seating
from arena.scale.cluster import check_scale
from arena.store import checkpoints
from arena.store.contents import check_newest
from arena.store.files import CONFIG
from arena.store.reader import LogReader, RunReader
from arena.trackers.settings import check_installed
from games.abilities import Pictures
from games.contracts import Image, MatchId


@dataclass(frozen=True)
class PreflightResult:
    """Result of `preflight`: an experiment that is ready to start, and notes for the user."""

    experiment: Experiment
    """The experiment with absolute paths, and with `auto` settings replaced by values."""
    notes: Sequence[str]
    """Notes for the user, one line each."""


async def preflight(
    experiment: Experiment,
    announce: Callable[[str], None],
    resumed: Path | None = None,
    trusted: bool = False,
    exported: Path | None = None,
) -> PreflightResult:
    """Check an experiment, and return it with its final settings and notes. `announce` is called with each slow step.

    `resumed` is the folder of a run to resume; such a run has its own copies of files, and its paths are absolute.
    `trusted` allows code in that folder. `exported` is the file with the rows that a source takes from another run.
    Raises ConfigError, RoleError, WeightsError, ChatError, EngineError or StoreError with a one-line message.
    """
    experiment = experiment if resumed else with_data_sets(_resolve_models(experiment), announce, exported)
    played_experiment = own_files.with_own_roles(resumed, experiment, trusted) if resumed else experiment
    tables = resolve_tables(played_experiment)
    await check_gold(played_experiment, tables)
    part_rewards = [name for part in played_experiment.play.parts for name in get_declaration(part).rewards]
    check_declared(
        played_experiment.credit, played_experiment.learn.replay, [table.make_game() for table in tables], part_rewards
    )
    _check_asking(played_experiment)
    check_spec(played_experiment)
    check_demonstrations(
        played_experiment.learn.demonstrations,
        tables,
        [name for name, policy in played_experiment.policies.items() if policy.train],
    )
    check_log(experiment, trusted)
    check_engine(played_experiment.engine)
    check_installed(experiment.tracker)
    if played_experiment.scale:
        check_scale(played_experiment.scale, played_experiment.engine)
    notes = [*await check_endpoints(played_experiment, announce), *check_models(played_experiment, tables, announce)]
    check_serving(played_experiment, tables)
    has_vision, find_policy = played_experiment.engine.capabilities.has_vision, _make_policy_finder(played_experiment)
    notes += _note_unseen_images(tables, find_policy, has_vision)
    notes += [
        *await check_contexts(
            tables, find_policy, played_experiment.engine.max_context, _limit_turns(played_experiment), has_vision
        )
    ]
    notes += _note_uncorrected(played_experiment)
    prepared = experiment if resumed else _fix_source_iterations(with_fixed_panel(anchor_paths(experiment)))
    return PreflightResult(await compute(fit_to_machine, prepared), notes)


def fit_to_machine(experiment: Experiment) -> Experiment:
    """Replace `auto` threads and precision of the experiment by the fastest ones in short trials on this machine."""
    threads = find_fastest_threads() if experiment.threads == "auto" else experiment.threads
    precision = experiment.precision
    if precision == "auto":
        precision = find_fastest_precision(threads)
    return experiment.model_copy(update={"threads": threads, "precision": precision})


def _resolve_models(experiment: Experiment) -> Experiment:
    """Replace models that name another run's weights, such as runs/first@12, by the weights' folders."""
    policies = {
        name: spec.model_copy(
            update={
                "model": find_model_folder(name, spec.model),
                "reference": spec.reference and find_model_folder(name, spec.reference, "reference"),
            }
        )
        for name, spec in experiment.policies.items()
    }
    return experiment.model_copy(update={"policies": policies})


def find_model_folder(name: str, model: str, field: str = "model") -> str:
    """Return the weights folder for a model such as runs/first@12:opener. Other models are returned unchanged.

    If the model names no policy, the run's policy called `name` is used, or its only one. Raises ConfigError, naming
    the policy's `field`, if the run has several other policies.
    """
    match = RUN_WEIGHTS.fullmatch(model)
    if match is None or not isfile(Path(expanduser(match["path"]), CONFIG)):
        return model
    folders = read_spec(model).folders
    if name not in folders and len(folders) != 1:
        raise ConfigError(
            f"policies.{name}.{field}: {model} has {', '.join(folders)}: write {model}:{next(iter(folders))}"
        )
    return str(folders.get(name) or next(iter(folders.values())))


async def check_endpoints(experiment: Experiment, announce: Callable[[str], None]) -> list[str]:
    """Check that the servers of a run's endpoints respond, and return notes. Raises ConfigError if one does not."""
    endpoints = _list_endpoints(experiment)
    if endpoints:
        announce(f"asking for {', '.join(endpoints)}")
    try:
        return await Endpoints(experiment.servers()).check(endpoints)
    except EndpointError as error:
        raise ConfigError(str(error)) from None


def find_used_servers(experiment: Experiment) -> dict[str, EndpointSpec]:
    """Return the settings, by name, of the servers that a run will use in play, credit and evaluations."""
    servers, names = experiment.servers(), {parse_endpoint(spec)[0] for spec in _list_endpoints(experiment)}
    return {name: server for name, server in servers.items() if name in names}


def _list_endpoints(experiment: Experiment) -> list[str]:
    """Return the specs of all endpoints that a run uses in play, credit and evaluations."""
    spec, panel = experiment.evaluate, get_panel(experiment)
    against = [*(panel.members if panel else ()), *(spec.against if spec and spec.games else ())]
    return [*_list_played_endpoints(experiment), *(name for name in against if name.startswith(PREFIXES))]


def _list_played_endpoints(experiment: Experiment) -> list[str]:
    """Return the distinct specs of the endpoints at a run's seats, in its league, and in its credit stages."""
    seated = [seat.policy for table in experiment.all_tables() for seat in table.seats.values()]
    opponents = [opponent.policy or "" for opponent in experiment.league.opponents] if experiment.league else []
    names = dict.fromkeys([*seated, *opponents, *sorted(experiment.credit.policies)])
    return [name for name in names if name.startswith(PREFIXES)]


def check_log(experiment: Experiment, trusted: bool = False) -> None:
    """Check that the matches of `source.log`, if set, have this experiment's games, options, roles and tokenizers.

    Raises ConfigError or StoreError if they do not.
    """
    if experiment.source is None or experiment.source.log is None:
        return
    folder = Path(experiment.source.log)
    if not (committed := count_committed(folder)):
        raise ConfigError(f"source.log: {folder} has no iteration to learn from")
    if (experiment.source.iterations or 0) > committed:
        raise ConfigError(f"source.iterations: {experiment.source.iterations}, but {folder} has {committed} committed")
    _check_images(RunReader(folder).log, experiment.source.iterations or committed)
    other = load_experiment(folder, trust=trusted)
    for table in experiment.all_tables():
        logged = next((t for t in other.all_tables() if t.game == table.game), None)
        if logged is None:
            games_in_log = " or ".join(f"{t.game.name} {t.game.options}" for t in other.all_tables())
            raise ConfigError(
                f"source.log: {folder} played {games_in_log}, and never {table.game.name} {table.game.options}"
            )
        for seat, seat_spec in table.seats.items():
            if experiment.trained(seat_spec.policy):
                _check_seat(folder, seat, (experiment, seat_spec), (other, logged.seats[seat]))


def _check_images(log: LogReader, iterations: int) -> None:
    """Raise ConfigError if an image of the first `iterations` is missing. Contents are checked when they are read."""
    for image in {image for k in range(1, iterations + 1) for image in log.images(k)}:
        if not log.blobs.has(image):
            raise ConfigError(f"source.log: {log.blobs.folder} lacks the image {image}: restore it from a copy")


def count_committed(run: Path) -> int:
    """Return a run's number of committed iterations.

    Raises StoreError if the folder is not a run or its log was changed.
    """
    run = RunReader(run).path
    check_newest(run)
    return checkpoints.newest(run).iteration if checkpoints.iterations(run) else 0


def _fix_source_iterations(experiment: Experiment) -> Experiment:
    """Set `source.iterations` of an experiment that learns from a log to the log's number of committed iterations.

    It must not change later, when the logged run may have continued. Without such a source, or if it is set already,
    the experiment is returned unchanged.
    """
    source = experiment.source
    if source is None or source.log is None or source.iterations:
        return experiment
    fixed = source.model_copy(update={"iterations": count_committed(Path(source.log))})
    return experiment.model_copy(update={"source": fixed})


def _check_seat(folder: Path, seat: str, own: tuple[Experiment, SeatSpec], logged: tuple[Experiment, SeatSpec]) -> None:
    """Raise ConfigError unless a seat's policies in this run and the logged one have equal roles and tokenizers."""
    (experiment, seat_spec), (other, logged_seat) = own, logged
    if logged_seat.role != seat_spec.role:
        raise ConfigError(f"source.log: {folder} played {seat} as {logged_seat.role}: set seats.{seat}.role to that")
    if logged_seat.policy not in other.policies:
        raise ConfigError(f"source.log: {folder} has {logged_seat.policy} at {seat}, which has no logged tokens")
    models = experiment.policies[seat_spec.policy].model, other.policies[logged_seat.policy].model
    ours, theirs = (fingerprint(*load_tokenizer_and_frame(resolve(model))) for model in models)
    if ours != theirs:
        raise ConfigError(
            f"source.log: policies.{seat_spec.policy} ({models[0]}) has another tokenizer or chat template than "
            f"{models[1]} there"
        )


async def check_gold(experiment: Experiment, tables: Sequence[Table]) -> None:
    """Check, if credit needs right answers, that each game of trained policies reports one in a random match.

    Raises ConfigError if a report lacks it.
    """
    gold = find_gold(experiment.credit.stages)
    if gold is None:
        return
    for spec, table in zip(experiment.all_tables(), tables, strict=True):
        if any(experiment.trained(seat_spec.policy) for seat_spec in spec.seats.values()):
            game = table.make_game()
            seats = {seat: Seating(role.role, "random", 0, False, "brain") for seat, role in table.roles.items()}
            plan = MatchPlan(
                identity=MatchId(0, 0), game=table.game.name, options=table.game.options, seed=0, seats=seats
            )
            players = {seat: ScriptedPlayer(Random(0)) for seat in seats}
            record = await play_match(plan, game, players, _TRIAL_LIMITS, keep_turns=False)
            if record.status == "finished":
                get_answer(record.game, record.report, gold)


def _check_asking(experiment: Experiment) -> None:
    """Raise ConfigError unless every credit stage that queries a model can do so in this run."""
    play, seats_by_table = experiment.play, [table.seats for table in experiment.all_tables()]
    models: dict[str, set[str]] = {}
    for seat, spec in (item for seats in seats_by_table for item in seats.items()):
        if experiment.trained(spec.policy):
            models.setdefault(seat, set()).add(experiment.policies[spec.policy].model)
    facts = ExperimentFacts(
        seats={seat for seats in seats_by_table for seat in seats},
        trained=models.keys(),
        plays_deals_once=play.group == 1 and play.max_matches == play.matches,
        has_replay=experiment.learn.replay is not None,
        models=models,
        frozen={name: spec.model for name, spec in experiment.policies.items() if not spec.train},
    )
    check_asking_stages(
        experiment.credit.stages, facts, {name: spec.train for name, spec in experiment.policies.items()}
    )


def _note_unseen_images(
    tables: Sequence[Table], find_policy: Callable[[str], Policy | None], shows_images: bool
) -> list[str]:
    """Return a note for each game with images that policies at its seats cannot see."""
    placeholder, notes = Image("0" * 64, "image/png", 64, 48).text, []
    for table in tables:
        if isinstance(table.make_game(), Pictures):
            policies = {name: find_policy(name) for name in table.holders.values()}
            blind = [name for name, policy in policies.items() if policy and not (shows_images and policy.frame.image)]
            names = " and ".join(f"policy '{name}'" for name in blind)
            if blind:
                notes.append(
                    f"{table.game.name} shows images, which {names} cannot see: it reads {placeholder} instead"
                )
    return notes


def _note_uncorrected(experiment: Experiment) -> list[str]:
    """Return a note if the run learns from replies of older versions or another run without off-policy correction."""
    corrections = [part.name for part in experiment.learn.loss.parts if part.kind is CORRECTION]
    if not (experiment.overlaps or experiment.source) or corrections != ["uncorrected"]:
        return []
    loss, lag = experiment.learn.loss.name, experiment.play.lag
    age = f"may be {lag} version{'s' * (lag > 1)} old when they are learned" if experiment.overlaps else "are another's"
    return [f"replies {age}, without a correction: learn.loss.{loss}.correction=truncated adds one"]


_TRIAL_LIMITS = Limits(turns=1000, seconds=10.0)


def _limit_turns(experiment: Experiment) -> int:
    """Return the maximum number of turns in the check of contexts: the run's limit, at most 1000."""
    return min(experiment.play.limits.turns or 1000, 1000)


def _make_policy_finder(experiment: Experiment) -> Callable[[str], Policy | None]:
    """Return a function from a policy's name to the policy, without its weights, or None for an unknown name."""

    def find(name: str) -> Policy | None:
        if name not in experiment.policies:
            return None
        folder = resolve(experiment.policies[name].model)
        return Policy.load(name, folder, folder, train=False, vision_settings=experiment.policies[name].vision_settings)

    return find
