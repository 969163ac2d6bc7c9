"""Rows added up in bags, with torch tensors: ``Table.embedding_bag``, and several tables in one call.

As with plain reads, the eager path calls the library at once, by the extension if there is one; what torch must see (``_tensors.seen``) goes through the operators
``tensorcache::embedding_bag``, ``tensorcache::embedding_bags`` of several tables, and ``tensorcache::keyed_bags`` of several tables whose row numbers lie in one
tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

import torch

from . import _abi
from ._bags import Pooling, bags_of, pooling, structure
from ._checks import integer
from ._elements import element
from ._extension import extension
from ._library import check, library
from ._tensors import _INTEGERS, _is_dynamo_compiling, TensorReads, _cpu, _empty, _int32, _int64, _of_key, _raw_stream, _Tensor, define, host_tensor, in_memory, seen, unasked, written
from .errors import ArgumentError, GradientError

if TYPE_CHECKING:
    from .ngram import RowFormat


@dataclass(frozen=True)
class BagRequest:
    """One table's part of ``embedding_bags``: the arguments of ``Table.embedding_bag``."""

    reads: TensorReads
    ids: Any
    offsets: Any = None
    mode: str = "sum"
    weights: Any = None
    last: bool = False
    padding: Optional[int] = None
    dtype: Any = None
    each: bool = False  # ids of any shape: each row is a bag of its own
    row: Optional[RowFormat] = None  # of rows of bytes
    # Where the offsets of several tables are one tensor: this table has ``bags`` bags from bag ``first`` on. ids and weights are still those of all tables.
    first: int = 0
    bags: Optional[int] = None

    def pooling(self) -> tuple[Pooling, tuple[int, ...]]:
        """Returns how bags are reduced, and the shape of a sum."""
        of, shape = (element("float32"), (self.row.elements,)) if self.row is not None else self.reads.sums()
        return pooling(of, self.reads._rows(), self.mode, self.last, self.padding, self.dtype, self.weights is not None), shape


@dataclass(frozen=True)
class _Given:
    """The tensors of a request, where the library reads them."""

    ids: Any
    offsets: Any
    weights: Any
    slot: int
    device: torch.device


def _tensors_of(request: BagRequest, out: Any, known: dict[int, Any]) -> _Given:
    """Checks the tensors of a request. Those that several requests have are moved once: ``known`` is where they are noted."""
    reads = request.reads
    ids = reads._integers(host_tensor(request.ids, reads._rows()))
    offsets, weights = request.offsets, request.weights
    if offsets is not None:
        offsets = host_tensor(offsets, ids.numel() + 1, "offsets")
        if offsets.dtype not in _INTEGERS or offsets.dim() != 1:
            raise TypeError(f"tensorcache: offsets ({offsets.dtype}, shape {tuple(offsets.shape)}) must be integers of one axis")
        offsets = offsets.contiguous() if offsets.dtype in (_int64, _int32) else offsets.to(_int64)
    if weights is not None:
        weights = factors(weights)
        if weights.dtype.is_complex or weights.dtype is torch.bool:
            raise TypeError(f"tensorcache: per_sample_weights ({weights.dtype}) must be real numbers")
        if weights.requires_grad and torch.is_grad_enabled():
            raise GradientError("tensorcache: per_sample_weights (a tensor that requires a gradient) must be constants: pass .detach()")
        if weights.shape != ids.shape:
            raise ArgumentError(f"tensorcache: per_sample_weights (shape {tuple(weights.shape)}) must have the shape of ids, {tuple(ids.shape)}")
        weights = weights.detach().to(torch.float32).contiguous()
    slot, device = reads._place(ids, out)
    if slot >= 0 and not ids.is_cuda:
        ids, offsets, weights = (_moved(of, device, known) for of in (ids, offsets, weights))
    for name, of in (("offsets", offsets), ("per_sample_weights", weights)):
        if of is not None and of.device != ids.device:
            raise ArgumentError(f"tensorcache: {name} (device {of.device}) must be on {ids.device}, as ids are")
    return _Given(ids, offsets, weights, slot, device)


def factors(weights: Any) -> torch.Tensor:
    """Returns per_sample_weights as a tensor, in host memory unless they are one."""
    return weights if isinstance(weights, _Tensor) else torch.as_tensor(weights, device=_cpu)


def _moved(of: Any, device: torch.device, known: dict[int, Any]) -> Any:
    if of is None:
        return None
    key = of.data_ptr()
    if key not in known or known[key][0].numel() != of.numel():
        known[key] = of, of.to(device, non_blocking=True)
    return known[key][1].view(of.shape)


@unasked
def embedding_bags(requests: Sequence[BagRequest], outs: Optional[Sequence[Any]] = None) -> list[torch.Tensor]:
    """Reduces bags of several tables of one cache in one call of the library. All tensors are on one device."""
    if not requests:
        return []
    batches = (_abi.Pooled * len(requests))()
    found: list[torch.Tensor] = []
    kept: list[_Given] = []  # until the library has been called
    known: dict[int, Any] = {}
    handle = requests[0].reads._handle
    for i, (request, batch) in enumerate(zip(requests, batches)):
        reads, out = request.reads, None if outs is None else outs[i]
        if reads._handle != handle:
            raise ArgumentError("tensorcache: tables of one call must be of one cache")
        given = _tensors_of(request, out, known)
        kept.append(given)
        if (given.slot, given.device) != (kept[0].slot, kept[0].device):
            raise ArgumentError(f"tensorcache: ids (device {given.ids.device}) must be on {kept[0].device}, as those of the first table are")
        how, row_shape = request.pooling()
        offsets, (shape, size) = given.offsets, _bags(request, given.ids, given.offsets)
        stride = 0
        if out is None:
            out = _empty((*shape, *row_shape), dtype=how.output.torch(), device=given.device)
        else:
            stride = reads._row_stride(out, torch.Size((*shape, *row_shape)), given.device, how.output, len(row_shape))
        if size == 0 and offsets is None:  # bags without rows: the library would see none
            out.zero_()
        structure(
            batch, reads._index, how, size, in_memory(given.ids), None if offsets is None else in_memory(offsets),
            None if given.weights is None else given.weights.data_ptr(), out.data_ptr(), stride, request.row, request.first, request.bags or 0,
        )  # fmt: skip
        found.append(out)
    lib, slot = library(), kept[0].slot
    if slot < 0:
        check(lib.tc_gather_pooled_host(handle, -1, batches, len(batches)))
    else:
        check(lib.tc_check(handle, 0))
        check(lib.tc_gather_pooled(handle, slot, batches, len(batches), _raw_stream(kept[0].device.index), None))
    return found


def _bags(request: BagRequest, ids: Any, offsets: Any) -> tuple[tuple[Any, ...], int]:
    """Returns the shape of the bags, and the rows of each, or 0 if offsets say."""
    if request.each:
        return tuple(ids.shape), 1
    if request.bags is not None:
        return (request.bags,), 0
    bags, size = bags_of(ids.shape, None if offsets is None else offsets.shape[0], request.last)
    return (bags,), size


def embedding_bag(
    reads: TensorReads, ids: Any, offsets: Any, mode: str, weights: Any, last: bool, padding: Optional[int], dtype: Any, out: Any
) -> torch.Tensor:
    """``Table.embedding_bag`` with tensors."""
    # A padding_idx that has no 64 bits is for pooling to refuse.
    if extension is not None and out is None and not _is_dynamo_compiling() and mode in _abi.POOL_MODE and (padding is None or abs(integer(padding, "padding_idx")) < 1 << 63):
        found: Optional[torch.Tensor] = reads._add_up(
            ids, offsets, weights, _abi.POOL_MODE[mode], last, 0 if dtype is None else element(dtype).code, False, None if padding is None else int(padding)
        )
        if found is not None:
            return found
    if not seen(ids, offsets, weights, out):
        return embedding_bags([BagRequest(reads, ids, offsets, mode, weights, last, padding, dtype)], [out])[0]
    kind = None if dtype is None else element(dtype).name
    ids = host_tensor(ids, reads._rows())
    offsets = None if offsets is None else host_tensor(offsets, ids.numel() + 1, "offsets")
    weights = None if weights is None else factors(weights)
    result: torch.Tensor = torch.ops.tensorcache.embedding_bag(ids, offsets, reads.key, mode, weights, last, padding, kind)
    return result if out is None else written(out, result)


@unasked
def keyed_bags(
    tables: Sequence[TensorReads], first: Sequence[int], bags: int, modes: Sequence[str], values: Any, offsets: Any, weights: Any, dtype: Any
) -> torch.Tensor:
    """Reduces bags of several tables of one cache, whose row numbers are those of one tensor: table ``i`` has the ``bags`` bags from ``first[i]`` on. Returns the
    tables' columns side by side, in the type that holds all."""
    kind, widths = _side_by_side(tables, dtype)
    device = values.device if values.is_cuda else tables[0]._current()[1]
    joined = torch.empty((bags, sum(widths)), dtype=kind, device=device)
    if bags:
        requests = [
            BagRequest(reads, values, offsets, mode, weights, True, None, kind, first=at, bags=bags) for reads, at, mode in zip(tables, first, modes)
        ]
        embedding_bags(requests, joined.split(widths, 1))
    return joined


def _side_by_side(tables: Sequence[TensorReads], dtype: Any) -> tuple[torch.dtype, list[int]]:
    """Returns the type of the tables' sums side by side, and the columns of each."""
    of = [reads.sums() for reads in tables]
    kinds = [element(dtype).torch()] if dtype is not None else [one.torch() for one, _ in of]
    return functools.reduce(torch.promote_types, kinds), [shape[0] for _, shape in of]


# ---- operators


def _one(ids: Any, offsets: Any, table: str, mode: str = "mean", weights: Any = None, last: bool = False, padding: Optional[int] = None, dtype: Any = None) -> list[BagRequest]:
    return [BagRequest(_of_key(table), ids, offsets, mode, weights, last, padding, dtype)]


def _several(ids: Any, offsets: Any, tables: Any, modes: Any, weights: Any, last: bool = False, dtype: Any = None) -> list[BagRequest]:
    each = zip(ids, offsets, tables, modes, weights)
    return [BagRequest(_of_key(table), of, at, mode, factors, last and at is not None, None, dtype) for of, at, table, mode, factors in each]


def _keyed(values: Any, offsets: Any, tables: Any, first: Any, bags: int, modes: Any, weights: Any = None, dtype: Any = None) -> list[BagRequest]:
    all_reads = [_of_key(table) for table in tables]
    kind = _side_by_side(all_reads, dtype)[0]
    return [BagRequest(reads, values, offsets, mode, weights, True, None, kind, first=at, bags=bags) for reads, at, mode in zip(all_reads, first, modes)]


def _run_keyed(values: Any, offsets: Any, tables: Any, first: Any, bags: int, modes: Any, weights: Any = None, dtype: Any = None) -> torch.Tensor:
    return keyed_bags([_of_key(table) for table in tables], first, bags, modes, values, offsets, weights, dtype)


def _fake(request: BagRequest) -> torch.Tensor:
    """Returns an output as ``embedding_bags`` makes it, without reading."""
    ids = request.ids
    how, row_shape = request.pooling()
    bags = (ids.shape[0],) if ids.dim() == 2 else _bags(request, ids, request.offsets)[0]
    output: torch.Tensor = ids.new_empty((*bags, *row_shape), dtype=how.output.torch(), device=ids.device if ids.is_cuda else request.reads._current()[1])
    return output


define(
    "embedding_bag(Tensor ids, Tensor? offsets, str table, str mode='mean', Tensor? per_sample_weights=None, bool include_last_offset=False, "
    "int? padding_idx=None, str? dtype=None) -> Tensor",
    lambda *given: embedding_bags(_one(*given))[0], lambda *given: _fake(*_one(*given)),
)  # fmt: skip
define(
    "embedding_bags(Tensor[] ids, Tensor?[] offsets, str[] tables, str[] modes, Tensor?[] per_sample_weights, bool include_last_offset=False, "
    "str? dtype=None) -> Tensor[]",
    lambda *given: embedding_bags(_several(*given)), lambda *given: [_fake(request) for request in _several(*given)],
)  # fmt: skip
define(
    "keyed_bags(Tensor values, Tensor offsets, str[] tables, int[] first_bags, SymInt bags, str[] modes, Tensor? per_sample_weights=None, "
    "str? dtype=None) -> Tensor",
    _run_keyed, lambda *given: torch.cat([_fake(request) for request in _keyed(*given)], 1),
)  # fmt: skip
