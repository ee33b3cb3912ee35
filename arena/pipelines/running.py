"""Start and resume pipelines: the stages of an experiment, one after the other, each in its own run folder."""

from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arena.config import own_files
from arena.config.experiment import Experiment
from arena.config.pipeline import Pipeline, StageSpec, read_pipeline
from arena.config.saved_config import experiment_to_plain, load_experiment, load_pipeline_settings, with_overrides
from arena.config.sources import Layer, text_layer
from arena.config.staging import EarlierStages, PlannedStage, add_stage_name, compose_stage, plan
from arena.doctor import describe_environment
from arena.errors import ConfigError, Interrupted, StoreError
from arena.launch import (
    add_command,
    check_single_process,
    choose_fresh_folder,
    resume_run,
    start_checked,
    update_latest_link,
)
from arena.pipelines.checking import check_stage, fit_settings
from arena.pipelines.reuse import FOLDER, SOURCES, copy_stages, find_reusable_stages
from arena.play.watchers import Watcher
from arena.preflight import find_model_folder, find_used_servers
from arena.store import checkpoints
from arena.store.files import CONFIG, STAGES, make_folder
from arena.store.locks import lock_folder
from arena.store.reader import FolderReader
from arena.store.run import create_folder, write_environment
from arena.store.stages import StageEnd, find_pipeline, read_stage_end, stage_folder, write_stage_end
from games.adapters import loading


async def start_pipeline(pipeline: Pipeline, out: Path | None, watcher: Watcher, reuse: Path | None = None) -> Path:
    """Check all stages, create the pipeline's folder, run the stages to the end, and return the folder.

    Without `out` the folder is a new one in runs/. The link `latest` beside it is set to it. Leading stages that the
    pipeline at `reuse` ran with the same settings are copied instead of run. Raises ConfigError if a check fails.
    """
    check_single_process()
    loading.reset()
    folder = out or choose_fresh_folder(pipeline.name)
    planned = plan(pipeline, folder, watcher.note)
    for stage in planned:
        await check_stage(stage, lambda phase_name: watcher.phase(0, phase_name))
    text = pipeline.with_changes(await fit_settings(pipeline, planned), find_model_folder).to_yaml()
    data = text_layer(str(folder / CONFIG), text).data
    running = _PipelineRun(folder, data, watcher)
    experiments = [stage.composed for stage in running.planned if isinstance(stage.composed, Experiment)]
    environment = describe_environment()
    environment |= {SOURCES: own_files.hash_sources(experiments, data), FOLDER: str(running.folder)}
    copied, reason = find_reusable_stages(reuse, data, environment) if reuse else ([], "")
    create_folder(folder, text, add_command(environment, data), empty_folder=STAGES)
    own_files.trust_code(data)
    for experiment in experiments:
        own_files.trust_experiment(experiment, find_used_servers(experiment).values())
    update_latest_link(folder)
    with _explain_interrupts(folder), lock_folder(folder):
        if reuse:
            copy_stages(copied, reuse, running.folder)
            names = ", ".join(stage.name for stage in copied) or "no stage"
            watcher.note(f"copied from {reuse}: {names}{reason and f'; {reason}'}")
        await running.run()
    return folder


async def resume_pipeline(path: Path, watcher: Watcher, layers: Sequence[Layer] = (), trusted: bool = False) -> Path:
    """Resume the pipeline at `path`, or that of the stage at `path`, and return the pipeline's folder.

    The result is bit-identical to an uninterrupted pipeline's. Overrides in `layers` apply, as in `resume_run`, to the
    first unfinished stage only. Without `trusted`, code and servers of the folder are refused unless a run on this
    machine was started with them.
    """
    check_single_process()
    loading.reset()
    if (folder := find_pipeline(path)) is None:
        raise StoreError(f"{path} is not a pipeline or a stage of one")
    with _explain_interrupts(folder), lock_folder(folder):
        data = load_pipeline_settings(folder, trusted)
        environment = FolderReader(folder).environment()
        running = _PipelineRun(folder, data, watcher, trusted)
        running.check_overrides(path.resolve(), layers)
        write_environment(folder, add_command(environment, data))
        await running.run(layers)
    return folder


class _PipelineRun:
    """Execution of a pipeline's unfinished stages in its folder."""

    def __init__(self, folder: Path, data: Mapping[str, Any], watcher: Watcher, trusted: bool = False) -> None:
        """Compose the stages of the pipeline that has the settings `data`. Raises ConfigError if one is invalid."""
        self.folder, self.data, self.watcher, self.trusted = folder.resolve(), data, watcher, trusted
        self.pipeline = read_pipeline([Layer(str(folder / CONFIG), "", data)])
        self.planned = plan(self.pipeline, self.folder, lambda text: None)

    def check_overrides(self, path: Path, layers: Sequence[Layer]) -> None:
        """Raise ConfigError if there are overrides in `layers`, but they cannot apply to the next stage.

        The reasons are that no stage is left, that `path` is the folder of another stage, or that a setting may not
        change.
        """
        next_folder = next(
            (self._get_folder(stage) for stage in self.planned if read_stage_end(self._get_folder(stage)) is None), None
        )
        if layers and next_folder is None:
            raise ConfigError(f"all stages of {self.folder} have ended, so no setting can change: start a new run")
        if layers and path not in (self.folder, next_folder):
            raise ConfigError(f"{path} does not run now: settings can change in {next_folder}, the stage that does")
        if layers and next_folder is not None and (next_folder / CONFIG).exists():
            load_experiment(next_folder, layers, self.trusted)

    async def run(self, layers: Sequence[Layer] = ()) -> None:
        """Run all unfinished stages, the first one with the overrides `layers`.

        Raises StoreError if the results of an ended stage are not as they were written.
        """
        earlier = EarlierStages()
        stage_ends = [read_stage_end(self._get_folder(stage)) for stage in self.planned]
        for stage, done in zip(self.planned, stage_ends, strict=True):
            if done is None:
                done, layers = await self._run_stage(stage, earlier, layers), ()
            weights = {policy: str(folder) for policy, folder in done.weights.items()}
            earlier = earlier.plus(stage.spec.name, self._get_folder(stage), weights)

    async def _run_stage(self, planned: PlannedStage, earlier: EarlierStages, layers: Sequence[Layer]) -> StageEnd:
        """Run a stage from the results of the earlier ones, write its `done.json`, and return its results."""
        spec, run_folder = planned.spec, self._get_folder(planned)
        for folder in earlier.folders.values():
            read_stage_end(folder)
        self._check_sources(planned)
        loading.reset()
        own_files.admit_code(self.folder, self.data, self.trusted)
        composed = compose_stage(self.pipeline, planned, earlier, self.watcher.note)
        if layers and not isinstance(composed, Experiment):
            raise ConfigError(f"stage {spec.name}: the settings of {spec.kind} cannot change now")
        if layers and isinstance(composed, Experiment):
            composed = with_overrides(Layer(composed.name, "", experiment_to_plain(composed)), layers)
        self._announce(planned, composed)
        if isinstance(composed, Experiment):
            with add_stage_name(spec.name):
                await self._run_experiment(composed, run_folder, layers)
            newest = checkpoints.newest(run_folder).folder / "policies"
            weights = {folder.name: folder for folder in sorted(newest.iterdir())} if newest.is_dir() else {}
        else:
            with lock_folder(make_folder(run_folder)):
                self._write_environment(run_folder, spec)
                await composed.run(run_folder, self.watcher)
            weights = dict(composed.weights(run_folder))
        return write_stage_end(run_folder, spec.kind, weights)

    async def _run_experiment(self, experiment: Experiment, run_folder: Path, layers: Sequence[Layer]) -> None:
        if (run_folder / CONFIG).exists():
            await resume_run(run_folder, self.watcher, layers, self.trusted)
            return
        servers = find_used_servers(experiment).values()
        own_files.admit_experiment(self.folder, experiment, servers, experiment, self.trusted)
        await start_checked(experiment, run_folder, self.watcher, is_stage=True)

    def _check_sources(self, planned: PlannedStage) -> None:
        """Raise ConfigError if files that stages name were edited, or if the pipeline was moved during this stage.

        Edits are ignored if the stage is an experiment that has begun: it has its own copies and hashes of files.
        """
        run_folder, environment = self._get_folder(planned), FolderReader(self.folder).environment()
        has_begun = (run_folder / CONFIG).exists()
        if not has_begun or not isinstance(planned.composed, Experiment):
            own_files.require_unchanged(self.folder, environment.get(SOURCES, {}))
        if has_begun and (before := environment.get(FOLDER, str(self.folder))) != str(self.folder):
            raise ConfigError(
                f"{self.folder} was moved from {before} during stage {planned.spec.name}, which reads folders there: "
                f"move it back, or remove {run_folder} to begin that stage again"
            )

    def _write_environment(self, run_folder: Path, spec: StageSpec) -> None:
        """Write the `environment.json` of a stage with a loop of its own, or add this command to it."""
        has_begun = (run_folder / CONFIG).exists()
        environment = FolderReader(run_folder).environment() if has_begun else describe_environment()
        write_environment(run_folder, add_command(environment, {spec.kind: spec.data()}))

    def _announce(self, planned: PlannedStage, composed: Any) -> None:
        spec = planned.spec
        named_kind = spec.name if spec.name == spec.kind else f"{spec.name} ({spec.kind})"
        label = f"stage {spec.number} of {len(self.planned)}, {named_kind}"
        self.watcher.stage(label, spec.name, composed.iterations if isinstance(composed, Experiment) else 0)

    def _get_folder(self, stage: PlannedStage) -> Path:
        return stage_folder(self.folder, stage.spec.number, stage.spec.name)


@contextmanager
def _explain_interrupts(folder: Path) -> Iterator[None]:
    """Turn an interruption into an Interrupted error that names the command to resume the pipeline."""
    try:
        yield
    except (KeyboardInterrupt, CancelledError, Interrupted):
        safe = "finished stages and committed iterations are safe"
        raise Interrupted(f"interrupted; {safe}: arena resume {folder} continues") from None
