"""Tables, SQL, plots and readable matches from run folders; never loads torch.

>>> log = analysis.load("runs/latest")
>>> log.turns.groupby("role")["advantage"].mean().to_dict()
{'the_opener': 0.125, 'the_responder': 0.125}
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.comparison import compare
    from analysis.frames import Frames, load
    from analysis.query import sql

__all__ = ["Frames", "compare", "load", "sql"]
_MODULES = {"compare": "comparison", "Frames": "frames", "load": "frames", "sql": "query"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that listing commands does not load pandas."""
    if name not in _MODULES:
        raise AttributeError(f"module 'analysis' has no attribute '{name}'")
    return getattr(import_module(f"analysis.{_MODULES[name]}"), name)
