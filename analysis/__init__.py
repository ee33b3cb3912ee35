"""From run folders to tables, SQL, plots and readable matches; never loads torch.

>>> log = analysis.load("runs/latest")
>>> log.turns.groupby("role")["advantage"].mean().to_dict()
{'the_opener': 0.125, 'the_responder': 0.125}
"""

from analysis.frames import Frames, load

__all__ = ["Frames", "load"]
