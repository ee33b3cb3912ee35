"""TRL's GRPOTrainer trains a nano model whose tool calls play a game through the exported environment."""

import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from agents.nano import build_nano
from tests.factories.environments import export_environment

OPEN, CLOSE = '<call>{"name": "act", "arguments": {"act": "', '"}}</call>'
TEMPLATE = (
    "{% for m in messages %}{{ '<|user|>' if m.role == 'tool' else '<|' + m.role + '|>' }}{{ m.content }}"
    "{% for call in m.tool_calls or [] %}"
    """{{ '<call>{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson }}"""
    "{{ '}</call>' }}{% endfor %}{% if m.role == 'assistant' %}{{ '<|im_end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Chat template with calls but without definitions of tools, so that prompts stay short."""
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<call>", "close_pattern": "</call>", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>", "content": "text"},
    },
}  # fmt: skip


def make_trainer(module: ModuleType, folder: Path, acts: tuple[str, str], steps: int, batch: int, lr: float) -> Any:
    """Return a GRPOTrainer of a nano model that has imitated calls of `act` with two acts."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    logging.getLogger("transformers").setLevel(logging.ERROR)
    model, tokenizer = make_model(folder / "nano")
    imitate(model, tokenizer, module, acts)
    return trl.GRPOTrainer(
        model=model,
        args=trl.GRPOConfig(
            output_dir=str(folder / "trl"), max_steps=steps, per_device_train_batch_size=batch,
            num_generations=batch // 2, max_completion_length=200, max_tool_calling_iterations=4, learning_rate=lr,
            bf16=False, use_cpu=True, gradient_checkpointing=False, report_to=[], logging_steps=1, save_strategy="no",
            disable_tqdm=True, seed=0, lr_scheduler_type="constant",
        ),
        train_dataset=Dataset.from_list(module.rows(range(8))),
        environment_factory=module.Environment,
        processing_class=tokenizer,
    )  # fmt: skip


@pytest.mark.slow
def test_grpo_learns_to_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    options = (
        "--option",
        "rounds=1",
        "--against",
        "first_legal",
    )  # it always cooperates: 5 for COOPERATE, 10 for DEFECT
    module = export_environment("prisoners_dilemma", "trl", tmp_path / "env", *options)
    trainer = make_trainer(module, tmp_path, ("COOPERATE", "DEFECT"), steps=16, batch=16, lr=3e-4)
    trainer.train()
    rewards = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    print("rewards by step:", [round(reward, 1) for reward in rewards])
    first, last = sum(rewards[:4]) / 4, sum(rewards[-4:]) / 4
    assert first < 9 and last > first + 0.5 and last > 9, (first, last)


@pytest.mark.slow
def test_grpo_trains_on_kuhn_poker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    module = export_environment("kuhn_poker", "trl", tmp_path / "env")
    trainer = make_trainer(module, tmp_path, ("PASS", "BET"), steps=2, batch=8, lr=1e-3)
    model = trainer.model
    before = [weights.detach().clone() for weights in model.parameters()]
    trainer.train()
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert len(logged) == 2
    for row in logged:
        assert row["tools/call_frequency"] > 0.5 and row["tools/failure_frequency"] == 0, "the model calls `act`"
        assert -3 <= row["reward"] == row["rewards/GameEnvironment/mean"] <= 2
    assert any(row["reward_std"] > 0 and row["grad_norm"] > 0 for row in logged)
    last = [environment.get_reward() for environment in trainer.environments]
    assert logged[-1]["reward"] == pytest.approx(sum(last) / len(last)), "rewards are the payoffs"
    episodes = [environment._episode for environment in trainer.environments]
    assert [episode.seed for episode in episodes] == [episodes[0].seed] * 4 + [episodes[4].seed] * 4, (
        "one deal per group"
    )
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert any(changed)


def make_model(folder: Path) -> tuple[Any, Any]:
    """Return a nano model and a tokenizer that has one token each for the start and the end of a call."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    build_nano(folder)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([OPEN, CLOSE])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE
    return model, tokenizer


def imitate(model: Any, tokenizer: Any, module: ModuleType, acts: tuple[str, str], steps: int = 60) -> None:
    """Teach the model to call `act` with either of the acts at a first observation."""
    optimizer, environment = torch.optim.AdamW(model.parameters(), lr=2e-3), module.Environment()
    for step in range(steps):
        (row,) = module.rows([step % 4])
        prompt = row["prompt"][0]["content"] + environment.reset(**row)
        message = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=False)
        reply = tokenizer.encode(f"{OPEN}{acts[step // 4 % 2]}{CLOSE}<|im_end|>", add_special_tokens=False)
        tokens = torch.tensor([[*ids, *reply]])
        labels = torch.where(torch.arange(tokens.shape[1]) < len(ids), -100, tokens)
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
