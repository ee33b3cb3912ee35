"""Native tools: a model plays and learns with them, and exported chats have the tokens that it read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.chat import ChatFrame
from agents.chat_streams import encode_chat
from agents.players.model import ChatPlayer
from agents.players.writers import make_demonstration_writer
from agents.role import read_role
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.play.match import Limits, MatchPlan, play_match
from arena.records import MatchRecord, Seating
from arena.store.run import RunFolder
from games.contracts import MatchId, View
from simulators.search.search import SOLVER, Search
from tests.factories.commands import arena
from tests.factories.labs import read_log, run_lab
from tests.factories.tool_templates import TOOL_FAMILIES, build_tool_tokenizer

OPTIONS: dict[str, Any] = {"pages": 60, "hops": 2, "show": "pages", "illegal": "retry"}
ROLE = """\
role: caller
system: Answer from the library.
turn: "{% if first %}{{ public.question }}{% endif %}{% for m in messages %} {{ m.sender }}: {{ m.text }}{% endfor %}"
reply: {format: native}
sampling: {max_tokens: MAX}
"""
CONFIG = """\
name: native
iterations: 1
threads: 1
game: {name: search, options: {pages: 60, hops: 2, show: pages, illegal: retry}}
policies: {shared: {model: MODEL, imitate: {scripted: [reader], matches: 2, epochs: 1, minibatches: 1}}}
seats: {solver: {role: ROLE, policy: shared}}
play: {matches: 2, in_flight: 2}
learn: {minibatches: 1}
"""


def save_model(folder: Path, family: str) -> Any:
    """Save a small random model with the family's tokenizer and template; return the tokenizer."""
    tokenizer = build_tool_tokenizer(family)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=8192, **size))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def make_experiment(tmp_path: Path, max_tokens: int) -> Any:
    (tmp_path / "caller.yaml").write_text(ROLE.replace("MAX", str(max_tokens)))
    text = CONFIG.replace("MODEL", str(tmp_path / "model")).replace("ROLE", str(tmp_path / "caller.yaml"))
    return compose([text_layer("test", text)])


class Reader:
    """Scripted player that searches."""

    def __init__(self, game: Search) -> None:
        self.answer = game.players["reader"](game, 0)

    def act(self, view: View) -> str:
        return self.answer(view)


def record_run(tmp_path: Path, tokenizer: Any) -> tuple[MatchRecord, ChatFrame]:
    """Record a run of one match that a policy wins with the reader's replies; return the match and the frame."""
    config, frame = make_experiment(tmp_path, 400), ChatFrame(tokenizer)
    role, game = read_role(tmp_path / "caller.yaml"), Search(**OPTIONS)
    player = ChatPlayer(
        role=role,
        frame=frame,
        policy="shared",
        key="m",
        seed=(0,),
        write=make_demonstration_writer(Reader(game), role, frame),
    )
    seats = {SOLVER: Seating("caller", "shared", 1, True, "model")}
    plan = MatchPlan(identity=MatchId(1, 0), game="search", options=OPTIONS, seed=5, seats=seats)
    record = asyncio.run(play_match(plan, game, {SOLVER: player}, Limits()))
    assert record.report["success"] and len(record.turns) > 2
    run = RunFolder.create(tmp_path / "run", to_yaml(config), {})
    run.log.extend([record])
    run.log.seal(1)
    run.log.close()
    return record, frame


@pytest.mark.parametrize("family", [family for family in TOOL_FAMILIES if family != "mistral"])
def test_an_exported_chat_is_the_stream_in_both_templates(family: str, tmp_path: Path) -> None:
    tokenizer = save_model(tmp_path / "model", family)
    record, _ = record_run(tmp_path, tokenizer)
    result = arena("export", tmp_path / "run", "--as", "chats", "--to", tmp_path / "chats", "--trust")
    assert result.code == 0, result
    (line,) = (tmp_path / "chats" / "chats.jsonl").read_text().splitlines()
    row, (stream,) = json.loads(line), record.streams[SOLVER]
    tools = json.loads(row["tools"])
    assert [tool["function"]["name"] for tool in tools] == ["search"]
    encoded = encode_chat(ChatFrame(tokenizer), row["messages"], row["tools"], row["opening"])
    assert (encoded.ids, encoded.mask) == (stream.ids, stream.mask)
    own = tokenizer.apply_chat_template(row["messages"], tools=tools, return_dict=False)
    assert own[: len(stream.ids)] == stream.ids
    rendered = tokenizer.apply_chat_template(
        row["messages"], tools=tools, chat_template=(tmp_path / "chats" / "chat_template.jinja").read_text(),
        return_dict=True, return_assistant_tokens_mask=True,
    )  # fmt: skip
    assert rendered["input_ids"] == own
    assert [bool(mask) for mask in rendered["assistant_masks"][: len(stream.ids)]] == stream.mask


def test_moving_tool_definitions_are_noted(tmp_path: Path) -> None:
    record_run(tmp_path, save_model(tmp_path / "model", "mistral"))
    result = arena("export", tmp_path / "run", "--as", "chats", "--to", tmp_path / "chats", "--trust")
    assert result.code == 0 and "no system turn" in result.out + result.err


def test_a_model_plays_and_learns_with_native_tools(tmp_path: Path) -> None:
    save_model(tmp_path / "model", "qwen25")
    lab = run_lab(tmp_path / "run", make_experiment(tmp_path, 24))
    assert lab.done == 1
    streams = [stream for row in read_log(tmp_path / "run") for stream in row["streams"][SOLVER]]
    assert streams and all(any(stream["mask"]) for stream in streams)
