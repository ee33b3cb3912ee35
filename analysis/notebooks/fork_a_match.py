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
# # One negotiation, studied by forks
#
# What made this deal? A log tells what happened, and never what would have happened. A fork does: the match is dealt
# again from its seed, the logged acts are put to the game up to a turn, and from there on somebody plays otherwise.

# %% tags=["parameters"]
import os

from matplotlib.figure import Figure

import analysis
from analysis import plots
from analysis.panels import draw_points, make_sheet
from arena.cli.loop import wait
from arena.evaluate.fork import fork
from arena.statistics import ANY, mean_ci
from arena.store.plots import assign_colours

RUN = os.environ.get("ARENA_RUN", "analysis/notebooks/example/bargain")
MATCH = "0001-0000"

# %%
# %matplotlib inline
log = analysis.load(RUN)
print(plots.dialogue(log, MATCH))

# %% [markdown]
# The opener asks for two of the first good and comes down when nothing moves; the responder repeats itself until the
# other gives in. (`OFFER a b c` is what one takes of three goods.)
#
# ## What if the responder had taken the first offer?
#
# The same deal, the same first act, and then `ACCEPT`. Accepting ends the match, so one fork says it all.

# %%
early = wait(fork(RUN, MATCH, turn=1, act="ACCEPT", n=1))
for seat in ("opener", "responder"):
    name = f"payoff {seat}"
    print(f"{name}: {early.logged[name]:.0f} as it was, {early.forked[name][0]:.0f} if accepted at once")

# %% [markdown]
# ## What was each turn worth?
#
# Now somebody who plays at random takes over the mover's seat at each turn in turn. What the seat loses by that is what
# its way of playing on was worth from there. Bars are 95 % intervals over forks.

# %%
turns = log.turns[["turn", "seat", "action"]].to_dict("records")
lost = []
for turn in turns:
    forked = wait(fork(RUN, MATCH, turn=turn["turn"], seats={turn["seat"]: "random"}, n=40))
    name = f"payoff {turn['seat']}"
    lost.append(mean_ci([forked.logged[name] - paid for paid in forked.forked[name]], ANY))
    print(f"{turn['turn'] + 1} {turn['seat']:>9} {turn['action']:<12} worth {lost[-1].estimate:+.2f} "
          f"[{lost[-1].low:+.2f}, {lost[-1].high:+.2f}] against random play from here")  # fmt: skip


# %%
def worth() -> Figure:
    """Draw each turn's worth, in its seat's colour."""
    figure, (axis,) = make_sheet(["what playing on as one did was worth"], x_label="turn")
    hues = assign_colours(["opener", "responder"])
    for place, seat in enumerate(hues):
        own = [(turn["turn"] + 1, value) for turn, value in zip(turns, lost, strict=True) if turn["seat"] == seat]
        draw_points(axis, [at for at, _ in own], [value for _, value in own], seat, hues[seat], place)
    axis.axhline(0, color="grey", linewidth=0.8)
    axis.set_ylabel("payoff kept")
    axis.legend(frameon=False, fontsize=8)
    return figure


worth()

# %% [markdown]
# ## What if somebody tougher had opened?
#
# Another scripted policy at a seat from the first turn on: everything after the fork is played again.

# %%
for name in ("hard_liner", "rubinstein", "conceder", "random"):
    forked = wait(fork(RUN, MATCH, turn=0, seats={"opener": name}, n=20))
    means = {seat: forked.mean(forked.forked, f"payoff {seat}") for seat in ("opener", "responder")}
    print(f"{name:>11}: " + ", ".join(f"{s} {m.estimate:.2f} [{m.low:.2f}, {m.high:.2f}]" for s, m in means.items()))

# %% [markdown]
# A model, an endpoint or a person can sit down in the same way (`seats={"opener": "runs/latest"}`), and `arena fork`
# does all of this from the command line.
