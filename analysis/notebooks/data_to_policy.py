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
# Three stages of one pipeline, for a model of 0.9M parameters that is to say the larger of two digits: imitate a data
# set with mistakes (SFT), learn from pairs which of two answers is better (reward model), and play for the reward
# model's score. The true outcome pays nothing, so that it shows whether the reward model leads anywhere.

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
# `chats.jsonl` has chats in the usual `messages` format. Six answers in ten are wrong. `pairs.jsonl` has a right and a
# wrong answer to each of its prompts. `tasks.jsonl` has what is played later, with a function that knows the answer and
# a role that asks as the data sets do.

# %%
rng = np.random.default_rng(0)


def draw() -> tuple[list[dict[str, str]], str, str]:
    """Return the prompt of a random task, its answer, and another digit."""
    a, b = (int(digit) for digit in rng.integers(10, size=2))
    wrong = (max(a, b) + int(rng.integers(1, 10))) % 10
    prompt = [{"role": "system", "content": "solver"}, {"role": "user", "content": f"{a} {b} ="}]
    return prompt, str(max(a, b)), str(wrong)


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Write a data set as JSON Lines."""
    (FOLDER / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


chats = []
for _ in range(2048):
    prompt, right, wrong = draw()
    chats.append({"messages": [*prompt, {"role": "assistant", "content": right if rng.random() < 0.4 else wrong}]})
pairs = []
for _ in range(2048):
    prompt, right, wrong = draw()
    better, worse = ([{"role": "assistant", "content": answer}] for answer in (right, wrong))
    pairs.append({"prompt": prompt, "chosen": better, "rejected": worse})
write("chats.jsonl", chats)
write("pairs.jsonl", pairs)
write("tasks.jsonl", [{"task": f"{a} {b} =", "answer": str(max(a, b))} for a in range(10) for b in range(10)])
(FOLDER / "score.py").write_text("def score(row, answer):\n    return float(answer.strip() == row['answer'])\n")
(FOLDER / "larger.yaml").write_text("""\
role: larger
system: solver
turn: "{{ messages[0].text }}"
reply: {format: free}
sampling: {temperature: 1.0, max_tokens: 4}
""")
print((FOLDER / "pairs.jsonl").read_text().partition("\n")[0])

# %% [markdown]
# ## The pipeline
#
# Each stage starts from the weights of the one before. `weights: {reward: 0.0}` removes the true reward; KL to the SFT
# weights is measured and costs a little.

# %%
PIPELINE = f"""\
name: data-to-policy
precision: fp32
threads: 1
game: {{name: tasks, options: {{file: {FOLDER}/tasks.jsonl, reward: "{FOLDER}/score.py:score"}}}}
policies:
  solver: {{model: nano}}
seats:
  agent: {{role: {FOLDER}/larger.yaml, policy: solver}}
stages:
  - sft: {{policy: solver, data: {FOLDER}/chats.jsonl, epochs: 3, batch: 64, lr: 3e-3}}
  - reward_model: {{policy: solver, data: {FOLDER}/pairs.jsonl, epochs: 4, batch: 64, iterations: 2, lr: 1e-3}}
  - name: rl
    play:
      iterations: 12
      play: {{matches: 128, group: 4, in_flight: 128}}
      policies: {{solver: {{reference: "stage:sft"}}}}
      credit:
        stages: [{{reward_model: {{model: "stage:reward_model"}}}}]
        weights: {{reward: 0.0}}
        estimator: grpo
      learn: {{lr: 1e-3, minibatches: 2, regularisers: {{kl: {{weight: 0.02}}}}, token_budget: 8192}}
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
