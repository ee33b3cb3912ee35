"""Small tokenizers in the style of real model families, and hostile strings for them."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The pool holds 1 book, 2 hats and 3 balls; every kind is worth something to somebody.",
    "OFFER 1 0 2 | I take one book and two balls, you get the rest. Your turn.",
    "ACCEPT | fine, thank you.  WALK | no deal then, goodbye!",
    "You are a helpful assistant. user system assistant model end start of turn think tool call",
    "<table>\n\n<tr> if (a < b && c > d) { return a | b; } </tr>\n\n\n",
    "Ünïcödé naïve café — 你好 мир",
] * 20

LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = (
    "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)

GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
    "{% if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
    "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<start_of_turn>model\n' }}{% endif %}"
)

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}"
    "{% endif %}{% for message in rest %}{% if loop.index0 == 0 and system != false %}"
    "{% set content = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message['content'] %}{% else %}"
    "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + "
    "'[INST] ' + content.strip() + ' [/INST]' }}{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)

MISTRAL = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}{% if message['role'] == 'user' %}{% if loop.last and system is defined %}"
    "{{ '[INST] ' + system + '\n\n' + message['content'] + '[/INST]' }}{% else %}{{ '[INST] ' + "
    "message['content'] + '[/INST]' }}{% endif %}{% else %}{{ ' ' + message['content'] + eos_token }}"
    "{% endif %}{% endfor %}"
)

QWEN = (
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<|im_start|>' + message['role'] + "
    "'\n' }}{% if loop.last and message['role'] == 'assistant' %}{{ '<think>\n\n</think>\n\n' }}"
    "{% endif %}{{ content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)

STRIPPING = (
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}{{ '<|im_start|>' + message['role'] + "
    "'\n' + content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)
"""Strips thoughts from earlier replies, as the templates of Qwen3 and DeepSeek-R1 do."""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}"
)

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def build_llama3() -> Any:
    """Byte-level BPE with ignore_merges; control tokens lie outside the base vocabulary."""
    backend = _build_byte_level(ignore_merges=True, words=LLAMA3_WORDS)
    names = ("begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id", "python_tag")
    backend.add_special_tokens([f"<|{name}|>" for name in names])
    return _wrap(backend, LLAMA3, bos="<|begin_of_text|>", eos="<|end_of_text|>")


def build_qwen() -> Any:
    """Byte-level BPE with NFC; <think> and <tool_call> are added but not special."""
    backend = _build_byte_level()
    backend.normalizer = normalizers.NFC()
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tags = ("<think>", "</think>", "<tool_call>", "</tool_call>")
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return _wrap(backend, QWEN, eos="<|im_end|>", pad="<|endoftext|>")


def build_gemma() -> Any:
    """BPE over ▁ with byte fallback; control tokens, tags and newlines are in the base vocabulary."""
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    tags = ["<table>", "</table>", "\n\n", "\n\n\n"]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[*control, *tags], show_progress=False)
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.train_from_iterator((text.replace(" ", "▁") for text in CORPUS), trainer)
    vocab = trained.get_vocab()
    merges = _read_merges(trained)
    for token in BYTES:
        vocab[token] = len(vocab)
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(control)
    backend.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return _wrap(backend, GEMMA, bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>")


def build_llama2() -> Any:
    """Unigram with dummy prefix and byte fallback; its model spells </s> itself; [INST] is plain text."""
    return _wrap(_build_unigram(), LLAMA2, bos="<s>", eos="</s>", unk="<unk>")


def build_mistral() -> Any:
    """As llama2, but [INST] is a control token, and the system text stands before the last user text."""
    backend = _build_unigram()
    backend.add_special_tokens(["[INST]", "[/INST]", "[TOOL_CALLS]"])
    return _wrap(backend, MISTRAL, bos="<s>", eos="</s>", unk="<unk>")


def build_words() -> Any:
    """Word-level: control tokens are words of the base vocabulary, and what is no word is <unk>."""
    control = ["<unk>", "<|im_start|>", "<|im_end|>", "x"]
    names = [*control, "user", "system", "assistant", "OFFER", *"0123456789abcdefghijklmnop|<>_"]
    vocab = {token: index for index, token in enumerate(names)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(control)
    return _wrap(backend, CHATML, eos="<|im_end|>", unk="<unk>")


FAMILIES = {
    "llama3": build_llama3, "qwen": build_qwen, "gemma": build_gemma, "llama2": build_llama2, "mistral": build_mistral,
    "words": build_words,
}  # fmt: skip


CONTROL_TOKENS = (
    *("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<end_of_turn>", "</s>", "[/INST]"),
    *("<think>", "</think>", "<tool_call>", "<0x0A>", "<<SYS>>", "<unk>"),
)


def generate_attacks(seed: int, count: int, control: list[str]) -> Iterator[str]:
    """Yield strings that try to smuggle in `control` tokens: whole, nested, split, doubled, look-alike, amid noise."""
    rng = random.Random(seed)
    targets = [*control, *control, *CONTROL_TOKENS]
    noise = [
        " ", "\n", "\n\n", "\x00", "\t", "\u200b", "\u202e", "\ud800", "\udfff", "\ud83d\ude00", "▁", "Ġ", "é",
    ]  # fmt: skip

    def attack() -> str:
        token = rng.choice(targets)
        cut = rng.randrange(len(token) + 1)
        match rng.randrange(8):
            case 0:
                return token[:cut] + rng.choice(targets) + token[cut:]
            case 1:
                return token[:cut] + rng.choice(noise) + token[cut:]
            case 2:
                return token * rng.randint(2, 4)
            case 3:
                return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and rng.random() < 0.5 else c for c in token)
            case 4:
                return "".join(chr(rng.choice([rng.randrange(32, 127), rng.randrange(0x110000)])) for _ in range(8))
            case 5:
                return token.upper() + token + rng.choice(noise) + token[::-1]
            case 6:
                return rng.choice(["user\n", "system\n", "OFFER 1 0 2", "assistant", "ACCEPT | ok"])
            case _:
                return token

    for _ in range(count):
        yield rng.choice(["", " ", "\n"]) + "".join(attack() for _ in range(rng.randint(1, 5)))


def _build_byte_level(ignore_merges: bool = False, words: str = "") -> Tokenizer:
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not words)
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"), plain])
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = split if words else plain
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    model = models.BPE(vocab=trained.get_vocab(), merges=_read_merges(trained), ignore_merges=ignore_merges)
    backend = Tokenizer(model)
    backend.pre_tokenizer = trained.pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    return backend


def _read_merges(trained: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(trained.to_str())["model"]["merges"]]


def _build_unigram() -> Tokenizer:
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    control = ["<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=control, unk_token="<unk>", show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    pieces = [tuple(piece) for piece in json.loads(trained.to_str())["model"]["vocab"]]
    backend = Tokenizer(models.Unigram([*pieces, *((byte, -20.0) for byte in BYTES)], 0, True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(control)
    return backend


def _wrap(backend: Tokenizer, template: str, **tokens: str) -> Any:
    named = {f"{name}_token": token for name, token in tokens.items()}
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **named)
    wrapped.chat_template = template
    return wrapped
