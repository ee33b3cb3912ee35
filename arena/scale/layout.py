"""Layout of named tensors as one sequence of bytes, which is transferred in buckets of equal size.

The same layout describes weights that are sent to engines, and checkpoint files: the data of a safetensors file is the
concatenation of its buckets. No process needs to hold more than a bucket.
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
"""Bytes of a bucket that is sent to engines."""
SHARED_BUCKET = 32 << 20
"""Bytes of each of the two buckets that processes on one machine share."""
FILE_BUCKET = 64 << 20
"""Bytes of a bucket that is read from or written to a file. It passes through the driver."""
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
           "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
           "BOOL": torch.bool}  # fmt: skip
"""Dtypes by their names in safetensors files."""
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Plain = tuple[str, Sequence[int], str]
"""Name and shape of a tensor, and its dtype's name in safetensors files."""
Gather = Callable[[str], AbstractContextManager[torch.Tensor]]
"""Function from a tensor's name to a context in which the tensor is complete, on all ranks that enter it together."""


class Spec(NamedTuple):
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
    """Part of a tensor in a bucket: elements `start` to `stop`, which begin at byte `at` of the bucket."""

    spec: Spec
    start: int
    stop: int
    at: int

    def view(self, bucket: torch.Tensor) -> torch.Tensor:
        """Return the slice's elements as a view of the bucket, a flat tensor of bytes."""
        end = self.at + (self.stop - self.start) * self.spec.dtype.itemsize
        return bucket[self.at : end].view(self.spec.dtype)


@dataclass(frozen=True)
class Layout:
    """Tensors in the order of their bytes. The widest dtypes come first, so that every tensor is aligned."""

    specs: tuple[Spec, ...]

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> Self:
        """Return the layout of these tensors: those with the widest dtypes first, and otherwise in their order."""
        each = [Spec(name, tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()]
        return cls(tuple(sorted(each, key=lambda spec: -spec.dtype.itemsize)))

    def of_dtype(self, dtype: torch.dtype) -> Self:
        """Return a copy of the layout with this dtype for all floating-point tensors."""
        specs = (spec._replace(dtype=dtype) if spec.dtype.is_floating_point else spec for spec in self.specs)
        return type(self)(tuple(sorted(specs, key=lambda spec: -spec.dtype.itemsize)))

    def to_plain(self) -> list[Plain]:
        """Return the layout as JSON-able values."""
        return [(spec.name, list(spec.shape), _NAMES[spec.dtype]) for spec in self.specs]

    @classmethod
    def of_plain(cls, specs: Sequence[Plain]) -> Self:
        """Return the layout from the result of `to_plain`."""
        return cls(tuple(Spec(name, tuple(shape), _DTYPES[dtype]) for name, shape, dtype in specs))

    @cached_property
    def total(self) -> int:
        """Number of bytes of all tensors."""
        return sum(spec.size for spec in self.specs)

    def buckets(self, size: int) -> range:
        """Return the numbers of all buckets of `size` bytes; `size` must be a multiple of 8."""
        return range(ceil(self.total / size))

    def length(self, number: int, size: int) -> int:
        """Return the number of bytes in a bucket; the last one may be shorter than `size`."""
        return min(size, self.total - number * size)

    def slices(self, number: int, size: int) -> Iterator[Slice]:
        """Yield the slices of tensors in a bucket, in order."""
        first, last, at = number * size, min((number + 1) * size, self.total), 0
        for spec in self.specs:
            begin, end = max(at, first), min(at + spec.size, last)
            if begin < end:
                width = spec.dtype.itemsize
                yield Slice(spec, (begin - at) // width, (end - at) // width, begin - first)
            at += spec.size

    def fill(self, number: int, size: int, gather: Gather, bucket: torch.Tensor | None) -> None:
        """Copy the current values of the tensors in a bucket, cast to the layout's dtypes, into `bucket`.

        Ranks that share the tensors must call this together; those that need no copy pass None.
        """
        for part in self.slices(number, size):
            with gather(part.spec.name) as tensor:
                if bucket is not None:
                    part.view(bucket).copy_(tensor.detach().reshape(-1)[part.start : part.stop])

    def header(self, metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of a safetensors file before its data: the header's length and the header."""
        entries, at = {"__metadata__": dict(metadata)} if metadata else {}, 0
        for spec in self.specs:
            shape, offsets = list(spec.shape), [at, at + spec.size]
            entries[spec.name] = {"dtype": _NAMES[spec.dtype], "shape": shape, "data_offsets": offsets}  # type: ignore[dict-item]
            at += spec.size
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    @classmethod
    def read_file(cls, path: Path) -> tuple[Self, int]:
        """Return the layout of a safetensors file that Arena wrote, and the offset of its data."""
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        each = sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"])
        specs = tuple(Spec(n, tuple(one["shape"]), _DTYPES[one["dtype"]]) for n, one in each)
        return cls(specs), 8 + length
