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
# # The league
#
# A learner that only meets itself may chase its own tail: today's version beats yesterday's, tomorrow's loses to a
# trick that was forgotten last week. A league keeps past versions and fixed opponents to be met again. This notebook
# asks the log of such a run: who beats whom, and is it a ranking or a circle?

# %% tags=["parameters"]
import os

import analysis
from analysis import league

RUN = os.environ.get("ARENA_RUN", "analysis/notebooks/example/negotiation")

# %%
# %matplotlib inline
log = analysis.load(RUN)
log.seats.groupby("policy")["payoff"].agg(["size", "mean"]).round(2)

# %% [markdown]
# `shared` is what learns; `shared@3` is `shared` as it was after three iterations, frozen. `conceder`, `hard_liner` and
# `random` are scripted policies: rules without weights.
#
# ## Who gets what with whom
#
# Row's mean payoff in matches with column. In bargaining both can do well, so read a pair of cells together.

# %%
league.payoff_matrix(log).round(2)

# %% [markdown]
# ## Who beats whom
#
# Only pairs of which a 95 % interval is sure. The difference is of payoffs in the same matches.

# %%
for pair in league.pairs(log):
    ahead = pair.ahead
    sure = "" if ahead.low <= 0 <= ahead.high else "  <- sure"
    print(f"{pair.one:>10} - {pair.other:<10} {ahead.estimate:+.2f} [{ahead.low:+.2f}, {ahead.high:+.2f}] "
          f"in {pair.matches} matches{sure}")  # fmt: skip

# %% [markdown]
# ## A ranking, or a circle?
#
# A rating is one number for each: it cannot say that rock beats scissors beats paper. Rings in the graph can, and
# α-Rank shares its mass among those that are in one.

# %%
print("cycles:", league.cycles(league.beats(log)) or "none")
league.alpha_rank(log).round(3)

# %% [markdown]
# ## How strong is each?
#
# Ratings after the last iteration (openskill), with how sure they are. `arena view` draws the graph.

# %%
ratings = league.ratings(log)
last = ratings[ratings["iteration"] == ratings["iteration"].max()]
last.sort_values("mu", ascending=False)[["policy", "mu", "sigma", "matches"]].round(1)
