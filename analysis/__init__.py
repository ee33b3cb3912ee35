"""From run folders to tables, plots and readable matches; never loads torch.

>>> run = analysis.load("runs/latest")
>>> run.matches.groupby("iteration")["report.deal"].mean()
"""

from analysis.frames import Run, load

__all__ = ["Run", "load"]
