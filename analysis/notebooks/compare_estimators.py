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
# # What credit said
#
# A match ends with a payoff; learning needs to know which *turns* were worth it. That is credit assignment, and
# estimators disagree. Here several of them judge the same log, turn by turn: nothing is played or learned again.
#
# `RUN` is a small run in this notebook's folder: negotiation between randomly initialised models of 0.9M
# parameters, twelve iterations, with past versions and three scripted opponents. Name your own in `ARENA_RUN`.

# %% tags=["parameters"]
import os
from pathlib import Path

import analysis
from analysis import plots
from arena.cli.loop import wait
from arena.config.kinds import choose
from arena.config.saved_config import load_experiment
from arena.credit.compare import compare

RUN = Path(os.environ.get("ARENA_RUN", "analysis/notebooks/example/negotiation"))

# %%
# %matplotlib inline
log = analysis.load(RUN)
experiment = load_experiment(RUN)
print(
    f"{len(log.matches)} matches, {len(log.turns)} turns; credit was given by {experiment.credit.estimator.to_plain()}"
)

# %% [markdown]
# ## Estimators side by side
#
# - `mars`: the return from this turn on, less the mean of the role's turns (MARS, Yuan et al. 2025);
# - `rae`: the whole match's return less the role's running mean, the same for all its turns (SPIRAL, Liu et al. 2025);
# - `reinforce`: the return from this turn on as it is, nothing subtracted (Williams 1992);
# - `gae_turn`: each turn against what a critic expected of it (Schulman et al. 2016), here a linear one learned from
#   the log;
# - `zero`: the control, which says nothing at all.
#
# `praised` is the share of turns that an estimator calls at least as good as expected.

# %%
NAMES = ("mars", "rae", "reinforce", "gae_turn", "zero")
chosen = [choose("estimator", name) for name in NAMES]
judged = wait(compare(RUN, experiment.credit, chosen, seed=experiment.seed, length=experiment.iterations))
judged.overview().round(3)

# %% [markdown]
# How much do they agree? A correlation of 1 would mean that one could replace the other.

# %%
judged.correlations().round(2)

# %% [markdown]
# ## Is a role told that it does well whatever it does?
#
# The mean advantage of each role, in standard deviations. An estimator without a baseline by role praises whichever
# role is paid more by the rules, and that is no lesson. `mars` subtracts the role's own mean, so it is 0.

# %%
judged.bias().round(2)

# %% [markdown]
# ## The match they dispute most
#
# Where estimators differ, look at the match, not at the mean.

# %%
match = judged.most_disputed()
print(plots.dialogue(log, match))

# %%
turns = judged.turns[judged.turns["match"] == match]
turns[["turn", "seat", "said", "reward", *judged.estimators]].round(2)

# %% [markdown]
# ## What credit says of the acts
#
# The same question over all turns: what is accepting worth, what is walking away? Means of `mars`, with how many turns
# there were. Credit is always relative to what the role earns by now, so accepting pays less the better everybody gets.

# %%
acts = log.turns.dropna(subset=["advantage"])
acts = acts.assign(act=acts["action"].str.replace(r"\s.*", "", regex=True))
acts = acts[acts["act"].isin(["OFFER", "ACCEPT", "WALK"])]
table = acts.groupby(["act", "iteration"])["advantage"].mean().unstack("act").astype("float64")
table.join(acts.groupby("iteration").size().rename("turns")).round(2)
