"""Foreign model folders and role files are played with or refused in one line, and none of their code runs.

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
MAX_SECONDS = 10.0


def run_and_check(started: float, *arguments: str | Path) -> str:
    """Run a command, check its time and output, and return its error if it was refused."""
    result = arena(*arguments)
    assert time.monotonic() - started < MAX_SECONDS
    assert result.code in (0, 1, 2), result
    assert "Traceback" not in result.out + result.err
    assert not set("\x1b\x07\u202e\u2066\x9b") & set(result.out + result.err), result
    if result.code == 2:
        assert len(result.line) < 900
    return result.err if result.code == 2 else ""


@pytest.fixture(scope="module", autouse=True)
def warm_up() -> None:
    """Import everything before any clock runs."""
    assert arena("play", "--game", "kuhn_poker", "--seat", "0=nano", "--seat", "1=random").code == 0


# -- model folders -------------------------------------------------------------------------------------------

EVIL_CODE = "import pathlib; pathlib.Path({canary!r}).write_text('ran')\nclass C: pass\nM = T = C\n"
Damage = Callable[[Path], object]


def edit_json(file: str, **changes: Any) -> Damage:
    """Return damage that changes settings in a JSON file; `None` removes one."""

    def damage(folder: Path) -> None:
        settings = json.loads((folder / file).read_text()) | changes
        (folder / file).write_text(json.dumps({k: v for k, v in settings.items() if v is not None}))

    return damage


def edit_config(**changes: Any) -> Damage:
    return edit_json("config.json", **changes)


def edit_tokenizer_config(**changes: Any) -> Damage:
    return edit_json("tokenizer_config.json", **changes)


def write_file(file: str, content: str | bytes) -> Damage:
    return lambda folder: (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())


def write_template(text: str) -> Damage:
    return write_file("chat_template.jinja", text)


def edit_tokenizer(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return damage


def make_header(entries: Mapping[str, Any], length: int | None = None) -> bytes:
    """Return a safetensors file with this header."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * 64


PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
DEEP = "[" * 100_000 + "]" * 100_000
REMOTE_CODE = {
    "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M", "AutoTokenizer": ["evil.T", None]}
}

FOLDERS: dict[str, tuple[Damage, str]] = {
    # code
    "auto_map": (edit_config(**REMOTE_CODE), ""),
    "auto_map of a model of its own": (edit_config(model_type="mine", **REMOTE_CODE), "cannot be loaded"),
    "auto_map elsewhere": (edit_config(auto_map={"AutoConfig": "evil/repo--evil.C"}), ""),
    "auto_map of the tokenizer": (edit_tokenizer_config(**REMOTE_CODE, tokenizer_class="T"), ""),
    "a kernel for attention": (edit_config(_attn_implementation="evil/kernels"), "_attn_implementation"),
    "a kernel by revision": (edit_config(attn_implementation="evil/kernels@main:layer"), "attn_implementation"),
    "a kernel in a part": (edit_config(text_config={"_attn_implementation": "evil/k"}), "_attn_implementation"),
    "kernels by part": (edit_config(_attn_implementation={"": "sdpa", "text": "evil/k"}), "_attn_implementation"),
    "a kernel for experts": (edit_config(_experts_implementation="evil/kernels"), "_experts_implementation"),
    "use_kernels": (edit_config(use_kernels=True), "use_kernels chooses code"),
    "quantization": (edit_config(quantization_config={"quant_method": "evil"}), "quantization_config chooses code"),
    "quantization by gptq": (
        edit_config(quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantization_config",
    ),
    "custom_generate": (
        edit_json("generation_config.json", custom_generate="evil/repo"),
        "custom_generate chooses code",
    ),
    "trust_remote_code": (edit_config(trust_remote_code=True, model_type="mine"), "trust_remote_code chooses code"),
    "an adapter": (write_file("adapter_config.json", '{"base_model_name_or_path": "evil/repo"}'), "only LORA"),
    "an own tokenizer class": (edit_tokenizer_config(tokenizer_class="evil.T"), ""),
    "an unknown model": (edit_config(model_type="evil"), "evil"),
    "pickles": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pickled"),
    # sizes
    "ten million layers": (edit_config(num_hidden_layers=10_000_000), "num_hidden_layers is 10000000"),
    "layers of a float": (edit_config(num_hidden_layers=1e300), "num_hidden_layers is 1e+300"),
    "layers of a text": (edit_config(num_hidden_layers="10000000"), ""),
    "negative layers": (edit_config(num_hidden_layers=-4), "num_hidden_layers is -4"),
    "negative sizes": (edit_config(hidden_size=-128), "hidden_size is -128"),
    "a huge size": (edit_config(hidden_size=10**15), "hidden_size is 1000000000000000"),
    "a size beyond numbers": (edit_config(intermediate_size=10**4000), "intermediate_size"),
    "a huge vocabulary": (edit_config(vocab_size=2**62), "vocab_size"),
    "a negative vocabulary": (edit_config(vocab_size=-1), "vocab_size is -1"),
    "huge positions": (edit_config(max_position_embeddings=2**50), "max_position_embeddings"),
    "no heads": (edit_config(num_attention_heads=0), ""),
    "a size in a part": (
        edit_config(model_type="gemma3", text_config={"num_hidden_layers": 10**9}),
        "num_hidden_layers",
    ),
    "no size at all": (edit_config(hidden_size={"a": [1]}), ""),
    "another shape": (edit_config(hidden_size=64), ""),
    "half the layers more": (edit_config(num_hidden_layers=6), ""),
    # files
    "deep config": (write_file("config.json", f'{{"model_type": "llama", "x": {DEEP}}}'), "nested too deeply"),
    "rather deep config": (edit_config(x=json.loads("[" * 200 + "]" * 200)), "nested too deeply"),
    "deep tokenizer config": (write_file("tokenizer_config.json", f'{{"x": {DEEP}}}'), "nested too deeply"),
    "deep generation config": (write_file("generation_config.json", f'{{"x": {DEEP}}}'), "nested too deeply"),
    "deep tokenizer": (write_file("tokenizer.json", f'{{"x": {DEEP}}}'), ""),
    "config of another kind": (write_file("config.json", "[1]"), "no JSON object"),
    "config of bytes": (write_file("config.json", b"\xff\xfe{}"), "cannot be read"),
    "config of NaN": (edit_config(rms_norm_eps=float("nan")), ""),
    "an endless config": (lambda f: os.truncate(f / "config.json", 2**36), "64 MB"),
    "config of escapes": (edit_config(model_type=ESCAPE, architectures=[ESCAPE]), ""),
    "a key of escapes": (edit_config(**{f"{ESCAPE}": ESCAPE}), ""),
    "an index elsewhere": (
        write_file("model.safetensors.index.json", '{"weight_map": {"a": "../../../etc/passwd"}}'),
        "which its index names",
    ),
    "an index of escapes": (
        write_file("model.safetensors.index.json", json.dumps({"weight_map": {"a": ESCAPE}})),
        "index",
    ),
    "an index that is none": (write_file("model.safetensors.index.json", '{"weight_map": [1]}'), "no weight_map"),
    "damaged weights": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:500]),
        "damaged",
    ),
    "weights of a huge header": (write_file("model.safetensors", make_header({}, 2**63)), "damaged"),
    "weights of a huge shape": (
        write_file(
            "model.safetensors", make_header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 64]}})
        ),
        "damaged",
    ),
    "weights of names of escapes": (
        write_file(
            "model.safetensors", make_header({ESCAPE: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}})
        ),
        "1 tensors of 16",
    ),
    "no weights in weights": (write_file("model.safetensors", make_header({})), ""),
    "a tokenizer of nothing": (write_file("tokenizer.json", "{}"), ""),
    "a tokenizer of another kind": (edit_tokenizer(lambda t: t.update(model={"type": "Evil"})), ""),
    "a tokenizer of huge ids": (edit_tokenizer(lambda t: t["added_tokens"][0].update(id=2**31)), ""),
    "a tokenizer of negative ids": (edit_tokenizer(lambda t: t["added_tokens"][0].update(id=-1)), ""),
    # chat templates
    "a template of loops": (
        write_template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" + PLAIN),
        "needs more",
    ),
    "a template of maxima": (
        write_template("{% for a in range(99999) %}{% if range(99999) | max %}{% endif %}{% endfor %}" + PLAIN),
        "needs more",
    ),
    "a template of a search": (
        write_template("{% for a in range(99999) %}{% if 'a' in range(99999) %}{% endif %}{% endfor %}" + PLAIN),
        "needs more",
    ),
    "a template of memory": (write_template("{% set a = 'a' * 10**11 %}" + PLAIN), "chat template"),
    "a template of a power": (write_template("{% set a = 9 ** (9 ** 9) %}" + PLAIN), "needs more"),
    "a template of width": (write_template("{{ 'a' | center(10**12) }}" + PLAIN), "chat template"),
    "a template of recursion": (
        write_template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}" + PLAIN),
        "chat template",
    ),
    "a template of doubling": (
        write_template(
            "{% set n = namespace(a='aa') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}" + PLAIN
        ),
        "chat template",
    ),
    "a template of internals": (
        write_template("{{ ''.__class__.__mro__[1].__subclasses__() }}" + PLAIN),
        "chat template refuses plain turns",
    ),
    "a template of escapes": (
        write_template("{{ raise_exception('" + ESCAPE + "') }}"),
        "chat template refuses plain turns",
    ),
    "a template of another kind": (write_template("{% if %}"), "chat template"),
    "a template that is deep": (write_template("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}"), "chat template"),
    "a template of nothing": (write_template(""), ""),
    "a template that leaves turns out": (write_template("hello"), "chat template"),
}


SLOW_TEMPLATES = {f"a template of {what}" for what in ("maxima", "a search", "doubling", "a power")}
"""Templates that run until the time limit."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW_TEMPLATES)) for n in FOLDERS])
def test_model_folders(name: str, tmp_path: Path) -> None:
    damage, message = FOLDERS[name]
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
        (folder / file).write_text(EVIL_CODE.format(canary=str(canary)))
    damage(folder)
    gc.collect()  # else leftovers of earlier tests are finalised, with warnings, deep in a recursion
    seats = ("--seat", f"0={folder}", "--seat", "1=random")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # no code of the working directory may run either
        error = run_and_check(time.monotonic(), "play", "--game", "kuhn_poker", *seats, "--seed", "1")
    assert message in error and bool(error or not message), error
    assert not canary.exists(), "the folder's code ran"


def test_folder_with_escapes_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / f"x{ESCAPE}"
    shutil.copytree(resolve("nano"), folder)
    (folder / "config.json").write_text("[")
    error = run_and_check(
        time.monotonic(), "play", "--game", "kuhn_poker", "--seat", f"0={folder}", "--seat", "1=random"
    )
    assert "config.json cannot be read" in error


# -- role files ----------------------------------------------------------------------------------------------


def make_role_with_turn(text: str) -> str:
    return json.dumps({"role": "stranger", "turn": text, "system": "{{ rules }} {{ private }}"})


def make_role(**fields: Any) -> str:
    return json.dumps({"role": "stranger", **fields})


LOOP = "{% for i in range(5000) %}X{% endfor %}"
ROLES: dict[str, tuple[str, str]] = {
    "infinity": (make_role_with_turn("{{ '1e999' | float | int }}"), "line 1: cannot convert float infinity"),
    "infinity written": (make_role_with_turn("{{ 1e999 + 1 }}"), "line 1: numbers above"),
    "not a number": (make_role_with_turn("{{ ('1e999' | float) - ('1e999' | float) }}"), ""),
    "a huge number": (make_role_with_turn("{{ " + "9" * 4000 + " * 9 }}"), "numbers above"),
    "maxima": (make_role_with_turn(LOOP.replace("X", "{% if range(99999) | max %}{% endif %}")), "steps"),
    "a search": (make_role_with_turn(LOOP.replace("X", "{% if 'a' in range(99999) %}{% endif %}")), "steps"),
    "a search without a loop": (make_role_with_turn("{{ 'a' in range(10 ** 15) }}"), ""),
    "nested loops": (make_role_with_turn(LOOP.replace("X", LOOP)), "steps"),
    "a loop of much": (make_role_with_turn(LOOP.replace("X", "{{ '' }}" * 900)), "steps"),
    "filters of filters": (
        make_role_with_turn(LOOP.replace("X", "{% set a = rules" + " | upper" * 60 + " %}")),
        "steps",
    ),
    "a text times much": (make_role_with_turn("{{ 'a' * 10 ** 9 }}"), "not allowed"),
    "a text of itself": (
        make_role_with_turn("{% set a = rules %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}"),
        "not allowed",
    ),
    "rounding": (make_role_with_turn("{{ 1 | round(99999999, 'ceil') }}"), "not allowed in filters"),
    "indenting": (make_role_with_turn("{{ public | tojson(indent=10000000) }}"), "not allowed in filters"),
    "internals": (make_role_with_turn("{{ ''.__class__.__mro__ }}"), "__class__"),
    "globals": (make_role_with_turn("{{ rules.__init__.__globals__ }}"), "__init__"),
    "a file": (make_role_with_turn("{% include '/etc/passwd' %}"), "not allowed"),
    "an import": (make_role_with_turn("{% import 'os' as os %}"), "not allowed"),
    "deep brackets": (make_role_with_turn("{{" + "(" * 3000 + "1" + ")" * 3000 + "}}"), "too deeply nested"),
    "deep ifs": (make_role_with_turn("{% if first %}" * 500 + "{% endif %}" * 500), "too deeply nested"),
    "deep signs": (make_role_with_turn("{{" + "- " * 3000 + "1}}"), "too deeply nested"),
    "deep nots": (make_role_with_turn("{{" + "not " * 3000 + "1}}"), "too deeply nested"),
    "half a tag": (make_role_with_turn("{% if first"), "unexpected end"),
    "a missing fact": (
        make_role_with_turn("\n\n{{ private.crad }}"),
        "line 3: there is no 'crad' here — did you mean 'card'",
    ),
    "escapes printed": (make_role_with_turn(ESCAPE + "{{ private.card }}"), ""),
    "escapes in a string": (make_role_with_turn("{{ '\\x1b[31m' }}{{ private.card }}"), ""),
    "escapes as a name": (make_role(system="{{ " + ESCAPE + " }}"), ""),
    "escapes as a key": ('"\\e[31mrole": x', ""),
    "escapes as a value": (make_role(reply={"format": ESCAPE}), "reply.format"),
    "escapes as an example": (make_role(system="{{ rules }}", examples=[{"see": ESCAPE, "say": f"BET {ESCAPE}"}]), ""),
    "escapes as a stop": (make_role(system="x", sampling={"stop": [ESCAPE]}), ""),
    "a number as a template": (make_role(turn=5), "turn"),
    "a list as a template": (make_role(turn=["a"]), "turn"),
    "a huge template": (make_role(turn="x" * 100_000), "20000 characters"),
    "a tag of YAML": ("role: x\nturn: !!python/object/apply:os.system [touch ran]", "tags (!) are not allowed"),
    "anchors": ("role: x\nexamples: [&a {see: a, say: b}, *a, *a]", "anchors"),
    "deep YAML": ("role: x\nmemory: " + "[" * 3000 + "]" * 3000, "nested deeper"),
    "control characters": ("role: x\nturn: 'a\x00b'", ""),
    "nothing": ("", "empty"),
    "a list": ("- role: x", "expected `key: value` lines"),
    "no end of tokens": (make_role(sampling={"max_tokens": 10**40}), "sampling.max_tokens"),
    "no temperature": (make_role(sampling={"temperature": float("inf")}), "sampling.temperature"),
    "negative memory": (make_role(memory={"kind": "window", "turns": -1}), "memory.turns"),
    "no end of memory": (make_role(memory={"kind": "window", "turns": 10**40}), "memory.turns"),
}


@pytest.mark.parametrize("name", ROLES)
def test_role_files(name: str, tmp_path: Path) -> None:
    text, message = ROLES[name]
    path = tmp_path / "stranger.yaml"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        error = run_and_check(time.monotonic(), "check", "role", path, "--game", "kuhn_poker")
    assert message in error and bool(error or not message), error
    assert not (tmp_path / "ran").exists()


def test_case_count() -> None:
    assert len(FOLDERS) >= 50 and len(ROLES) >= 40
