"""Nano policies: random Llama models of about one and five million parameters, with a tokenizer for terse games.

They are generated from a seed, so that learning from scratch can be watched within a minute of CPU time. The tokenizer
knows the words of terse prompts (`OFFER 1 0 2` is four tokens) and all bytes, so every text survives a round trip.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
END, PAD = "<|im_end|>", "<|pad|>"

TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|im_end|>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
"""Minimal chat template: one token opens a turn, and one more ends a reply."""

ACTS = "offer accept walk bet check call raise fold pass cooperate defect hit stand ask answer yes no"
WORDS = """
pool value values worth total turn turns left last first second next they you your me my we it them he she
take takes took get gets give gives keep want need have has rest deal none not illegal legal invalid act acts
retry again move moves play player opponent opener responder buyer seller proposer solver referee rules rule
say says said reply with one two three line only items item books book hats hat balls ball of the an and or to
is are in on for at by be if then each kind kinds points point score win wins lose loses draw end ends over
out offers offered accepted walks walked share split fair price budget cost card cards jack queen king board
row column up down right true false good bad more less all some thanks please hello ok now what how who this
that will can must may think talk public private system user assistant game match round rounds start
penalty reward
"""

SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


EMBEDDING = 0.05
"""Standard deviation of token embeddings: large enough beside the layers' outputs, with nearly uniform logits."""


class Nano(NamedTuple):
    """A size of nano policies: model shape and number of parameters."""

    shape: Mapping[str, Any]
    """Arguments of a transformers LlamaConfig."""
    parameters: int

    @property
    def recipe(self) -> str:
        """Hash (8 hex digits) of what all policies of this size share. A folder with another hash is rebuilt."""
        definition = [ROLES, TEMPLATE, ACTS, WORDS, self.shape, EMBEDDING]
        return sha256(json.dumps(definition).encode()).hexdigest()[:8]


WIDER: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4,
}  # fmt: skip
SIZES: Mapping[str, Nano] = {"nano": Nano(SHAPE, 873_984), "nano5m": Nano({**SHAPE, **WIDER}, 4_894_720)}
NAME = re.compile(rf"({'|'.join(SIZES)})(?:-(0|[1-9]\d{{0,8}}))?")


def parse_name(name: str) -> tuple[Nano, int] | None:
    """Return the size and seed in a nano policy's name, such as `nano-7` (default seed 0); None for other names."""
    match = NAME.fullmatch(name)
    return None if match is None else (SIZES[match[1]], int(match[2] or 0))


def build_nano(folder: Path, seed: int = 0, size: Nano = SIZES["nano"]) -> None:
    """Write a nano model, drawn from `seed`, and its tokenizer to `folder`. The global random state does not change."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = build_nano_tokenizer()
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    ends = {"eos_token_id": end, "pad_token_id": pad, "bos_token_id": None}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size.shape, **ends))
        _draw_weights(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _draw_weights(model: Any) -> None:
    """Draw weights with a standard deviation by fan-in, and smaller at the layers' outputs in deeper models.

    Imitation learns faster than with 0.02 for all weights.
    """
    import torch

    depth = (2 * model.config.num_hidden_layers) ** -0.5
    for name, weight in model.named_parameters():
        if "embed" in name:
            torch.nn.init.normal_(weight, std=EMBEDDING)
        elif weight.dim() == 2:
            last = "o_proj" in name or "down_proj" in name
            torch.nn.init.normal_(weight, std=(depth if last else 1.0) * weight.shape[1] ** -0.5)


def build_nano_tokenizer() -> Any:
    """Build the nano policies' tokenizer: `ACTS`, `WORDS` and digits, with or without a blank, and bytes."""
    return build_tokenizer(_build_vocabulary(), TEMPLATE, SHAPE["max_position_embeddings"])


def build_tokenizer(vocabulary: Mapping[str, int], template: str, positions: int) -> Any:
    """Build a tokenizer of whole words and single digits, each with or without a blank before it, and of bytes.

    `vocabulary` maps byte-level tokens to ids. Other words become bytes.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE(vocab=dict(vocabulary), merges=[], ignore_merges=True))
    words = pre_tokenizers.Split(Regex(r" ?\p{L}+| ?\d| ?[^\s\p{L}\d]|\s"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(ROLES),
        chat_template=template,
        clean_up_tokenization_spaces=False,
        model_max_length=positions,
    )


def _build_vocabulary() -> dict[str, int]:
    words = [*ACTS.split(), *ACTS.upper().split(), *WORDS.split()]
    return assign_ids(words, ["|", "=", "+", "-", *"0123456789", *words])


def assign_ids(words: Sequence[str], after_blanks: Sequence[str]) -> dict[str, int]:
    """Return the id of each token: bytes, then `words`, then `after_blanks` with a blank ("Ġ" at byte level) before."""
    from tokenizers import pre_tokenizers

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *words, *("Ġ" + word for word in after_blanks)]
    return {token: index for index, token in enumerate(tokens)}
