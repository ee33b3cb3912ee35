"""Contender specs as a user types them, and the loading of contenders.

random, mcts:100              a scripted policy (arena list policies)
runs/latest                   a run's newest weights
runs/latest@12, runs/latest@0 its weights after iteration 12, its first ones
runs/latest@12:opener         one of its policies, where it has several
nano, smollm2-135m-instruct   a model's name, or its folder
endpoint:gpt-4o-mini          a model behind an OpenAI-compatible endpoint
endpoint@local:qwen3          a model behind the endpoint named `local`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from os.path import exists, expanduser, isdir, isfile
from pathlib import Path
from typing import Literal

from agents.computing import compute
from agents.engines.base import Engine
from agents.engines.make import make_engine
from agents.engines.spec import EngineSpec
from agents.errors import EndpointError, ScriptedPolicyError, WeightsError
from agents.layouts import DEFAULT_VISION
from agents.player import PREFIXES
from agents.players.scripted import SCRIPTED, check_scripted, is_scripted
from agents.players.servers import Endpoints, parse_endpoint
from agents.policy import Policy
from agents.precision import Precision
from agents.published import FolderWeights
from agents.reply import to_one_line
from agents.role import load_role
from agents.weights import list_models, resolve
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.own_files import list_edited_files, resolve_game_name, with_own_roles
from arena.config.saved_config import experiment_to_plain, load_experiment, load_pipeline_settings
from arena.config.sources import Layer
from arena.errors import ConfigError, StoreError
from arena.evaluate.casting import PLAYER, Casting
from arena.league.pool import find_past_weights, parse_version
from arena.panels.settings import RUN_WEIGHTS
from arena.play.contenders import Contender, EndpointContender, ModelContender, ScriptedContender
from arena.play.parts.base import read_instructions
from arena.store import checkpoints
from arena.store.files import CONFIG
from arena.store.stages import find_pipeline
from arena.store.state import blame_checkpoint, read_state
from games import find_problem
from games.names import nearest


@dataclass(frozen=True, kw_only=True)
class ParsedSpec:
    """Parsed spec of a contender, before weights are loaded: kind (`brain` is scripted) and folders of weights."""

    spec: str
    kind: Literal["brain", "weights", "endpoint"]
    folders: Mapping[str, Path]
    """Weights folder by policy name."""
    experiment: Experiment | None = None
    iteration: int = 0
    run: Path | None = None
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Texts that end the system prompts of the run's roles, by role, such as the best of the part `instructions`."""

    def load_policy(self, name: str, label: str) -> Policy:
        """Load a policy without its weights, with its run's image settings. Raises WeightsError or ChatError."""
        spec = self.experiment.policies.get(name) if self.experiment else None
        folder = self.folders[name]
        vision_settings = spec.vision_settings if spec else DEFAULT_VISION
        return Policy.load(label, folder, folder, train=False, vision_settings=vision_settings)


def read_spec(spec: str, trust: bool = False) -> ParsedSpec:
    """Parse a contender's spec. Raises ConfigError, StoreError or WeightsError, with the nearest known name.

    With `trust`, code in a run's folder may run.
    """
    if spec.startswith(PREFIXES):
        try:
            parse_endpoint(spec)
        except EndpointError as error:
            raise ConfigError(str(error)) from None
        return ParsedSpec(spec=spec, kind="endpoint", folders={})
    if is_scripted(spec):
        try:
            check_scripted(spec)
        except ScriptedPolicyError as error:
            raise ConfigError(str(error)) from None
        return ParsedSpec(spec=spec, kind="brain", folders={})
    if not spec.strip():
        raise ConfigError("a contender has no name: give a scripted policy, a run folder, a model or endpoint:MODEL")
    match = RUN_WEIGHTS.fullmatch(spec)
    path = Path(expanduser(match["path"] if match else spec))
    if match and _is_run(spec):
        return _read_run(spec, path, match["iteration"], match["policy"], trust)
    if exists(path) and str(path) != expanduser(spec):
        raise StoreError(f"{path} is not a run folder, such as runs/latest")
    try:
        return ParsedSpec(spec=spec, kind="weights", folders={"": resolve(spec)})
    except WeightsError as error:
        raise _make_unknown_error(spec, path) or error from None


def _is_run(spec: str) -> bool:
    match = RUN_WEIGHTS.fullmatch(spec)
    return match is not None and isfile(Path(expanduser(match["path"]), CONFIG))


def _make_unknown_error(spec: str, path: Path) -> ConfigError | None:
    """Return an error with the nearest known name; None if the spec is a folder or the hub name of a model."""
    if exists(path) or (re.fullmatch(r"[\w.-]+/[\w.-]+", spec) and not exists(path.parent)):
        return None  # the caller's error about the folder or the hub says more
    siblings = path.parent.glob("*") if isdir(path.parent) else ()
    runs = [str(folder) for folder in siblings if (folder / CONFIG).is_file()]
    known = runs if "/" in spec else [*(model.name for model in list_models()), *SCRIPTED, *runs]
    near = nearest(str(path), known) or nearest(spec.partition(":")[0], known)
    quoted = to_one_line(spec, 80)
    return ConfigError(
        f"unknown contender '{quoted}'{near or ': give a script, a run folder, a model or endpoint:MODEL'}"
    )


def _read_run(spec: str, run: Path, iteration: str | None, policy: str | None, trust: bool) -> ParsedSpec:
    experiment = _with_shared_games(run, load_experiment(run, trust=trust), trust)
    experiment = with_own_roles(run, experiment, trust)
    trained = [name for name, policy_spec in experiment.policies.items() if policy_spec.train]
    known = trained if policy is None else [policy]
    if policy is not None and policy not in experiment.policies:
        names = list(experiment.policies)
        raise StoreError(f"{run} has no policy '{policy}'{nearest(policy, names)} (it has: {', '.join(names)})")
    number = find_newest_iteration(run) if iteration is None else int(iteration)
    folders = {name: _find_weights(run, experiment, name, number) for name in known}
    return ParsedSpec(
        spec=spec,
        kind="weights",
        folders=folders,
        experiment=experiment,
        iteration=number,
        run=run,
        instructions=_read_instructions(run, experiment, number),
    )


def _read_instructions(run: Path, experiment: Experiment, iteration: int) -> dict[str, str]:
    """Return the instructions of the run's roles after an iteration; none without a checkpoint of that iteration."""
    if not experiment.play.parts or iteration not in checkpoints.iterations(run):
        return {}
    checkpoint = checkpoints.at_iteration(run, iteration)
    states = read_state(checkpoint).get("play", {}).get("parts", ())
    with blame_checkpoint(checkpoint):
        return read_instructions(experiment.play.parts, states)


def _with_shared_games(run: Path, experiment: Experiment, trust: bool) -> Experiment:
    """Return the experiment of a pipeline's stage with the pipeline's games, seats and roles, if it has no games.

    Stages such as `sft` play no matches, but their weights are evaluated in the pipeline's games. Raises ConfigError if
    the pipeline's config was edited, or names code that is not trusted.
    """
    folder = find_pipeline(run)
    if experiment.all_tables() or folder is None:
        return experiment
    shared = load_pipeline_settings(folder, trust)
    games = {name: shared[name] for name in ("game", "seats", "tables", "roles") if name in shared}
    return compose([Layer(CONFIG, "", experiment_to_plain(experiment)), Layer(str(folder / CONFIG), "", games)])


def find_newest_iteration(run: Path) -> int:
    """Return the iteration of a run's newest checkpoint. Raises StoreError if there is none or it is damaged."""
    return checkpoints.newest(run).iteration


def list_iterations(run: Path) -> list[int]:
    """Return the iterations of a run with available weights, in ascending order, including 0, the first weights."""
    versions = (parse_version(folder.name) for folder in (run / "league").glob("*@*"))
    return sorted({0, *checkpoints.iterations(run), *(version[1] for version in versions if version)})


def _find_weights(run: Path, experiment: Experiment, policy: str, iteration: int) -> Path:
    """Return the folder of a policy's weights after an iteration.

    It is the checkpoint, else the league's pool, else (for iteration 0 and frozen policies) the model that the run
    started from. Raises StoreError if there is none.
    """
    if not experiment.policies[policy].train:
        return resolve(experiment.policies[policy].model)
    if iteration in checkpoints.iterations(run):
        return checkpoints.at_iteration(run, iteration).policy(policy)
    if past_weights := find_past_weights(run, policy, iteration):
        return past_weights
    if iteration == 0:
        return resolve(experiment.policies[policy].model)
    known = ", ".join(map(str, list_iterations(run)))
    raise StoreError(f"{run} keeps no weights of iteration {iteration}; it has: {known}")


class ContenderLoader:
    """Loader of contenders from their specs; call `close` after use.

    It loads each folder of weights once, and serves them in their run's precision (float32 without a run).
    """

    def __init__(
        self,
        role: str = "",
        announce: Callable[[str], None] = lambda step: None,
        endpoints: Endpoints | None = None,
        note: Callable[[str], None] = lambda line: None,
        trust: bool = False,
        engine: EngineSpec | None = None,
        summaries: int | None = None,
    ) -> None:
        """Configure the loader; nothing is loaded yet.

        `role` replaces the roles of all models. `announce` is called with a description of each slow step, `note` with
        a message for each file that was edited since its run began and for each role with an instruction. With `trust`,
        code in a run's folder may run.
        `summaries` replaces the number of summaries of roles with summary memory.
        """
        self.role, self.announce, self.note, self.trust = role, announce, note, trust
        self.endpoints, self.summaries = endpoints or Endpoints(), summaries
        self.engine = engine or EngineSpec()
        """Settings of the engine that serves the weights."""
        self._engines: dict[Precision, Engine] = {}

    async def load(self, *specs: str, games: Iterable[str] = ()) -> list[Contender]:
        """Load the contenders of these specs, in order, after parsing all specs and probing all endpoints.

        Scripted players of `games` from files become available by their names. Raises ConfigError, StoreError or
        WeightsError for an unknown or unusable contender or game.
        """
        parsed_runs = {
            spec: read_spec(spec, self.trust) for spec in specs if _is_run(spec)
        }  # a run brings its own copies of files
        experiments = [source.experiment for source in parsed_runs.values()]
        for complaint in filter(None, (find_problem(resolve_game_name(name, *experiments)) for name in games)):
            raise ConfigError(f"{complaint} (arena list games)")
        sources = [parsed_runs.get(spec) or read_spec(spec, self.trust) for spec in specs]
        for run in dict.fromkeys(source.run for source in sources if source.run):
            for line in list_edited_files(run):
                self.note(line)
        if self.role:
            load_role(self.role)
        try:
            for note in await self.endpoints.check(source.spec for source in sources if source.kind == "endpoint"):
                self.announce(note)
        except EndpointError as error:
            raise ConfigError(str(error)) from None
        return [await self._load(source) for source in sources]

    async def _load(self, source: ParsedSpec) -> Contender:
        if source.kind == "brain":
            return ScriptedContender(source.spec)
        if source.kind == "endpoint":
            role = load_role(self.role or PLAYER)
            return EndpointContender(source.spec, self.endpoints.at(source.spec), lambda game, seat: role)
        engine = await self._engine_for(source)
        policies = {}
        for name, folder in source.folders.items():
            served_name = f"{source.spec}/{name}" if name else source.spec
            self.announce(f"loading {folder}")
            policy = await compute(source.load_policy, name, served_name)
            policies[name] = policy.freeze_version(served_name, source.iteration, folder)
            await engine.publish(served_name, source.iteration, FolderWeights(folder))
        for name, instruction in source.instructions.items() if not self.role else ():
            self.note(f"{source.spec}: role {name} has the best instruction of its training: {instruction!r}")
        return ModelContender(
            source.spec,
            engine,
            Casting(
                name=source.spec,
                policies=policies,
                experiment=source.experiment,
                own_role=self.role,
                summaries=self.summaries,
                instructions=lambda: source.instructions,
            ),
        )

    async def _engine_for(self, source: ParsedSpec) -> Engine:
        """Return the engine for the precision of the contender's run, or for float32; open it at first use."""
        run = source.experiment
        precision = run.resolved_precision if run else Precision.FP32
        if precision not in self._engines:
            engine = self._engines[precision] = make_engine(self.engine, precision)
            await engine.open()
        return self._engines[precision]

    async def close(self) -> None:
        """Close all engines that were opened."""
        for engine in self._engines.values():
            await engine.close()

    async def unload(self, contender: Contender) -> None:
        """Release the weights of a contender from its engine; other contenders stay unchanged."""
        if isinstance(contender, ModelContender) and isinstance(contender.cast, Casting):
            for policy in contender.cast.policies.values():
                await contender.engine.retire(policy.name)


def name_first_weights(spec: str, trust: bool = False) -> str:
    """Return the spec of a run's first weights, such as `runs/latest@0`, given the spec of any of its weights.

    Raises ConfigError for contenders that are not runs.
    """
    match, source = RUN_WEIGHTS.fullmatch(spec), read_spec(spec, trust)
    if match is None or source.experiment is None:
        raise ConfigError(f"{spec} has no first weights: name a run, such as runs/latest")
    return f"{match['path']}@0" + (f":{match['policy']}" if match["policy"] else "")


def list_history(spec: str, trust: bool = False) -> list[str]:
    """Return the specs of all available weights of a run, oldest first, given one of them; [spec] for others."""
    match, source = RUN_WEIGHTS.fullmatch(spec), read_spec(spec, trust)
    if match is None or source.experiment is None:
        return [spec]
    policy = f":{match['policy']}" if match["policy"] else ""
    return [f"{match['path']}@{iteration}{policy}" for iteration in list_iterations(Path(expanduser(match["path"])))]
