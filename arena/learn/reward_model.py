"""Reward models: a causal language model's body with a scalar head that scores a conversation by its last token.

A folder has the layout of transformers' sequence classification with one label, which TRL's RewardTrainer also reads
and writes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agents.errors import WeightsError
from agents.layouts import is_vision_config
from agents.model_config import read_json
from agents.model_folder import convert_errors, import_auto_scorer, load_model, silence_transformers
from agents.policy import load_module, load_tokenizer_and_frame
from agents.scoring import pack
from agents.stream import OBSERVED, Stream
from agents.weights import resolve_base
from arena.learn.scalar_head import Floats, ScalarHead, create_zero_head

_ARCHITECTURE = "ForSequenceClassification"


class RewardModel:
    """Language model with a scalar head, which scores a stream by its last token, and the model's tokenizer."""

    def __init__(self, model: Any, tokenizer: Any, bf16: bool = False) -> None:
        """Wrap a sequence classification model of transformers with one label."""
        self.module, self.tokenizer = ScalarHead(model, model.score, bf16), tokenizer

    @classmethod
    def load(cls, folder: Path, bf16: bool = False) -> RewardModel:
        """Load the reward model in a folder, or create one from a language model's body and a head of zeros.

        Raises WeightsError if the folder is invalid, or its kind of model cannot score.
        """
        tokenizer, frame = load_tokenizer_and_frame(folder)
        if is_reward_model(folder):
            model = load_model(folder, scores=True)
            model = model.cuda() if torch.cuda.is_available() else model
        else:
            model = _create_from_policy(resolve_base(folder))
        if not isinstance(getattr(model, "score", None), torch.nn.Linear):
            raise WeightsError(f"{folder}: its kind of model has no linear head to score with: choose another model")
        tokenizer = deepcopy(tokenizer)  # the policies share it
        _set_padding(model, tokenizer, frame.stop_ids)
        return cls(model, tokenizer, bf16)

    def save(self, folder: Path) -> None:
        """Write weights and tokenizer in Hugging Face layout."""
        with silence_transformers():
            self.module.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def score(self, streams: Sequence[Stream], token_budget: int) -> Floats:
        """Return the score of each stream, without gradient. Raises ValueError for an empty stream or images."""
        ends = [append_score_token(stream) for stream in streams]
        return np.concatenate([np.zeros(0, np.float32), *self.module.predict(ends, token_budget)])

    def __call__(self, ends: Sequence[Stream], token_budget: int) -> torch.Tensor:
        """Return the score of each stream that `append_score_token` made, with gradients, [len(ends)] float32."""
        index, scores = list[int](), list[torch.Tensor]()
        for batch in pack(ends, [1.0] * len(ends), token_budget, costs=self.module.costs):
            index += batch.index
            scores.append(self.module(batch.to(self.module.device)))
        return torch.cat(scores)[torch.tensor(index, device=self.module.device).argsort()]


def append_score_token(stream: Stream) -> Stream:
    """Return a stream with one more token, its only sampled one, so that its score is the state after the last token.

    That token's id has no effect. Raises ValueError for an empty stream or images, which no reward model sees.
    """
    if not stream.ids or stream.media:
        raise ValueError("a reward model reads text of at least one token, without images")
    count = len(stream)
    return Stream([*stream.ids, 0], [False] * count + [True], [0.0] * (count + 1), [OBSERVED] * count + [0])


def is_reward_model(folder: Path) -> bool:
    """Return True if a folder's config.json describes a sequence classifier. Raises WeightsError without that file."""
    kinds = read_json(resolve_base(folder), "config.json").get("architectures")
    return isinstance(kinds, list) and any(str(kind).endswith(_ARCHITECTURE) for kind in kinds)


def bradley_terry(chosen: torch.Tensor, rejected: torch.Tensor, margins: torch.Tensor) -> torch.Tensor:
    """Return -log σ(chosen - rejected - margin) of each pair of scores, [P]."""
    return -torch.nn.functional.logsigmoid(chosen - rejected - margins)


def logistic(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy -y log σ(s) - (1 - y) log σ(-s) of each score s with its label y in [0, 1], [M]."""
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, labels, reduction="none")


def squared_error(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return ½ (score - label)² of each score, [M]."""
    return 0.5 * (scores - labels).square()


def _create_from_policy(folder: Path) -> Any:
    """Return a sequence classification model with the body of the folder's language model and a head of zeros."""
    if is_vision_config(read_json(folder, "config.json")):
        raise WeightsError(f"{folder} has vision, and reward models read text only: choose another model")
    language = load_module(folder)
    config = deepcopy(language.config)
    config.num_labels = 1
    with convert_errors(folder), torch.device("meta"):
        model = import_auto_scorer().from_config(config)
    setattr(model, model.base_model_prefix, language.base_model)
    model.score = create_zero_head(model.base_model, bias=False)
    return model.eval()


def _set_padding(model: Any, tokenizer: Any, stop_ids: Collection[int]) -> None:
    """Choose a padding token that ends no reply: transformers scores the last token that is not padding."""
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id in stop_ids:
        unused = [i for i in tokenizer.all_special_ids if i not in stop_ids]
        if unused:
            tokenizer.pad_token = tokenizer.convert_ids_to_tokens(unused[-1])
    model.config.pad_token_id = tokenizer.pad_token_id
