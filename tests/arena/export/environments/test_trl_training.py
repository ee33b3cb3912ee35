"""TRL's GRPOTrainer trains a nano model, whose own tool calls play a game through the exported environment."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.nano import build_nano
from tests.factories.environments import written

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


@pytest.mark.slow
def test_grpo_trains_on_kuhn_poker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    module = written("kuhn_poker", "trl", tmp_path / "env")
    model, tokenizer = caller(tmp_path / "nano")
    imitate(model, tokenizer, module)
    trainer = trl.GRPOTrainer(
        model=model,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "trl"), max_steps=2, per_device_train_batch_size=8, num_generations=4,
            max_completion_length=200, max_tool_calling_iterations=4, learning_rate=1e-3, bf16=False, use_cpu=True,
            gradient_checkpointing=False, report_to=[], logging_steps=1, save_strategy="no", disable_tqdm=True, seed=0,
        ),
        train_dataset=Dataset.from_list(module.rows(range(8))),
        environment_factory=module.Environment,
        processing_class=tokenizer,
    )  # fmt: skip
    before = [weights.detach().clone() for weights in model.parameters()]
    trainer.train()
    logged = [row for row in trainer.state.log_history if "reward" in row]
    assert len(logged) == 2
    for row in logged:
        assert row["tools/call_frequency"] > 0.5 and row["tools/failure_frequency"] == 0, "the model calls `act`"
        assert -3 <= row["reward"] == row["rewards/GameEnvironment/mean"] <= 2
    assert any(row["reward_std"] > 0 and row["grad_norm"] > 0 for row in logged)
    last = [environment.get_reward() for environment in trainer.environments]
    assert logged[-1]["reward"] == pytest.approx(sum(last) / len(last)), "the payoffs arrive"
    played = [environment._episode for environment in trainer.environments]
    assert [episode.seed for episode in played] == [played[0].seed] * 4 + [played[4].seed] * 4, "a group, a deal"
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert any(changed)


def caller(folder: Path) -> tuple[Any, Any]:
    """Return a nano model and a tokenizer in which a call's beginning and end are a token each."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    build_nano(folder)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([OPEN, CLOSE])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE
    return model, tokenizer


def imitate(model: Any, tokenizer: Any, module: Any, steps: int = 60) -> None:
    """Teach the model to call `act` with PASS or BET at a first observation."""
    optimizer, environment = torch.optim.AdamW(model.parameters(), lr=2e-3), module.Environment()
    for step in range(steps):
        (row,) = module.rows([step % 4])
        prompt = row["prompt"][0]["content"] + environment.reset(**row)
        message = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=False)
        reply = tokenizer.encode(f"{OPEN}{('PASS', 'BET')[step // 4 % 2]}{CLOSE}<|im_end|>", add_special_tokens=False)
        given = torch.tensor([[*ids, *reply]])
        labels = torch.where(torch.arange(given.shape[1]) < len(ids), -100, given)
        model(input_ids=given, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
