"""Attention caches of streams, and of batches of streams."""

from collections import OrderedDict
from dataclasses import dataclass
from weakref import proxy

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, DynamicLayer

from agents.packing import count_shared


@dataclass(frozen=True)
class KV:
    """Attention keys and values of one stream's tokens `ids`: `data` is [layers, 2, kv_heads, len(ids), head_dim].

    In `ids` images have keys (`agents.stream.compute_keys`), so that contexts with equal ids have equal caches.
    """

    ids: tuple[int, ...]
    data: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Size of the keys and values in bytes."""
        return self.data.numel() * self.data.element_size()


class KVStore:
    """LRU cache of streams' keys and values by stream name, limited to `budget` bytes and `max_streams` streams."""

    def __init__(self, budget: int, max_streams: int = 10**9) -> None:
        self.budget, self.max_streams = budget, max_streams
        self._caches: OrderedDict[str, KV] = OrderedDict()
        self._bytes = 0

    def longest_prefix(self, key: str, ids: tuple[int, ...]) -> KV | None:
        """Return this key's cache, cut to its common prefix with `ids[:-1]`; None if they share nothing."""
        cached = self._caches.get(key)
        if cached is None:
            return None
        self._caches.move_to_end(key)
        if len(cached.ids) < len(ids) and cached.ids == ids[: len(cached.ids)]:
            return cached
        pairs = enumerate(zip(cached.ids, ids[:-1], strict=False))
        common = next((i for i, (a, b) in pairs if a != b), min(len(cached.ids), len(ids) - 1))
        return KV(ids[:common], cached.data[:, :, :, :common]) if common else None

    def find_nearest(self, ids: tuple[int, ...]) -> KV | None:
        """Return the cache of the longest prefix of `ids` stored under any key; None if there is none."""
        shared = {key: count_shared(kv.ids, ids) for key, kv in self._caches.items()}
        key = max(shared, key=shared.__getitem__, default=None)
        if key is None or not shared[key]:
            return None
        self._caches.move_to_end(key)
        return KV(ids[: shared[key]], self._caches[key].data[:, :, :, : shared[key]])

    def put(self, key: str, kv: KV) -> None:
        """Store a stream's cache under a key and evict the least recently used streams while over the limits."""
        self.drop(key)
        self._caches[key] = kv
        self._bytes += kv.nbytes
        while len(self._caches) > 1 and (self._bytes > self.budget or len(self._caches) > self.max_streams):
            self.drop(next(iter(self._caches)))

    def drop(self, key: str) -> None:
        """Drop a stream's cache, if any."""
        if (old := self._caches.pop(key, None)) is not None:
            self._bytes -= old.nbytes


class _BufferLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's view of the batch buffer: new columns are written in place, not concatenated."""

    def __init__(self, batch: "BatchKV", layer: int) -> None:
        super().__init__()
        # a cycle of references would keep the buffers until garbage collection, beside those of later batches
        self.batch: BatchKV = proxy(batch)  # type: ignore[assignment]
        self.layer, self.is_initialized = layer, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start, end = self.batch.filled, self.batch.filled + key_states.shape[-2]
        buffer = self.batch.data[self.layer]
        buffer[0, :, :, start:end] = key_states
        buffer[1, :, :, start:end] = value_states
        return buffer[0, :, :, :end], buffer[1, :, :, :end]

    def get_seq_length(self) -> int:
        return self.batch.filled


class BatchKV(Cache):  # type: ignore[misc]  # transformers is untyped here
    """Right-aligned attention caches of B streams: `data` is [layers, 2, B, kv_heads, capacity, head_dim].

    `mask` [B, capacity] is True for columns that hold tokens. `full_data` and `full_mask` include rows reserved for
    later. A forward pass fills the columns from `filled`; call `advance` after it.
    """

    def __init__(
        self, rows: list[KV], room: int, max_rows: int = 0, storage: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> None:
        """Join the rows' caches. `room`: number of columns to reserve for new tokens; `max_rows`: maximum rows later.

        `storage` are zeroed tensors for data and mask; by default they are allocated.
        """
        first, max_rows = rows[0].data, max(max_rows, len(rows))
        layers, _, heads, _, dim = first.shape
        past = max(len(row.ids) for row in rows)
        self.is_fixed = storage is not None
        """Whether the batch uses storage at a fixed address."""
        if storage is None:
            data = first.new_zeros((layers, 2, max_rows, heads, past + room, dim))
            storage = data, torch.zeros((max_rows, past + room), dtype=torch.bool, device=first.device)
        self.full_data, self.full_mask = storage
        self._use_rows(len(rows))
        for i, row in enumerate(rows):
            start = past - len(row.ids)
            self.data[:, :, i, :, start:past] = row.data
            self.mask[i, start:past] = True
        self.filled = past
        super().__init__(layers=[_BufferLayer(self, layer) for layer in range(layers)])

    def advance(self, columns: int) -> None:
        """Move `filled` past the columns that the forward pass wrote in every layer."""
        self.filled += columns

    def select_mask(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the mask over all reserved columns instead of `mask` [B, S] if attention is then cheaper.

        In bfloat16 on a CPU torch copies keys and values unless they are contiguous.
        """
        copies = self.data.dtype == torch.bfloat16 and self.data.device.type == "cpu"
        return self.mask if copies and self.mask.shape[1] <= _COPY_COST * mask.shape[1] else mask

    def _use_rows(self, rows: int) -> None:
        """Make `data` and `mask` cover the first `rows` rows of the storage."""
        self.data, self.mask = self.full_data[:, :, :rows], self.full_mask[:rows]

    def copy_row(self, source: int, target: int) -> None:
        """Copy row `source` over row `target`, or append it if `target` is the number of rows."""
        self._use_rows(max(len(self.mask), target + 1))
        self.data[:, :, target, :, : self.filled] = self.data[:, :, source, :, : self.filled]
        self.mask[target] = self.mask[source]

    def keep_rows(self, rows: list[int]) -> None:
        """Keep only these rows, given in increasing order, and move them to the front."""
        for target, source in enumerate(rows):
            if target != source:
                self.copy_row(source, target)
        self._use_rows(len(rows))

    def copy_out(self, i: int) -> torch.Tensor:
        """Return a copy of the columns that hold one stream's tokens, [layers, 2, kv_heads, length, head_dim]."""
        columns = self.mask[i, : self.filled].nonzero().squeeze(-1)
        first, last = columns[[0, -1]].tolist()
        if last - first + 1 == len(columns):  # the usual case: copying one block is several times as fast
            return self.data[:, :, i, :, first : last + 1].clone(memory_format=torch.contiguous_format)
        return self.data[:, :, i].index_select(3, columns)


_COPY_COST = 2
"""Copying columns and reading the copy takes about as long as reading this many times as many columns in place."""


def empty_kv(config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> KV:
    """Return an attention cache without tokens, with the layers, heads and width of a model's config."""
    text = config.get_text_config(decoder=True)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return KV((), torch.zeros((text.num_hidden_layers, 2, heads, 0, dim), dtype=dtype, device=device))
