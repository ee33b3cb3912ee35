"""A policy: named weights with a version. How it is loaded and saved, what of it learns, how it speaks.

An engine serves `weights`, a policy's version whatever that is made of: the module that is being trained, or a folder.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agents.chat import ChatFrame


@dataclass
class Policy:
    """Weights under a name. `version` counts the updates published; a frozen policy stays at 0."""

    name: str
    source: Path
    """The folder its first weights came from."""
    model: Any
    """What is trained; None where it is frozen, and an engine alone holds the weights."""
    tokenizer: Any
    frame: ChatFrame
    trained: bool
    version: int = 0

    @staticmethod
    def load(name: str, source: Path, folder: Path, train: bool) -> "Policy":
        """The policy that began as `source`; if it learns, a module with the weights of `folder`.

        WeightsError or ChatError where that cannot be.
        """
        tokenizer, frame = speech_of(source)
        model = load_module(folder) if train else None
        return Policy(name, source, model, tokenizer, frame, train)

    @property
    def weights(self) -> Any:
        """What an engine serves: the module, or the folder that it is to load."""
        return self.source if self.model is None else self.model

    def past(self, name: str, version: int, folder: Path) -> "Policy":
        """An earlier version of it, frozen, under a name of its own."""
        return replace(self, name=name, source=folder, model=None, trained=False, version=version)

    def save(self, folder: Path) -> None:
        """Write weights and tokenizer in the Hugging Face layout; under ZeRO-3 the parameters have to be whole."""
        from agents.model_folder import quietly

        with quietly():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


def speech_of(folder: Path) -> tuple[Any, ChatFrame]:
    """A folder's tokenizer and chat frame, read once for all who ask; WeightsError or ChatError where there is none."""
    files = [path for path in folder.glob("*") if path.suffix in (".json", ".jinja")]
    return _speech(folder, max((path.stat().st_mtime_ns for path in files), default=0))


@lru_cache(maxsize=8)
def _speech(folder: Path, changed: int) -> tuple[Any, ChatFrame]:
    from agents.weights import load_tokenizer

    tokenizer = load_tokenizer(folder)
    return tokenizer, ChatFrame(tokenizer)


def trainable(model: Any) -> dict[str, Any]:
    """The parameters that learning may change, by name: all but those that were frozen, as an adapter's base is."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def load_module(folder: Path, frozen: bool = False) -> Any:
    """The folder's model where it is to compute, in float32."""
    import torch

    from agents.weights import load_model

    model = load_model(folder)
    model = model.cuda() if torch.cuda.is_available() else model
    return model.requires_grad_(not frozen)
