"""Weights as compressed tables: how tensors are cut into rows, which lie in GPU memory, and the caches that hold them.

A weight is a table whose rows follow each other in its memory. Rows of 2 to 8 KiB are compressed best and read fastest; rows of a matrix are joined, or cut into
equal parts, to be of that length. The tables of a group of weights are opened as one cache, and the originals are freed before the next group is read: so a model in
memory is never there twice.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from .._open import open as open_table
from .._settings import Resident
from ..cache import Cache
from ..errors import Error
from ..table import Table

MIN_BYTES = 4096  # smaller tensors stay as they are
_SHORT, _LONG = 2048, 8192  # bytes of a row, at least and at most if the tensor's shape allows it
_TABLES = 128  # tables that are opened as one cache; the library takes 256
_GROUP = 1 << 28  # bytes of weights that are opened together, unless an eighth of the model is more
_SAMPLE = 64  # rows by which a weight's compressed length is estimated
_WORDS = 8  # bytes of GPU memory that a resident row takes besides its slot
_ALIGNED = 512  # bytes that a resident table may take more, as its parts are aligned


@dataclass
class Weight:
    """A parameter that is held as a table.

    ``read`` returns the tensor, of the module's device and ``row`` elements a row. ``unit`` is the leading axis along which parts are read alone: the experts of a stack, else 1.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor]
    row: int
    unit: int = 1
    codec: str = "none"
    stored: int = 0  # estimated bytes of all compressed rows
    target: int = 0  # bytes of a slot if the weight is resident
    kind: str = "streamed"  # or resident, or cached: the rows that are used most are in GPU memory
    table: Optional[Table] = field(default=None, repr=False)
    all_numbers: Any = field(default=None, repr=False)  # 0, 1, 2, … on the device, at least as many as there are rows
    _host: Any = field(default=None, repr=False)  # a weak reference to what host returned

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * int(self.dtype.itemsize)

    @property
    def rows(self) -> int:
        return math.prod(self.shape) // self.row

    @property
    def row_bytes(self) -> int:
        return self.row * int(self.dtype.itemsize)

    @property
    def resident_bytes(self) -> int:
        """GPU memory that the weight takes if it is resident."""
        return self.rows * (self.target + _WORDS) + _ALIGNED

    def opened(self) -> Table:
        """The table."""
        if self.table is None:
            raise Error(f"tensorcache: weight {self.name} is not open")
        return self.table

    def decode(self, out: torch.Tensor, part: Optional[int] = None) -> None:
        """Decodes the weight, or one of its parts, into contiguous bytes, in the order of the current stream."""
        each = self.rows // self.unit
        numbers = self.all_numbers[: self.rows] if part is None else self.all_numbers[part * each : (part + 1) * each]
        self.opened().gather(numbers, out=out.view(self.dtype).view(-1, self.row))

    def fresh(self) -> torch.Tensor:
        """The tensor in memory of its own."""
        return self.opened()[self.all_numbers[: self.rows]].view(self.shape)

    def parts(self, parts: torch.Tensor) -> torch.Tensor:
        """Some of the parts, in memory of their own: shape ``(len(parts), *shape[1:])``."""
        each = self.rows // self.unit
        numbers = (parts[:, None] * each + self.all_numbers[:each]).view(-1)
        return self.opened()[numbers].view(len(parts), *self.shape[1:])

    def host(self) -> torch.Tensor:
        """The tensor in host memory: the same object as long as somebody has it, as tied weights are."""
        found: Optional[torch.Tensor] = None if self._host is None else self._host()
        if found is None:
            found = torch.empty(self.shape, dtype=self.dtype, device="cpu")
            self.opened().gather(torch.arange(self.rows, device="cpu"), out=found.view(-1, self.row))
            self._host = weakref.ref(found)
        return found


def can_be_table(parameter: torch.nn.Parameter, by_row: bool) -> bool:
    """Whether a parameter is a dense tensor of floats, and not of a class of its own, as quantized ones are.

    Its elements lie in the order of its axes, as those of a decoded weight do: convolutions take other kernels, with other bits, for weights in another order.
    """
    if type(parameter) is not torch.nn.Parameter or parameter.layout != torch.strided or not parameter.is_floating_point() or parameter.dim() < 2:
        return False
    if parameter.stride() != torch.empty(parameter.shape, device="meta").stride():
        return False
    return bool(row_elements(tuple(parameter.shape), parameter.element_size(), 1, by_row))


def row_elements(shape: tuple[int, ...], size: int, unit: int, by_row: bool) -> int:
    """Returns the elements of a table's row for a tensor of ``shape`` with elements of ``size`` bytes, 0 if the tensor cannot be cut into rows.

    ``by_row`` asks for the tensor's own rows, as an embedding is read. A row never spans two of the ``unit`` parts of the leading axis.
    """
    last, part = shape[-1], math.prod(shape) // unit
    if by_row:
        return last if last * size < 1 << 20 else 0
    if last * size > _LONG:
        pieces = next((n for n in range(-(-last * size // _LONG), 65) if last % n == 0), 1)
        last //= pieces
    elif last * size < _SHORT:
        last *= next(n for n in range(_LONG // (last * size), 0, -1) if part // last % n == 0)
    return last if last * size < 1 << 20 else 0


def estimate(weights: list[Weight]) -> None:
    """Sets codec, compressed length and slot of weights, from rows spread over each that are compressed on the processors."""
    for group in _groups(weights, lambda weight: weight.row_bytes * _SAMPLE, 1 << 28):
        sources, codecs = {}, {}
        for weight in group:
            rows = weight.read().view(-1, weight.row)
            step = max(1, len(rows) // _SAMPLE)
            sources[weight.name], codecs[weight.name] = rows[::step][:_SAMPLE].cpu().contiguous(), codec_of(weight.dtype)
        with open_table(sources, "1MiB", device="host", codec=codecs, host_tier="packed", equal_rows=False, cold=True, progress=False) as cache:
            for weight in group:
                table = cache[weight.name]
                lengths = sorted(row["stored_bytes"] for row in table.explain(range(len(table))))
                mean = sum(lengths) / len(lengths)
                weight.codec = codecs[weight.name] if mean < 0.98 * weight.row_bytes else "none"
                compressed = weight.codec != "none"
                weight.stored = int(mean * weight.rows) if compressed else weight.nbytes
                longest = lengths[len(lengths) * 19 // 20] if compressed else weight.row_bytes
                weight.target = max(16, -(-longest // 16) * 16)


def codec_of(dtype: torch.dtype) -> str:
    """The codec that saves most of weights of a type: ``rank`` of floats of 2 to 8 bytes, ``zipnn`` of float8."""
    return "rank" if dtype.itemsize > 1 else "zipnn"


def choose_resident(weights: list[Weight], budget: int) -> int:
    """Makes those weights resident that fit ``budget`` bytes, and returns the bytes that are left.

    A pass reads every weight once, so a byte of GPU memory saves as much of the link whatever it holds. They are spread over the model: the link then works during the whole pass,
    and not only between runs of resident weights.
    """
    order = sorted(range(len(weights)), key=lambda i: i * 0.6180339887498949 % 1)  # the golden ratio spreads any number of them
    for i in order:
        if weights[i].resident_bytes <= budget:
            weights[i].kind = "resident"
            budget -= weights[i].resident_bytes
    return budget


def open_all(weights: list[Weight], device: Any, cached: int, refresh: Optional[float], opened: Callable[[Weight], None]) -> list[Cache]:
    """Opens the tables, and calls ``opened`` for each, which frees the original.

    ``cached`` bytes of GPU memory are for rows of weights of kind cached.
    """
    caches: list[Cache] = []
    all_cached = sum(weight.nbytes for weight in weights if weight.kind == "cached")
    limit = max(_GROUP, sum(weight.nbytes for weight in weights) // 8)
    try:
        for group in _groups(weights, lambda weight: weight.nbytes, limit):
            resident = sum(weight.resident_bytes for weight in group if weight.kind == "resident")
            share = sum(weight.nbytes for weight in group if weight.kind == "cached") * cached // max(1, all_cached)
            # Whatever the tables' metadata take, a row of the longest must fit.
            room = resident + resident // 64 + share + max(weight.row_bytes for weight in group) * 4 + (1 << 16)
            cache = open_table(
                {weight.name: weight.read().view(-1, weight.row) for weight in group},
                room,
                device=device,
                codec={weight.name: weight.codec for weight in group},
                resident={weight.name: Resident(weight.target) if weight.kind == "resident" else None for weight in group},
                host_tier="packed",
                equal_rows=False,
                cold=not share,
                refresh={"interval": refresh or 0.0, "accesses": 0.125} if share else None,
                progress=False,
            )
            caches.append(cache)
            for weight in group:
                weight.table = cache[weight.name]
                opened(weight)
    except BaseException:
        for cache in caches:
            cache.close()
        raise
    return caches


def _groups(weights: Iterable[Weight], length: Callable[[Weight], int], limit: int) -> Iterable[list[Weight]]:
    """Divides weights into groups of at most ``limit`` bytes and as many tables as a cache takes."""
    group: list[Weight] = []
    size = 0
    for weight in weights:
        if group and (size + length(weight) > limit or len(group) == _TABLES):
            yield group
            group, size = [], 0
        group.append(weight)
        size += length(weight)
    if group:
        yield group
