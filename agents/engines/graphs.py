"""Record decoding steps as CUDA graphs, so that one call launches all kernels of a step.

A step of one token per row runs a thousand small kernels, and launching them one by one takes ten times as long as
running them. A graph has fixed shapes and addresses. All batches therefore share one storage, rows and columns are
rounded up, and graphs are dropped when weights or storage move.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from agents.engines.kv import KV, BatchKV
from agents.engines.step import step, supports_step

CAPTURE_AT = 2
"""A shape is recorded at its second use, because the first run selects the kernels of its matrix products."""
MAX_GRAPHS = 64
"""Maximum number of graphs per model, of some megabytes each; the least recently used one is dropped."""
_LENGTH_DEPENDENT = frozenset({"dynamic", "longrope"})
"""RoPE types whose frequencies depend on the length of the rows, and must be computed by the host."""


def can_record(model: Any) -> bool:
    """Return True if this model's decoding steps can be recorded: on a GPU, with weights at fixed addresses."""
    return (
        supports_step(model)
        and next(model.parameters()).device.type == "cuda"
        and (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") not in _LENGTH_DEPENDENT
    )


class BufferPool:
    """Buffers at fixed addresses, by name, shared by all models of an engine, which decode one after another."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}
        self.moves = 0
        """Number of times that a buffer moved or was freed; graphs recorded earlier are invalid."""

    def __call__(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return an uninitialised tensor in the buffer called `name`, which is replaced if it is too small."""
        size, buffer = math.prod(shape) * dtype.itemsize, self._buffers.get(name)
        if buffer is None or len(buffer) < size or buffer.device != device:
            del buffer
            self._buffers.pop(name, None)  # free it first, because two might not fit
            self._buffers[name] = torch.empty(size, dtype=torch.uint8, device=device)
            self.moves += 1
        return self._buffers[name][:size].view(dtype).view(shape)

    def make_batch(self, rows: list[KV], room: int, max_rows: int) -> BatchKV:
        """Return a decoding batch of these rows in shared storage, for up to `max_rows` rows and `room` more columns.

        Invalidates earlier batches in this storage.
        """
        first = rows[0].data
        layers, _, heads, _, dim = first.shape
        count, columns = (
            round_up_rows(max(max_rows, len(rows))),
            round_up_columns(max(len(row.ids) for row in rows) + room),
        )
        data = self("data", (layers, 2, count, heads, columns, dim), first.dtype, first.device).zero_()
        return BatchKV(rows, room, max_rows, (data, self("mask", (count, columns), torch.bool, first.device).zero_()))

    def clear(self) -> None:
        """Free all buffers, which invalidates the recorded graphs."""
        self._buffers.clear()
        self.moves += 1


class GraphCache:
    """Decoding steps of one model, recorded as CUDA graphs. On a CPU it computes the same without recording."""

    def __init__(self, buffers: BufferPool) -> None:
        self.buffers = buffers
        self._steps: OrderedDict[tuple[int, ...], _Step] = OrderedDict()
        self._recorder: _Recorder | None = None
        self._key: tuple[object, ...] = ()
        self._moves = buffers.moves

    def drop_stale(self, model: Any, *more: object) -> None:
        """Drop all graphs if the model's weights moved or the values `more` changed since the last call."""
        addresses = (*_list_addresses(model), *more)
        if addresses != self._key:
            self._drop_graphs()
            self._key = addresses

    def _drop_graphs(self) -> None:
        """Drop the graphs and their memory pool, because torch cannot capture into a pool without live graphs."""
        self._steps.clear()
        self._recorder = None

    def __call__(self, model: Any, batch: BatchKV, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Run one decoding step and return the logits [B, vocabulary], valid until the next call.

        `tokens` [B] are new ids at `positions` [B, 1]. Computes the same as `step` on a batch in this storage, whose
        mask selects the columns to attend to. A shape is recorded at its second use.
        """
        count = round_up_rows(len(tokens))
        logits = self.buffers("logits", (count, model.config.vocab_size), torch.float32, tokens.device)
        if self.buffers.moves != self._moves:
            self._drop_graphs()
            self._moves = self.buffers.moves
        key = (count, *batch.full_data.shape)
        if key not in self._steps:
            self._steps[key] = _Step(batch.full_data[:, :, :count], batch.full_mask[:count])
            if len(self._steps) > MAX_GRAPHS:
                self._steps.popitem(last=False)
        current = self._steps[key]
        self._steps.move_to_end(key)
        current.set_inputs(tokens, positions, batch.filled)
        if current.graph is None and batch.full_data.is_cuda and current.runs >= CAPTURE_AT:
            self._recorder = self._recorder or _Recorder()
            current.graph, current.logits = self._recorder(partial(current.compute, model), logits), logits
        if current.graph is None:
            return current.compute(model)[: len(tokens)]
        current.graph.replay()
        return current.logits[: len(tokens)]


class _Recorder:
    """Recorder of CUDA graphs, which share one memory pool because they run one after another."""

    def __init__(self) -> None:
        self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, compute: Callable[[], torch.Tensor], output: torch.Tensor) -> Any:
        """Record `compute` and return a graph that writes its result to `output`. Recording runs no kernel."""
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):  # not torch.cuda.graph, which empties the allocator's cache every time
            graph.capture_begin(self._pool, "thread_local")
            try:
                output.copy_(compute())
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph


class _Step:
    """Inputs of decoding steps of one shape, and their CUDA graph once it is recorded."""

    def __init__(self, data: torch.Tensor, mask: torch.Tensor) -> None:
        self.data, self.mask, self.runs = data, mask, 0
        self.tokens = torch.zeros(len(mask), dtype=torch.long, device=mask.device)
        self.places = torch.zeros((len(mask), 1), dtype=torch.long, device=mask.device)
        self.column = torch.zeros(1, dtype=torch.long, device=mask.device)
        self.graph: Any = None
        self.logits = torch.empty(0)

    def set_inputs(self, tokens: torch.Tensor, positions: torch.Tensor, column: int) -> None:
        """Set the inputs of the next run and count it; extra rows compute unused results."""
        self.tokens[: len(tokens)], self.places[: len(tokens)] = tokens, positions
        self.column.fill_(column)
        self.runs += 1

    def compute(self, model: Any) -> torch.Tensor:
        """Run the decoding step on the inputs and return logits [rows, vocabulary]."""
        device = self.mask.device.type
        with torch.autocast(  # its cached casts of weights would have other addresses in the next run
            device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device), cache_enabled=False
        ):
            return step(model, self.data, self.tokens, self.places, self.mask, self.column)


def round_up_rows(count: int) -> int:
    """Round up a number of rows to one of 1, 2, 4, 6, 8, 12, 16, 24, 32, ..., to limit the number of shapes."""
    power = 1 << max(0, count - 1).bit_length()
    return 3 * power // 4 if power >= 4 and count <= 3 * power // 4 else power


def round_up_columns(count: int) -> int:
    """Round up a number of columns to 64 times one of 1, 2, 4, 6, 8, 12, ... (see `round_up_rows`)."""
    return 64 * round_up_rows(-(-count // 64))


def _list_addresses(model: Any) -> tuple[int, ...]:
    """Return the memory addresses of the model's weights and biases that are on a GPU."""
    values = (getattr(module, name, None) for module in model.modules() for name in ("weight", "bias"))
    return tuple(value.data_ptr() for value in values if isinstance(value, torch.Tensor) and value.is_cuda)
