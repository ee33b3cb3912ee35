"""A stand-in for a lab's policies with the members that critics use."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agents.precision import Precision
from agents.published import ModuleWeights
from arena.config.experiment import LearnSpec


class _Policies(dict[str, Any]):
    def __init__(self, model: Any) -> None:
        def write(folder: Path) -> None:
            (folder / "tokenizer.json").write_text("{}")

        super().__init__(shared=SimpleNamespace(model=model, tokenizer=SimpleNamespace(save_pretrained=write)))
        self.precision, self.rule = Precision.FP32, LearnSpec(token_budget=64)

    async def weights(self, name: str) -> ModuleWeights:
        return ModuleWeights(self[name].model)

    def save_whole(self, name: str, folder: Path, weights: ModuleWeights) -> None:
        self[name].model.save_pretrained(folder)
        self[name].tokenizer.save_pretrained(folder)


def make_policies(model: Any) -> Any:
    """Return a stand-in for `Policies` whose policy `shared` has this model."""
    return _Policies(model)
