"""Composition of the experiments of a pipeline's stages.

A stage's own settings override the weights of earlier stages, which override the pipeline's shared settings. A policy
starts from the weights of the newest earlier stage that trained a policy of its name, unless the stage's own settings
name another model. In a stage's own settings, `stage:NAME` or `stage:NAME:POLICY` stands for the weights of an earlier
stage, under the keys `log`, `data` and `run` for its run folder, and in `evaluate` for its run with the run's roles.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from agents.adapter_config import is_adapter
from arena.config.experiment import Experiment
from arena.config.layers import compose, explain, find_nano_defaults, merge_layers
from arena.config.pipeline import Pipeline, StageSpec, locate_error
from arena.config.sources import Layer
from arena.errors import ConfigError
from arena.parts.part_config import accepts_any_setting, choose, settings_model
from arena.parts.paths import STAGE
from arena.stages import PIPELINE_STAGE, StageContext, StageLoop
from arena.store.files import CONFIG
from arena.store.stages import stage_folder
from games.names import nearest

DATA = ("log", "data", "run")
"""Keys under which `stage:NAME` stands for the stage's run folder."""
_REFERENCE = re.compile(rf"{STAGE}(?P<stage>[^\s:]+)(:(?P<policy>[^\s:]+))?")
Note = Callable[[str], None]


@dataclass(frozen=True)
class EarlierStages:
    """Results of the stages before a stage: their run folders, and their weights by stage and policy.

    Before the pipeline runs, the policies' initial models replace the weights.
    """

    folders: Mapping[str, Path] = field(default_factory=dict)
    weights: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def newest(self) -> dict[str, str]:
        """Newest weights by policy name."""
        return {policy: weights for trained in self.weights.values() for policy, weights in trained.items()}

    def plus(self, name: str, folder: Path, weights: Mapping[str, str]) -> "EarlierStages":
        """Return a copy with the results of another stage."""
        return EarlierStages({**self.folders, name: folder}, {**self.weights, name: weights})


@dataclass(frozen=True, kw_only=True)
class PlannedStage:
    """Stage composed before any stage has run: its experiment or loop."""

    spec: StageSpec
    composed: Experiment | StageLoop
    defaults: Mapping[str, Any]
    """Default settings that depend on the policies' initial models. All other settings override them."""
    is_final: bool
    """True if earlier stages do not change the stage's settings, except for weights of the policies.

    False if it reads the data of an earlier stage, or weights of a new kind, such as a reward model's.
    """


def plan(pipeline: Pipeline, run: Path, note: Note) -> list[PlannedStage]:
    """Compose all stages of a pipeline in the folder `run` before the first one runs, to check their settings.

    The policies' initial models replace weights that earlier stages have not trained yet. Raises ConfigError,
    with the stage's name, if a stage is invalid.
    """
    for layer in pipeline.shared:
        for path, text in _find_references(layer.data, ()):
            raise locate_error(layer, path, f"{text[:200]}: only the settings of a stage can name another stage")
    earlier, planned, with_new_weights = EarlierStages(), list[PlannedStage](), set[str]()
    for spec in pipeline.stages:
        composer = _StageComposer(pipeline, spec, earlier, note)
        with add_stage_name(spec.name):
            composed = composer.compose()
        is_final = not (composer.data_of or composer.weights_of & with_new_weights)
        planned.append(PlannedStage(spec=spec, composed=composed, defaults=composer.defaults or {}, is_final=is_final))
        folder = stage_folder(run, spec.number, spec.name)
        if isinstance(composed, Experiment):
            playing = composed.playing()
            weights = {name: policy.model for name, policy in playing.items() if policy.train}
        else:
            initial = _find_models(merge_layers(pipeline.shared)) | earlier.newest
            weights = {name: initial.get(name, str(path)) for name, path in composed.weights(folder).items()}
            if weights.keys() - initial.keys():  # weights of a new kind, such as a reward model's
                with_new_weights.add(spec.name)
        earlier = earlier.plus(spec.name, folder, weights)
    return planned


def compose_stage(
    pipeline: Pipeline, planned: PlannedStage, earlier: EarlierStages, note: Note
) -> Experiment | StageLoop:
    """Compose a stage with the results of its earlier stages. Raises ConfigError, with the stage's name, if invalid."""
    with add_stage_name(planned.spec.name):
        return _StageComposer(pipeline, planned.spec, earlier, note, planned.defaults).compose()


@contextmanager
def add_stage_name(stage: str) -> Iterator[None]:
    """Add the stage's name to ConfigErrors in the block."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"stage {stage}: {error}") from None


def derive_stage_seed(seed: int, name: str) -> int:
    """Return the seed of a stage, derived from the pipeline's seed and the stage's name."""
    sequence = np.random.SeedSequence((seed, int.from_bytes(name.encode(), "big")))
    return int(sequence.generate_state(1)[0])


class _StageComposer:
    """Composer of a stage's experiment or loop from shared settings, results of earlier stages and its own settings."""

    def __init__(
        self,
        pipeline: Pipeline,
        spec: StageSpec,
        earlier: EarlierStages,
        note: Note,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare to compose `spec`. If `defaults` is None, they follow from the models in the settings."""
        self.pipeline, self.spec, self.earlier, self.note = pipeline, spec, earlier, note
        self.defaults = defaults
        self.data_of: set[str] = set()
        """Earlier stages whose folders its settings name."""
        self.weights_of: set[str] = set()
        """Earlier stages whose weights its settings name."""

    def compose(self) -> Experiment | StageLoop:
        """Return the stage's experiment or loop. Raises ConfigError if it is invalid."""
        spec, seed = self.spec, derive_stage_seed(self.pipeline.seed, self.spec.name)
        resolved = replace(
            spec, settings=self._resolve_layers(spec.settings), overlay=self._resolve_layers(spec.overlay)
        )
        result = self._make(resolved, seed)
        if not isinstance(result, Mapping):
            if spec.overlay:
                raise locate_error(
                    spec.overlay[0], (), f"{spec.kind} makes no experiment, so these settings would change nothing"
                )
            return result
        own = [Layer(f"the kind {spec.kind}", "", result)]
        own += [*resolved.settings] if accepts_any_setting(PIPELINE_STAGE, spec.kind) else []
        own += resolved.overlay
        shared = [*self.pipeline.shared]
        name = f"{self.pipeline.name}-{spec.name}"[:64]
        derived = {"name": name, "seed": seed, **self._start_policies(shared, own)}
        stack = [*shared, Layer("the pipeline", "", derived), *own]
        if self.defaults is None:
            self.defaults = find_nano_defaults(merge_layers(stack))
        return compose([Layer("the pipeline", "", self.defaults), *stack])

    def _make(self, spec: StageSpec, seed: int) -> Mapping[str, Any] | StageLoop:
        """Call the stage's kind with its settings. Raises ConfigError for invalid ones."""
        settings, model = spec.data(), settings_model(PIPELINE_STAGE, spec.kind)
        try:
            model.model_validate(settings)
        except ValidationError as error:
            raise ConfigError(explain(error, spec.settings or self.pipeline.shared, model)) from None
        context = StageContext(
            shared=merge_layers(self.pipeline.shared),
            seed=seed,
            folders=self.earlier.folders,
            weights={policy: Path(weights) for policy, weights in self.earlier.newest.items()},
            note=self.note,
        )
        return choose(PIPELINE_STAGE, spec.kind, **settings)(context)  # type: ignore[no-any-return]

    def _start_policies(self, shared: list[Layer], own: list[Layer]) -> dict[str, Any]:
        """Return settings of the policies that start from an earlier stage's weights; the stage's own override them.

        The policies do not imitate again, and an adapter gets no further adapter.
        """
        names = _find_policies(merge_layers([*shared, *own]))
        own_models = {
            name: spec["model"] for name, spec in _find_policies(merge_layers(own)).items() if "model" in spec
        }
        known = {weights for trained in self.earlier.weights.values() for weights in trained.values()}
        started: dict[str, Any] = {}
        for name in names:
            weights = own_models.get(name, self.earlier.newest.get(name))
            if weights in known:
                adapted = {"adapter": None} if is_adapter(Path(weights)) else {}
                started[name] = {"model": weights, "imitate": None, **adapted}
        return {"policies": started} if started else {}

    def _resolve_layers(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(replace(layer, data=self._resolve(layer, layer.data, ())) for layer in layers)

    def _resolve(self, layer: Layer, value: Any, path: tuple[str | int, ...]) -> Any:
        """Return a value of the layer with references to earlier stages replaced by paths."""
        if isinstance(value, Mapping):
            return {key: self._resolve(layer, item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolve(layer, item, (*path, n)) for n, item in enumerate(value)]
        if not isinstance(value, str) or not (match := _REFERENCE.fullmatch(value)):
            return value
        try:
            return self._resolve_reference(match["stage"], match["policy"], path)
        except ConfigError as error:
            raise locate_error(layer, path, f"{value[:200]}: {error}") from None

    def _resolve_reference(self, stage: str, policy: str | None, path: tuple[str | int, ...]) -> str:
        """Return the path that a reference to a stage stands for at the setting `path`, and record the reference.

        It is the stage's run folder or a policy's weights; for opponents in `evaluate`, RUN:POLICY. Raises ConfigError
        if there is no earlier stage or trained policy of this name.
        """
        if stage not in self.earlier.folders:
            numbers = {spec.name: spec.number for spec in self.pipeline.stages}
            if stage in numbers:
                position = "this stage" if numbers[stage] == self.spec.number else "a later stage"
                raise ConfigError(f"{stage[:64]} is {position}: name an earlier one")
            known = ", ".join(self.earlier.folders) or "none"
            raise ConfigError(f"there is no stage '{stage[:64]}'{nearest(stage, numbers)} (earlier stages: {known})")
        keys = [key for key in path if isinstance(key, str)]
        if keys and keys[-1] in DATA and policy is None:
            self.data_of.add(stage)
            return str(self.earlier.folders[stage])
        self.weights_of.add(stage)
        trained = self.earlier.weights[stage]
        is_policy = len(keys) > 1 and keys[0] == "policies"
        policy_name = policy or next(
            (name for name in trained if len(trained) == 1 or (is_policy and name == keys[1])), ""
        )
        if policy_name not in trained:
            if not trained:
                raise ConfigError(f"stage {stage} trained no policy")
            problem = f"trained no policy '{policy[:64]}'" if policy else f"trained {len(trained)} policies: name one"
            raise ConfigError(f"stage {stage} {problem} (it trained: {', '.join(trained)})")
        run = self.earlier.folders[stage]
        if keys[:1] == ["evaluate"] and keys[-1] != "reward_model" and (run / CONFIG).is_file():
            return f"{run}:{policy_name}"  # an opponent keeps the role that it learned in
        return trained[policy_name]


def _find_references(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path and text of each value that refers to a stage."""
    if isinstance(value, Mapping | list):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _find_references(item, (*path, key))
    elif isinstance(value, str) and _REFERENCE.fullmatch(value):
        yield path, value


def _find_models(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the models of the policies in unvalidated settings, by policy name."""
    return {name: str(spec["model"]) for name, spec in _find_policies(settings).items() if "model" in spec}


def _find_policies(settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the policies in unvalidated settings, by name."""
    policies = settings.get("policies")
    return {k: v for k, v in policies.items() if isinstance(v, Mapping)} if isinstance(policies, Mapping) else {}
