"""TRL's GRPOTrainer as a peer process of against_trl.py that takes one step per request.

The first request has the model, prompt and sizes. The answer, sent when the trainer is ready, has TRL's settings.
"""

import tempfile
from importlib.metadata import version
from typing import Any

import torch
import transformers
from datasets import Dataset
from peer_process import PeerChannel, Stopwatch
from trl import GRPOConfig, GRPOTrainer

WEIGHTS = {"autocast": "float32", "fp32": "float32", "bf16 weights": "bfloat16"}
"""Data type of the weights by setting. `autocast` computes in bf16 over float32 weights, as Arena does."""


class StepOnRequest(transformers.TrainerCallback):  # type: ignore[misc]  # transformers are not checked
    """Trainer callback that waits for a request before each step."""

    def __init__(self, channel: PeerChannel) -> None:
        self.line = channel

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Wait for the first request."""
        self._await(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Answer with the step's time (prompt, generation, rewards, reference, update), then wait for a request."""
        self.line.send(**self.watch.read())
        self._await(control)

    def _await(self, control: Any) -> None:
        if self.line.receive() is None:
            control.should_training_stop = True
        self.watch = Stopwatch()


def make_settings(request: dict[str, Any]) -> dict[str, Any]:
    """Return GRPOConfig settings as a user would choose them for speed, with enough memory."""
    return {
        "use_cpu": not torch.cuda.is_available(),
        "bf16": request["setting"] == "autocast",
        "gradient_checkpointing": False,
        "per_device_train_batch_size": request["rows"],
        "num_generations": request["rows"],
        "gradient_accumulation_steps": 1,
        "num_iterations": 1,
        "max_completion_length": request["tokens"],
        "temperature": 1.0,
        "generation_kwargs": {"eos_token_id": None},
        "beta": request["beta"],
        "optim": "adamw_torch_fused",
        "learning_rate": request["lr"],
        "adam_beta1": request["betas"][0],
        "adam_beta2": request["betas"][1],
        "weight_decay": 0.0,
        "max_grad_norm": request["grad_clip"],
        "lr_scheduler_type": "constant",
        "max_steps": request["steps"],
        "report_to": [],
        "logging_strategy": "no",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": request["seed"],
    }


def reward_by_characters(completions: list[str], **more: Any) -> list[float]:
    """Return cheap rewards that differ between completions, so that advantages are not zero."""
    return [float(sum(map(ord, text)) % 97) for text in completions]


def main() -> None:
    """Build the trainer, then take a step per request."""
    channel = PeerChannel()
    if (request := channel.receive()) is None:
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["model"])
    prompt = tokenizer.decode(request["prompt"])
    if tokenizer(prompt)["input_ids"] != request["prompt"]:
        raise SystemExit("TRL tokenizes the prompt to other ids: the comparison would not be fair")
    settings = make_settings(request)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=request["model"],
            reward_funcs=reward_by_characters,
            args=GRPOConfig(folder, model_init_kwargs={"dtype": WEIGHTS[request["setting"]]}, **settings),
            train_dataset=Dataset.from_list([{"prompt": prompt}] * request["rows"]),
            processing_class=tokenizer,
            callbacks=[StepOnRequest(channel)],
        )
        trainer.eos_token_ids = [-1]  # completions count to their last token, as in Arena
        versions = {name: version(name) for name in ("trl", "transformers", "accelerate", "torch")}
        channel.send(settings=settings, versions=versions, threads=torch.get_num_threads())
        trainer.train()


if __name__ == "__main__":
    main()
