"""An image in a message goes through a whole run, by a policy that reads words alone."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import analysis
from agents.policy import tokenizer_and_frame
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
from tests.factories.labs import Quiet
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


class Watched(Quiet):
    """Keeps the matches as they were played."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[MatchRecord] = []

    def match(self, record: MatchRecord) -> None:
        self.records.append(record)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watched]:
    """One iteration."""
    watcher, folder = Watched(), tmp_path_factory.mktemp("pictures") / "run"
    there = RunFolder.create(folder, to_yaml(EXPERIMENT), {})

    async def live() -> None:
        lab = await Lab.open(there, EXPERIMENT, watcher)
        try:
            await lab.run()
        finally:
            await lab.close()

    wait(live())
    return folder, watcher


def test_preflight_says_in_one_line_that_nobody_sees() -> None:
    (note,) = (note for note in wait(preflight(EXPERIMENT, lambda what: None)).notes if "images" in note)
    assert "no policy sees" in note and "\n" not in note


def test_images_are_played_and_read_as_words(run: tuple[Path, Watched]) -> None:
    """What the policy reads is content: no control id comes of it."""
    frame = tokenizer_and_frame(resolve("nano"))[1]
    assert len(run[1].records) == 6
    for record in run[1].records:
        assert record.status == "finished", record.reason
        first = record.turns[0].messages[0]
        assert first.images == (gallery.IMAGE,) and first.text == f"What is this? {gallery.IMAGE.text}"
        read = frame.decode([i for s in record.streams["visitor"] for i in s.ids])
        assert gallery.IMAGE.text in read


def test_a_policy_is_credited_for_them_and_learned(run: tuple[Path, Watched]) -> None:
    folder, watcher = run
    turns = {(record.id, turn.index) for record in watcher.records for turn in record.turns}
    credit = RunFolder.open(folder).reader.credit(1)
    assert {(row.match, row.turn) for row in credit} == turns and any(row.advantage for row in credit)
    assert arena("credit", folder, "--estimators", "mars").code == 0
    weights = [load_file(path) for path in sorted(folder.glob("checkpoints/*/policies/shared/model.safetensors"))]
    assert watcher.rows and len(weights) == 2
    assert any(not torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_they_are_in_the_log_for_people_and_for_analysis(run: tuple[Path, Watched]) -> None:
    folder, watcher = run
    told = analysis.load(folder).messages
    logged = [image["hash"] for images in told["images"] for image in images]
    assert logged and logged == [gallery.IMAGE.hash] * sum(
        len(message.images) for record in watcher.records for turn in record.turns for message in turn.messages
    )
    assert (folder / "log" / "blobs" / gallery.IMAGE.hash).read_bytes() == gallery.Gallery().picture(gallery.IMAGE.hash)
    back = [MatchRecord.from_json(row) for row in RunFolder.open(folder).reader.log.read(1)]
    assert {record.id: record.turns for record in back} == {record.id: record.turns for record in watcher.records}
    shown = arena("show", folder, watcher.records[0].id)
    assert shown.code == 0 and f"What is this? {gallery.IMAGE.text}" in shown.out


def test_a_log_without_its_images_is_refused(run: tuple[Path, Watched], tmp_path: Path) -> None:
    """Copied without log/blobs, as it may be; with them it may be learned from, and the images are copied along."""
    log = Path(shutil.copytree(run[0], tmp_path / "log"))
    given = EXPERIMENT.model_copy(update={"source": SourceSpec(log=str(log))})
    check_log(given, trusted=True)
    shutil.rmtree(log / "log" / "blobs")
    with pytest.raises(ConfigError, match=r"log/blobs lacks the image [0-9a-f]{64}: restore it from a copy$"):
        check_log(given, trusted=True)
