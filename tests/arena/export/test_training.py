"""Exported chats and weights train elsewhere: rendered tokens equal the log, and the mask marks the replies."""

import json
from pathlib import Path

import pytest

from agents.model_folder import load_tokenizer
from agents.policy import load_tokenizer_and_frame
from agents.weights import resolve
from arena.records import MatchRecord, find_reply
from arena.store.reader import RunReader
from tests.factories.commands import arena

RENDER = {"return_dict": True, "return_assistant_tokens_mask": True}


@pytest.fixture(scope="module")
def export(grouped_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    assert arena("export", grouped_run, "--as", "chats", "--to", folder / "chats").code == 0
    assert arena("export", grouped_run, "--to", folder / "weights").code == 0
    return folder


def test_rendered_chats_equal_the_log(grouped_run: Path, export: Path) -> None:
    """Compares matches whose replies were not cut short and re-encode to the sampled tokens."""
    (tokenizer, frame), reader = load_tokenizer_and_frame(resolve("nano")), RunReader(grouped_run)
    template, compared = (export / "chats" / "chat_template.jinja").read_text(), 0
    for row in map(json.loads, (export / "chats" / "chats.jsonl").read_text().splitlines()):
        record = MatchRecord.from_json(reader.match(row["match"]))
        (stream,) = record.streams[row["seat"]]
        rendered = tokenizer.apply_chat_template(row["messages"], chat_template=template, **RENDER)
        replies = [turn for turn in record.turns if turn.seat == row["seat"]]
        replies_tokens = [(turn.finish, frame.encode(turn.raw)) for turn in replies]
        places = [find_reply([stream], turn.index) for turn in replies]
        if replies_tokens == [("stop", stream.ids[begin : end - 1]) for _, begin, end in places]:
            count = len(stream.ids)  # the log has no frame after the last reply
            assert rendered["input_ids"][:count] == stream.ids
            assert [bool(mask) for mask in rendered["assistant_masks"][:count]] == stream.mask
            compared += 1
    assert compared


def test_exported_weights_mark_replies(export: Path) -> None:
    tokenizer = load_tokenizer(export / "weights")
    messages = [{"role": "user", "content": "pool 1 2 3"}, {"role": "assistant", "content": "WALK"}]
    rendered = tokenizer.apply_chat_template(messages, **RENDER)
    assert sum(rendered["assistant_masks"]) == 2
    assert rendered["input_ids"] == load_tokenizer(resolve("nano")).apply_chat_template(messages)["input_ids"]


@pytest.mark.slow
def test_trl_trains_on_replies_alone(export: Path, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    datasets = pytest.importorskip("datasets", reason="no datasets: pip install datasets")
    data = datasets.Dataset.from_json(str(export / "chats" / "chats.jsonl"), cache_dir=str(tmp_path / "cache"))
    for template in (None, str(export / "chats" / "chat_template.jinja")):
        config = trl.SFTConfig(
            output_dir=str(tmp_path / "out"), assistant_only_loss=True, chat_template_path=template, max_steps=1,
            bf16=False, use_cpu=True, report_to=[], save_strategy="no", per_device_train_batch_size=2,
        )  # fmt: skip
        trainer = trl.SFTTrainer(
            model=str(export / "weights"), args=config, train_dataset=data.select_columns("messages")
        )
        assert trainer.train().training_loss > 0
