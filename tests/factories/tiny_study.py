"""An experiment with a study that runs in seconds."""

from copy import deepcopy
from pathlib import Path

import yaml

from arena.config.layers import compose, to_yaml
from arena.config.sources import recipe_layer, set_layer
from tests.factories.commands import SETTINGS

SECTION = {
    "replicates": "nobody", "claim": "tiny things learn", "published": "none", "family": "negotiation", "minutes": 0.1,
    "figure": "valid_rate", "also": ["deal", "evaluation.deal"], "last": 2, "arm": "mars",
    "arms": {"zero": ["credit.estimator=zero"]}, "warm": ["zero"], "verdict": {"better_than": ["zero"]},
}  # fmt: skip
ITERATIONS = 3


def write_study(folder: Path, **changes: object) -> Path:
    """Write a tiny experiment with a study and return its file."""
    layers = [recipe_layer("negotiation-nano"), *map(set_layer, [*SETTINGS, f"iterations={ITERATIONS}"])]
    data = yaml.safe_load(to_yaml(compose(layers)))
    data["study"] = {**SECTION, **changes}
    data["evaluate"] = {"games": [deepcopy(data["game"])], "matches": 4}
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(data))
    return file
