"""Rows added up in bags, with torch tensors: ``Table.embedding_bag``, and several tables in one call.

As with plain reads, the eager path calls the library at once; what torch must see (``_tensors.seen``) goes through the operators
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
from ._bags import bags_of, pooling, row_of_float8, structure
from ._elements import element
from ._library import check, library
from ._tensors import _INTEGERS, TensorReads, _cpu, _empty, _int32, _int64, _of_key, _raw_stream, _Tensor, define, host_tensor, in_memory, seen, unasked, written
from .errors import ArgumentError, GradientError

if TYPE_CHECKING:
    from ._ngram_table import RowFormat


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
    # Not 0: of the bags that offsets describe, so many from one on. ids and weights are those of all.
    first: int = 0
    bags: int = 0


@dataclass(frozen=True)
class _Given:
    """The tensors of a request, where the library reads them."""

    ids: Any
    offsets: Any
    weights: Any
    shape: torch.Size  # of ids as they were given
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
    shape = ids.shape
    if request.each:
        ids = ids.view(-1, 1)
    if weights is not None:
        weights = factors(weights)
        if weights.dtype.is_complex or weights.dtype is torch.bool:
            raise TypeError(f"tensorcache: per_sample_weights ({weights.dtype}) must be real numbers")
        if weights.requires_grad and torch.is_grad_enabled():
            raise GradientError("tensorcache: per_sample_weights (a tensor that requires a gradient) must be constants: pass .detach()")
        if weights.shape != ids.shape:
            raise ArgumentError(f"tensorcache: per_sample_weights (shape {tuple(weights.shape)}) must have the shape of ids, {tuple(ids.shape)}")
        weights = weights.detach().to(torch.float32).contiguous()
    slot, device = -1, _cpu
    if ids.is_cuda:
        slot, device = reads._slots.get(ids.get_device()) or reads._wrong_device(ids)
    elif reads._cuda and (out is None or out.is_cuda):
        # Row numbers in host memory, and rows on the GPU, as gather has it.
        slot, device = reads._current() if out is None else reads._slots.get(out.get_device(), reads._current())
        ids, offsets, weights = (_moved(of, device, known) for of in (ids, offsets, weights))
    for name, of in (("offsets", offsets), ("per_sample_weights", weights)):
        if of is not None and of.device != ids.device:
            raise ArgumentError(f"tensorcache: {name} (device {of.device}) must be on {ids.device}, as ids are")
    return _Given(ids, offsets, weights, shape, slot, device)


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
    batches = (_abi.Pooled * len(requests))()
    found, kept, known = [], [], {}  # type: ignore[var-annotated]
    where: Optional[tuple[int, torch.device]] = None
    for i, (request, batch) in enumerate(zip(requests, batches)):
        reads, out = request.reads, None if outs is None else outs[i]
        if reads._handle != requests[0].reads._handle:
            raise ArgumentError("tensorcache: tables of one call must be of one cache")
        given = _tensors_of(request, out, known)
        of, row_shape = (element("float32"), (request.row.elements,)) if request.row is not None else reads.sums()
        how = pooling(of, reads._rows(), request.mode, request.last, request.padding, request.dtype, given.weights is not None)
        if request.bags:
            bags, size = request.bags, 0
        else:
            bags, size = bags_of(given.ids.shape, None if given.offsets is None else given.offsets.numel(), request.last)
        if where is None:
            where = given.slot, given.device
        elif where != (given.slot, given.device):
            raise ArgumentError(f"tensorcache: ids (device {given.ids.device}) must be on {where[1]}, as those of the first table are")
        shape, stride = torch.Size((*given.shape, *row_shape) if request.each else (bags, *row_shape)), 0
        if out is None:
            out = _empty(shape, dtype=how.output.torch(), device=given.device)
        else:
            stride = reads._row_stride(out, shape, given.device, how.output, len(row_shape))
        if given.ids.dim() == 2 and size == 0:  # bags without rows: the library would see none
            out.zero_()
        structure(
            batch, reads._index, how, size, in_memory(given.ids), None if given.offsets is None else in_memory(given.offsets),
            None if given.weights is None else given.weights.data_ptr(), out.data_ptr(), stride, (request.first, request.bags),
        )  # fmt: skip
        if request.row is not None:
            row_of_float8(batch, request.row)
        found.append(out)
        kept.append(given)
    if where is None:
        return []
    handle = requests[0].reads._handle
    lib = library()
    if where[0] < 0:
        check(lib.tc_gather_pooled_host(handle, -1, batches, len(batches)))
    else:
        check(lib.tc_check(handle, 0))
        check(lib.tc_gather_pooled(handle, where[0], batches, len(batches), _raw_stream(where[1].index), None))
    return found


def embedding_bag(
    reads: TensorReads, ids: Any, offsets: Any, mode: str, weights: Any, last: bool, padding: Optional[int], dtype: Any, out: Any
) -> torch.Tensor:
    """``Table.embedding_bag`` with tensors."""
    if not seen(ids, offsets, weights, out):
        return embedding_bags([BagRequest(reads, ids, offsets, mode, weights, last, padding, dtype)], [out])[0]
    kind = None if dtype is None else element(dtype).torch()
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


def _request(
    ids: Any, offsets: Any, table: str, mode: str = "mean", weights: Any = None, last: bool = False, padding: Optional[int] = None, dtype: Any = None
) -> BagRequest:
    """The arguments of the operator ``embedding_bag``."""
    return BagRequest(_of_key(table), ids, offsets, mode, weights, last, padding, dtype)


def _requests(
    ids: Any, offsets: Any, tables: Sequence[str], modes: Sequence[str], weights: Sequence[Any], last: bool = False, dtype: Any = None
) -> list[BagRequest]:
    """The arguments of the operator ``embedding_bags``."""
    each = zip(ids, offsets, tables, modes, weights)
    return [_request(of, at, table, mode, factors, last and at is not None, None, dtype) for of, at, table, mode, factors in each]


def _fake(request: BagRequest) -> torch.Tensor:
    """Returns an output as ``embedding_bags`` makes it, without reading."""
    reads, ids, offsets = request.reads, request.ids, request.offsets
    of, row_shape = reads.sums()
    how = pooling(of, reads._rows(), request.mode, request.last, request.padding, request.dtype, request.weights is not None)
    bags = ids.shape[0] if ids.dim() == 2 else bags_of(ids.shape, None if offsets is None else offsets.shape[0], request.last)[0]
    output: torch.Tensor = ids.new_empty((bags, *row_shape), dtype=how.output.torch(), device=ids.device if ids.is_cuda else reads._current()[1])
    return output


def _bag_op(*given: Any) -> torch.Tensor:
    return embedding_bags([_request(*given)])[0]


def _bag_fake(*given: Any) -> torch.Tensor:
    return _fake(_request(*given))


def _bags_op(*given: Any) -> list[torch.Tensor]:
    return embedding_bags(_requests(*given))


def _bags_fake(*given: Any) -> list[torch.Tensor]:
    return [_fake(request) for request in _requests(*given)]


def _keyed_op(
    values: Any, offsets: Any, tables: Sequence[str], first: Sequence[int], bags: int, modes: Sequence[str], weights: Any = None, dtype: Any = None
) -> torch.Tensor:
    return keyed_bags([_of_key(table) for table in tables], first, bags, modes, values, offsets, weights, dtype)


def _keyed_fake(
    values: Any, offsets: Any, tables: Sequence[str], first: Sequence[int], bags: int, modes: Sequence[str], weights: Any = None, dtype: Any = None
) -> torch.Tensor:
    all_reads = [_of_key(table) for table in tables]
    kind, widths = _side_by_side(all_reads, dtype)
    for reads, mode in zip(all_reads, modes):
        pooling(reads.sums()[0], reads._rows(), mode, True, None, kind, weights is not None)
    output: torch.Tensor = values.new_empty((bags, sum(widths)), dtype=kind, device=values.device if values.is_cuda else all_reads[0]._current()[1])
    return output


define(
    "embedding_bag(Tensor ids, Tensor? offsets, str table, str mode='mean', Tensor? per_sample_weights=None, bool include_last_offset=False, "
    "int? padding_idx=None, ScalarType? dtype=None) -> Tensor",
    _bag_op, _bag_fake,
)  # fmt: skip
define(
    "embedding_bags(Tensor[] ids, Tensor?[] offsets, str[] tables, str[] modes, Tensor?[] per_sample_weights, bool include_last_offset=False, "
    "ScalarType? dtype=None) -> Tensor[]",
    _bags_op, _bags_fake,
)  # fmt: skip
define(
    "keyed_bags(Tensor values, Tensor offsets, str[] tables, int[] first_bags, SymInt bags, str[] modes, Tensor? per_sample_weights=None, "
    "ScalarType? dtype=None) -> Tensor",
    _keyed_op, _keyed_fake,
)  # fmt: skip
