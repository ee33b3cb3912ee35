"""Sizes of the measurements for a GPU ("full"), a CPU ("small") and a quick test."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Models and sizes of all parts. Models are names of `models.build_model`."""

    parity_models: tuple[str, ...]
    """Models whose log-probabilities are compared."""
    streams: int
    """Number of streams in the correctness checks."""
    reply_tokens: int
    """Maximum length of their replies."""
    repeated_model: str
    """Model of the repeatability checks."""
    timed_models: tuple[str, ...]
    """Models whose speed is measured."""
    batch_sizes: tuple[int, ...]
    """Numbers of simultaneous replies in the speed measurements."""
    context: int
    """Length of the contexts before timed replies."""
    decoded_tokens: int
    """Length of timed replies."""
    update_shape: tuple[int, int]
    """Number and length of the streams of a timed update."""
    budgets: tuple[int, ...]
    """Token budgets of the timed update; the bare loop uses the last one."""
    rounds: int
    matmul_width: int
    """Width of the square matrices whose product gives the peak rate."""
    updates: int
    """Maximum updates in the task that a nano policy learns."""
    iterations: int
    """Maximum iterations of the recipes."""
    large_models: tuple[str, ...]
    """Models whose memory is compared with its estimate."""
    fully_trained: tuple[str, ...]
    """Large models that train all weights; the others train an adapter."""
    decoding_rows: tuple[int, ...]
    """Numbers of simultaneous replies in the comparison with the memory bandwidth."""
    update_tokens: tuple[int, ...]
    """Numbers of tokens of long updates."""
    long_update_models: tuple[str, ...]
    """Models of long updates."""
    trl_shape: tuple[int, int, int]
    """Number of replies, their length, and rounds of the comparison with TRL."""
    flagship: str
    """Recipe of the complete run."""
    flagship_settings: tuple[str, ...]
    vision_settings: tuple[str, ...] = ()
    recipe_settings: tuple[str, ...] = ()
    """Overrides of the recipe `negotiation-nano`."""


_FEW_LESSONS = ("policies.shared.imitate.matches=96", "policies.shared.imitate.minibatches=8", "play.matches=32")
_SHORT_RUN = (*_FEW_LESSONS, "policies.shared.imitate.matches=24", "play.matches=4")
_SHORT_VISION = (
    *("stages.attributes.ground.steps=2", "stages.find.ground.steps=2", "stages.reward.play.iterations=1"),
    *("stages.reward.play.play={matches: 16, group: 4, in_flight: 16}", "stages.reward.play.evaluate.matches=4"),
    *(f"stages.reward.play.policies.viewer.imitate.{one}" for one in ("matches=16", "minibatches=2")),
)

SIZES = {
    "full": Size(
        parity_models=("nano", "smollm2-135m", "qwen2-0.5b"),
        streams=24,
        reply_tokens=24,
        repeated_model="smollm2-135m",
        timed_models=("smollm2-135m", "qwen2-0.5b", "qwen2-1.5b"),
        batch_sizes=(8, 32, 128),
        context=256,
        decoded_tokens=32,
        update_shape=(64, 256),
        budgets=(2048, 8192),
        rounds=2,
        matmul_width=8192,
        updates=30,
        iterations=12,
        large_models=("qwen2-3b", "qwen2-7b"),
        fully_trained=("qwen2-3b",),
        decoding_rows=(8, 32, 128, 512),
        update_tokens=(16384, 65536),
        long_update_models=("qwen2-0.5b", "qwen2-7b"),
        trl_shape=(64, 128, 4),
        flagship="negotiation",
        flagship_settings=("iterations=100", "evaluate.every=20", "checkpoint.every=5"),
    ),
    "small": Size(
        parity_models=("nano", "smollm2-135m"),
        streams=6,
        reply_tokens=6,
        repeated_model="nano",
        timed_models=("smollm2-135m",),
        batch_sizes=(8,),
        context=32,
        decoded_tokens=12,
        update_shape=(8, 64),
        budgets=(512,),
        rounds=2,
        matmul_width=1024,
        updates=30,
        iterations=3,
        large_models=("nano",),
        fully_trained=(),
        decoding_rows=(4, 16),
        update_tokens=(512, 2048),
        long_update_models=("nano",),
        trl_shape=(4, 8, 1),
        flagship="negotiation-nano",
        flagship_settings=("iterations=2", "evaluate={panel: negotiation, deals: 2, every: 1}", *_SHORT_RUN),
        vision_settings=_SHORT_VISION,
        recipe_settings=_FEW_LESSONS,
    ),
    "quick": Size(
        parity_models=("nano",),
        streams=4,
        reply_tokens=4,
        repeated_model="nano",
        timed_models=("nano",),
        batch_sizes=(4,),
        context=16,
        decoded_tokens=4,
        update_shape=(4, 32),
        budgets=(512,),
        rounds=1,
        matmul_width=256,
        updates=2,
        iterations=1,
        large_models=("nano",),
        fully_trained=("nano",),
        decoding_rows=(4,),
        update_tokens=(512,),
        long_update_models=("nano",),
        trl_shape=(4, 8, 1),
        flagship="negotiation-nano",
        flagship_settings=("iterations=2", "evaluate={panel: negotiation, deals: 2, every: 1}", *_SHORT_RUN),
        vision_settings=_SHORT_VISION,
        recipe_settings=(*_FEW_LESSONS, "policies.shared.imitate.matches=8", "play.matches=4"),
    ),
}
