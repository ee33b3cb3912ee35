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
# # From a data set to a policy trained by a reward model
#
# Three stages of one pipeline, for a model of 0.9M parameters and sums of two digits: imitate a data set with mistakes
# (SFT), learn from pairs which of two answers is better (reward model), and play for the reward model's score. The
# true outcome pays nothing, so that it shows whether the reward model leads anywhere.

# %% tags=["parameters"]
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import analysis
from analysis import plots
from arena.statistics import difference_ci

FOLDER = Path(tempfile.mkdtemp())

# %% [markdown]
# ## The data sets
#
# `chats.jsonl` has chats in the usual `messages` format, as the role `nano_solver` reads and writes them. Six answers
# in ten are wrong. `pairs.jsonl` has a right and a wrong answer to each of its prompts; the chats are not in it.

# %%
rng = np.random.default_rng(0)


def draw() -> tuple[list[dict[str, str]], str, str]:
    """Return the prompt of a random sum, its answer, and an answer that is wrong by at most five."""
    a, sign, b = int(rng.integers(10)), "+-"[rng.integers(2)], int(rng.integers(10))
    answer = a + b if sign == "+" else a - b
    wrong = answer + int(rng.integers(1, 6)) * (1 if rng.random() < 0.5 else -1)
    prompt = [{"role": "system", "content": "solver"}, {"role": "user", "content": f"{a} {sign} {b} ="}]
    return prompt, str(answer), str(wrong)


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a data set as JSON Lines."""
    (FOLDER / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


chats = []
for _ in range(4096):
    prompt, right, wrong = draw()
    chats.append({"messages": [*prompt, {"role": "assistant", "content": right if rng.random() < 0.4 else wrong}]})
pairs = []
for _ in range(4096):
    prompt, right, wrong = draw()
    better, worse = ([{"role": "assistant", "content": answer}] for answer in (right, wrong))
    pairs.append({"prompt": prompt, "chosen": better, "rejected": worse})
write("chats.jsonl", chats)
write("pairs.jsonl", pairs)
print((FOLDER / "pairs.jsonl").read_text().partition("\n")[0])

# %% [markdown]
# ## The pipeline
#
# Each stage starts from the weights of the one before. `weights: {right: 0.0}` removes the game's own reward; KL to the
# SFT weights is measured and costs a little.

# %%
PIPELINE = f"""\
name: data-to-policy
precision: fp32
threads: 1
game:
  name: reasoning
  options:
    task: {{chain_sum: {{min_terms: 2, max_terms: 2, min_digits: 1, max_digits: 1}}}}
    split: all
    illegal: end
policies:
  solver: {{model: nano}}
seats:
  solver: {{role: nano_solver, policy: solver}}
stages:
  - sft: {{policy: solver, data: {FOLDER}/chats.jsonl, epochs: 2, batch: 64, lr: 3e-3}}
  - reward_model: {{policy: solver, data: {FOLDER}/pairs.jsonl, epochs: 6, batch: 64, iterations: 3, lr: 1e-3}}
  - name: rl
    play:
      iterations: 20
      play: {{matches: 96, group: 4, in_flight: 96}}
      policies: {{solver: {{reference: "stage:sft"}}}}
      credit:
        stages: [{{reward_model: {{model: "stage:reward_model"}}}}]
        weights: {{right: 0.0}}
        estimator: grpo
      learn: {{lr: 3e-4, minibatches: 2, regularisers: {{kl: {{weight: 0.02}}}}, token_budget: 8192}}
"""
(FOLDER / "pipeline.yaml").write_text(PIPELINE)
RUN = FOLDER / "run"
command = [
    sys.executable,
    "-m",
    "arena",
    "run",
    "selfplay",
    "--config",
    str(FOLDER / "pipeline.yaml"),
    "--out",
    str(RUN),
]
told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
print(told[told.find("stage   kind") :].partition("\n\n")[0])

# %% [markdown]
# ## Imitation and reward model
#
# Every stage is a run, and `analysis` reads them all. The reward model is judged on pairs whose prompts it never saw.

# %%
# %matplotlib inline
sft, judge, rl = (analysis.load(folder) for folder in sorted((RUN / "stages").iterdir()))
sft.iterations[["iteration", "learn.solver.loss", "learn.solver.held_out_perplexity"]].dropna().round(2)

# %%
names = ["accuracy", "held_out_accuracy", "held_out_margin", "held_out_calibration"]
judge.iterations.set_index("iteration")[[f"learn.reward_model.{name}" for name in names]].round(2)

# %% [markdown]
# ## Play for the learned reward
#
# The score (`value`), the true outcome (`payoff`), their agreement over pairs of matches, and the distance from the SFT
# weights. `arena report` draws the first two over the last. `alarm` is 1 if the score rises while the payoff falls.

# %%
figures = ["value", "payoff", "agreement", "alarm"]
columns = [*(f"reward_model.learned.{name}" for name in figures), "learn.solver.kl"]
rl.iterations.set_index("iteration")[columns].round(2)

# %%
plots.curves(rl, ["reward_model.learned.value", "reward_model.learned.payoff", "learn.solver.kl"])

# %%
first, last = rl.matches["iteration"].min(), rl.matches["iteration"].max()
before, after = (rl.seats.loc[rl.seats["iteration"] == k, "payoff"] for k in (first, last))
change = difference_ci(before, after)
print(f"right answers, iteration {first} to {last}: {change.estimate:+.2f} [{change.low:+.2f}, {change.high:+.2f}]")
print(plots.dialogue(rl, rl.matches["match"].iloc[-1]))
