"""Exported chats and weights train elsewhere: what is rendered is what was read, and the mask is what was sampled."""

import json
from pathlib import Path

import pytest

from agents.model_folder import load_tokenizer
from agents.policy import load_tokenizer_and_frame
from agents.weights import resolve
from arena.records import MatchRecord, find_reply
from arena.store.reader import RunReader
from tests.factories.commands import arena

GIVEN = {"return_dict": True, "return_assistant_tokens_mask": True}


@pytest.fixture(scope="module")
def exported(grouped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    assert arena("export", grouped, "--as", "chats", "--to", folder / "chats").code == 0
    assert arena("export", grouped, "--to", folder / "weights").code == 0
    return folder


def test_chats_in_their_template_are_the_ids_and_the_mask_of_the_log(grouped: Path, exported: Path) -> None:
    """In matches without a reply that was cut, or sampled in other tokens than its text is encoded in."""
    (tokenizer, frame), reader = load_tokenizer_and_frame(resolve("nano")), RunReader(grouped)
    template, compared = (exported / "chats" / "chat_template.jinja").read_text(), 0
    for row in map(json.loads, (exported / "chats" / "chats.jsonl").read_text().splitlines()):
        record = MatchRecord.from_json(reader.match(row["match"]))
        (stream,) = record.streams[row["seat"]]
        told = tokenizer.apply_chat_template(row["messages"], chat_template=template, **GIVEN)
        replies = [turn for turn in record.turns if turn.seat == row["seat"]]
        said = [(turn.finish, frame.encode(turn.raw)) for turn in replies]
        places = [find_reply([stream], turn.index) for turn in replies]
        if said == [("stop", stream.ids[begin : end - 1]) for _, begin, end in places]:
            read = len(stream.ids)  # the log has no frame after the last reply
            assert told["input_ids"][:read] == stream.ids
            assert [bool(mask) for mask in told["assistant_masks"][:read]] == stream.mask
            compared += 1
    assert compared


def test_exported_weights_mark_replies(exported: Path) -> None:
    tokenizer = load_tokenizer(exported / "weights")
    messages = [{"role": "user", "content": "pool 1 2 3"}, {"role": "assistant", "content": "WALK"}]
    told = tokenizer.apply_chat_template(messages, **GIVEN)
    assert sum(told["assistant_masks"]) == 2
    assert told["input_ids"] == load_tokenizer(resolve("nano")).apply_chat_template(messages)["input_ids"]


@pytest.mark.slow
def test_trl_trains_on_replies_alone(exported: Path, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="no trl: pip install 'trl>=1.16'")
    datasets = pytest.importorskip("datasets", reason="no datasets: pip install datasets")
    data = datasets.Dataset.from_json(str(exported / "chats" / "chats.jsonl"), cache_dir=str(tmp_path / "cache"))
    for template in (None, str(exported / "chats" / "chat_template.jinja")):
        config = trl.SFTConfig(
            output_dir=str(tmp_path / "out"), assistant_only_loss=True, chat_template_path=template, max_steps=1,
            bf16=False, use_cpu=True, report_to=[], save_strategy="no", per_device_train_batch_size=2,
        )  # fmt: skip
        trainer = trl.SFTTrainer(
            model=str(exported / "weights"), args=config, train_dataset=data.select_columns("messages")
        )
        assert trainer.train().training_loss > 0
