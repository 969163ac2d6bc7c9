"""Reads with torch tensors. Imported only by programs that have imported torch.

The eager path calls the library at once, by a function of the extension if there is one: an operator costs the Python thread more. Whatever torch must see goes
through the operators ``tensorcache::gather(Tensor ids, str table) -> Tensor`` and ``gather_as``, with elements of another type: programs that are compiled or traced,
transforms of ``torch.func``, and tensors that are not plain ones (fake tensors, for example). ``seen`` says which. Sums in bags go through the operators of
``_bag_tensors``. Operators run in the extension, or without it in Python; what says shape, dtype and device of fake tensors is here.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn, Optional, TypeVar, cast

import numpy as np
import torch
from torch.utils._device import DeviceContext

from . import _abi
from ._bags import pooling, summed
from ._checks import row_stride, text
from ._elements import Element, element
from ._extension import extension, functions, register, unregister
from ._ids import host_ids
from ._library import check, forked, library, log
from .errors import ArgumentError, Error, GradientError, RowError, UnsupportedError

if TYPE_CHECKING:
    from .ngram import RowFormat
    from .table import Table

_is_compiling, _is_dynamo_compiling = torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling
# Each is a call of C, and takes some 40 ns: whether torch.jit.trace records, the modes that see functions and operators, the transforms of torch.func, and
# whether operators are traced before they are dispatched. A mode of functions says the last, too, but not while it hands a table one of its functions.
_is_tracing = torch._C._is_tracing
_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_function_mode, _no_functions = torch._C._get_function_stack_at, torch._C.DisableTorchFunction
_transform = torch._C._functorch.peek_interpreter_stack
_is_included, _before_dispatch = torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
_Tensor, _int64, _int32, _empty = torch.Tensor, torch.int64, torch.int32, torch.empty
_INT64, _INT32 = _abi.INT64, _abi.INT32
_cpu = torch.device("cpu")
_INTEGERS = tuple(
    getattr(torch, name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64") if hasattr(torch, name)
)
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # types for the bits of elements, by their bytes
_Call = TypeVar("_Call", bound=Callable[..., Any])
_by_key: weakref.WeakValueDictionary[str, TensorReads] = weakref.WeakValueDictionary()
_naming = threading.RLock()  # of names and what the extension knows them for; taken by finalizers, which may run within it


def _functions_seen() -> bool:
    """Whether a mode sees functions: another one than that of a default device, which may last as long as the program, and which no read asks."""
    for i in range(_function_modes()):
        if type(_function_mode(i)) is not DeviceContext:
            return True
    return False


def watched() -> bool:
    """Whether torch must see what is done, though nothing is being compiled: a program is traced, a mode is active, or a function transformed."""
    return _is_tracing() or _function_modes() > 0 and _functions_seen() or _dispatch_modes() > 0 or _transform() is not None or _is_included(_before_dispatch)


def unasked(function: _Call) -> _Call:
    """Has a function that reads at once not ask the mode of a default device, which would be called for each property of a tensor: 1 µs each."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not _function_modes():
            return function(*args, **options)
        with _no_functions():
            return function(*args, **options)

    return cast(_Call, call)


def seen(*values: Any) -> bool:
    """Whether a call with such arguments must go through an operator, as torch would otherwise take its result for memory that nothing writes."""
    if _is_compiling() or watched():
        return True
    for x in values:  # without a generator, which would take as long as the rest
        if x is not None and type(x) is not _Tensor and hasattr(type(x), "__torch_function__"):
            return True
    return False


def host_tensor(values: Any, rows: int, what: str = "ids") -> torch.Tensor:
    """Returns row numbers or offsets as a tensor, in host memory unless they are one. ``rows`` and ``what`` are those of ``host_ids``."""
    if isinstance(values, _Tensor) or hasattr(type(values), "__torch_function__"):
        tensor: torch.Tensor = values
        return tensor
    return torch.from_numpy(np.require(host_ids(values, rows, what), requirements="W"))  # torch warns of read-only arrays


def in_memory(ids: torch.Tensor) -> tuple[int, int, int]:
    """Returns row numbers or offsets, int64 or int32, as the library's functions take them: address, type and number."""
    return ids.data_ptr(), _INT64 if ids.dtype is _int64 else _INT32, ids.numel()


def _prefetch(there: Any, host: torch.Tensor, handle: int, index: int) -> None:
    """Prefetches row numbers on their way to the host. What is wrong with them the read says that asks for the rows."""
    there.synchronize()
    library().tc_prefetch(handle, index, *in_memory(host))


@functools.cache
def _prefetching() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="tensorcache-prefetch")


class Prefetch:
    """Rows that are being read."""

    def __init__(self, rows: torch.Tensor, done: Any = None) -> None:
        self._rows, self._done = rows, done

    def wait(self) -> torch.Tensor:
        """Orders the current stream after the read, and returns the rows. The host does not wait."""
        if self._done is not None:
            current = torch.cuda.current_stream(self._rows.device)
            current.wait_event(self._done)
            self._rows.record_stream(current)  # they were allocated for the other stream
            self._done = None
        return self._rows


def ahead(device: torch.device, sides: dict[torch.device, Any], ids: torch.Tensor, read: Callable[[], torch.Tensor]) -> Prefetch:
    """Reads rows on a stream beside the current one, after its work so far. ``sides`` are these streams by device. On the host it reads at once."""
    if device.type != "cuda":
        return Prefetch(read())
    side = sides.get(device)
    if side is None:
        side = sides[device] = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        rows = read()
        if ids.is_cuda:
            ids.record_stream(side)
        done = torch.cuda.Event()
        done.record(side)
    return Prefetch(rows, done)


def _current_stream(gpu: int) -> int:
    return int(torch.cuda.current_stream(gpu).cuda_stream)


# torch's own compiler calls this function; current_stream makes an object each time.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


class TensorReads:
    """The reads of one table. Everything that does not change from call to call is worked out here once."""

    def __init__(self, table: Table) -> None:
        self._name, self._handle, self._index = table.name, table._handle, table._index
        self._table = weakref.ref(table)
        self._row_shape, self._element = table._row_shape, table._element
        self._dtype = table._element.torch()
        self._sums: Optional[tuple[Element, tuple[int, ...]]] = None  # once it is asked for
        self._cuda = table.cache.backend == "cuda" and torch.cuda.is_available()
        gpus = table.cache.gpus if self._cuda else []
        # From the GPU's ordinal to the cache's index of the device, and to the device.
        self._slots = {gpu: (i, torch.device("cuda", gpu)) for i, gpu in enumerate(gpus) if gpu >= 0}
        self.device = next((of for _, of in self._slots.values()), _cpu)
        with _naming:
            self.key = _free_key(table)
            _by_key[self.key] = self
            known = self._register(gpus if self._slots else [])
        if extension is not None and not known:
            nothing: Any = lambda *_: None  # noqa: E731
            self._read = self._add_up = self._read_at_once = self._add_up_at_once = nothing
        elif extension is not None:
            watchers = (_is_tracing, _function_modes, _dispatch_modes, _transform)
            self._read = functions(self.key, watchers)[0]
            self._add_up = functions(self.key, (*watchers, functools.partial(_is_included, _before_dispatch)))[1]
            self._read_at_once, self._add_up_at_once = functions(self.key, ())
        lib = library()
        self._gather, self._gather_host, self._gather_host_ids, self._check = lib.tc_gather, lib.tc_gather_host, lib.tc_gather_host_ids, lib.tc_check

    def _register(self, gpus: list[int]) -> bool:
        """Lets the extension find the table, if there is one. It refuses names and rows of more axes than it has room for: Python reads those."""
        if extension is None:
            return False
        try:
            register(self, gpus)
        except ArgumentError as e:
            log.info("tensorcache: operators of programs cannot read table %s: %s", self._name, e)
            return False
        weakref.finalize(self, _forget, self.key, self._handle, self._index).atexit = False
        return True

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the rows ``ids``. This is the path whose cost counts: row numbers on a GPU."""
        result: Optional[torch.Tensor] = None
        if _is_dynamo_compiling():
            result = torch.ops.tensorcache.gather(ids, self.key)
        elif extension is not None:
            result = self._read(ids)
        return self._read_watched(ids) if result is None else result

    def _read_watched(self, ids: torch.Tensor) -> torch.Tensor:
        """``read`` of everything that the extension leaves to Python, or without it."""
        # seen(ids), without calls of Python functions.
        modes = _function_modes()
        if _is_compiling() or type(ids) is not _Tensor or _is_tracing() or modes and _functions_seen() or _dispatch_modes() or _transform() is not None:
            result: torch.Tensor = _traced(torch.ops.tensorcache.gather, self._selected(ids), self.key)
            return result
        if modes:
            with _no_functions():  # see unasked
                return self.eager(ids)
        return self.eager(ids)

    def eager(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns the rows ``ids`` without the operator."""
        if extension is not None:
            result: Optional[torch.Tensor] = self._read_at_once(ids)
            return self.at_once(ids, None) if result is None else result
        gpu, dtype = ids.get_device(), ids.dtype
        if not (dtype is _int64 or dtype is _int32) or not ids.is_contiguous() or gpu < 0 and (self._cuda or not ids.is_cpu):
            return self.at_once(ids, None)
        if gpu < 0:
            out = _empty(ids.shape + self._row_shape, dtype=self._dtype, device=_cpu)
            check(self._gather_host(self._handle, -1, self._index, *in_memory(ids), out.data_ptr(), 0))
            return out
        slot, device = self._slots.get(gpu) or self._wrong_device(ids)
        out = _empty(ids.shape + self._row_shape, dtype=self._dtype, device=device)
        # The check reports row numbers out of range of earlier reads that have finished.
        check(self._check(self._handle, 0) or self._gather(self._handle, slot, self._index, *in_memory(ids), out.data_ptr(), 0, _raw_stream(gpu), None))
        return out

    def gather(self, ids: Any, out: Any, dtype: Any = None) -> torch.Tensor:
        """Returns the rows of ids of any kind, in a new tensor or in ``out``."""
        if not seen(ids, out):
            return self.at_once(ids, out, dtype)
        numbers, of = self._selected(host_tensor(ids, self._rows())), torch.ops.tensorcache
        result: torch.Tensor = _traced(of.gather, numbers, self.key) if dtype is None else _traced(of.gather_as, numbers, self.key, element(dtype).name)
        return result if out is None else written(out, result)

    @unasked
    def at_once(self, ids: Any, out: Any, dtype: Any = None) -> torch.Tensor:
        """``gather`` without the operator."""
        if dtype is not None:
            from ._bag_tensors import BagRequest, embedding_bags

            ids = self._in_range(host_tensor(ids, self._rows()))
            result: Optional[torch.Tensor] = None
            if out is None and extension is not None:
                result = self._add_up_at_once(ids, None, None, _abi.POOL_SUM, False, element(dtype).code, True, None)
            return embedding_bags([BagRequest(self, ids, dtype=dtype, each=True)], [out])[0] if result is None else result
        ids = self._integers(host_tensor(ids, self._rows()))
        slot, device = self._place(ids, out)
        shape = ids.shape + self._row_shape
        stride = 0
        if out is None:
            out = _empty(shape, dtype=self._dtype, device=device)
        else:
            stride = self._row_stride(out, shape, device)
            if out.untyped_storage().data_ptr() == ids.untyped_storage().data_ptr():
                ids = ids.clone()  # rows are written while row numbers are still read
        arguments = (self._handle, slot, self._index, *in_memory(ids), out.data_ptr(), stride)
        if slot < 0:
            check(self._gather_host(*arguments))
        elif ids.is_cuda:
            check(self._check(self._handle, 0))
            check(self._gather(*arguments, _raw_stream(device.index), None))
        else:
            check(self._gather_host_ids(*arguments, _raw_stream(device.index), None))
        filled: torch.Tensor = out
        return filled

    def _in_range(self, ids: torch.Tensor) -> torch.Tensor:
        """Returns row numbers that the library gets on a GPU, after checking those that are in host memory: an error there would be a later read's."""
        if not self._cuda or not ids.is_cpu:
            return ids
        ids, rows = self._integers(ids), self._rows()
        if ids.numel():
            low, high = (int(of) for of in ids.aminmax())
            if low < 0 or high >= rows:
                raise RowError(f"tensorcache: row number ({low if low < 0 else high}) must be 0 to {rows - 1} of table {self._name}")
        return ids

    def values(self, ids: Any, row: RowFormat, dtype: torch.dtype, out: Any) -> torch.Tensor:
        """Returns rows of float8 values, ``ids`` of any shape, as that shape and ``row.elements`` of ``dtype``, converted where they are read."""
        from ._bag_tensors import BagRequest, embedding_bags

        return embedding_bags([BagRequest(self, ids, dtype=dtype, each=True, row=row)], [out])[0]

    def sums(self) -> tuple[Element, tuple[int, ...]]:
        """Returns the type and the shape of sums of rows."""
        if self._sums is None:
            table = self._table()
            if table is None:
                raise Error(f"tensorcache: table ({self._name}) is no longer there")
            self._sums = summed(table)
        return self._sums

    def _place(self, ids: torch.Tensor, out: Any) -> tuple[int, torch.device]:
        """The cache's index of the device that reads rows, -1 for the host, and where the rows go."""
        if ids.is_cuda:
            return self._slots.get(ids.get_device()) or self._wrong_device(ids)
        if not self._cuda or out is not None and not getattr(out, "is_cuda", False):
            return -1, _cpu
        return self._current() if out is None else self._slots.get(out.get_device(), (0, self.device))

    def _current(self) -> tuple[int, torch.device]:
        """Where rows for row numbers in host memory go: to the current GPU if the cache is on it, else to the cache's first one."""
        return self._slots.get(torch.cuda.current_device(), (0, self.device)) if self._cuda else (-1, self.device)

    def _rows(self) -> int:
        table = self._table()
        return 0 if table is None else len(table)

    def closed(self) -> bool:
        """Whether the table cannot be read any more."""
        table = self._table()
        return table is None or table.cache.closed

    @unasked
    def prefetch(self, ids: torch.Tensor) -> None:
        """Prefetches the rows of CUDA row numbers once they are known on the host."""
        gpu = ids.device
        if torch.cuda.is_current_stream_capturing():
            return
        numbers = self._integers(ids)
        host = torch.empty(numbers.shape, dtype=numbers.dtype, device=_cpu, pin_memory=True)
        with torch.cuda.device(gpu):
            host.copy_(numbers, non_blocking=True)
            there = torch.cuda.Event()
            there.record()
        _prefetching().submit(_prefetch, there, host, self._handle, self._index)

    def _selected(self, ids: Any) -> Any:
        """Returns row numbers for booleans that select rows, which operators do not take, and else what is given."""
        return self._integers(ids) if isinstance(ids, _Tensor) and ids.dtype is torch.bool else ids

    def _integers(self, ids: torch.Tensor) -> torch.Tensor:
        if ids.layout != torch.strided:
            raise TypeError(f"tensorcache: ids (layout {ids.layout}) must be a dense tensor")
        if not ids.is_cpu and not ids.is_cuda:
            raise ArgumentError(f"tensorcache: ids (device {ids.device}) must be on the CPU or a CUDA device")
        if ids.dtype == torch.bool:
            if ids.shape != (self._rows(),):
                raise ArgumentError(f"tensorcache: ids (booleans of shape {tuple(ids.shape)}) must have shape ({self._rows()},) to select rows")
            ids = ids.nonzero().view(-1)
        elif ids.dtype not in _INTEGERS:
            raise TypeError(f"tensorcache: ids ({ids.dtype}) must be integers")
        elif ids.dtype not in (_int64, _int32):
            ids = ids.to(_int64)
        return ids.contiguous()

    def _row_stride(self, out: Any, shape: torch.Size, device: torch.device, of: Optional[Element] = None, row_axes: Optional[int] = None) -> int:
        of = of or self._element
        _check_output(out, shape, of.torch())
        if out.device != device:
            raise ArgumentError(f"tensorcache: out (device {out.device}) must be on {device}")
        size = of.size
        return row_stride(tuple(shape), tuple(s * size for s in out.stride()), len(self._row_shape) if row_axes is None else row_axes, size)

    def _wrong_device(self, ids: torch.Tensor) -> NoReturn:
        where = " or ".join(["the CPU", *(str(device) for _, device in self._slots.values())])
        raise ArgumentError(f"tensorcache: ids (device {ids.device}) must be on {where}, as the cache is on {self.device}")


def _traced(operator: Any, *arguments: Any) -> Any:
    """Calls an operator. One that fails ends what ``torch.jit.trace`` records, so the error notes that it did: afterwards nobody could tell."""
    if _is_compiling() or not _is_tracing():
        return operator(*arguments)
    try:
        return operator(*arguments)
    except IndexError as e:
        e.traced = True  # type: ignore[attr-defined]
        raise


def written(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Writes the result of an operator to ``out``, and returns that."""
    _check_output(out, result.shape, result.dtype)
    return out.copy_(result)


def _check_output(out: Any, shape: torch.Size, dtype: torch.dtype) -> None:
    if not isinstance(out, _Tensor):
        raise TypeError(f"tensorcache: out ({type(out).__name__}) must be a tensor, as ids are")
    if out.requires_grad:
        raise GradientError("tensorcache: out (a tensor that requires a gradient) must be a constant: rows of a cache have no gradient")
    if out.shape != shape:
        raise ArgumentError(f"tensorcache: out (shape {tuple(out.shape)}) must have shape {tuple(shape)}")
    if out.dtype != dtype:
        raise TypeError(f"tensorcache: out ({out.dtype}) must have dtype {dtype}")


def host_array(rows: torch.Tensor, of: Element) -> np.ndarray[Any, Any]:
    """Returns the elements of a tensor as a NumPy array of ``of.bits``, copied to the host if need be."""
    if rows.dtype != of.torch():
        raise TypeError(f"tensorcache: rows ({rows.dtype}) must have dtype {of.torch()}")
    array: np.ndarray[Any, Any] = rows.detach().cpu().resolve_neg().contiguous().view(BITS[of.size]).numpy().view(of.bits)
    return array


def torch_function(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``torch.embedding``, ``torch.nn.functional.embedding`` and ``torch.index_select`` of a table."""
    # By name, as other packages replace these functions by their own: torch_geometric has _new_index_select.
    name = getattr(function, "__name__", "")
    functional = getattr(function, "__module__", "") == "torch.nn.functional"
    if name == "embedding":
        return _embedding(*args, **kwargs) if functional else _aten_embedding(*args, **kwargs)
    if name == "embedding_bag" and functional:
        return _embedding_bag(*args, **kwargs)
    if name in ("index_select", "_new_index_select"):
        return (lambda input, dim, index, *, out=None: input.index_select(dim, index, out=out))(*args, **kwargs)
    return NotImplemented


def _constant(max_norm: Any, gradient: bool) -> None:
    """Refuses arguments of torch's functions that change rows, or are about their gradient."""
    if max_norm is not None:
        raise ArgumentError(f"tensorcache: max_norm ({max_norm}) must be None: rows of a cache are constants")
    if gradient:
        raise GradientError("tensorcache: scale_grad_by_freq and sparse must be False: rows of a cache have no gradient")


def _aten_embedding(weight: Table, indices: torch.Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    return _embedding(indices, weight, None, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def _embedding(
    input: torch.Tensor, weight: Table, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    _constant(max_norm, scale_grad_by_freq or sparse)
    return weight._gather(input) if seen(input) else weight._reads().read(input)


def _embedding_bag(
    input: torch.Tensor, weight: Table, offsets: Any = None, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean",
    sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: Optional[int] = None,
) -> Any:  # fmt: skip
    _constant(max_norm, scale_grad_by_freq or sparse)
    return weight.embedding_bag(input, offsets, mode, per_sample_weights, include_last_offset=include_last_offset, padding_idx=padding_idx)


def _free_key(table: Table) -> str:
    """Returns the text by which programs name a table: its name, the type of its elements and the shape of its rows, as ``tensorcache_torch_register`` in C writes them.
    A second table of the same name and rows that is open at a time gets ``#2``, and so on."""
    rows = f"{table._element.name}[{','.join(map(str, table._row_shape))}]" + (f":{table._parts}" if table._parts else "")
    name = (text(table.name) or b"").decode()
    for number in itertools.count(1):
        key = f"{name}#{number}:{rows}" if number > 1 else f"{name}:{rows}"
        other = _by_key.get(key)
        if other is None or other.closed():
            break
    return key


def _forget(key: str, handle: int, index: int) -> None:
    """Has the extension forget a table, unless its name is by now that of another object of it."""
    if forked():  # maybe while another thread of the parent had the lock
        return
    with _naming:
        if _by_key.get(key) is None:
            unregister(key, handle, index)


def _of_key(key: str) -> TensorReads:
    reads = _by_key.get(key)
    if reads is None:
        raise Error(f"tensorcache: table {key} must be open in this process: it was not, or is no longer there")
    return reads


def _run(ids: torch.Tensor, table: str) -> torch.Tensor:
    return _of_key(table).eager(ids)


def _run_as(ids: torch.Tensor, table: str, dtype: str) -> torch.Tensor:
    return _of_key(table).at_once(ids, None, dtype)


def _fake(ids: torch.Tensor, table: str, dtype: Optional[str] = None) -> torch.Tensor:
    reads = _of_key(table)
    if ids.dtype not in _INTEGERS:
        raise TypeError(f"tensorcache: ids ({ids.dtype}) must be integers")
    shape, kind = reads._row_shape, reads._dtype
    if dtype is not None:
        of, shape = reads.sums()
        kind = pooling(of, reads._rows(), "sum", False, None, dtype, False).output.torch()
    return ids.new_empty((*ids.shape, *shape), dtype=kind, device=ids.device if ids.is_cuda else reads._current()[1])


def _one_by_one(function: Any, information: Any, in_dims: Any, *arguments: Any, **options: Any) -> Any:
    """The rule of ``torch.vmap`` for an operator: calls it for each element of the mapped axis, and stacks the results."""
    from torch.utils import _pytree as pytree

    if information.batch_size == 0:
        raise ArgumentError("tensorcache: the axis that torch.vmap maps (0 elements) must have at least one, to read bags")
    leaves, structure = pytree.tree_flatten(list(arguments))
    dims = pytree._broadcast_to_and_flatten(list(in_dims), structure, lambda x: x is None or isinstance(x, int))
    results = [
        function(*pytree.tree_unflatten([x if dim is None else x.select(dim, i) for x, dim in zip(leaves, dims)], structure), **options)
        for i in range(information.batch_size)
    ]
    if isinstance(results[0], _Tensor):
        return torch.stack(results), 0
    return [torch.stack(of) for of in zip(*results)], [0] * len(results[0])


def _mapped(information: Any, in_dims: Any, ids: torch.Tensor, table: str) -> Any:
    """The rule of ``torch.vmap`` for gather: one read of all row numbers."""
    return torch.ops.tensorcache.gather(ids.movedim(in_dims[0], 0), table), 0


def _mapped_as(information: Any, in_dims: Any, ids: torch.Tensor, table: str, dtype: str) -> Any:
    return torch.ops.tensorcache.gather_as(ids.movedim(in_dims[0], 0), table, dtype), 0


def _run_update(ids: torch.Tensor, rows: torch.Tensor, table: str) -> None:
    reads = _of_key(table)
    values = host_array(rows, reads._element)
    if rows.shape != ids.shape + reads._row_shape:
        raise ArgumentError(f"tensorcache: rows (shape {tuple(rows.shape)}) must have shape {tuple(ids.shape + reads._row_shape)}")
    check(library().tc_update(reads._handle, reads._index, *in_memory(reads._integers(ids.cpu())), values.ctypes.data, 0))


def _no_update(*given: Any) -> NoReturn:
    raise UnsupportedError(f"tensorcache: update (of table {given[-1]}) cannot be part of a program that torch traces or transforms: call it outside")


def define(signature: str, run: Any, fake: Any, mapped: Any = None, gradient: bool = True) -> None:
    """Defines an operator, unless the extension has, with what torch's compiler, autograd and ``torch.vmap`` need of it in Python. Only one with ``gradient`` takes
    tensors that may require a gradient."""
    name = signature.partition("(")[0]
    full = f"tensorcache::{name}"
    if extension is None:
        _definitions.define(signature)
        _definitions.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(full, fake)
    if gradient:
        torch.library.register_autograd(full, _no_gradient)
    if hasattr(torch.library, "register_vmap"):  # from torch 2.5 on
        torch.library.register_vmap(full, mapped or functools.partial(_one_by_one, getattr(torch.ops.tensorcache, name)))


def _no_gradient(context: Any, gradient: Any) -> NoReturn:
    raise GradientError("tensorcache: rows of a cache have no gradient: the table is a constant")


_definitions = torch.library.Library("tensorcache", "FRAGMENT")
define("gather(Tensor ids, str table) -> Tensor", _run, _fake, _mapped, gradient=False)
define("gather_as(Tensor ids, str table, str dtype) -> Tensor", _run_as, _fake, _mapped_as, gradient=False)
define("update(Tensor ids, Tensor rows, str table) -> ()", _run_update, _no_update, _no_update, gradient=False)

from . import _bag_tensors  # noqa: E402, F401  its operators, which this module's definitions are for
