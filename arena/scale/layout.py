"""Layout of named tensors as one sequence of bytes, which is split into buckets of equal size for transfer.

The same layout serves for weights sent to engines and for checkpoints: the data section of a safetensors file is the
concatenation of all buckets. No process needs to hold more than one bucket.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import NamedTuple, Self

import torch

BUCKET = 256 << 20
"""Bytes of a bucket in a broadcast to engines."""
SHARED_BUCKET = 32 << 20
"""Bytes of each of the two buckets in memory shared by processes on one machine."""
FILE_BUCKET = 64 << 20
"""Bytes of a bucket that is read from or written to a file by the driver."""
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
           "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
           "BOOL": torch.bool}  # fmt: skip
"""Dtypes by safetensors name."""
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

PlainSpec = tuple[str, Sequence[int], str]
"""(name, shape, safetensors dtype name) of a tensor, as JSON-able values."""
Gather = Callable[[str], AbstractContextManager[torch.Tensor]]
"""(tensor's name) -> a context in which the tensor is complete. All ranks must enter it together."""


class TensorSpec(NamedTuple):
    """Name, shape and dtype of a tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.elements * self.dtype.itemsize


class Slice(NamedTuple):
    """Part of a tensor in a bucket: elements `start` to `stop`, stored at byte offset `offset` of the bucket."""

    spec: TensorSpec
    start: int
    stop: int
    offset: int

    def view(self, bucket: torch.Tensor) -> torch.Tensor:
        """Return the slice's elements as a view of the bucket, a flat tensor of bytes."""
        end = self.offset + (self.stop - self.start) * self.spec.dtype.itemsize
        return bucket[self.offset : end].view(self.spec.dtype)


@dataclass(frozen=True)
class Layout:
    """Order of tensors in a byte sequence. Tensors with the widest dtypes come first, so that all are aligned."""

    specs: tuple[TensorSpec, ...]

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> Self:
        """Return the layout of these tensors. Tensors with dtypes of equal width keep their order."""
        specs = [TensorSpec(name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()]
        return cls(tuple(sorted(specs, key=lambda spec: -spec.dtype.itemsize)))

    def of_dtype(self, dtype: torch.dtype) -> Self:
        """Return a copy of the layout in which all floating-point tensors have this dtype."""
        specs = (spec._replace(dtype=dtype) if spec.dtype.is_floating_point else spec for spec in self.specs)
        return type(self)(tuple(sorted(specs, key=lambda spec: -spec.dtype.itemsize)))

    def to_plain(self) -> list[PlainSpec]:
        """Return the layout as JSON-able values."""
        return [(spec.name, list(spec.shape), _NAMES[spec.dtype]) for spec in self.specs]

    @classmethod
    def from_plain(cls, specs: Sequence[PlainSpec]) -> Self:
        """Restore a layout from the result of `to_plain`."""
        return cls(tuple(TensorSpec(name, tuple(shape), _DTYPES[dtype]) for name, shape, dtype in specs))

    @cached_property
    def total(self) -> int:
        """Total number of bytes."""
        return sum(spec.size for spec in self.specs)

    def buckets(self, size: int) -> range:
        """Return the indices of all buckets of `size` bytes, which must be a multiple of 8."""
        return range(ceil(self.total / size))

    def length(self, number: int, size: int) -> int:
        """Return the number of bytes in bucket `number`. Only the last bucket can be shorter than `size`."""
        return min(size, self.total - number * size)

    def slices(self, number: int, size: int) -> Iterator[Slice]:
        """Yield the tensor slices in bucket `number`, in order."""
        first, last, offset = number * size, min((number + 1) * size, self.total), 0
        for spec in self.specs:
            begin, end = max(offset, first), min(offset + spec.size, last)
            if begin < end:
                width = spec.dtype.itemsize
                yield Slice(spec, (begin - offset) // width, (end - offset) // width, begin - first)
            offset += spec.size

    def fill(self, number: int, size: int, gather: Gather, bucket: torch.Tensor | None) -> None:
        """Copy the tensors' current values in bucket `number`, cast to the layout's dtypes, into `bucket`.

        Ranks that share the tensors must call this together; a rank that needs no copy passes None.
        """
        for part in self.slices(number, size):
            with gather(part.spec.name) as tensor:
                if bucket is not None:
                    part.view(bucket).copy_(tensor.detach().reshape(-1)[part.start : part.stop])

    def header(self, metadata: Mapping[str, str]) -> bytes:
        """Return the start of a safetensors file, up to its data: the header's length and the header."""
        entries, offset = {"__metadata__": dict(metadata)} if metadata else {}, 0
        for spec in self.specs:
            shape, offsets = list(spec.shape), [offset, offset + spec.size]
            entries[spec.name] = {"dtype": _NAMES[spec.dtype], "shape": shape, "data_offsets": offsets}  # type: ignore[dict-item]
            offset += spec.size
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    @classmethod
    def read_file(cls, path: Path) -> tuple[Self, int]:
        """Return the layout of a safetensors file written by Arena, and the byte offset of its data."""
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        each = sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"])
        specs = tuple(TensorSpec(n, tuple(one["shape"]), _DTYPES[one["dtype"]]) for n, one in each)
        return cls(specs), 8 + length
