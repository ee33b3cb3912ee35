"""What strangers hand over, model folders and role files: played with or refused in one line, and none of their code.

No traceback, no hang of more than ten seconds, no byte of an escape code on the terminal.
"""

import gc
import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.weights import resolve
from tests.factories.commands import arena

ESCAPE = "\x1b[31m\x1b]0;owned\x07\u202e"
LONGEST = 10.0


def judged(begun: float, *arguments: str | Path) -> str:
    """What a command says, after it was looked at."""
    told = arena(*arguments)
    assert time.monotonic() - begun < LONGEST
    assert told.code in (0, 1, 2), told
    assert "Traceback" not in told.out + told.err
    assert not set("\x1b\x07\u202e\u2066\x9b") & set(told.out + told.err), told
    if told.code == 2:
        assert len(told.line) < 900
    return told.err if told.code == 2 else ""


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Everything is imported before any clock runs."""
    assert arena("play", "--game", "kuhn_poker", "--seat", "0=nano", "--seat", "1=random").code == 0


# -- model folders -------------------------------------------------------------------------------------------

EVIL = "import pathlib; pathlib.Path({canary!r}).write_text('ran')\nclass C: pass\nM = T = C\n"
Damage = Callable[[Path], object]


def edits(file: str, **changes: Any) -> Damage:
    """Settings in one of a folder's files; `None` takes one away."""

    def damage(folder: Path) -> None:
        settings = json.loads((folder / file).read_text()) | changes
        (folder / file).write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))

    return damage


def config(**changes: Any) -> Damage:
    return edits("config.json", **changes)


def tokenizer(**changes: Any) -> Damage:
    return edits("tokenizer_config.json", **changes)


def holds(file: str, content: str | bytes) -> Damage:
    return lambda folder: (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())


def template(text: str) -> Damage:
    return holds("chat_template.jinja", text)


def vocabulary(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return damage


def header(entries: Mapping[str, Any], length: int | None = None) -> bytes:
    """A safetensors file of this header."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * 64


PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
DEEP = "[" * 100_000 + "]" * 100_000
FAR = {"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoTokenizer": ["evil.T", None]}}

FOLDERS: dict[str, tuple[Damage, str]] = {
    # code
    "auto_map": (config(**FAR), ""),
    "auto_map of a model of its own": (config(model_type="mine", **FAR), "cannot be loaded"),
    "auto_map elsewhere": (config(auto_map={"AutoConfig": "evil/repo--evil.C"}), ""),
    "auto_map of the tokenizer": (tokenizer(**FAR, tokenizer_class="T"), ""),
    "a kernel for attention": (config(_attn_implementation="evil/kernels"), "_attn_implementation"),
    "a kernel by revision": (config(attn_implementation="evil/kernels@main:layer"), "attn_implementation"),
    "a kernel in a part": (config(text_config={"_attn_implementation": "evil/k"}), "_attn_implementation"),
    "kernels by part": (config(_attn_implementation={"": "sdpa", "text": "evil/k"}), "_attn_implementation"),
    "a kernel for experts": (config(_experts_implementation="evil/kernels"), "_experts_implementation"),
    "use_kernels": (config(use_kernels=True), "use_kernels chooses code"),
    "quantization": (config(quantization_config={"quant_method": "evil"}), "quantization_config chooses code"),
    "quantization by gptq": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "quantization_config"),
    "custom_generate": (edits("generation_config.json", custom_generate="evil/repo"), "custom_generate chooses code"),
    "trust_remote_code": (config(trust_remote_code=True, model_type="mine"), "trust_remote_code chooses code"),
    "an adapter": (holds("adapter_config.json", '{"base_model_name_or_path": "evil/repo"}'), "only LORA"),
    "an own tokenizer class": (tokenizer(tokenizer_class="evil.T"), ""),
    "an unknown model": (config(model_type="evil"), "evil"),
    "pickles": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pickled"),
    # sizes
    "ten million layers": (config(num_hidden_layers=10_000_000), "num_hidden_layers is 10000000"),
    "layers of a float": (config(num_hidden_layers=1e300), "num_hidden_layers is 1e+300"),
    "layers of a text": (config(num_hidden_layers="10000000"), ""),
    "negative layers": (config(num_hidden_layers=-4), "num_hidden_layers is -4"),
    "negative sizes": (config(hidden_size=-128), "hidden_size is -128"),
    "a huge size": (config(hidden_size=10**15), "hidden_size is 1000000000000000"),
    "a size beyond numbers": (config(intermediate_size=10**4000), "intermediate_size"),
    "a huge vocabulary": (config(vocab_size=2**62), "vocab_size"),
    "a negative vocabulary": (config(vocab_size=-1), "vocab_size is -1"),
    "huge positions": (config(max_position_embeddings=2**50), "max_position_embeddings"),
    "no heads": (config(num_attention_heads=0), ""),
    "a size in a part": (config(model_type="gemma3", text_config={"num_hidden_layers": 10**9}), "num_hidden_layers"),
    "no size at all": (config(hidden_size={"a": [1]}), ""),
    "another shape": (config(hidden_size=64), ""),
    "half the layers more": (config(num_hidden_layers=6), ""),
    # files
    "deep config": (holds("config.json", f'{{"model_type": "llama", "x": {DEEP}}}'), "nested too deeply"),
    "rather deep config": (config(x=json.loads("[" * 200 + "]" * 200)), "nested too deeply"),
    "deep tokenizer config": (holds("tokenizer_config.json", f'{{"x": {DEEP}}}'), "nested too deeply"),
    "deep generation config": (holds("generation_config.json", f'{{"x": {DEEP}}}'), "nested too deeply"),
    "deep tokenizer": (holds("tokenizer.json", f'{{"x": {DEEP}}}'), ""),
    "config of another kind": (holds("config.json", "[1]"), "no JSON object"),
    "config of bytes": (holds("config.json", b"\xff\xfe{}"), "cannot be read"),
    "config of NaN": (config(rms_norm_eps=float("nan")), ""),
    "an endless config": (lambda f: os.truncate(f / "config.json", 2**36), "64 MB"),
    "config of escapes": (config(model_type=ESCAPE, architectures=[ESCAPE]), ""),
    "a key of escapes": (config(**{f"{ESCAPE}": ESCAPE}), ""),
    "an index elsewhere": (
        holds("model.safetensors.index.json", '{"weight_map": {"a": "../../../etc/passwd"}}'),
        "which its index names",
    ),
    "an index of escapes": (holds("model.safetensors.index.json", json.dumps({"weight_map": {"a": ESCAPE}})), "index"),
    "an index that is none": (holds("model.safetensors.index.json", '{"weight_map": [1]}'), "no weight_map"),
    "torn weights": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:500]),
        "torn",
    ),
    "weights of a huge header": (holds("model.safetensors", header({}, 2**63)), "torn"),
    "weights of a huge shape": (
        holds("model.safetensors", header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 64]}})),
        "torn",
    ),
    "weights of names of escapes": (
        holds("model.safetensors", header({ESCAPE: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}})),
        "1 tensors of 16",
    ),
    "no weights in weights": (holds("model.safetensors", header({})), ""),
    "a tokenizer of nothing": (holds("tokenizer.json", "{}"), ""),
    "a tokenizer of another kind": (vocabulary(lambda t: t.update(model={"type": "Evil"})), ""),
    "a tokenizer of huge ids": (vocabulary(lambda t: t["added_tokens"][0].update(id=2**31)), ""),
    "a tokenizer of negative ids": (vocabulary(lambda t: t["added_tokens"][0].update(id=-1)), ""),
    # chat templates
    "a template of loops": (
        template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" + PLAIN),
        "needs more",
    ),
    "a template of maxima": (
        template("{% for a in range(99999) %}{% if range(99999) | max %}{% endif %}{% endfor %}" + PLAIN),
        "needs more",
    ),
    "a template of a search": (
        template("{% for a in range(99999) %}{% if 'a' in range(99999) %}{% endif %}{% endfor %}" + PLAIN),
        "needs more",
    ),
    "a template of memory": (template("{% set a = 'a' * 10**11 %}" + PLAIN), "chat template"),
    "a template of a power": (template("{% set a = 9 ** (9 ** 9) %}" + PLAIN), "needs more"),
    "a template of width": (template("{{ 'a' | center(10**12) }}" + PLAIN), "chat template"),
    "a template of recursion": (template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}" + PLAIN), "chat template"),
    "a template of doubling": (
        template(
            "{% set n = namespace(a='aa') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}" + PLAIN
        ),
        "chat template",
    ),
    "a template of internals": (
        template("{{ ''.__class__.__mro__[1].__subclasses__() }}" + PLAIN),
        "chat template refuses plain turns",
    ),
    "a template of escapes": (template("{{ raise_exception('" + ESCAPE + "') }}"), "chat template refuses plain turns"),
    "a template of another kind": (template("{% if %}"), "chat template"),
    "a template that is deep": (template("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}"), "chat template"),
    "a template of nothing": (template(""), ""),
    "a template that leaves turns out": (template("hello"), "chat template"),
}


LONG = {f"a template of {what}" for what in ("maxima", "a search", "doubling", "a power")}
"""Those that are ended when their time is over."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LONG)) for n in FOLDERS])
def test_model_folders(name: str, tmp_path: Path) -> None:
    damage, says = FOLDERS[name]
    folder, canary = tmp_path / "stranger", tmp_path / "ran"
    shutil.copytree(resolve("nano"), folder)
    for file in (
        "evil.py",
        "modeling_evil.py",
        "kernels.py",
        "__init__.py",
        "sitecustomize.py",
        "jinja2.py",
        "json.py",
    ):
        (folder / file).write_text(EVIL.format(canary=str(canary)))
    damage(folder)
    gc.collect()  # or what earlier tests left is finalised in the depths of a recursion, and complains of it
    seats = ("--seat", f"0={folder}", "--seat", "1=random")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # nor is anything taken from where one stands
        told = judged(time.monotonic(), "play", "--game", "kuhn_poker", *seats, "--seed", "1")
    assert says in told and bool(told or not says), told
    assert not canary.exists(), "the folder's code ran"


def test_a_folder_called_by_escapes(tmp_path: Path) -> None:
    folder = tmp_path / f"x{ESCAPE}"
    shutil.copytree(resolve("nano"), folder)
    (folder / "config.json").write_text("[")
    told = judged(time.monotonic(), "play", "--game", "kuhn_poker", "--seat", f"0={folder}", "--seat", "1=random")
    assert "config.json cannot be read" in told


# -- role files ----------------------------------------------------------------------------------------------


def turn(template: str) -> str:
    return json.dumps({"role": "stranger", "turn": template, "system": "{{ rules }} {{ private }}"})


def role(**fields: Any) -> str:
    return json.dumps({"role": "stranger", **fields})


WORK = "{% for i in range(5000) %}X{% endfor %}"
ROLES: dict[str, tuple[str, str]] = {
    "infinity": (turn("{{ '1e999' | float | int }}"), "line 1: cannot convert float infinity"),
    "infinity written": (turn("{{ 1e999 + 1 }}"), "line 1: numbers above"),
    "not a number": (turn("{{ ('1e999' | float) - ('1e999' | float) }}"), ""),
    "a huge number": (turn("{{ " + "9" * 4000 + " * 9 }}"), "numbers above"),
    "maxima": (turn(WORK.replace("X", "{% if range(99999) | max %}{% endif %}")), "steps"),
    "a search": (turn(WORK.replace("X", "{% if 'a' in range(99999) %}{% endif %}")), "steps"),
    "a search without a loop": (turn("{{ 'a' in range(10 ** 15) }}"), ""),
    "nested loops": (turn(WORK.replace("X", WORK)), "steps"),
    "a loop of much": (turn(WORK.replace("X", "{{ '' }}" * 900)), "steps"),
    "filters of filters": (turn(WORK.replace("X", "{% set a = rules" + " | upper" * 60 + " %}")), "steps"),
    "a text times much": (turn("{{ 'a' * 10 ** 9 }}"), "not allowed"),
    "a text of itself": (turn("{% set a = rules %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}"), "not allowed"),
    "rounding": (turn("{{ 1 | round(99999999, 'ceil') }}"), "not allowed in filters"),
    "indenting": (turn("{{ public | tojson(indent=10000000) }}"), "not allowed in filters"),
    "internals": (turn("{{ ''.__class__.__mro__ }}"), "__class__"),
    "globals": (turn("{{ rules.__init__.__globals__ }}"), "__init__"),
    "a file": (turn("{% include '/etc/passwd' %}"), "not allowed"),
    "an import": (turn("{% import 'os' as os %}"), "not allowed"),
    "deep brackets": (turn("{{" + "(" * 3000 + "1" + ")" * 3000 + "}}"), "too deeply nested"),
    "deep ifs": (turn("{% if first %}" * 500 + "{% endif %}" * 500), "too deeply nested"),
    "deep signs": (turn("{{" + "- " * 3000 + "1}}"), "too deeply nested"),
    "deep nots": (turn("{{" + "not " * 3000 + "1}}"), "too deeply nested"),
    "half a tag": (turn("{% if first"), "unexpected end"),
    "a missing fact": (turn("\n\n{{ private.crad }}"), "line 3: there is no 'crad' here — did you mean 'card'"),
    "escapes printed": (turn(ESCAPE + "{{ private.card }}"), ""),
    "escapes in a string": (turn("{{ '\\x1b[31m' }}{{ private.card }}"), ""),
    "escapes as a name": (role(system="{{ " + ESCAPE + " }}"), ""),
    "escapes as a key": ('"\\e[31mrole": x', ""),
    "escapes as a value": (role(reply={"format": ESCAPE}), "reply.format"),
    "escapes as an example": (role(system="{{ rules }}", examples=[{"see": ESCAPE, "say": f"BET {ESCAPE}"}]), ""),
    "escapes as a stop": (role(system="x", sampling={"stop": [ESCAPE]}), ""),
    "a number as a template": (role(turn=5), "turn"),
    "a list as a template": (role(turn=["a"]), "turn"),
    "a huge template": (role(turn="x" * 100_000), "20000 characters"),
    "a tag of YAML": ("role: x\nturn: !!python/object/apply:os.system [touch ran]", "tags (!) are not allowed"),
    "anchors": ("role: x\nexamples: [&a {see: a, say: b}, *a, *a]", "anchors"),
    "deep YAML": ("role: x\nmemory: " + "[" * 3000 + "]" * 3000, "nested deeper"),
    "control characters": ("role: x\nturn: 'a\x00b'", ""),
    "nothing": ("", "empty"),
    "a list": ("- role: x", "expected `key: value` lines"),
    "no end of tokens": (role(sampling={"max_tokens": 10**40}), "sampling.max_tokens"),
    "no temperature": (role(sampling={"temperature": float("inf")}), "sampling.temperature"),
    "negative memory": (role(memory={"kind": "window", "turns": -1}), "memory.turns"),
    "no end of memory": (role(memory={"kind": "window", "turns": 10**40}), "memory.turns"),
}


@pytest.mark.parametrize("name", ROLES)
def test_role_files(name: str, tmp_path: Path) -> None:
    text, says = ROLES[name]
    path = tmp_path / "stranger.yaml"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        told = judged(time.monotonic(), "check", "role", path, "--game", "kuhn_poker")
    assert says in told and bool(told or not says), told
    assert not (tmp_path / "ran").exists()


def test_there_are_enough_of_them() -> None:
    assert len(FOLDERS) >= 50 and len(ROLES) >= 40
