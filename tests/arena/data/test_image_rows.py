"""Rows with images: read from the data set's folder or base64, hashed, and without loss on image tokens."""

import base64
from pathlib import Path
from typing import Any

import pytest

from agents.policy import load_tokenizer_and_frame
from arena.config.data_sets import with_data_sets
from arena.config.layers import compose
from arena.config.sources import text_layer
from arena.data.rows import DataSet
from arena.data.samples import RowEncoder
from arena.errors import ConfigError
from arena.play.lessons import open_data
from arena.store.run import RunFolder
from tests.factories.data_sets import write_rows
from tests.factories.image_files import REFUSED, encode_noise, make_image_part
from tests.factories.labs import run_lab
from tests.factories.seeing import TOKENS, save_vision_model

CONFIG = """\
name: shown
iterations: 2
threads: 1
policies: {viewer: {model: MODEL}}
source: {data: DATA, batch: 4}
learn: {loss: likelihood, lr: 1e-3, regularisers: {kl: {weight: 0}}}
tracker: []
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(tmp_path_factory.mktemp("model"))


def make_row(*parts: Any, say: str = "red") -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*parts]}, {"role": "assistant", "content": say}]}


def write_image_rows(folder: Path) -> Path:
    """Write eight rows with images as files, base64 and data URLs, some with two."""
    (folder / "img").mkdir(parents=True)
    for k in range(4):
        (folder / "img" / f"{k}.png").write_bytes(encode_noise(k))
    ask = {"type": "text", "text": "What colour is this?"}
    row_list = [make_row({"type": "image", "path": f"img/{k}.png"}, ask) for k in range(4)]
    row_list += [
        make_row(ask, {"type": "image", "base64": base64.b64encode(encode_noise(9)).decode()}),
        make_row(make_image_part(encode_noise(3)), ask),
    ]
    row_list += [
        make_row(ask, *[{"type": "image", "path": f"img/{k}.png"} for k in (0, 1)]),
        make_row(ask, say="no picture"),
    ]
    return write_rows(folder / "rows.jsonl", row_list)


def test_rows_with_images_are_learned_without_loss_on_images(model: Path, tmp_path: Path) -> None:
    data = DataSet(write_image_rows(tmp_path / "data"))
    data.check()
    frame = load_tokenizer_and_frame(model)[1]
    samples = RowEncoder(data, frame, 1000).samples(range(8)).samples
    assert [len(sample.stream.media) for sample in samples] == [1, 1, 1, 1, 1, 1, 2, 0]
    for sample in samples:
        stream = sample.stream
        for span in stream.media:
            positions = slice(span.start, span.start + TOKENS)
            assert stream.ids[positions] == [frame.image.id] * TOKENS and not any(stream.mask[positions])  # type: ignore[union-attr]
        ids = [token for token, is_own in zip(stream.ids, stream.mask, strict=True) if is_own]
        assert frame.decode(ids) in ("red", "no picture") and ids[-1] == frame.stop_id
    assert samples[0].stream.media[0].hash != samples[1].stream.media[0].hash
    assert samples[3].stream.media[0].hash == samples[5].stream.media[0].hash


def test_run_learns_from_images_and_refuses_changed_ones(model: Path, tmp_path: Path) -> None:
    path = write_image_rows(tmp_path / "data")
    text = CONFIG.replace("MODEL", str(model)).replace("DATA", str(path))
    experiment = with_data_sets(compose([text_layer("test", text)]), lambda what: None)
    assert experiment.source and experiment.source.sha256 not in (None, DataSet(path).rows.sha256)
    run_lab(tmp_path / "run", experiment)
    assert [row["learn"]["viewer"]["rows"] for row in RunFolder.open(tmp_path / "run").reader.metrics()] == [4, 4]
    open_data(path, experiment.source.sha256, "source.data").close()
    (path.parent / "img" / "2.png").write_bytes(encode_noise(77))
    with pytest.raises(ConfigError, match="was changed since the run began"):
        open_data(path, experiment.source.sha256, "source.data")


def test_text_only_policy_refuses_image_rows(tmp_path: Path) -> None:
    from agents.weights import resolve

    data = DataSet(write_image_rows(tmp_path / "data"))
    with pytest.raises(ConfigError, match=r"rows.jsonl:1: messages\[0\].content: the policy cannot see images$"):
        RowEncoder(data, load_tokenizer_and_frame(resolve("nano"))[1], 1000).samples([0])


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"heavy"}))  # whose line is too long
def test_hostile_images_are_refused_with_their_row(name: str, tmp_path: Path) -> None:
    part, message = REFUSED[name]
    data = DataSet(write_rows(tmp_path / "rows.jsonl", [make_row({"type": "text", "text": "x"}), make_row(part)]))
    with pytest.raises(ConfigError, match=r"rows.jsonl:2: ") as error:
        data.check()
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/hostname", "img/../../secret.png", "link.png"])
def test_image_paths_cannot_leave_the_folder(path: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "img").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(encode_noise())
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    data = DataSet(write_rows(folder / "rows.jsonl", [make_row({"type": "image", "path": path})]))
    with pytest.raises(ConfigError, match="not inside the data set's folder"):
        data.check()
