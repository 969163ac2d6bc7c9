"""``tensorcache.open``."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union, overload

import numpy as np

from . import _abi
from ._checks import Size, choice, integer, number, parse_size, text
from ._ids import in_memory, training_batches
from ._library import check, library, log_level
from ._opening import Progress, attach_cache, open_cache, tables_of
from ._plan import opening
from ._settings import Pages, Resident
from ._sources import Description, Source, describe_all, is_cluster, mapped_file, unload
from .cache import Cache
from .errors import ArgumentError, FileError
from .table import Table

if TYPE_CHECKING:
    from typing_extensions import Unpack

Device = Union[str, int, "list[int]", Any]


class Options(TypedDict, total=False):
    """The keyword arguments of ``open``, for type checkers."""

    device: Device
    codec: Union[str, Mapping[str, str]]
    train: Any
    refresh: Union[None, float, Mapping[str, float]]
    policy: Optional[str]
    host_tier: Literal["inplace", "packed"]
    equal_rows: bool
    adopt: bool
    capacity: Union[None, int, Mapping[str, int]]
    resident: Union[None, bool, int, Resident, Mapping[str, Union[None, bool, int, Resident]]]
    pages: Union[None, Pages, Mapping[str, Optional[Pages]]]
    dtype: Any
    restore: Union[None, str, os.PathLike[str]]
    cold: bool
    workers: int
    host_threads: int
    host_memory: Optional[Size]
    seed: int
    name: Optional[str]
    progress: Union[None, bool, Progress]
    listen: Optional[str]


@overload
def open(source: str, *, name: Optional[str] = None, workers: int = 0, host_threads: int = 0, wait: float = 0, scratch: Optional[Size] = None, timeout: Optional[float] = None) -> Any: ...


@overload
def open(source: Mapping[str, Source], gpu_memory: Size, **options: Unpack[Options]) -> Cache: ...


@overload
def open(source: Source, gpu_memory: Size, **options: Unpack[Options]) -> Table: ...


def open(
    source: Union[Source, Mapping[str, Source]],
    gpu_memory: Optional[Size] = None,
    *,
    device: Device = "auto",
    codec: Union[str, Mapping[str, str]] = "auto",
    train: Any = None,
    refresh: Union[None, float, Mapping[str, float]] = None,
    policy: Optional[str] = None,
    host_tier: Literal["inplace", "packed"] = "inplace",
    equal_rows: bool = True,
    adopt: bool = False,
    capacity: Union[None, int, Mapping[str, int]] = None,
    resident: Union[None, bool, int, Resident, Mapping[str, Union[None, bool, int, Resident]]] = None,
    pages: Union[None, Pages, Mapping[str, Optional[Pages]]] = None,
    dtype: Any = None,
    restore: Union[None, str, os.PathLike[str]] = None,
    cold: bool = False,
    workers: int = 0,
    host_threads: int = 0,
    host_memory: Optional[Size] = None,
    seed: int = 0,
    name: Optional[str] = None,
    progress: Union[None, bool, Progress] = None,
    listen: Optional[str] = None,
    wait: float = 0,
    scratch: Optional[Size] = None,
    timeout: Optional[float] = None,
) -> Union[Table, Cache]:
    """Opens a table whose most used rows are cached, compressed, in GPU memory; all rows lie compressed in page-locked host memory.

    ``open("unix:/run/tensorcached.sock")`` attaches to the cache of another process, its owner (tensorcached, or one that has opened it with ``listen``):
    reads run here on the owner's memory, changes are made by the owner. Of the arguments only ``name``, ``workers``, ``host_threads``, ``wait``,
    ``scratch`` and ``timeout`` are taken. A cache of one table is returned as ``Table``. Pickled tables of such caches attach by themselves in other processes. If the owner ends, reads go on, and changes raise ``OwnerError`` until the next owner is there. Captured
    reads keep to the owner that there was when they were captured.

    Returns a ``Table``, or for a dict of sources a ``Cache``, a mapping from the dict's keys to tables, which share ``gpu_memory``.

    source
        The first axis numbers the rows. The source is read once and not kept, unless ``adopt`` is set, and never written. It is

        - the path of a ``.npy``, ``.npz`` or ``.safetensors`` file (``"file.npz:array"``, ``"model.safetensors.index.json:tensor"``), or of a directory that
          ``cachebench pack`` wrote, or the address of a cluster with one (``"redis://HOST:PORT/TABLE"``), whose rows are read when they are needed;
        - several files whose rows follow each other: a list of paths, or a pattern, ``"part-*.npy"``;
        - with pyarrow, a Parquet file, or Arrow data: a column of numbers or of lists of one length (``"file.parquet:column"``), or columns of numbers of one type side by side;
        - a NumPy array or memmap; a torch tensor on any device; or what has ``__dlpack__``.
    gpu_memory
        Memory of each GPU for cached rows: bytes, ``"10GB"``, ``"10GiB"``, or ``"10%"`` of the source's bytes.
    device
        ``"auto"`` takes a GPU if there is a usable one, else the host's processors; ``"host"``; ``"cuda"``; ``"cuda:1"``, a ``torch.device``, an
        ordinal, or a list of ordinals for a cache over several GPUs.
    codec
        ``"auto"`` picks what serves rows fastest; ``"none"``, or a name of docs/codecs.md; a dict names one for each table.
    train
        Row numbers as they will be read, from which the cache learns which rows to hold: an array, or an iterable of batches: of arrays, of
        tensors, or of PyG batches, whose ``n_id`` is used. For several tables a dict, or batches that are dicts or heterogeneous. Without,
        any rows are cached at first.
    refresh
        How the cache follows its use: seconds between cycles in the background, or a dict with ``interval`` (seconds), ``churn`` (largest share
        replaced by a cycle), ``bytes`` (most bytes written by a cycle), ``accesses`` (share of reads that are observed). None: the rows stay
        until ``refresh()`` is called.
    policy
        The admission policy: ``"freq"`` (default), ``"tinylfu"``, or another of docs/admission.md.
    host_tier
        ``"inplace"``, or ``"packed"``, which saves host memory and costs 8 bytes of GPU memory a row beside the budget.
    equal_rows
        Equal rows share their place in GPU memory, if a sample of the table says that there are enough of them. They are looked for while the table is loaded. With False they do
        not, unless ``host_tier`` is ``"packed"``.
    adopt
        Uses the memory of the source itself instead of a copy. Until the cache is closed nobody may read or write it. It must be page-locked or
        anonymous memory that begins at a page, for example a pinned tensor.
    capacity
        Rows for which there is room, so that ``update`` can append behind the last row; for several tables a dict.
    resident
        True keeps all rows in GPU memory, compressed, in slots of fixed length, and what longer rows have beyond them in page-locked host memory: for
        tables that nearly fit ``gpu_memory``. Nothing is admitted or evicted. A number is the bytes of a slot, a multiple of 16; True chooses it. A
        ``tensorcache.Resident`` has more options. For several tables a dict.
    pages
        A ``tensorcache.Pages`` for a directory that ``cachebench pack`` wrote, or a cluster: whether updates are durable, and where pages and updates lie
        besides. For several tables a dict.
    dtype
        Reads the source's elements as another type of the same length, such as ``uint16`` as ``"bfloat16"``, or the void bytes that ml_dtypes saves as ``"float8_e4m3fn"``,
        ``"float8_e5m2fnuz"`` or ``"int4"`` (a byte each), or its rows as rows of parts, such as
        ``"float8_e4m3fn*256,float8_e8m0fnu*8"`` or a packed structured NumPy dtype, so that codecs know them. What reads rows of parts, also those of
        structured arrays and files, has uint8 of the row's bytes: ``x[ids].view(dtype)`` are its fields.
    restore
        A file of ``Cache.snapshot``, whose rows are cached first. A missing or damaged file is ignored.
    cold
        Begins with an empty cache.
    workers, host_threads
        Threads that load tables (default: all processors), and that help each GPU with rows that are not cached (default: half of the
        processors, at most 8; -1: none).
    host_memory
        Most host memory for rows of directories that ``cachebench pack`` wrote, as ``gpu_memory``; the other rows stay in the directory. None:
        all rows. What comes on top, for short rows as much again: ``stats()["host_taken_bytes"]`` has all, and a log line warns.
    seed
        Selects the rows that codecs learn from.
    name
        The cache's name in telemetry and logs.
    progress
        A function of (table index, rows read, all rows); True or False for a progress bar or none; by default there is one after two seconds if
        stderr is a terminal, by tqdm if that is installed.

    listen
        ``"unix:PATH"``: other processes of the same user can attach there once the cache is open, and until it is closed, as rank 0 of a job lets the others:
        this process is its owner. Not with ``adopt``. Linux only.
    wait
        Only for attaching: seconds for which to try to reach an owner that is not there yet.
    scratch
        Only for attaching: most memory of each GPU that this process allocates for its reads, at least ``"1MiB"``. An owner that allows less refuses the
        process. None: what the owner allows.
    timeout
        Only for attaching: seconds for which ``open``, and each request to the owner later, waits for an owner that gives no sign of life: because it is stopped, or has
        no file descriptors left. ``OwnerError`` then names it. What an owner is at work on takes as long as that, also while it waits for a drive. At least 0.1;
        None: 10.

    It takes seconds for 10 GB. Ctrl-C cancels it and frees what it took. The library's messages go to ``logging.getLogger("tensorcache")``.

    Raises ``ArgumentError``, ``TypeError``, ``FileNotFoundError`` or ``FileError`` for bad arguments and files, ``DeviceError`` if the GPU
    asked for is not there, ``OutOfMemoryError``, ``ForkedError`` in a child of a process that has used the library, ``LibraryError`` if the
    library does not load or is of another version, ``GradientError`` for a tensor that requires a gradient. The file of a memmap that becomes
    shorter while it is read is a ``FileError``.

    >>> x = tensorcache.open("features.npy", gpu_memory="10GB", train=[batch.n_id for batch in first_batches])  # doctest: +SKIP
    >>> x[ids]  # the rows, on the GPU  # doctest: +SKIP
    """
    arguments = dict(locals())
    attaching = isinstance(source, str) and source.startswith("unix:")
    for what in _ONLY_OPENING if attaching else _ONLY_ATTACHING:
        if not _is_default(what, arguments[what]):
            place = "not be given for the cache of another process: its owner has decided it" if attaching else "only be given for the address of another process's cache (unix:PATH)"
            raise ArgumentError(f"tensorcache: {what} ({arguments[what]!r}) must {place}")
    lib = library()
    if attaching:
        options: dict[str, Any] = dict(name=name, workers=workers, host_threads=host_threads, scratch=scratch, timeout=timeout)
        handle = attach(str(source), **options, wait=wait)
        return _served(handle, lambda: Cache(handle, tables_of(handle), [], {}, (str(source), options)))
    if gpu_memory is None:
        raise TypeError("tensorcache: gpu_memory (None) must be given, unless source is the address of another process's cache (unix:PATH)")
    tables = describe_all(source, dtype)
    names, whole = [table.name for table in tables], sum(table.nbytes for table in tables)
    config = _abi.Config(policy=text(policy), cold=bool(cold), no_equal_rows=not equal_rows, shared=listen is not None, **_common(name, workers, host_threads))
    config.gpu_memory = parse_size(gpu_memory, whole)
    config.host_memory = 0 if host_memory is None else parse_size(host_memory, whole, "host_memory")
    config.host_packed = choice(host_tier, "host_tier", ("inplace", "packed")) == "packed"
    config.restore = None if restore is None else os.fsencode(restore)
    config.seed = integer(seed, "seed", 0, 2**64 - 1)
    config.backend, gpus = _backend(device)
    ordinals = (ctypes.c_int32 * len(gpus))(*gpus)
    if gpus:
        config.devices, config.gpus = len(gpus), ctypes.addressof(ordinals)
    batches = training_batches(train, names, [table.shape[0] for table in tables])  # until the cache is open
    training = (_abi.Training * max(1, len(batches)))()
    for batch, (of, ids) in zip(training, batches):
        batch.table, (batch.ids, batch.id_type, batch.n) = of, in_memory(ids)
    config.training, config.training_batches = training, len(batches)
    _refresh(config, refresh)
    codecs = _of_tables(codec, names, "codec", str, "auto")
    capacities = _of_tables(capacity, names, "capacity", (int, np.integer), 0)
    residents = _of_tables(resident, names, "resident", (int, np.integer, Resident), None)
    paged = _of_tables(pages, names, "pages", Pages, None)
    structures = (_abi.Table * len(tables))()
    for structure, table in zip(structures, tables):
        structure.size = ctypes.sizeof(_abi.Table)
        _fill(structure, table, adopt)
        structure.codec = text(codecs[table.name])
        structure.capacity = integer(capacities[table.name] or 0, "capacity", 0, 2**50 - 2)
        wanted = residents[table.name]
        if wanted is not None and wanted is not False:
            if not isinstance(wanted, Resident):
                wanted = Resident() if wanted is True else Resident(integer(wanted, "resident", 16, 2**20))
            wanted.fill(structure)
        if paged[table.name] is not None:
            paged[table.name].fill(structure, table.name)
    try:
        handle = open_cache(ctypes.byref(config), structures, names, progress, lambda: None if adopt else unload(tables))
    except FileError as e:
        raise _with_file(e, tables)

    def listening() -> Cache:
        described = {table.name: (table.element, table.shape) for table in tables}
        # What a plan can read as it is: commands take the last axis for the row.
        sources = {table.name: _absolute(table.path) for table in tables if table.path and len(table.shape) == 2}
        cache = Cache(handle, described, [table.owner for table in tables if adopt], sources, None if listen is None else (listen, {}))
        cache._opening = opening(tables, arguments, residents, batches)
        if listen is not None:
            check(lib.tc_listen(handle, text(listen), None))
        return cache

    return _served(handle, listening, isinstance(source, Mapping))


def attach(
    address: str, *, name: Optional[str] = None, workers: int = 0, host_threads: int = 0, wait: float = 0, scratch: Optional[Size] = None, timeout: Optional[float] = None
) -> int:
    """Attaches to the cache of another process, and returns the handle. The arguments are those of ``open``."""
    config = _abi.AttachConfig(**_common(name, workers, host_threads))
    config.scratch = 0 if scratch is None else parse_size(scratch, 0, "scratch")
    config.timeout = 0 if timeout is None else number(timeout, "timeout", 0.1, 1e9, " seconds")
    return attach_cache(address, number(wait, "wait", 0, 1e9, " seconds"), config)


def _common(name: Optional[str], workers: int, host_threads: int) -> dict[str, Any]:
    """What opening and attaching are both told."""
    return dict(name=text(name), log_level=log_level(), workers=integer(workers, "workers", 0, 4096), host_threads=integer(host_threads, "host_threads", -1, 4096))


def _served(handle: int, make: Callable[[], Cache], several: bool = False) -> Union[Table, Cache]:
    """Makes the cache of a handle, which is closed if that fails, and returns it, or its only table unless there may be several."""
    try:
        cache = make()
    except BaseException:
        library().tc_close(handle)
        raise
    return cache if several or len(cache) != 1 else cache[next(iter(cache))]


def _with_file(error: FileError, tables: list[Description]) -> FileError:
    """An error of memory that cannot be read, with the name of the file that it is mapped from: the library knows the table's name only."""
    for table in tables:
        if not table.path and f"table {table.name}: " in str(error) and (file := mapped_file(table.owner)):
            return FileError(f"{error}: source ({file})")
    return error


def _absolute(path: str) -> str:
    return path if is_cluster(path) else "\n".join(map(os.path.abspath, path.split("\n")))


# Arguments that only an opening has, and only an attaching.
_ONLY_OPENING = (
    "gpu_memory", "device", "codec", "train", "refresh", "policy", "host_tier", "equal_rows", "adopt", "capacity", "resident", "pages", "dtype", "restore",
    "cold", "host_memory", "seed", "listen",
)  # fmt: skip
_ONLY_ATTACHING = ("timeout", "scratch", "wait")


def _is_default(name: str, value: Any) -> bool:
    """Whether an argument of ``open`` has its default."""
    default = (open.__kwdefaults__ or {}).get(name)
    return value is default or default is not None and bool(value == default)


def _fill(structure: _abi.Table, table: Description, adopt: bool) -> None:
    structure.name = text(table.name)
    if table.path:
        if adopt:
            raise ArgumentError(f"tensorcache: adopt (True) must be False for a file ({table.path})")
        structure.path, structure.first_axis = os.fsencode(table.path), 1
        if not table.as_file:
            structure.dtype = table.element.code
        structure.parts = table.parts.encode() or None
        return
    structure.data, structure.rows, structure.row_bytes = table.address or None, table.shape[0], table.row_bytes
    structure.dtype, structure.parts = table.element.code, table.parts.encode() or None
    structure.memory = _abi.MEMORY_ADOPT if adopt else _abi.MEMORY_COPY
    if table.cuda_device >= 0:
        if adopt:
            raise ArgumentError("tensorcache: adopt (True) must be False for a tensor on a GPU: it is copied to the host")
        structure.memory, structure.gpu = _abi.MEMORY_CUDA, table.cuda_device


def _backend(device: Device) -> tuple[int, list[int]]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(device, torch.device):
        device = "host" if device.type == "cpu" else str(device)
    if isinstance(device, (int, np.integer)) and not isinstance(device, bool):
        device = [int(device)]
    if isinstance(device, str):
        kind, _, ordinal = device.partition(":")
        kind = "host" if kind == "cpu" else kind
        if kind in _abi.BACKEND and not ordinal:
            return _abi.BACKEND[kind], []
        if kind == "cuda" and ordinal.isdecimal():
            device = [int(ordinal)]
    if isinstance(device, (list, tuple)) and all(isinstance(gpu, (int, np.integer)) and not isinstance(gpu, bool) and 0 <= gpu < 2**31 for gpu in device) and 1 <= len(device) <= 8:
        return _abi.BACKEND_CUDA, [int(gpu) for gpu in device]
    raise ArgumentError(f"tensorcache: device ({device!r}) must be 'auto', 'host', 'cuda', 'cuda:1', or 1 to 8 ordinals of GPUs")


def _refresh(config: _abi.Config, refresh: Any) -> None:
    if refresh is None:
        return
    settings = refresh if isinstance(refresh, Mapping) else {"interval": refresh}
    for key, value in settings.items():
        if key not in ("interval", "churn", "bytes", "accesses"):
            raise ArgumentError(f"tensorcache: refresh ({key!r}) must have the keys interval, churn, bytes and accesses only")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**63:
            raise ArgumentError(f"tensorcache: refresh ({key} {value!r}) must be a number of 0 to 2^63 - 1")
        setattr(config, "refresh_" + key, int(value) if key == "bytes" else float(value))


def _of_tables(value: Any, names: list[str], what: str, kind: Any, default: Any) -> dict[str, Any]:
    """Returns the value for each table: of a dict, or the same for all."""
    if not isinstance(value, Mapping):
        value = {name: value for name in names}
    for name, each in value.items():
        if name not in names:
            raise ArgumentError(f"tensorcache: {what} (table {name!r}) must name one of the tables {', '.join(names)}")
        if each is not None and not isinstance(each, kind):
            raise TypeError(f"tensorcache: {what} ({each!r}) must be {'a str' if kind is str else 'an int'}{' or a Resident' if what == 'resident' else ''}")
    return {name: value.get(name, default) for name in names}
