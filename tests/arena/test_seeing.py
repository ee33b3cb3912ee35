"""A policy that sees plays, is scored and learns: a small SmolVLM from its first match to a resumed run."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import games
from agents.engines.kinds import ENGINES
from agents.layouts import create_vision
from agents.policy import load_module
from agents.scoring import StreamScorer, score_streams
from arena.cli.loop import wait
from arena.config.experiment import Experiment
from arena.config.layers import compose
from arena.config.sources import set_layer, text_layer
from arena.errors import PlayError
from arena.preflight import preflight
from arena.records import MatchRecord
from arena.store.run import RunFolder
from games.abilities import Pictures
from tests.factories.eyes import mask_placeholder
from tests.factories.labs import check_resume, read_weight_files, run_lab
from tests.factories.seeing import TOKENS, make_vision_config
from tests.factories.toy_engine import PLACE


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_vision_config(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def run(config: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run_lab(folder, make_experiment(config))
    return folder


def make_experiment(config: str, *assignments: str) -> Experiment:
    return compose([text_layer("test", config), *map(set_layer, assignments)])


def read_records(folder: Path, k: int = 1) -> list[MatchRecord]:
    reader = RunFolder.open(folder).reader.log
    found = (MatchRecord.from_json(row, reader.blobs.get) for row in reader.read(k))
    return sorted(found, key=lambda record: record.id)


def test_every_image_of_a_match_is_in_its_stream(run: Path) -> None:
    for record in read_records(run):
        (stream,) = record.streams["viewer"]
        shown = [image.hash for turn in record.turns for message in turn.messages for image in message.images]
        assert [span.hash for span in stream.media] == shown and len(set(shown)) == 2
        for span in stream.media:
            assert hashlib.sha256(span.data).hexdigest() == span.hash
            assert not any(stream.mask[span.start : span.start + span.length]) and span.length == TOKENS
        assert all("[image" not in turn.raw for turn in record.turns)


def test_the_gate_holds_and_rewards_move_the_weights(run: Path) -> None:
    for row in RunFolder.open(run).reader.metrics():
        learned = row["learn"]["shared"]
        assert learned["logprob_gap"] < 1e-5 and learned["grad_norm"] > 0 and learned["skipped"] == 0
    assert read_weight_files(run, 1) != read_weight_files(run, 2)


def test_logged_log_probabilities_match_transformers(run: Path) -> None:
    """Compares with its own forward pass over pixels, with the weights that played."""
    model = load_module(run / "checkpoints" / "0001" / "policies" / "shared", frozen=True)
    vision = create_vision(model.config)
    assert vision
    for record in read_records(run, 2):
        (stream,) = record.streams["viewer"]
        pixels = torch.stack([vision.scale_image(span.data) for span in stream.media])[None]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([stream.ids]), pixel_values=pixels).logits[0]
            logits = torch.log_softmax(mask_placeholder(vision.image_token, logits), -1)
        for place in np.flatnonzero(stream.mask):
            assert stream.logprobs[place] == pytest.approx(float(logits[place - 1, stream.ids[place]]), abs=2e-4)


def test_one_level_of_one_pixel_changes_hash_and_log_probabilities(config: str, run: Path) -> None:
    """The same deal is shown with another image, so the tokens are equal."""
    model = load_module(run / "checkpoints" / "0001" / "policies" / "shared", frozen=True)
    record = read_records(run, 2)[0]
    game = compose([text_layer("test", config)]).game
    assert game
    other_game = games.make(game.name, change=1)
    assert isinstance(other_game, Pictures)
    other_game.reset(seed=record.seed)
    (image,) = [image for message in other_game.messages("viewer") for image in message.images]
    (stream,) = record.streams["viewer"]
    assert image.hash != stream.media[0].hash
    span = replace(stream.media[0], hash=image.hash, data=other_game.picture(image.hash))
    changed = replace(stream, media=[span, *stream.media[1:]])
    original, altered = score_streams(StreamScorer(model), [stream, changed], [1.0, 1.0])
    assert 0 < np.abs(original - altered).max() < 0.1


@pytest.mark.slow
def test_another_engine_gives_the_same_replies(config: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That engine runs transformers' own forward pass over all pixels for every token."""
    monkeypatch.setitem(ENGINES, "seeing", f"{PLACE}:Seeing")
    folder = run.parent / "toy"
    run_lab(folder, make_experiment(config, "engine.kind=seeing"))
    for k in (1, 2):
        for first, second in zip(read_records(run, k), read_records(folder, k), strict=True):
            assert [s.ids for s in first.streams["viewer"]] == [s.ids for s in second.streams["viewer"]]


def test_a_run_resumes_bit_by_bit(config: str, tmp_path: Path) -> None:
    check_resume(make_experiment(config, "iterations=3", "checkpoint.keep=9"), tmp_path)


@pytest.mark.parametrize(
    "assignments",
    [
        ("policies.shared.adapter={rank: 2}",),
        pytest.param(("precision=bf16", "learn.gate_tolerance=0.05"), marks=pytest.mark.slow),
        pytest.param(("learn.gradient_checkpointing=true",), marks=pytest.mark.slow),
        pytest.param(
            ("learn.replay={success: {above: -9, std: 9, mean: 9, keep: 2}}", "iterations=3"), marks=pytest.mark.slow
        ),
    ],
)
def test_settings_go_with_images(assignments: tuple[str, ...], config: str, tmp_path: Path) -> None:
    run_lab(tmp_path / "run", make_experiment(config, *assignments))
    assert len(RunFolder.open(tmp_path / "run").reader.metrics()) >= 2


def test_blind_model_reads_a_placeholder_and_is_noted(config: str) -> None:
    def list_image_notes(*assignments: str) -> list[str]:
        return [
            note
            for note in wait(preflight(make_experiment(config, *assignments), lambda text: None)).notes
            if "images" in note
        ]

    assert list_image_notes() == []
    (note,) = list_image_notes("policies.shared={model: nano}")
    assert "policy 'shared' cannot see: it reads [image png 64x48 00000000] instead" in note


@pytest.mark.slow
def test_a_stream_of_a_window_keeps_its_images(config: str, tmp_path: Path) -> None:
    """Each later stream repeats the last exchange with its image."""
    roles = Path(make_experiment(config).roles or "")
    (tmp_path / "roles").mkdir()
    text = (roles / "viewer.yaml").read_text()
    (tmp_path / "roles" / "viewer.yaml").write_text(f"{text}memory: {{kind: window, turns: 1}}\n")
    run_lab(tmp_path / "run", make_experiment(config, f"roles={tmp_path / 'roles'}", "game.options={rounds: 3}"))
    assert all(
        row["learn"]["shared"]["logprob_gap"] < 1e-5 for row in RunFolder.open(tmp_path / "run").reader.metrics()
    )
    for record in read_records(tmp_path / "run"):
        first, second = record.streams["viewer"]
        assert [span.hash for span in second.media][:1] == [span.hash for span in first.media][1:]
        assert len(second.media) == 2


@pytest.mark.slow
def test_a_limit_on_images_learns_from_each_context_as_it_was_sampled(config: str, tmp_path: Path) -> None:
    """Each later stream has the newest image, and a placeholder for each older one."""
    (tmp_path / "roles").mkdir()
    text = (Path(make_experiment(config).roles or "") / "viewer.yaml").read_text()
    (tmp_path / "roles" / "viewer.yaml").write_text(f"{text}images: {{keep: 1}}\n")
    run_lab(tmp_path / "run", make_experiment(config, f"roles={tmp_path / 'roles'}", "game.options={rounds: 3}"))
    assert all(
        row["learn"]["shared"]["logprob_gap"] < 1e-5 for row in RunFolder.open(tmp_path / "run").reader.metrics()
    )
    for record in read_records(tmp_path / "run"):
        shown = [image.hash for turn in record.turns for message in turn.messages for image in message.images]
        streams = record.streams["viewer"]
        assert [[span.hash for span in stream.media] for stream in streams] == [[hash] for hash in shown]
        assert [sorted(set(stream.turns) - {-1}) for stream in streams] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("none", "ChatError: image .* does not match its bytes"),
        ("svg", "ValueError: image .*: the image cannot be read: its format is unknown"),
        ("torn", "ValueError: image .*: the image cannot be read: image file is truncated"),
    ],
)
def test_unreadable_image_fails_its_match_in_one_line(fault: str, reason: str, config: str, tmp_path: Path) -> None:
    faulty = make_experiment(config, f"game.options={{fault: {fault}}}", "policies.shared.imitate=null", "iterations=1")
    with pytest.raises(PlayError, match=reason) as error:
        run_lab(tmp_path / "run", faulty)
    assert "\n" not in str(error.value)
