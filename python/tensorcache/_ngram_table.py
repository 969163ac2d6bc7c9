"""``NgramTable``: rows of float8 values and scales of a cached table, as bytes or as values, now or ahead of their use."""

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
from ._tensors import Prefetch, ahead, seen
from .errors import ArgumentError
from .table import Table

_VALUES = ("float8_e4m3fn", "float8_e5m2")
_FILES = ("model.safetensors.index.json", "model.safetensors")


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
        rows = self.table[ids]
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
