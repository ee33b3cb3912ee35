"""Checks of the models that an experiment names, without loading weights."""

from collections.abc import Callable, Sequence

from agents.adapter_config import is_adapter
from agents.chat_template import CLOCK
from agents.errors import WeightsError
from agents.policy import check_readable, find_image_token, load_tokenizer_and_frame
from agents.weights import check_weights, list_models, resolve, resolve_base
from arena.config.experiment import Experiment
from arena.errors import ConfigError
from arena.play.tables import Table


def check_models(experiment: Experiment, tables: Sequence[Table], announce: Callable[[str], None]) -> list[str]:
    """Check each model's files and tokenizer without loading weights, fetch missing models, and return notes."""
    notes = []
    models_by_policy = [(policy.model, policy.reference) for policy in experiment.policies.values()]
    for model in dict.fromkeys(model for models in models_by_policy for model in models if model):
        if any(known.name == model and known.state == "not fetched" for known in list_models()):
            announce(f"fetching {model}, once")
        folder = resolve(model)
        check_weights(folder)
        frame = load_tokenizer_and_frame(folder)[1]
        keeps_replies = any(role.history == "keep" for table in tables for role in table.roles.values())
        if frame.is_forgeable:
            notes.append(
                f"{folder.name}: its chat template ends turns by plain text, so players can forge other speakers"
            )
        if frame.prints_time:
            notes.append(f"{folder.name}: its chat template prints the time, which is fixed at {CLOCK:%d %b %Y, %H:%M}")
        if frame.rewrites_thoughts and keeps_replies:
            notes.append(
                f"{folder.name}: its chat template rewrites thoughts of earlier replies, but roles with "
                "`history: keep` read them as written (docs/export.md)"
            )
    _check_learners(experiment)
    _check_references(experiment)
    _check_vision(experiment)
    return notes


def _check_vision(experiment: Experiment) -> None:
    """Raise ConfigError for settings of vision that a policy's model does not support."""
    for name, policy in experiment.policies.items():
        if not policy.images and not policy.freeze:
            continue
        field = "images" if policy.images else "freeze"
        try:
            token = find_image_token(resolve_base(resolve(policy.model)), policy.vision_settings.max_pixels)
        except WeightsError as error:
            raise ConfigError(f"policies.{name}: {error}") from None
        if token is None:
            raise ConfigError(f"policies.{name}.{field}: {policy.model} has no vision: remove it")


def _check_references(experiment: Experiment) -> None:
    """Raise ConfigError unless each `reference` can score every token of its policy."""
    for name, policy in experiment.policies.items():
        if policy.reference:
            try:
                check_readable(resolve(policy.reference), resolve(policy.model))
            except ValueError as error:
                advice = "learn.demonstrations.run imitates a teacher's texts"
                raise ConfigError(
                    f"policies.{name}.reference: {error}: it cannot score its tokens ({advice})"
                ) from None


def _check_learners(experiment: Experiment) -> None:
    """Raise ConfigError if the precision or ZeRO stage does not support the weights or adapter of a policy."""
    if experiment.precision == "bf16-true" and experiment.learn.zero_stage < 2:
        raise ConfigError(
            "precision: bf16-true needs ZeRO's float32 master weights: set learn.zero_stage to 2 or 3, or use bf16"
        )
    for name, policy in experiment.policies.items():
        is_given_adapter = is_adapter(resolve(policy.model))
        if is_given_adapter and policy.adapter:
            raise ConfigError(
                f"policies.{name}: {policy.model} is already an adapter, trained further: remove `adapter`"
            )
        if not policy.train:
            continue
        if (is_given_adapter or policy.adapter) and experiment.precision == "bf16-true":
            raise ConfigError(f"policies.{name}: an adapter's base is in bfloat16 anyway: set precision to bf16")
        if (is_given_adapter or policy.adapter) and experiment.learn.zero_stage == 3:
            raise ConfigError(
                f"policies.{name}: an adapter's base is not partitioned: set learn.zero_stage to 0, 1 or 2"
            )
