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
# # Strategies over training
#
# A reward curve says *that* play changed. A map says *how*: every match becomes a point, near others in which much the
# same was said, and we watch where the points go.

# %% tags=["parameters"]
import os

import analysis
from analysis.finding import find, nearest
from analysis.map_plots import drawn
from analysis.maps import strategy_map
from analysis.texts import Embedding

RUN = os.environ.get("ARENA_RUN", "analysis/notebooks/example/negotiation")
EMBEDDING: Embedding = "hashed"

# %% [markdown]
# `EMBEDDING` is what makes points of texts. These matches are acts in a code (`OFFER 1 0 2`), so their words do; for
# talk use `"minilm"`, a sentence model that knows that "I'm leaving" and "goodbye" are alike
# (`pip install 'arena-selfplay[analysis,maps]'`; it needs no hub).

# %%
# %matplotlib inline
log = analysis.load(RUN, policies=["shared"])
found = strategy_map(log, clusters=5, embedding=EMBEDDING)
drawn(found, "what the learner did in its matches")

# %% [markdown]
# The clusters, each told by its exemplar, the match nearest to its middle:

# %%
found.clusters[["size", "match", "iteration", "exemplar"]]

# %% [markdown]
# ## When did it change?
#
# The iteration from which on play is most unlike what it was before, and how often the same matches in random order
# would show as great a change. A small `p` says that something changed, not that it did so at once: look at the shares.

# %%
print(found.change)
found.shares.round(2)

# %% [markdown]
# ## How different is play?
#
# `diversity` is the Vendi score: to how many matches with nothing in common it amounts. `novelty` is how far a match is
# from the nearest of as many before it. Falling diversity with rising reward is learning; falling diversity with a
# reward that stands still is collapse.

# %%
found.curves.round(3)

# %% [markdown]
# ## Look at it
#
# Numbers point; matches show. What is most like the exemplar of the largest cluster?

# %%
nearest(log, str(found.clusters.loc[0, "match"]), n=5, embedding=EMBEDDING)[["score", "times", "match", "text"]]

# %% [markdown]
# And by plain words, with a condition in SQL: who walks away late?

# %%
find(log, "walk", by="words", where="iteration > 8", n=5)[["times", "match", "seat", "text"]]
