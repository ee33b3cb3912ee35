"""Sizes of the measurements: for a GPU, for a CPU, and for a quick test."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Models and sizes of all parts. Models are named as in `models`."""

    judged: tuple[str, ...]
    """Models whose log-probabilities are compared."""
    streams: int
    """Streams of the comparisons."""
    new: int
    """Most tokens of a reply there."""
    repeated: str
    """Model that does everything twice."""
    timed: tuple[str, ...]
    """Models whose speed is measured."""
    rows: tuple[int, ...]
    """Replies in flight."""
    context: int
    """Tokens of every context that is decoded from."""
    decoded: int
    """Tokens of every timed reply."""
    trained: tuple[int, int]
    """Streams of a timed update, and tokens of each."""
    budgets: tuple[int, ...]
    """Token budgets of the timed update; the last one is the bare loop's too."""
    rounds: int
    matmul: int
    """Width of the square matrices whose product is the peak."""
    updates: int
    """Number of updates of the task that a nano policy learns."""
    iterations: int
    """Number of iterations of the recipes, if there is time."""
    large: tuple[str, ...]
    """Models of which memory is compared with its estimate."""
    whole: tuple[str, ...]
    """Those of them that learn with all their weights; the others have an adapter."""
    many: tuple[int, ...]
    """Replies in flight, beside the limit by bandwidth."""
    updates_of: tuple[int, ...]
    """Tokens of updates, for the share of the peak."""
    long: tuple[str, ...]
    """Models that do them."""
    beside: tuple[int, int, int]
    """Replies, tokens of each, and rounds beside TRL."""
    flagship: str
    """Recipe of the whole run."""
    flagship_settings: tuple[str, ...]
    vision_settings: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    """Settings over recipe `negotiation-nano`."""


_FEW_LESSONS = ("policies.shared.imitate.matches=96", "policies.shared.imitate.minibatches=8", "play.matches=32")
_SHORT_RUN = (*_FEW_LESSONS, "policies.shared.imitate.matches=24", "play.matches=4")
_SHORT_VISION = (
    *("stages.attributes.ground.steps=2", "stages.find.ground.steps=2", "stages.reward.play.iterations=1"),
    *("stages.reward.play.play={matches: 16, group: 4, in_flight: 16}", "stages.reward.play.evaluate.matches=4"),
    *(f"stages.reward.play.policies.viewer.imitate.{one}" for one in ("matches=16", "minibatches=2")),
)

SIZES = {
    "full": Size(
        judged=("nano", "smollm2-135m", "qwen2-0.5b"),
        streams=24,
        new=24,
        repeated="smollm2-135m",
        timed=("smollm2-135m", "qwen2-0.5b", "qwen2-1.5b"),
        rows=(8, 32, 128),
        context=256,
        decoded=32,
        trained=(64, 256),
        budgets=(2048, 8192),
        rounds=2,
        matmul=8192,
        updates=30,
        iterations=12,
        large=("qwen2-3b", "qwen2-7b"),
        whole=("qwen2-3b",),
        many=(8, 32, 128, 512),
        updates_of=(16384, 65536),
        long=("qwen2-0.5b", "qwen2-7b"),
        beside=(64, 128, 4),
        flagship="negotiation",
        flagship_settings=("iterations=100", "evaluate.every=20", "checkpoint.every=5"),
    ),
    "small": Size(
        judged=("nano", "smollm2-135m"),
        streams=6,
        new=6,
        repeated="nano",
        timed=("smollm2-135m",),
        rows=(8,),
        context=32,
        decoded=12,
        trained=(8, 64),
        budgets=(512,),
        rounds=2,
        matmul=1024,
        updates=30,
        iterations=3,
        large=("nano",),
        whole=(),
        many=(4, 16),
        updates_of=(512, 2048),
        long=("nano",),
        beside=(4, 8, 1),
        flagship="negotiation-nano",
        flagship_settings=("iterations=2", "evaluate={panel: negotiation, deals: 2, every: 1}", *_SHORT_RUN),
        vision_settings=_SHORT_VISION,
        recipe=_FEW_LESSONS,
    ),
    "quick": Size(
        judged=("nano",),
        streams=4,
        new=4,
        repeated="nano",
        timed=("nano",),
        rows=(4,),
        context=16,
        decoded=4,
        trained=(4, 32),
        budgets=(512,),
        rounds=1,
        matmul=256,
        updates=2,
        iterations=1,
        large=("nano",),
        whole=("nano",),
        many=(4,),
        updates_of=(512,),
        long=("nano",),
        beside=(4, 8, 1),
        flagship="negotiation-nano",
        flagship_settings=("iterations=2", "evaluate={panel: negotiation, deals: 2, every: 1}", *_SHORT_RUN),
        vision_settings=_SHORT_VISION,
        recipe=(*_FEW_LESSONS, "policies.shared.imitate.matches=8", "play.matches=4"),
    ),
}
