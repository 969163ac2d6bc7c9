"""``Table``: an array whose rows are cached, used like the array."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Optional, Union

import numpy as np

from . import _abi, _plan
from ._checks import format_size, html, row_stride
from ._elements import Element
from ._graph_data import admit_tables
from ._ids import from_end, host_ids, in_memory
from ._library import check, forked, forward_logs, library, take_json
from ._settings import target_bytes
from .errors import ArgumentError, ClosedError, GradientError, UnsupportedError

if TYPE_CHECKING:
    from .cache import Cache

_PIECE = 1 << 18  # rows that __array__ reads at a time
_BLOCK = 1 << 20  # bytes that an iteration reads at a time


def _recorded() -> bool:
    """Whether torch records a program: a change would be made once, now, and not by the program. It asks what every version of torch has, as NumPy's rows need none."""
    jit: Any = sys.modules.get("torch.jit")
    proxies: Any = sys.modules.get("torch.fx.experimental.proxy_tensor")
    return hasattr(jit, "is_tracing") and jit.is_tracing() or hasattr(proxies, "get_proxy_mode") and proxies.get_proxy_mode() is not None


class Table:
    """An array whose rows are cached. ``table[ids]`` returns rows, as the array itself would.

    The kind of result follows the kind of ``ids``: a torch tensor for tensors, a NumPy array for NumPy arrays, a CuPy array for CuPy arrays. For
    ints, slices and lists it is a tensor if the program had imported torch when the table was opened, else a NumPy array; ``dtype`` and
    ``device`` are of the same framework. Tensors of a cache on a GPU are on that GPU, whether ``ids`` are or not.

    Reads with tensors on a GPU are asynchronous: they run in the order of the current stream, on memory of torch's allocator, and the host does not
    wait. They can be captured by ``torch.cuda.graph`` and compiled by ``torch.compile(fullgraph=True)``. Rows have no gradient.

    A table is safe for use by any number of threads. Its memory is freed when its cache is closed, or with the last reference to it. Pickled, it is a reference: in
    this process to itself, in another to a table that attaches at its first use if the cache listens, and else refuses use with an ``Error``.
    """

    def __init__(self, cache: Cache, index: int, name: str, of: Element, shape: tuple[int, ...], source: str) -> None:
        self._cache, self._index, self._name = cache, index, name
        self._element, self._row_shape = of, shape[1:]
        self._source = source
        self._handle: int = cache._handle
        self._rows, self._parts = shape[0], ""  # of rows of parts, their types as the library names them
        self._paged: Optional[bool] = None  # not known yet
        if not cache.closed:
            self._count()
        self._gather_host: Callable[..., int] = library().tc_gather_host
        self._uses_torch = "torch" in sys.modules
        self._tensors: Any = None  # of _tensors.TensorReads, from the first use of torch on
        if self._uses_torch:
            self._reads()
        admit_tables()

    # ---- what it is

    @property
    def cache(self) -> Cache:
        """The cache that the table belongs to."""
        return self._cache

    @property
    def name(self) -> str:
        """The name in the dict given to ``open``, or that of the file or of the array in it."""
        return self._name

    @property
    def shape(self) -> Any:
        """The shape of the whole array, rows first: a ``torch.Size`` or a tuple."""
        shape = (self._rows, *self._row_shape)
        return sys.modules["torch"].Size(shape) if self._uses_torch else shape

    @property
    def dtype(self) -> Any:
        """The ``torch.dtype`` or ``numpy.dtype`` of the elements."""
        return self._element.torch() if self._uses_torch else self._element.numpy

    @property
    def device(self) -> Any:
        """Where rows are returned for tensors: a ``torch.device``, or ``"cpu"`` without torch."""
        return self._reads().device if self._uses_torch else "cpu"

    @property
    def backend(self) -> str:
        """``"cuda"``, or ``"host"`` if the processors serve the rows."""
        return self._cache.backend

    @property
    def paged(self) -> bool:
        """Whether the table is one of pages: host memory may lack rows, which ``prefetch`` brings there."""
        if self._paged is None:
            self._paged = "tiers" in self.stats()
        return self._paged

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return 1 + len(self._row_shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array, uncompressed."""
        return self._rows * self._row_elements() * self._element.size

    @property
    def is_cuda(self) -> bool:
        """Whether rows are returned on a GPU."""
        return self._uses_torch and self._reads().device.type == "cuda"

    @property
    def requires_grad(self) -> bool:
        """False: rows of a cache are constants."""
        return False

    def size(self, dim: Optional[int] = None) -> Any:
        """Returns the shape, or the length of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Returns the number of axes."""
        return self.ndim

    def numel(self) -> int:
        """Returns the number of elements."""
        return self._rows * self._row_elements()

    def __len__(self) -> int:
        return self._rows

    def _row_elements(self) -> int:
        return math.prod(self._row_shape)

    # ---- reading

    def __getitem__(self, ids: Any) -> Any:
        """Returns the rows ``ids``: see ``gather``. Behind them there may be what selects a part of each row: ``x[ids, 3:5]`` is ``x[ids][..., 3:5]``, with ints, slices,
        ``...`` and None. ``x[...]`` and ``x[:]`` are all rows."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(ids, torch.Tensor):
            try:
                return self._reads().read(ids)
            except IndexError as e:
                return self._from_end(e, ids, self._reads().read)
        if isinstance(ids, tuple) or ids is ...:
            return self._part(ids if isinstance(ids, tuple) else ())
        return self.gather(ids)

    def _part(self, index: tuple[Any, ...]) -> Any:
        """Returns what several indices select, the first of the rows."""
        index = index or (slice(None),)
        if index[0] is ...:
            all_axes = sum(i is not None for i in index[1:]) >= self.ndim
            return self._part(index[1:] if all_axes else (slice(None), *index))
        for i in index[1:]:
            if not (i is None or i is ... or isinstance(i, (slice, int, np.integer)) and not isinstance(i, bool)):
                raise TypeError(f"tensorcache: index ({type(i).__name__}) behind the row numbers must be an int, a slice, ... or None: read the rows, then select from them, as in x[ids][:, columns]")
        rows = self[index[0]]
        return rows[(slice(None),) * (rows.ndim - len(self._row_shape)) + index[1:]]

    def _from_end(self, error: IndexError, ids: Any, read: Callable[[Any], Any]) -> Any:
        """Reads again, with negative row numbers in host memory counted from the end, or raises what the first read did. Reads that succeed pay nothing for it.

        Not in a program that torch records: the read that failed stays in it."""
        numbers = None if getattr(error, "traced", False) or _recorded() else from_end(ids, self._rows)
        if numbers is None:
            raise error
        if self._uses_torch and isinstance(numbers, np.ndarray) and not isinstance(ids, np.ndarray):
            numbers = sys.modules["torch"].from_numpy(numbers)  # a list or a number gives a tensor
        try:
            return read(numbers)
        except IndexError:
            raise error from None

    def gather(self, ids: Any, out: Any = None, *, dtype: Any = None) -> Any:
        """Returns the rows ``ids``: an array of shape ``ids.shape + shape[1:]`` and the table's dtype.

        ``ids`` are integers of any type and shape, on the CPU or on a GPU of the cache; int32 and int64 are used as they are. Also an int, a slice, a list,
        or an array of booleans, one for each row. Negative numbers in host memory count from the end, ``table[-1]`` is the last row. Numbers on a GPU are 0 to
        ``len(table) - 1``, and a negative one is outside the table: ``table[ids % len(table)]``. Programs that torch compiles or
        traces treat negative numbers as outside the table, too.

        ``out`` is an array or tensor of exactly the result's shape and dtype, which is filled and returned; it is where ``ids`` would put the
        result. Rows of ``out`` may be apart, as in ``out=wide[:, :128]``, for ``ids`` of one axis.

        ``dtype`` is the type of the result's elements: float32, float16 or bfloat16, for tables of these and of float8; by default the table's, with rows bit for bit.
        They are rounded to nearest even where they are read; what is too large becomes an infinity, signs of zeros stay, and every NaN becomes the same
        one. Rows of float8 values and scales as parts (``open(..., dtype="float8_e4m3fn*64,float8_e8m0fnu*2")``) become the products of both.

        Raises ``RowError`` (an ``IndexError``) for numbers outside the table; nothing is read then. Numbers on a GPU are checked by the GPU: their
        rows are zeros, and a later read, or ``cache.check()``, raises. ``TypeError`` and ``ArgumentError`` are for ids or out of another type,
        shape or device, ``ClosedError`` for a closed cache.
        """
        return self._call(lambda numbers: self._gather(numbers, out, dtype), ids)

    def _gather(self, ids: Any, out: Any = None, dtype: Any = None) -> Any:
        """``gather`` that refuses negative row numbers, as ``torch.index_select`` and embeddings do."""
        torch = sys.modules.get("torch")
        # Proxies of torch.fx are no tensors.
        if torch is not None and (isinstance(ids, torch.Tensor) or isinstance(out, torch.Tensor) or hasattr(type(ids), "__torch_function__")):
            return self._reads().gather(ids, out, dtype)
        if hasattr(ids, "__cuda_array_interface__"):
            from ._device_arrays import gather

            return gather(self, ids, out, dtype)
        numbers = host_ids(ids, self._rows)
        if out is None and self._uses_torch and not isinstance(ids, np.ndarray):
            return self._reads().gather(numbers, None, dtype)
        if dtype is not None:
            from ._bags import embedding_bag

            return embedding_bag(self, numbers, dtype=dtype, out=out, each=True)
        return self._gather_array(numbers, out)

    def embedding_bag(
        self,
        ids: Any,
        offsets: Any = None,
        mode: str = "mean",
        per_sample_weights: Any = None,
        *,
        include_last_offset: bool = False,
        padding_idx: Optional[int] = None,
        dtype: Any = None,
        out: Any = None,
    ) -> Any:
        """Returns rows added up in bags where they are read: an array of shape ``(bags,) + shape[1:]``. The rows themselves are not returned anywhere.

        It takes the place of ``torch.nn.functional.embedding_bag(ids, x, offsets, ...)``, with NumPy arrays as with tensors. ``ids`` has one axis,
        and ``offsets`` says where in it each bag begins; or ``ids`` has two axes, and each of its rows is a bag. With ``include_last_offset`` the
        last offset is the end of the last bag. ``mode`` is "sum", "mean" or "max", ``per_sample_weights`` float32 factors for "sum", and
        ``padding_idx`` a row that is left out. A bag without rows gives zeros.

        The table has elements of float32, float16, bfloat16 or float8, or rows of float8 values and scales as parts, whose sums are those of the products of both. Sums are
        taken in float32 and rounded once, to ``dtype``: float32, float16, bfloat16, or by default the table's, of float8 float32. They are the same on every
        machine, and not always to the bit what torch computes. ``out`` is filled and returned, if it is given; its rows may be apart.

        Raises what ``gather`` raises, and ``ArgumentError`` for offsets that are out of order or beyond the end of ``ids``. Offsets and ids on a GPU
        are checked by the GPU, and a later read, or ``cache.check()``, raises.
        """
        torch = sys.modules.get("torch")
        if torch is not None and any(isinstance(x, torch.Tensor) for x in (ids, offsets, per_sample_weights, out)):
            from ._bag_tensors import embedding_bag as of_tensors

            return of_tensors(self._reads(), ids, offsets, mode, per_sample_weights, include_last_offset, padding_idx, dtype, out)
        from ._bags import embedding_bag

        return embedding_bag(self, ids, offsets, mode, per_sample_weights, include_last_offset, padding_idx, dtype, out)

    def index_select(self, dim: int, index: Any, *, out: Any = None) -> Any:
        """Returns ``gather(index)`` for ``index`` of one axis, of numbers 0 to ``len(table) - 1``: ``torch.index_select`` along axis 0."""
        if dim not in (0, -self.ndim):
            raise ArgumentError(f"tensorcache: dim ({dim}) must be 0: a table is indexed by its first axis only")
        if len(np.shape(index)) > 1:
            raise ArgumentError(f"tensorcache: index (shape {tuple(np.shape(index))}) must have one axis")
        return self._gather(index, out)

    def _gather_array(self, ids: np.ndarray[Any, Any], out: Any) -> Any:
        shape = (*ids.shape, *self._row_shape)
        if out is None:
            out = np.empty(shape, self._element.numpy)
            stride = 0
        else:
            stride = self._row_stride(out, shape)
            if np.may_share_memory(ids, out):
                ids = ids.copy()
        status = self._gather_host(self._handle, -1, self._index, *in_memory(ids), out.ctypes.data, stride)
        if status:
            check(status)
        return out

    def _row_stride(self, out: Any, shape: tuple[int, ...], of: Optional[Element] = None, row_axes: Optional[int] = None) -> int:
        """Checks an output array and returns the distance of its rows in bytes. ``of`` is its element type, and ``row_axes`` the axes of a row, by default the
        table's."""
        of = of or self._element
        if not isinstance(out, np.ndarray):
            raise TypeError(f"tensorcache: out ({type(out).__name__}) must be a NumPy array, as ids are in host memory")
        if out.shape != shape:
            raise ArgumentError(f"tensorcache: out (shape {out.shape}) must have shape {shape}")
        if out.dtype not in (of.numpy, of.bits):
            raise TypeError(f"tensorcache: out ({out.dtype}) must have dtype {of.numpy}")
        if not out.flags.writeable:
            raise ArgumentError("tensorcache: out (read-only) must be writeable")
        return row_stride(shape, tuple(out.strides), len(self._row_shape) if row_axes is None else row_axes, of.size)

    def _reads(self) -> Any:
        """The reads with torch, made at its first use."""
        if self._tensors is None:
            from ._tensors import TensorReads

            self._tensors = TensorReads(self)
        return self._tensors

    @property
    def key(self) -> str:
        """The text by which torch's operators name the table: its name, dtype and row shape, ``"users:float32[64]"``. Needs torch."""
        key: str = self._reads().key
        return key

    def __iter__(self) -> Iterator[Any]:
        """Yields the rows one by one, in order. They are read in blocks of 1 MiB: a row may be as it was when its block was read."""
        step = max(1, _BLOCK // max(1, self._row_elements() * self._element.size))
        for first in range(0, self._rows, step):
            yield from self.gather(slice(first, first + step))

    def __dlpack__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuses ``torch.as_tensor(table)`` and the like, which would read the whole table."""
        raise TypeError(f"tensorcache: table {self._name!r} ({format_size(self.nbytes)}) is no tensor: read rows by x[ids], or all of them by x[:]")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU; asked for before __dlpack__

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        """Returns all rows as a NumPy array, for ``np.asarray(table)``. It takes ``nbytes`` of host memory."""
        if copy is False:
            raise ArgumentError("tensorcache: copy (False) must be True or None: the rows are read into an array of their own")
        rows = np.empty((self._rows, *self._row_shape), self._element.numpy)
        for first in range(0, len(rows), _PIECE):
            part = rows[first : first + _PIECE]
            self._gather_array(np.arange(first, first + len(part)), part)
        return rows if dtype is None else rows.astype(dtype, copy=False)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from ._tensors import torch_function

        found = torch_function(function, args, kwargs or {})
        if found is NotImplemented and all(issubclass(of, Table) for of in types):
            raise TypeError(f"tensorcache: torch.{getattr(function, '__name__', function)} must be given rows, x[ids], or all of them, x[:]: a table is no tensor")
        return found

    # ---- changing

    def update(self, ids: Any, rows: Any) -> None:
        """Replaces rows: row ``ids[i]`` becomes ``rows[i]``, an array or tensor of shape ``ids.shape + shape[1:]`` and the table's dtype.

        Reads that begin afterwards see the new rows; reads under way see either version of each row. If a number occurs twice, the last one counts.
        Numbers from ``len(table)`` on append rows up to the ``capacity`` given to ``open``; they must follow the last row without a gap, in any order
        within a call. Ids and rows on a GPU are copied to the host, which waits for the current stream. Raises ``RowError`` for a gap and beyond the
        capacity, and changes nothing then.
        """
        if getattr(rows, "requires_grad", False):
            raise GradientError("tensorcache: rows (a tensor that requires a gradient) must be constants: pass rows.detach()")
        if _recorded():
            raise UnsupportedError(f"tensorcache: update (of table {self._name!r}) cannot be part of a program that torch traces: call it outside")
        torch = sys.modules.get("torch")
        numbers = host_ids(ids, self._rows)
        if torch is not None and isinstance(rows, torch.Tensor):
            from ._tensors import host_array

            values = host_array(rows, self._element)
        else:
            values = np.asarray(rows)
        if values.dtype not in (self._element.numpy, self._element.bits):
            raise TypeError(f"tensorcache: rows ({values.dtype}) must have dtype {self._element.name}")
        shape = (*numbers.shape, *self._row_shape)
        if values.shape != shape:
            raise ArgumentError(f"tensorcache: rows (shape {values.shape}) must have shape {shape}")
        values = np.ascontiguousarray(values)
        self._call(lambda of: check(library().tc_update(self._handle, self._index, *in_memory(of), values.ctypes.data, 0)), numbers)
        self._count()

    def invalidate(self, ids: Any) -> None:
        """Withdraws rows from GPU memory until a refresh caches them again. ``ids`` are those of ``gather``."""
        self._with_ids(library().tc_invalidate, ids)

    def prefetch(self, ids: Any) -> None:
        """Begins to read rows that are soon asked for, and returns.

        Of a table of pages (``tensorcache.open("TABLE.tc")``), rows that are neither in GPU memory nor in host memory are read in the background.
        Reads that follow soon find them in host memory. Other tables have every row in host memory: there it only checks the numbers.

        CUDA tensors are copied to the host in the order of the current stream, and a thread prefetches their rows when they are there. While a graph is captured they
        are ignored, as are CUDA arrays of other libraries, and tensors of programs that torch compiles, traces or transforms.
        """
        if hasattr(type(ids), "__torch_function__"):
            from ._tensors import seen

            if seen(ids):
                return
        if getattr(ids, "is_cuda", False):
            if self.paged:
                self._reads().prefetch(ids)
        elif not hasattr(ids, "__cuda_array_interface__"):
            self._with_ids(library().tc_prefetch, ids)

    def retarget(self, target: Union[int, Literal["auto"]] = "auto") -> None:
        """Moves a resident table to slots of ``target`` bytes, a multiple of 16, or with ``"auto"`` of the length, or lengths by range of rows, that suit them now.

        It returns when all rows have moved. Reads go on meanwhile; updates of the table wait some milliseconds at a time. The GPU memory that the
        table takes stays the same: raises ``ArgumentError`` for a target that is longer than ``Resident.max_target``.
        """
        check(library().tc_retarget(self._handle, self._index, target_bytes(target)))
        forward_logs()

    def merge_updates(self) -> None:
        """Writes updated rows of a table of pages into its page files, or into its cluster, and removes them from its log. Reads and updates go on meanwhile.

        A cache does so by itself when the log has grown: call it before the directory is copied. Of a directory with a cluster behind it only versions that were
        replaced are removed from the log. Other tables have nothing to merge.
        """
        check(library().tc_merge_updates(self._handle, self._index))
        forward_logs()

    def refresh(self) -> None:
        """Runs a refresh cycle of the cache: see ``Cache.refresh``."""
        self._cache.refresh()

    def close(self) -> None:
        """Closes the cache, with all its tables."""
        self._cache.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_ids(self, function: Callable[..., int], ids: Any) -> None:
        self._call(lambda numbers: check(function(self._handle, self._index, *in_memory(numbers))), host_ids(ids, self._rows))

    def _call(self, function: Callable[[Any], Any], ids: Any) -> Any:
        """Calls a function with row numbers, of which negative ones in host memory count from the end."""
        try:
            return function(ids)
        except IndexError as e:  # a RowError, or what an operator in C++ raises
            return self._from_end(e, ids, function)

    # ---- knowing

    def stats(self) -> dict[str, Any]:
        """Returns counters since the opening, and what is cached.

        At least ``hits`` and ``misses`` (rows read), ``rows_cached``, ``codec``, ``compression_ratio`` (uncompressed bytes ÷ compressed) and ``misses_by_reason``; keys that
        end in ``_bytes`` are bytes. docs/c.md lists all.
        """
        found: dict[str, Any] = take_json(library().tc_stats_json, self._handle, self._index)
        forward_logs()
        return found

    def explain(self, ids: Any) -> list[dict[str, Any]]:
        """Returns a dict for each row of ``ids``, in their order: where it lies (``tier``, ``cached``), or why it is not cached, and what the admission policy thinks of it."""
        explain = library().tc_explain_json
        found: list[dict[str, Any]] = self._call(lambda numbers: take_json(explain, self._handle, self._index, *in_memory(numbers)), host_ids(ids, self._rows))
        return found

    def plan(self, ids: Any, target_hit: Union[float, str, "list[Union[float, str]]"] = "90%", device_memory: Any = None, **options: Any) -> dict[str, Any]:
        """Returns how much GPU memory a hit rate takes, if rows are read as in ``ids``: ``verdict`` says it in a sentence, ``answers`` has the budgets.

        Caches are opened with the arguments of ``open`` that this one was opened with, of several budgets. They learn from as many of the row numbers as
        ``train`` had, or from three quarters if there are not more or none were given, and are judged by the others. ``ids`` are row numbers in the order of their use, of at least
        several batches, or the path of a file with them. ``target_hit`` is a share (0.9), a percentage, or a list. ``device_memory``, all memory of a GPU, says what fits. ``options`` are flags of
        ``python -m tensorcache plan``, with underscores; ``check=True`` opens a cache of each answer and adds what it hits, ``seen_hit``. This cache is not touched; a table opened
        from memory is first written to a temporary file. A refresh by seconds is planned as one every 5 batches. It takes seconds to minutes.
        """
        return _plan.plan_table(self, ids, target_hit=target_hit, device_memory=device_memory, **options)

    def _count(self) -> None:
        """Takes the number of rows, which updates by any thread and by earlier objects of this table may have raised, from the library."""
        info = _abi.TableInfo()
        with self._cache._lock:
            check(library().tc_table_get_info(self._handle, self._index, ctypes.byref(info)))
            self._rows, self._parts = info.rows, info.parts.decode()

    def _what(self) -> str:
        return f"{self._name!r} {[self._rows, *self._row_shape]} {self._element.name} ({format_size(self.nbytes)})"

    def _facts(self) -> list[str]:
        """What the table is, where it is served, and how it does."""
        what = self._what()
        if forked():
            return [what, "of another process"]
        try:
            stats = self.stats()
        except ClosedError:
            return [what, "closed"]
        looked = stats["hits"] + stats["misses"]
        facts = [
            what, f"on {self._cache.device_names[0]}", f"{stats['codec']} {stats['compression_ratio']:.2f}×", f"{stats['rows_cached']:,} rows cached ({100 * stats['rows_cached'] / max(1, self._rows):.1f} %)",
            f"{100 * stats['hits'] / looked:.1f} % hits" if looked else "", *(f"misses {device['strategy']}" for device in stats.get("miss_strategy", [])[:1]),
            f"{format_size(stats['host_taken_bytes'])} of host memory" if "host_taken_bytes" in stats else "",
        ]  # fmt: skip
        return [fact for fact in facts if fact]

    def __repr__(self) -> str:
        what, where, *facts = self._facts()
        return f"<tensorcache.Table {what} {where}: {', '.join(facts)}>" if facts else f"<tensorcache.Table {what}, {where}>"

    def _repr_html_(self) -> str:
        """What notebooks show."""
        return html([self._facts()], "tensorcache.Table")

    # ---- copies and other processes

    def __copy__(self) -> Table:
        return self

    def __deepcopy__(self, memo: Any) -> Table:
        return self

    def __reduce__(self) -> Any:
        from ._elsewhere import table_of

        return table_of, (self._cache, self._name, self._rows, self._in_graph)

    _in_graph = False  # whether the table is data of a PyG graph, which takes a class of its own

    def _become(self, kind: type[Table]) -> None:
        """Takes another class with the same attributes."""
        self.__class__ = kind
