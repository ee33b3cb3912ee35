"""TRL's GRPOTrainer as a neighbour: every question is one step of it. Started by against_trl.py.

The first question says what is trained on what; its answer is what TRL was set to, once it is ready.
"""

import tempfile
from importlib.metadata import version
from typing import Any

import torch
import transformers
from datasets import Dataset
from peer_process import Line, Stopwatch
from trl import GRPOConfig, GRPOTrainer

WEIGHTS = {"autocast": "float32", "fp32": "float32", "bf16 weights": "bfloat16"}
"""By setting. Only `autocast` computes in bf16 over weights and optimiser states in float32, as we do."""


class Turns(transformers.TrainerCallback):  # type: ignore[misc]  # transformers are not checked
    """Holds the trainer before each step until it is asked for."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Ready for the first one."""
        self._await(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The time runs from the question: loading the prompt, generation, rewards, reference, update."""
        self.line.say(**self.watch.read())
        self._await(control)

    def _await(self, control: Any) -> None:
        if self.line.hear() is None:
            control.should_training_stop = True
        self.watch = Stopwatch()


def settings(asked: dict[str, Any]) -> dict[str, Any]:
    """GRPOConfig's: as a user would set them for speed where memory is no matter."""
    return {
        "use_cpu": not torch.cuda.is_available(),
        "bf16": asked["setting"] == "autocast",
        "gradient_checkpointing": False,
        "per_device_train_batch_size": asked["rows"],
        "num_generations": asked["rows"],
        "gradient_accumulation_steps": 1,
        "num_iterations": 1,
        "max_completion_length": asked["tokens"],
        "temperature": 1.0,
        "generation_kwargs": {"eos_token_id": None},
        "beta": asked["beta"],
        "optim": "adamw_torch_fused",
        "learning_rate": asked["lr"],
        "adam_beta1": asked["betas"][0],
        "adam_beta2": asked["betas"][1],
        "weight_decay": 0.0,
        "max_grad_norm": asked["grad_clip"],
        "lr_scheduler_type": "constant",
        "max_steps": asked["steps"],
        "report_to": [],
        "logging_strategy": "no",
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": asked["seed"],
    }


def vary(completions: list[str], **more: Any) -> list[float]:
    """A reward that costs nothing and differs, so that advantages do."""
    return [float(sum(map(ord, text)) % 97) for text in completions]


def main() -> None:
    """Build, then step whenever asked."""
    line = Line()
    if (asked := line.hear()) is None:
        return
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked["model"])
    prompt = tokenizer.decode(asked["prompt"])
    if tokenizer(prompt)["input_ids"] != asked["prompt"]:
        raise SystemExit("the prompt is not read back as the same ids: no fair comparison")
    chosen = settings(asked)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=asked["model"],
            reward_funcs=vary,
            args=GRPOConfig(folder, model_init_kwargs={"dtype": WEIGHTS[asked["setting"]]}, **chosen),
            train_dataset=Dataset.from_list([{"prompt": prompt}] * asked["rows"]),
            processing_class=tokenizer,
            callbacks=[Turns(line)],
        )
        trainer.eos_token_ids = [-1]  # every completion counts to its last token, as ours do
        versions = {name: version(name) for name in ("trl", "transformers", "accelerate", "torch")}
        line.say(settings=chosen, versions=versions, threads=torch.get_num_threads())
        trainer.train()


if __name__ == "__main__":
    main()
