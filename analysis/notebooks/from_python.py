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
# # Train from Python
#
# A random model of a million parameters first imitates random play, so that it can write moves at all, and then plays a
# bargaining game against itself and learns from what it earns. All of that in this notebook, in less than a minute.

# %% tags=["parameters"]
from tempfile import mkdtemp

from matplotlib.figure import Figure

import analysis
import arena

SMALL = {
    "iterations": 6,
    "play.matches": 48,
    "play.in_flight": 48,
    "policies.shared.imitate.matches": 192,
    "policies.shared.imitate.minibatches": 8,
}
FOLDER = f"{mkdtemp()}/run"

# %%
# %matplotlib inline
result = arena.run("negotiation-nano", overrides=SMALL, seed=1, out=FOLDER, progress=print)
print(f"{result.done} of {result.iterations} iterations, weights of {', '.join(result.policies)}")

# %% [markdown]
# ## The figures
#
# A row for each iteration; nested names are joined by dots. `valid_rate` is the share of turns that the game could read
# and allowed.

# %%
result.metrics[["iteration", "mean_payoff", "valid_rate", "learn.shared.kl"]].round(2)


# %%
def picture() -> Figure:
    """The share of valid turns."""
    figure = Figure(figsize=(5, 2.6), layout="constrained")
    axis = figure.add_subplot()
    axis.plot(result.metrics["iteration"], result.metrics["valid_rate"], marker="o", color="tab:blue")
    axis.set(xlabel="iteration", ylabel="share of valid turns", ylim=(0, 1))
    return figure


picture()

# %% [markdown]
# ## What was said
#
# The run is a folder like any other: every turn of every match is in its log.

# %%
turns = analysis.load(result.folder).turns
turns.groupby("iteration")["reward"].mean().round(2).to_frame("reward of a turn")

# %% [markdown]
# ## And on
#
# A run goes on where it ended, as if it had never stopped.

# %%
longer = arena.resume(result.folder, iterations=7, progress=print)
print(f"{longer.done} of {longer.iterations} iterations")
