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
# # A first look at a run
#
# Three questions: did it learn, what do its matches look like, and who earns what?
# Point `RUN` at a run folder, or set the environment variable `ARENA_RUN`. A run that is still
# going can be looked at too.

# %% tags=["parameters"]
import os

import analysis
from analysis import plots
from arena.statistics import difference_ci, rate_ci

RUN = os.environ.get("ARENA_RUN", "runs/latest")

# %%
# %matplotlib inline
run = analysis.load(RUN)
print(f"{RUN}: {len(run.iterations)} iterations, {len(run.matches)} matches, {len(run.turns)} turns")

# %% [markdown]
# ## Did it learn?
#
# What one asks first, by iteration: are acts valid, does it succeed, does it earn, is learning sound? Bars are 95 %
# intervals over matches. The run wrote down more: `run.iterations.columns` lists it,
# `plots.curves(run, ["report.turns", "seconds.play"])` draws it.

# %%
plots.curves(run)

# %% [markdown]
# The share of valid acts with its 95 % interval (Wilson), by iteration and role.

# %%
valid = run.turns.groupby(["iteration", "role"])["valid"].agg(["sum", "size"])
shares = valid.apply(lambda acts: "{:.2f} [{:.2f}, {:.2f}]".format(*rate_ci(acts["sum"], acts["size"])), axis=1)
shares.unstack("role")

# %% [markdown]
# How the last iteration compares with the first: mean reward per turn, with a 95 % interval (Welch).

# %%
first, last = run.turns["iteration"].min(), run.turns["iteration"].max()
before, after = (run.turns.loc[run.turns["iteration"] == i, "reward"] for i in (first, last))
change = difference_ci(before, after)
print(f"iteration {first} to {last}: {change.estimate:+.2f} per turn [{change.low:+.2f}, {change.high:+.2f}]")

# %% [markdown]
# ## A match with its credit
#
# The last finished match: what each seat did and said, what the turn earned, and what credit made of it.
# The advantage is what pushed the policy: above 0 for more of this, below 0 for less.

# %%
finished = run.matches[run.matches["status"] == "finished"]
print(plots.dialogue(run, finished["match"].iloc[-1]) if len(finished) else "no match is finished yet")

# %% [markdown]
# ## Who earns what?
#
# The mean payoff of each seat by iteration, in finished matches.

# %%
run.seats.groupby(["iteration", "seat"])["payoff"].mean().unstack("seat").round(2)

# %% [markdown]
# And the matches that could not be finished.

# %%
run.matches.loc[run.matches["status"] == "failed", ["match", "reason"]]
