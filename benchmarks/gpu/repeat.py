"""Repeatability bit by bit: everything twice from one seed, a reply alone and in company, a resumed optimiser."""

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
from learners import Trainer, best_learner, made_up_lessons
from models import build, conversations, reply_to
from sheet import Sheet
from size import Size

from agents.engines.in_process import InProcessEngine
from agents.published import ModuleWeights
from agents.scoring import StreamScorer, scan_streams
from agents.weights import load_model, load_tokenizer, resolve
from arena.cli.loop import wait

Bits = dict[str, torch.Tensor]
LR, BUDGET = 1e-4, 2048


def repeat(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Everything twice in this process, as torch runs it by default and with its deterministic algorithms."""
    model, source = build(size.repeated, device)
    sheet.note("model", f"{size.repeated}, {source}")
    sheet.note("learner", best_learner()[0].name)
    for mode, context in {"default": _by_default, "deterministic algorithms": _deterministic}.items():
        for precision in ("fp32", "bf16"):
            bf16 = precision == "bf16"
            works = {
                "play": lambda bf16=bf16: _play(model, bf16, size),
                "score": lambda bf16=bf16: _score(model, bf16, size),
                "update": lambda bf16=bf16: _update(model, bf16, size),
            }
            for name, work in works.items():
                where = f"{name} twice, {precision}, {mode}"
                sheet.attempt(where, partial(_twice, sheet, where, context, work, device))
    sheet.attempt("a reply alone = in company", lambda: _company(sheet, model, size))


def resume(sheet: Sheet, size: Size, device: torch.device) -> None:
    """An optimiser that was saved, loaded or set back takes the step that it would have taken."""
    sheet.attempt("saved and loaded = never stopped", lambda: _resumed(sheet, size, device))
    sheet.attempt("set back = begun afresh", lambda: _set_back(sheet, size, device))


def _play(model: Any, bf16: bool, size: Size) -> Bits:
    streams, _ = conversations(model, bf16, size.streams, size.new)
    ids = torch.tensor([i for s in streams for i in s.ids])
    return {"ids": ids, "log-probabilities": torch.tensor([p for s in streams for p in s.logprobs])}


def _score(model: Any, bf16: bool, size: Size) -> Bits:
    lessons = made_up_lessons(model, bf16, size.streams, 64)
    scores = scan_streams(StreamScorer(model, bf16), [x.stream for x in lessons], [1.0] * len(lessons))
    return {"log-probabilities": torch.from_numpy(np.concatenate([s.logprobs for s in scores]))}


def _update(model: Any, bf16: bool, size: Size) -> Bits:
    """Weights after two steps."""
    own, lessons = copy.deepcopy(model), made_up_lessons(model, bf16, size.streams, 64)
    learner = best_learner()[0](own, bf16, LR, BUDGET, minibatches=2)
    learner.update(lessons)
    return _weights(own)


def _twice(
    sheet: Sheet, where: str, context: Callable[[], Any], work: Callable[[], Bits], device: torch.device
) -> None:
    with context() as told:
        same, figure = _compared(work(), work())
    sheet.note(where, {"bit_equal": same, "figure": figure, "torch_warns": sorted(told)})
    sheet.claim(where, figure, same if device.type == "cpu" else None)


def _compared(one: Bits, other: Bits) -> tuple[bool, str]:
    """Return True if all bits are the same, and the result in words."""
    for name, tensor in one.items():
        if tensor.shape != other[name].shape:
            return False, f"differs: other {name}"
    different = {n: t != other[n] for n, t in one.items()}
    share = sum(int(d.sum()) for d in different.values()) / sum(d.numel() for d in different.values())
    most = max(float((t.double() - other[n].double()).abs().max()) for n, t in one.items())
    if not share:
        return True, "bit-equal"
    return False, f"differs in {100 * share:.2g} % of numbers, by {most:.2g} at most"


def _company(sheet: Sheet, model: Any, size: Size) -> None:
    """The same requests one by one and all at once: how far the engine is batch-invariant."""
    rng, vocabulary = np.random.default_rng(1), model.config.vocab_size
    contexts = [rng.integers(vocabulary, size=32).tolist() for _ in range(min(8, size.streams))]
    requests = [reply_to(ids, f"{i}", min(8, size.new), (i,)) for i, ids in enumerate(contexts)]
    engine = InProcessEngine()
    wait(engine.publish("p", 1, ModuleWeights(model)))
    together = wait(engine.generate(requests))
    wait(engine.publish("p", 2, ModuleWeights(model)))
    alone = [wait(engine.generate([request]))[0] for request in requests]
    same = [a.ids == b.ids for a, b in zip(alone, together, strict=True)]
    gaps = [abs(a.logprobs[0] - b.logprobs[0]) for a, b in zip(alone, together, strict=True)]
    sheet.note("alone and in company", {"same_ids": sum(same), "of": len(same), "first_token_gap": max(gaps)})
    told = f"{sum(same)} of {len(same)} the same ids; first token's log-probability within {max(gaps):.2g}"
    sheet.claim("a reply alone = in company, fp32", told)


def _resumed(sheet: Sheet, size: Size, device: torch.device) -> None:
    """Two updates, saved; a third by who goes on, and by who loads."""
    model = build("nano", device)[0]
    lessons = made_up_lessons(model, False, size.streams, 64)
    with TemporaryDirectory() as folder, _deterministic():
        learner = Trainer(model, False, LR, BUDGET, gate_tolerance=1e9)
        for _ in range(2):
            learner.update(lessons)
        model.save_pretrained(folder)
        learner.trainer.write(Path(folder))
        load_tokenizer(resolve("nano")).save_pretrained(folder)
        other = load_model(Path(folder)).to(device)
        loaded = Trainer(other, False, LR, BUDGET, gate_tolerance=1e9)
        loaded.rng = copy.deepcopy(learner.rng)
        loaded.trainer.read(Path(folder), learner.trainer.state())
        learner.update(lessons)
        loaded.update(lessons)
    _same_weights(sheet, "saved and loaded = never stopped", model, other)


def _set_back(sheet: Sheet, size: Size, device: torch.device) -> None:
    """As imitation leaves the optimiser: its moments forgotten, then a step; against one that has never stepped."""
    models = [build("nano", device)[0] for _ in range(2)]
    lessons = made_up_lessons(models[0], False, size.streams, 64)
    with _deterministic():
        used, fresh = (Trainer(model, False, 0.0, BUDGET) for model in models)
        used.update(lessons)
        used.trainer.optimiser.moments.reset()
        for one in (used, fresh):
            one.rng = np.random.default_rng(0)
            one.trainer.rule = one.trainer.rule.model_copy(update={"lr": LR})
            one.update(lessons)
    _same_weights(sheet, "set back = begun afresh", *models)


def _same_weights(sheet: Sheet, claim: str, one: Any, other: Any) -> None:
    same, figure = _compared(_weights(one), _weights(other))
    sheet.note(claim, {"bit_equal": same, "figure": figure})
    sheet.claim(claim, figure, same)


def _weights(model: Any) -> Bits:
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters()}


@contextmanager
def _by_default() -> Iterator[set[str]]:
    yield set()


@contextmanager
def _deterministic() -> Iterator[set[str]]:
    """torch's deterministic algorithms; yields what torch says has none."""
    told: set[str] = set()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield told
            told |= {str(w.message).split(". ")[0][:120] for w in caught if "determin" in str(w.message)}
    finally:
        torch.use_deterministic_algorithms(False)
