"""Repeatability to the bit: all work twice from one seed, replies alone and in a batch, a resumed optimiser."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from learners import ArenaLearner, choose_learner, make_lessons
from models import build_model, make_request, play_conversations
from safetensors.torch import save_file
from sheet import Sheet
from size import Size

from agents.engines.in_process import InProcessEngine
from agents.model_folder import load_model, load_tokenizer
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, score_with_entropy
from agents.weights import resolve
from arena.cli.loop import wait

Bits = dict[str, torch.Tensor]
LR, BUDGET = 1e-4, 2048


def check_repeats(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Do all work twice in this process, with torch's default algorithms and with its deterministic ones."""
    model, source = build_model(size.repeated_model, device)
    sheet.note("model", f"{size.repeated_model}, {source}")
    sheet.note("learner", choose_learner()[0].name)
    for mode, context in {"default": _use_default, "deterministic algorithms": _use_deterministic}.items():
        for precision in ("fp32", "bf16"):
            bf16 = precision == "bf16"
            works = {
                "play": lambda bf16=bf16: _play(model, bf16, size),
                "score": lambda bf16=bf16: _score(model, bf16, size),
                "update": lambda bf16=bf16: _update(model, bf16, size),
            }
            for name, work in works.items():
                label = f"{name} twice, {precision}, {mode}"
                sheet.attempt(label, partial(_run_twice, sheet, label, context, work, device))
    sheet.attempt("a reply alone = in a batch", lambda: _check_batch_invariance(sheet, model, size))


def check_resume(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Check the steps of an optimiser that was saved and loaded, and of one that was reset."""
    sheet.attempt("saved and loaded = never stopped", lambda: _check_loaded(sheet, size, device))
    sheet.attempt("set back = begun afresh", lambda: _check_reset(sheet, size, device))


def _play(model: Any, bf16: bool, size: Size) -> Bits:
    streams, _ = play_conversations(model, bf16, size.streams, size.reply_tokens)
    ids = torch.tensor([i for s in streams for i in s.ids])
    return {"ids": ids, "log-probabilities": torch.tensor([p for s in streams for p in s.logprobs])}


def _score(model: Any, bf16: bool, size: Size) -> Bits:
    lessons = make_lessons(model, bf16, size.streams, 64)
    scores = score_with_entropy(StreamScorer(model, bf16), [x.stream for x in lessons], [1.0] * len(lessons))
    return {"log-probabilities": torch.from_numpy(np.concatenate([s.logprobs for s in scores]))}


def _update(model: Any, bf16: bool, size: Size) -> Bits:
    """Return the weights after two steps."""
    copied, lessons = copy.deepcopy(model), make_lessons(model, bf16, size.streams, 64)
    learner = choose_learner()[0](copied, bf16, LR, BUDGET, minibatches=2)
    learner.update(lessons)
    return _copy_weights(copied)


def _run_twice(
    sheet: Sheet, label: str, context: Callable[[], Any], work: Callable[[], Bits], device: torch.device
) -> None:
    with context() as warnings_seen:
        same, figure = _compare(work(), work())
    sheet.note(label, {"bit_equal": same, "figure": figure, "torch_warns": sorted(warnings_seen)})
    sheet.claim(label, figure, same if device.type == "cpu" else None)


def _compare(one: Bits, other: Bits) -> tuple[bool, str]:
    """Return whether all bits are equal, and the result in words."""
    for name, tensor in one.items():
        if tensor.shape != other[name].shape:
            return False, f"differs: other {name}"
    different = {n: t != other[n] for n, t in one.items()}
    share = sum(int(d.sum()) for d in different.values()) / sum(d.numel() for d in different.values())
    largest = max(float((t.double() - other[n].double()).abs().max()) for n, t in one.items())
    if not share:
        return True, "bit-equal"
    return False, f"differs in {100 * share:.2g} % of numbers, by {largest:.2g} at most"


def _check_batch_invariance(sheet: Sheet, model: Any, size: Size) -> None:
    """Compare replies to the same requests one by one with replies in one batch."""
    rng, vocabulary = np.random.default_rng(1), model.config.vocab_size
    contexts = [rng.integers(vocabulary, size=32).tolist() for _ in range(min(8, size.streams))]
    requests = [make_request(ids, f"{i}", min(8, size.reply_tokens), (i,)) for i, ids in enumerate(contexts)]
    engine = InProcessEngine()
    wait(engine.publish("p", 1, ModuleWeights(model)))
    together = wait(engine.generate(requests))
    wait(engine.publish("p", 2, ModuleWeights(model)))
    alone = [wait(engine.generate([request]))[0] for request in requests]
    same = [a.ids == b.ids for a, b in zip(alone, together, strict=True)]
    gaps = [abs(a.logprobs[0] - b.logprobs[0]) for a, b in zip(alone, together, strict=True)]
    sheet.note("alone and in company", {"same_ids": sum(same), "of": len(same), "first_token_gap": max(gaps)})
    text = f"{sum(same)} of {len(same)} the same ids; first token's log-probability within {max(gaps):.2g}"
    sheet.claim("a reply alone = in a batch, fp32", text)


def _check_loaded(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Save a learner after two updates, load it, and compare the third update of both."""
    model = build_model("nano", device)[0]
    lessons = make_lessons(model, False, size.streams, 64)
    with TemporaryDirectory() as folder, _use_deterministic():
        learner = ArenaLearner(model, False, LR, BUDGET, gate_tolerance=1e9)
        for _ in range(2):
            learner.update(lessons)
        model.save_pretrained(folder)
        save_file(wait(learner.trainer.save()), Path(folder) / "optimizer.safetensors")
        load_tokenizer(resolve("nano")).save_pretrained(folder)
        other = load_model(Path(folder)).to(device)
        loaded = ArenaLearner(other, False, LR, BUDGET, gate_tolerance=1e9)
        loaded.rng = copy.deepcopy(learner.rng)
        wait(loaded.trainer.load(Path(folder), learner.trainer.state()))
        learner.update(lessons)
        loaded.update(lessons)
    _claim_same_weights(sheet, "saved and loaded = never stopped", model, other)


def _check_reset(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Compare the first step after a reset of the optimiser, as after imitation, with a new optimiser's first step."""
    models = [build_model("nano", device)[0] for _ in range(2)]
    lessons = make_lessons(models[0], False, size.streams, 64)
    with _use_deterministic():
        trained, fresh = (ArenaLearner(model, False, 0.0, BUDGET) for model in models)
        trained.update(lessons)
        trained.trainer.optimiser.moments.reset()
        for learner in (trained, fresh):
            learner.rng = np.random.default_rng(0)
            learner.trainer.rule = learner.trainer.rule.model_copy(update={"lr": LR})
            learner.update(lessons)
    _claim_same_weights(sheet, "set back = begun afresh", *models)


def _claim_same_weights(sheet: Sheet, claim: str, one: Any, other: Any) -> None:
    same, figure = _compare(_copy_weights(one), _copy_weights(other))
    sheet.note(claim, {"bit_equal": same, "figure": figure})
    sheet.claim(claim, figure, same)


def _copy_weights(model: Any) -> Bits:
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters()}


@contextmanager
def _use_default() -> Iterator[set[str]]:
    yield set()


@contextmanager
def _use_deterministic() -> Iterator[set[str]]:
    """Use torch's deterministic algorithms. Yields a set that is filled with torch's warnings about missing ones."""
    warnings_seen: set[str] = set()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield warnings_seen
            warnings_seen |= {str(w.message).split(". ")[0][:120] for w in caught if "determin" in str(w.message)}
    finally:
        torch.use_deterministic_algorithms(False)
