"""Cautious next-token sampling: where the policy is uncertain, sample several continuations and keep the likeliest.

A reply is sampled as usual up to the first token whose distribution has an entropy H above `low`. There

    N = int(1 + (most - 1) · clip((H - low) / (high - low), 0, 1))

continuations are sampled up to the next mark (one of . , ? ! : ; ) ] } or a line's end). The one with the lowest mean
of -log p is kept, and sampling continues. The log-probabilities are the policy's, not those of the selection, so no
policy may learn from such replies. The method helps if correct continuations are confident and hurts if wrong ones are.
Source: CNTP (Wang et al. 2025), most 40, low .01, high 1.5.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from agents.engines.base import Completion, Request
from agents.engines.kinds import list_kinds_with
from agents.errors import RoleError
from agents.players.writers import Writer
from agents.role import Cautious
from games.contracts import View

MARKS = ".,\n?!:;)]}"


def make_cautious_writer(write: Writer, rule: Cautious, marks: frozenset[int]) -> Writer:
    """Return a writer that samples cautiously from `write`: at uncertain tokens, it keeps the likeliest of some trials.

    `marks` are the token ids that end a trial. The writer raises RoleError if the engine reports no entropies.
    """

    async def write_cautiously(view: View, request: Request, summary: bool = False) -> Completion:
        done = Completion((), (), "length", 0)

        async def try_continuation(begun: Completion, *place: int) -> Completion:
            return await write(view, _continue_request(request, begun, marks, place), summary)

        for step in count():
            trial = await try_continuation(done, step, 0)
            uncertain = next(
                (i for i, h in enumerate(_require_entropies(trial, request)) if count_trials(h, rule) > 1), None
            )
            if uncertain is None:
                done = _append_tokens(done, trial, len(trial.ids))
            else:
                number = count_trials(_require_entropies(trial, request)[uncertain], rule)
                done, first = _append_tokens(done, trial, uncertain), _skip_tokens(trial, uncertain)
                others = await asyncio.gather(*[try_continuation(done, step, i) for i in range(1, number)])
                best = min((first, *others), key=lambda trial: -sum(trial.logprobs) / max(1, len(trial.ids)))
                done = _append_tokens(done, best, len(best.ids))
            if done.ids and done.ids[-1] in request.stop_ids:
                return replace(done, finish="stop")
            if len(done.ids) >= request.max_tokens:
                return replace(done, finish="length")
        raise AssertionError("count never ends")

    return write_cautiously


def count_trials(entropy: float, rule: Cautious) -> int:
    """Return the number of continuations to sample at an entropy in nats: 1 up to `low`, `most` from `high` on."""
    uncertainty = min(1.0, max(0.0, (entropy - rule.low) / (rule.high - rule.low)))
    return int(1 + (rule.most - 1) * uncertainty)


def _continue_request(request: Request, begun: Completion, marks: frozenset[int], place: Sequence[int]) -> Request:
    """Return the request that continues a reply after `begun` up to one of `marks`; `place` extends its seed."""
    return replace(
        request,
        ids=(*request.ids, *begun.ids),
        max_tokens=request.max_tokens - len(begun.ids),
        stop_ids=request.stop_ids | marks,
        seed=(*request.seed, *place),
        entropy=True,
    )


def _require_entropies(completion: Completion, request: Request) -> Sequence[float]:
    if completion.entropy is None:
        raise RoleError(
            f"sampling.cautious needs entropies, which the engine of {request.policy} does not report: set engine.kind "
            f"to {list_kinds_with('records_entropy')}, or leave cautious out of the role"
        )
    return completion.entropy


def _append_tokens(done: Completion, more: Completion, count: int) -> Completion:
    """Return `done` extended by the first `count` tokens of `more`."""
    entropy = (*(done.entropy or ()), *(more.entropy or ())[:count])
    ids, logprobs = (*done.ids, *more.ids[:count]), (*done.logprobs, *more.logprobs[:count])
    return Completion(ids, logprobs, more.finish, more.version, entropy)


def _skip_tokens(completion: Completion, count: int) -> Completion:
    """Return a completion without its first `count` tokens."""
    entropy = (completion.entropy or ())[count:]
    return replace(completion, ids=completion.ids[count:], logprobs=completion.logprobs[count:], entropy=entropy)
