"""N-gram tables of language models: float8 rows with scales that are looked up by hashes of the last few tokens.

::

    table = tensorcache.ngram.NgramTable.from_checkpoint("checkpoint/", "model.ngram.*.weight", "model.ngram.*.scale", gpu_memory="4GiB", train=ids)
    reading = table.prefetch_values(ngram_ids)  # as soon as tokens are known
    ...
    values = reading.wait()                     # [tokens, heads, elements], bfloat16

``NgramEmbedding`` takes the place of a serving engine's embedding. ``NgramHash`` is the hash of ``cachebench --workload ngram``. docs/ngram.md
has more. This module needs torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import torch

from ._checks import choice
from ._elements import described
from ._sources import look
from ._tensors import Prefetch, ahead, seen, watched
from .errors import ArgumentError
from .table import Table

__all__ = ["NgramEmbedding", "NgramHash", "NgramTable", "Prefetch", "RowFormat"]

_VALUES = ("float8_e4m3fn", "float8_e5m2")
_FILES = ("model.safetensors.index.json", "model.safetensors")
_GAMMA = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_MAX_ORDER = 8

Tokens = Union["np.ndarray[Any, Any]", torch.Tensor]


@dataclass(frozen=True)
class RowFormat:
    """What the bytes of a row are: ``elements`` float8 values, then, unless ``block`` is 0, a scale for each ``block`` of them.

    values
        ``"float8_e4m3fn"`` or ``"float8_e5m2"``.
    block
        Values that share a scale, a divisor of ``elements``. The scale is a byte s that stands for 2^(s - 127) (e8m0; 255 is NaN).
    scale
        Multiplies all values: the scale of a table that has one for all rows.
    """

    elements: int
    values: str = "float8_e4m3fn"
    block: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        choice(self.values, "values", _VALUES)
        if self.elements < 1:
            raise ArgumentError(f"tensorcache: elements ({self.elements}) must be at least 1")
        if self.block < 0 or self.block and self.elements % self.block:
            raise ArgumentError(f"tensorcache: block ({self.block}) must be 0 or a divisor of the {self.elements} elements")

    @property
    def row_bytes(self) -> int:
        """The length of a row."""
        return self.elements + (self.elements // self.block if self.block else 0)

    @property
    def dtype(self) -> str:
        """The row's parts, as ``dtype`` of ``tensorcache.open`` takes them."""
        return f"{self.values}*{self.elements},float8_e8m0fnu*{self.elements // self.block}" if self.block else self.values

    def dequantise(self, rows: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Returns the values of rows, uint8 of shape [..., ``row_bytes``], as [..., ``elements``] of ``dtype``: value × scale, rounded once.
        ``NgramTable.values`` reads and converts in one kernel.

        It is done by operations of torch, on the device of the rows, in the order of the current stream; captured graphs and
        ``torch.compile`` take it.
        """
        values = rows[..., : self.elements].view(getattr(torch, self.values)).float()
        if self.block:
            exponents = rows[..., self.elements :].int()
            # The exponent of a float32. 2^-127 is a subnormal one there, and 255 must be NaN, not infinity: both have the highest bit of the mantissa.
            scales = ((exponents << 23) | (((exponents == 0) | (exponents == 255)).int() << 22)).view(torch.float32)
            values = (values.unflatten(-1, (-1, self.block)) * scales[..., None]).flatten(-2)
        if self.scale != 1:
            values = values * self.scale
        return values.to(dtype)


class NgramTable:
    """The rows of n-gram tables, from a table of ``tensorcache.open`` whose rows are ``row_format.row_bytes`` bytes.

    ``table[ids]`` are rows as bytes: ``ids`` of any shape → uint8 of that shape and ``row_bytes``, bit-identical to the source. What holds for
    ``Table`` holds here: CUDA row numbers are read in the order of the current stream, and captured graphs take reads.

    Safe for use by any number of threads but for ``prefetch``, which shares a stream.
    """

    def __init__(self, table: Table, row_format: RowFormat) -> None:
        if not isinstance(table, Table):
            raise TypeError(f"tensorcache: table ({type(table).__name__}) must be a table of tensorcache.open")
        if table.ndim != 2 or table._element.size != 1:
            raise ArgumentError(f"tensorcache: table (shape {tuple(table.shape)} of {table.dtype}) must have rows of bytes: uint8 or float8")
        if table.shape[1] != row_format.row_bytes:
            raise ArgumentError(f"tensorcache: table (rows of {table.shape[1]} bytes) must have rows of {row_format.row_bytes} bytes, as the format says")
        self.table, self.format = table, row_format
        self._sides: dict[torch.device, Any] = {}
        self._converted = self._takes_format()

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Union[str, os.PathLike[str]],
        weight: Union[str, Sequence[str]],
        scale: Union[None, str, Sequence[str]] = None,
        *,
        row_format: Optional[RowFormat] = None,
        rows: Optional[int] = None,
        **options: Any,
    ) -> NgramTable:
        """Opens tables of a .safetensors checkpoint as one.

        checkpoint
            A folder with ``model.safetensors.index.json`` or ``model.safetensors``, or such a file.
        weight
            Names of tensors of float8 values (F8_E4M3 or F8_E5M2), [rows, elements], whose rows follow each other; or a pattern with ``*`` for all
            that match, numbers in names in the order of numbers. With ``row_format`` also U8: whole rows, values and scales. Names have no comma and no plus.
        scale
            As many tensors of scales (F8_E8M0 or U8), [rows, elements ÷ block], one of each weight's; their bytes follow the values' in a row.
            None: the rows have none.
        row_format
            What rows are, if it is not what the tensors say, or if there is a scale for all: ``RowFormat(160, scale=0.02)``.
        rows
            How many rows there must be at least: those of the model's hash.
        options
            Those of ``tensorcache.open``, among them ``gpu_memory``.

        The library reads the tensors by their byte offsets, in parts, straight into the cache's host tier, so that host memory holds the table once. The files must not change
        meanwhile.

        Raises ``FileNotFoundError`` for a missing file, ``FileError`` for a damaged one and for tensors that do not fit each other, ``ArgumentError`` for tensors that
        are not there or not of these types, and what ``tensorcache.open`` raises.
        """
        from . import open as open_table

        for name in ("adopt", "dtype"):
            if name in options:
                raise TypeError(f"tensorcache: {name} must not be given: it follows from the checkpoint")
        folder = os.fspath(checkpoint)
        if os.path.isdir(folder) and not any(os.path.exists(os.path.join(folder, name)) for name in _FILES):
            raise FileNotFoundError(f"tensorcache: checkpoint ({folder}) has neither {' nor '.join(_FILES)}")
        lists = [of if isinstance(of, str) else ",".join(of) for of in (weight, scale) if of]
        path = f"{folder}:{'+'.join(lists)}"
        info = look(path)
        found = info.parts.decode() or f"{described(info)[0].name}*{info.columns}"
        kinds, counts = zip(*((part.partition("*")[0], int(part.partition("*")[2] or 1)) for part in found.split(",")))
        whole = row_format is not None and kinds == ("uint8",) and not scale
        if not whole and (kinds[0] not in _VALUES or len(kinds) != len(lists) or kinds[1:] not in ((), ("float8_e8m0fnu",), ("uint8",)) or counts[0] % counts[-1]):
            raise ArgumentError(f"tensorcache: checkpoint ({path}) must have {' or '.join(_VALUES)}, and a divisor of as many scales of float8_e8m0fnu or uint8 if any, not {found}")
        if row_format is None:
            row_format = RowFormat(counts[0], kinds[0], counts[0] // counts[1] if scale else 0)
        if info.row_bytes != row_format.row_bytes:
            raise ArgumentError(f"tensorcache: checkpoint ({path}) has rows of {info.row_bytes} bytes with scales, which must be {row_format.row_bytes}, as row_format says")
        if not whole and kinds[0] != row_format.values:
            raise ArgumentError(f"tensorcache: checkpoint ({path}) has values of {kinds[0]}, which must be {row_format.values}, as row_format says")
        if rows is not None and info.rows < rows:
            raise ArgumentError(f"tensorcache: checkpoint ({path}) has {info.rows} rows, which must be at least {rows}")
        tables = open_table({"features": path}, dtype=row_format.dtype, **options)
        return cls(tables["features"], row_format)

    def __getitem__(self, ids: Any) -> Any:
        """Returns rows as bytes: an array for a NumPy array, else a tensor."""
        rows = self.table._gather(ids)
        return rows.view(np.uint8) if isinstance(rows, np.ndarray) else rows.view(torch.uint8)

    def read(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Reads rows as bytes into ``out``, uint8 of shape [*ids.shape, ``row_bytes``] on the table's device, and returns it."""
        if out.dtype != torch.uint8:
            raise TypeError(f"tensorcache: out ({out.dtype}) must be uint8")
        self.table.gather(ids, out=out.view(self.table.dtype))
        return out

    def values(self, ids: Any, dtype: torch.dtype = torch.bfloat16, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns rows as values: ``ids`` of any shape → that shape and ``format.elements``, in a new tensor or in ``out``.

        Where ``converts(dtype)``, the kernel that reads the rows converts them. Else, and in programs that are being compiled or traced, they are read as bytes
        and converted by ``format.dequantise``. Both give the same bits, but for NaN's.
        """
        if isinstance(ids, torch.Tensor) and self.converts(dtype) and not seen(ids, out):
            return self.table._reads().values(ids, self.format, dtype, out)
        rows = self[ids]
        values = self.format.dequantise(torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows, dtype)
        return values if out is None else out.copy_(values)

    def converts(self, dtype: torch.dtype) -> bool:
        """Whether the library converts rows to such values: to float32, float16 or bfloat16, of blocks of a multiple of 8 values or without scales. Rows may lie on any
        tier."""
        return self._converted and dtype in (torch.float32, torch.float16, torch.bfloat16)

    def _takes_format(self) -> bool:
        """Asks the library, by a read of no rows, whether it converts this table's rows."""
        if self.format.scale == 0:
            return False
        try:
            self.table._reads().values(torch.empty(0, dtype=torch.int64, device="cpu"), self.format, torch.bfloat16, None)
        except ArgumentError:
            return False
        return True

    def prefetch(self, ids: torch.Tensor, out: Optional[torch.Tensor] = None) -> Prefetch:
        """Begins to read rows, as soon as tokens are known: ``prefetch(ids).wait()`` is ``table[ids]``, or ``read(ids, out)``.

        On a GPU they are read on a stream of its own, after the work of the current stream so far; in a captured graph this is a branch, which
        ``wait`` joins. On the host they are read at once. ``ids`` and ``out`` must not change before ``wait``.

        Of a table of pages, whose rows may lie on a drive, row numbers in host memory are looked up there at once, before the GPU comes to the read. Replays of a graph find
        what ``table.table.prefetch(ids)`` has had read before them.
        """
        return self._ahead(ids, lambda: self[ids] if out is None else self.read(ids, out))

    def prefetch_values(self, ids: torch.Tensor, dtype: torch.dtype = torch.bfloat16, out: Optional[torch.Tensor] = None) -> Prefetch:
        """``prefetch`` of values: ``prefetch_values(ids, dtype, out).wait()`` is ``values(ids, dtype, out)``."""
        return self._ahead(ids, lambda: self.values(ids, dtype, out))

    def _ahead(self, ids: torch.Tensor, read: Callable[[], Any]) -> Prefetch:
        if self.table.is_cuda and not ids.is_cuda and self.table.paged and not torch.cuda.is_current_stream_capturing():
            self.table.prefetch(ids)  # numbers on a GPU are there when the read is, which lists its rows itself
        return ahead(torch.device(self.table.device), self._sides, ids, read)

    def __repr__(self) -> str:
        return f"tensorcache.ngram.NgramTable({self.table!r}, {self.format})"


class NgramEmbedding(torch.nn.Module):  # type: ignore[misc]
    """An n-gram embedding of a served model, whose rows a cache holds.

    Before the first layer the model calls ``start_prefetch(hidden_states, ngram_ids)``, and where it adds the embedding ``forward(hidden_states)``, which
    returns [tokens, heads × elements]: the values of the token's rows, one head after the other.

    max_tokens
        The most tokens of a step. A buffer of max_tokens × heads rows is on the table's device, at the same place for all steps: of values where
        ``table.converts(dtype)``, so that reading converts them, else of bytes. A captured graph can hold both calls, or only ``forward``, with
        ``start_prefetch`` and ``wait`` before its capture and before each replay.
    heads
        The rows of a token.
    dtype
        Of the result.

    The module has no parameters: the table is not in ``state_dict``.
    """

    def __init__(self, table: NgramTable, max_tokens: int, heads: int, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        if not isinstance(table, NgramTable):
            raise TypeError(f"tensorcache: table ({type(table).__name__}) must be an NgramTable")
        for name, value in (("max_tokens", max_tokens), ("heads", heads)):
            if value < 1:
                raise ArgumentError(f"tensorcache: {name} ({value}) must be at least 1")
        self.table, self.heads, self.dtype = table, heads, dtype
        # Not a buffer of the module: to() and half() must leave it as it is.
        self._converts = table.converts(dtype)
        width, kind = (table.format.elements, dtype) if self._converts else (table.format.row_bytes, torch.uint8)
        self._rows = [torch.zeros((max_tokens, heads, width), dtype=kind, device=table.table.device)]
        self._started: Optional[Prefetch] = None

    @property
    def max_tokens(self) -> int:
        """The most tokens of a step."""
        return len(self._rows[0])

    def start_prefetch(self, hidden_states: Optional[torch.Tensor], ngram_ids: torch.Tensor) -> None:
        """Begins to read the rows of a step: ``ngram_ids`` are row numbers, [tokens, heads].

        ``hidden_states`` is there because engines pass it, and is not used. Rows of a step that no ``forward`` has taken are given up.
        """
        if ngram_ids.ndim != 2 or ngram_ids.shape[1] != self.heads:
            raise ArgumentError(f"tensorcache: ngram_ids (shape {tuple(ngram_ids.shape)}) must be [tokens, {self.heads}]")
        tokens = len(ngram_ids)
        if tokens > self.max_tokens:
            raise ArgumentError(f"tensorcache: ngram_ids ({tokens} tokens) must be at most max_tokens ({self.max_tokens})")
        self.wait()  # the buffer is free when the read before this one has ended
        out = self._rows[0][:tokens]
        self._started = self.table.prefetch_values(ngram_ids, self.dtype, out) if self._converts else self.table.prefetch(ngram_ids, out)

    def wait(self) -> None:
        """Orders the current stream after the read that ``start_prefetch`` began. ``forward`` does."""
        if self._started is not None:
            self._started.wait()
            self._started = None

    def finalize_prefetch(self, output: torch.Tensor) -> None:
        """Waits as ``wait`` does, and writes the values of the first ``len(output)`` tokens to ``output``, [tokens, heads × elements] of ``dtype``."""
        width = self.heads * self.table.format.elements
        if output.ndim != 2 or output.shape[1] != width or len(output) > self.max_tokens:
            raise ArgumentError(f"tensorcache: output (shape {tuple(output.shape)}) must be [at most {self.max_tokens} tokens, {width}]")
        if output.dtype != self.dtype:
            raise TypeError(f"tensorcache: output ({output.dtype}) must be {self.dtype}, the module's dtype")
        self.wait()
        rows = self._rows[0][: len(output)]
        output.copy_((rows if self._converts else self.table.format.dequantise(rows, output.dtype)).flatten(-2))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Returns the embedding of the step's tokens, as many as ``hidden_states`` has: [tokens, heads × elements]."""
        output = torch.empty((len(hidden_states), self.heads * self.table.format.elements), dtype=self.dtype, device=self._rows[0].device)
        self.finalize_prefetch(output)
        return output

    def extra_repr(self) -> str:
        return f"max_tokens={self.max_tokens}, heads={self.heads}, dtype={self.dtype}, {self.table!r}"


class NgramHash:
    """Maps the n-grams that end at each token to row numbers.

    orders
        Lengths of the n-grams, each 1 to 8, none twice.
    heads
        Rows of an n-gram in each layer, 1 to 256.
    layers
        Layers of the model that have n-gram tables, 1 to 1,024.
    rows
        An upper bound on the rows of all tables together, shared evenly. Each layer, order and head has a table of its own, whose length is a
        prime.
    seed
        Selects the multipliers: 0 to 2^64 - 1.

    ``cachebench --workload ngram`` has the same hash. A model with another one gives its own row numbers to ``NgramTable``.
    """

    def __init__(self, orders: Sequence[int] = (2, 3), heads: int = 8, layers: int = 1, rows: int = 2_000_000, seed: int = 1) -> None:
        for name, value, least, most in (
            ("heads", heads, 1, 256), ("layers", layers, 1, 1024), ("rows", rows, 1, 2**50), ("seed", seed, 0, _MASK), *(("orders", n, 1, _MAX_ORDER) for n in orders),
        ):  # fmt: skip
            if not least <= value <= most:
                raise ArgumentError(f"tensorcache: {name} ({value}) must be {least} to {most}")
        if not orders or len(set(orders)) < len(orders):
            raise ArgumentError(f"tensorcache: orders ({list(orders)}) must be at least one, and none twice")
        self.orders, self.heads, self.layers = tuple(orders), heads, layers
        tables = layers * len(self.orders) * heads
        self.lengths = _primes(rows // tables, tables)
        self.offsets = [sum(self.lengths[:g]) for g in range(tables)]
        numbers = [[_splitmix(seed, _MAX_ORDER * g + k) | 1 for k in range(_MAX_ORDER)] for g in range(tables)]
        of = [self.orders[g // heads % len(self.orders)] for g in range(tables)]
        # A multiplier beyond a table's order is 0, so that all tables take one sum over the longest order.
        self._multipliers = np.array([[m if k < n else 0 for k, m in enumerate(row)] for row, n in zip(numbers, of)], np.uint64)
        self._on: dict[torch.device, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    @property
    def rows(self) -> int:
        """The rows of all tables together."""
        return sum(self.lengths)

    @property
    def tables(self) -> int:
        """How many rows a token looks up: layers × orders × heads."""
        return len(self.lengths)

    def __call__(self, tokens: Tokens, last: Optional[int] = None, layer: Optional[int] = None) -> Any:
        """Returns the row numbers of the n-grams that end at each token.

        tokens
            Integers of shape [..., T]: T tokens of a text, or of each of several. -1 stands for no token: before the first one, or padding on the
            left. N-grams reach back within the given tokens only.
        last
            Returns the row numbers of the last so many tokens only: 1 for decoding, with the longest order of tokens or more given.
        layer
            Returns those of one layer only.

        The result is int64 of shape [..., T or ``last``, ``tables``, or a layer's share of them], an array or tensor as ``tokens``, on their device.
        Tensors on a GPU are not waited for.
        """
        if layer is not None and not 0 <= layer < self.layers:
            raise ArgumentError(f"tensorcache: layer ({layer}) must be 0 to {self.layers - 1}")
        share = self.tables // self.layers
        part = slice(None) if layer is None else slice(layer * share, (layer + 1) * share)
        if isinstance(tokens, torch.Tensor):
            if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
                raise TypeError(f"tensorcache: tokens ({tokens.dtype}) must be integers")
        elif not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu":
            raise TypeError(f"tensorcache: tokens ({getattr(tokens, 'dtype', type(tokens).__name__)}) must be an array or tensor of integers")
        if tokens.ndim == 0:
            raise ArgumentError("tensorcache: tokens (one number) must have at least one axis")
        length = tokens.shape[-1]
        if last is not None and not 0 <= last <= length:
            raise ArgumentError(f"tensorcache: last ({last}) must be 0 to the tokens' {length}")
        last = length if last is None else last
        reach = max(self.orders) - 1
        tokens = tokens[..., max(0, length - last - reach) :]
        if isinstance(tokens, torch.Tensor):
            return self._rows_of(tokens, last, part)
        return self._rows_of(torch.from_numpy(tokens.astype(np.int64)), last, part).numpy()

    def _rows_of(self, tokens: torch.Tensor, last: int, part: slice) -> torch.Tensor:
        # torch has no arithmetic of unsigned 64-bit integers. That of signed ones has the same bits, but for shifts to the right.
        reach = max(self.orders) - 1
        numbers = torch.nn.functional.pad(tokens.long() + 1, (reach, 0))
        multipliers, lengths, offsets = self._constants(tokens.device)
        total = torch.zeros((*tokens.shape[:-1], last, len(lengths[part])), dtype=torch.int64, device=tokens.device)
        for k in range(reach + 1):
            end = numbers.shape[-1] - k
            total += numbers[..., end - last : end, None] * multipliers[part, k]
        total = (total ^ ((total >> 32) & 0xFFFFFFFF)) * (_GAMMA - 2**64)
        return offsets[part] + ((total >> 1) & 0x7FFFFFFFFFFFFFFF) % lengths[part]

    def _constants(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The multipliers, lengths and offsets on a device, copied at its first use, which must not be in a captured graph."""
        found = self._on.get(device)
        if found is None:
            found = (
                torch.from_numpy(self._multipliers.view(np.int64)).to(device), torch.tensor(self.lengths, device=device), torch.tensor(self.offsets, device=device),
            )  # fmt: skip
            if torch.compiler.is_compiling() or not watched():  # modes and transforms make tensors of their own, for as long as they last
                self._on[device] = found
        return found


def _splitmix(seed: int, index: int) -> int:
    """Output ``index`` of SplitMix64 that starts from ``seed``."""
    x = (seed + (index + 1) * _GAMMA) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _primes(most: int, count: int) -> list[int]:
    """The ``count`` largest primes up to ``most``, the largest first."""
    found: list[int] = []
    number = most
    while len(found) < count:
        if number < 2:
            raise ArgumentError(f"tensorcache: rows must be more: {count} tables of {most} rows at most need as many different primes")
        if _is_prime(number):
            found.append(number)
        number -= 1
    return found


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test, which is exact below 2^64 with the first twelve primes as bases."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    for p in bases:
        if n % p == 0:
            return n == p
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    for base in bases:
        x = pow(base, (n - 1) >> twos, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return n > 1
