"""An image in a message passes through a whole run of a policy that reads text only."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import analysis
from agents.policy import load_tokenizer_and_frame
from agents.weights import resolve
from arena.cli.loop import wait
from arena.config.layers import compose, to_yaml
from arena.config.sources import text_layer
from arena.errors import ConfigError
from arena.lab import Lab
from arena.play.settings import SourceSpec
from arena.preflight import check_log, preflight
from arena.records import MatchRecord
from arena.store.run import RunFolder
from tests.factories.commands import arena
from tests.factories.labs import RecordingWatcher
from tests.games import gallery

CONFIG = f"""\
name: pictures
iterations: 1
threads: 1
game: {{name: "{gallery.__file__}:Gallery"}}
policies:
  shared: {{model: nano, imitate: {{scripted: [random], matches: 12, epochs: 2}}}}
seats: {{visitor: {{role: nano_player, policy: shared}}}}
play: {{matches: 6}}
learn: {{lr: 1e-3}}
"""
EXPERIMENT = compose([text_layer("test", CONFIG)])


class MatchWatcher(RecordingWatcher):
    """Watcher that keeps the records of matches."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[MatchRecord] = []

    def match(self, record: MatchRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MatchWatcher]:
    """Return the folder of a run of one iteration, and its watcher."""
    watcher, folder = MatchWatcher(), tmp_path_factory.mktemp("pictures") / "run"
    run_folder = RunFolder.create(folder, to_yaml(EXPERIMENT), {})

    async def run_to_the_end() -> None:
        lab = await Lab.open(run_folder, EXPERIMENT, watcher)
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(run_to_the_end())
    return folder, watcher


def test_image_passes_through_the_whole_pipeline(run: tuple[Path, MatchWatcher]) -> None:
    folder, watcher = run

    # Preflight reports that no policy sees it.
    (note,) = (note for note in wait(preflight(EXPERIMENT, lambda text: None)).notes if "images" in note)
    assert "policy 'shared' cannot see" in note and "\n" not in note

    # Played: the policy reads text in its place, which is encoded without control tokens.
    frame, records = load_tokenizer_and_frame(resolve("nano"))[1], {record.id: record for record in watcher.records}
    assert len(records) == 6
    for record in records.values():
        assert record.status == "finished", record.reason
        first = record.turns[0].messages[0]
        assert first.images == (gallery.IMAGE,) and first.text == f"What is this? {gallery.IMAGE.text}"
        assert gallery.IMAGE.text in frame.decode([i for s in record.streams["visitor"] for i in s.ids])

    # Logged, with its bytes beside the log.
    reader = RunFolder.open(folder).reader
    assert {r.id: r.turns for r in map(MatchRecord.from_json, reader.log.read(1))} == {
        name: record.turns for name, record in records.items()
    }
    assert (folder / "log" / "blobs" / gallery.IMAGE.hash).read_bytes() == gallery.Gallery().picture(gallery.IMAGE.hash)

    # Credited.
    credit = reader.credit(1)
    assert {(row.match, row.turn) for row in credit} == {
        (r.id, turn.index) for r in watcher.records for turn in r.turns
    }
    assert any(row.advantage for row in credit) and arena("credit", folder, "--estimators", "mars").code == 0

    # Learned from.
    weights = [load_file(path) for path in sorted(folder.glob("checkpoints/*/policies/shared/model.safetensors"))]
    assert watcher.rows and len(weights) == 2
    assert any(not torch.equal(value, weights[1][name]) for name, value in weights[0].items())

    # Shown.
    shown = arena("show", folder, watcher.records[0].id)
    assert shown.code == 0 and f"What is this? {gallery.IMAGE.text}" in shown.out

    # Loaded.
    messages = analysis.load(folder).messages
    hashes = [image["hash"] for images in messages["images"] for image in images]
    assert hashes and hashes == [gallery.IMAGE.hash] * sum(
        len(message.images) for record in watcher.records for turn in record.turns for message in turn.messages
    )


def test_a_log_without_its_images_is_refused(run: tuple[Path, MatchWatcher], tmp_path: Path) -> None:
    """The log can be copied without log/blobs, but to learn from it the images are needed."""
    log = Path(shutil.copytree(run[0], tmp_path / "log"))
    config = EXPERIMENT.model_copy(update={"source": SourceSpec(log=str(log))})
    check_log(config, trusted=True)
    shutil.rmtree(log / "log" / "blobs")
    with pytest.raises(ConfigError, match=r"log/blobs lacks the image [0-9a-f]{64}: restore it from a copy$"):
        check_log(config, trusted=True)
