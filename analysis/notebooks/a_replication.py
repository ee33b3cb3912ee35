# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A replication report
#
# A paper claims something; does it hold here, in a small world, with seeds and a control? `arena study` runs the arms
# that a recipe names, and keeps every seed's curve with the command that made it. This notebook reads such a file, asks
# the question again from the curves alone, and shows the answer, whichever it is.

# %% tags=["parameters"]
import json
import os
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.panels import colours, curve, fit, legend, sheet
from arena.statistics import SHARE, mean_ci, paired_ci

STUDY = Path(os.environ.get("ARENA_STUDY", "benchmarks/results/study-maze-nano.json"))

# %%
# %matplotlib inline
kept = json.loads(STUDY.read_text())
claim = kept["study"]
print(f"{claim['replicates']}: {claim['claim']}")
print(f"published: {claim['published']}")
print(f"asked here by: {kept['command']}")

# %% [markdown]
# ## The curves
#
# Thin lines are seeds, the thick one is their mean, the dot with its bar is the mean of the last iterations with a 95 %
# interval over seeds. `zero` is the control: credit that says nothing. Whatever it reaches, nobody learned.

# %%
LAST = claim["last"]
curves = pd.DataFrame({(run["arm"], run["seed"]): run["curve"] for run in kept["runs"]})
ends = curves.tail(LAST).mean()


def picture() -> Figure:
    """All arms, seed by seed."""
    figure, (axis,) = sheet([claim["figure"]], claim["replicates"])
    arms = list(dict.fromkeys(curves.columns.get_level_values(0)))
    for place, (arm, colour) in enumerate(colours(arms).items()):
        end = mean_ci(ends[arm].tolist(), SHARE)
        curve(axis, list(range(1, len(curves) + 1)), curves[arm].T, end, arm, colour, place)
    fit(axis, SHARE)
    legend(figure)
    return figure


picture()

# %% [markdown]
# ## The question, asked seed by seed
#
# Arms with the same seed begin with the same weights and meet the same deals, so the difference is taken within seeds:
# what all arms of a seed share drops out.

# %%
rows = {}
first = kept["runs"][0]["arm"]
for arm in dict.fromkeys(run["arm"] for run in kept["runs"]):
    rows[arm] = {"end": mean_ci(ends[arm].tolist(), SHARE)}
    if arm != first:
        rows[arm][f"{first} less it"] = paired_ci(ends[arm].tolist(), ends[first].tolist(), SHARE)
told = pd.DataFrame(rows).T
told.map(lambda found: "" if pd.isna(found[0]) else f"{found[0]:+.2f} [{found[1]:+.2f}, {found[2]:+.2f}]",
         na_action="ignore").fillna("")  # fmt: skip

# %% [markdown]
# ## The verdict
#
# What would count was written into the recipe before anything ran, so that nobody chooses the question after the
# answer.

# %%
print(kept["verdict"]["verdict"].upper())
print(kept["verdict"]["because"].replace("; ", "\n"))

# %% [markdown]
# "Not shown" is no "refuted": five seeds in a small world leave room for an effect, and the interval says for how
# large a one. What it does show is that the control was beaten, so that something was learned at all.
