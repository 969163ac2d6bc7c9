"""What a table is loaded from: a file, host memory, or the memory of a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Union

import numpy as np

from . import _abi
from ._arrow import is_arrow, is_parquet, read_arrow, read_parquet
from ._elements import Element, described, element, fields, parts, structured
from ._library import check, library
from .errors import ArgumentError, FileError, GradientError

if TYPE_CHECKING:
    from torch import Tensor
else:
    Tensor = Any


class DLPack(Protocol):
    """What gives its memory by DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class Arrow(Protocol):
    """What gives its columns by the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


_Path = Union[str, "os.PathLike[str]"]
Source = Union[_Path, Sequence[_Path], "np.ndarray[Any, Any]", Tensor, DLPack, Arrow]

log = logging.getLogger("tensorcache")


@dataclass(frozen=True)
class Description:
    """One table to load.

    ``path`` is a file that the library opens, or ``""`` for memory at ``address``, of ``cuda_device`` if that is not negative. ``owner`` keeps
    the memory alive: the caller of the library holds it until the table is loaded, or, if it is adopted, until the cache is closed.

    ``parts`` are those of a row of bytes. ``as_file`` leaves the type of elements to the file.
    """

    name: str
    element: Element
    shape: tuple[int, ...]
    path: str = ""
    address: int = 0
    cuda_device: int = -1
    owner: object = None
    parts: str = ""
    as_file: bool = False

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.element.size

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.row_bytes


def mapped_file(owner: object) -> str:
    """The file that the memory of an array or a tensor is mapped from, ``""`` if that is not known."""
    base = owner
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None:
            return os.fspath(base.filename)
        base = base.base
    storage = getattr(owner, "untyped_storage", None)
    return str(getattr(storage(), "filename", None) or "") if storage is not None else ""


def unload(tables: list[Description]) -> None:
    """Has the pages of mapped files no longer count as memory of the process: the library has copied them, or reads them again. Private changes of a mapping
    (``mode="c"``) are kept."""
    for table in tables:
        base = table.owner
        while isinstance(base, np.ndarray):
            pages = getattr(base, "_mmap", None)
            if isinstance(pages, mmap.mmap) and getattr(base, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
                with contextlib.suppress(OSError):  # pages that the program has locked
                    pages.madvise(mmap.MADV_DONTNEED)
                break
            base = base.base


def describe(source: object, name: str = "", dtype: object = None) -> Description:
    """Describes a source: a path or several, a NumPy array or memmap, a torch tensor, Arrow data, or what has DLPack's methods.

    ``dtype`` reads the elements as another type of the same length, for example the ``uint16`` of an array as ``"bfloat16"``, or the rows as rows of
    parts: a structured NumPy dtype, or a text such as ``"float8_e4m3fn*256,float8_e8m0fnu*8"``. Such a table has rows of bytes.
    """
    torch = sys.modules.get("torch")
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if not isinstance(path, str):
            raise TypeError(f"tensorcache: source ({path!r}) must be a text path")
        found = _array(*read_parquet(path)) if is_parquet(path) else _file(path, name)
        found = replace(found, name=name or found.name)
    elif isinstance(source, (list, tuple)) and source and all(isinstance(part, (str, os.PathLike)) for part in source):
        found = _shards([os.fspath(part) for part in source], name)
    elif torch is not None and isinstance(source, torch.Tensor):
        found = _tensor(source, name)
    elif isinstance(source, np.ndarray):
        found = _array(source, name)
    elif is_arrow(source):
        found = _array(read_arrow(source), name)
    elif hasattr(source, "__dlpack__"):
        found = _tensor(torch.from_dlpack(source), name) if torch is not None else _array(_of_dlpack(source), name)
    else:
        raise TypeError(f"tensorcache: source ({type(source).__name__}) must be a path, a list of paths, a NumPy array, a torch tensor, Arrow data, or a dict of these")
    if text := "" if dtype is None else parts(dtype):
        shape = (found.shape[0], found.row_bytes) if found.shape else ()
        found = replace(found, element=element("uint8"), shape=shape, parts=text, as_file=False)
    elif dtype is not None:
        of = element(dtype)
        if of.size != found.element.size:
            raise ArgumentError(f"tensorcache: dtype ({of.name}) must have elements of {found.element.size} bytes, as the source has")
        found = replace(found, element=of, parts="", as_file=False)
    if not found.shape:
        raise ArgumentError(f"tensorcache: source (shape {tuple(found.shape)}) must have at least one axis")
    if found.shape[0] == 0:
        raise ArgumentError(f"tensorcache: source (shape {tuple(found.shape)}) must have at least one row")
    if found.row_bytes == 0:
        raise ArgumentError(f"tensorcache: source (shape {tuple(found.shape)}) must have rows of at least one element")
    return found


def is_cluster(path: str) -> bool:
    """Says whether a path is the address of a cluster."""
    return path.startswith(("redis://", "rediss://"))


def look(path: str) -> _abi.TableInfo:
    """Asks the library what table a file, a directory of pages or a cluster has."""
    structure, info = _abi.Table(path=os.fsencode(path), first_axis=1), _abi.TableInfo()
    try:
        check(library().tc_table_describe(ctypes.byref(structure), ctypes.byref(info)))
    except (FileError, ArgumentError) as e:
        kind = FileNotFoundError if "no such file" in str(e) and not os.path.isdir(path) else type(e)
        raise kind(f"tensorcache: source cannot be read: {e}") from None  # its text has the path, of an address without the password
    return info


def _file(path: str, name: str) -> Description:
    info = look(path)
    of, shape = described(info)
    found = info.name.decode(errors="replace")
    several = "\n" in path or "*" in path and found != path and not found.startswith(f"{path}:")
    first = found if several else path
    if not name and is_cluster(path):
        name = found
    elif not name and not os.path.exists(first):  # behind the colon is the name of an array of several
        name = first.rpartition(":")[2]
    elif not name:
        name = found[len(first) + 1 :] if found.startswith(f"{first}:") else os.path.splitext(os.path.basename(first))[0]
    return Description(name, of, shape, path=path, as_file=True)


def _shards(paths: list[str], name: str) -> Description:
    """Describes files whose rows follow each other."""
    if any(map(is_parquet, paths)):
        raise ArgumentError("tensorcache: source (a list with Parquet files) must have .npy, .npz or .safetensors files: pass pyarrow.parquet.read_table(paths) instead")
    return _file("\n".join(paths), name)


def _of_dlpack(source: Any) -> np.ndarray[Any, Any]:
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, ValueError) as e:  # memory of a GPU, or elements that NumPy does not have
        raise ArgumentError(f"tensorcache: source ({type(source).__name__}) cannot be read without torch, which knows more devices and types: import torch first ({e})") from e


def _array(array: np.ndarray[Any, Any], name: str) -> Description:
    record = structured(array.dtype)
    if record is None:
        return _memory(array, name, element(array.dtype))
    text, of, columns = fields(record)
    rows = np.ascontiguousarray(array).reshape(-1).view(of.bits).reshape(array.size, columns)
    return replace(_memory(rows, name, of), parts=text)


def _memory(array: np.ndarray[Any, Any], name: str, of: Element) -> Description:
    if array.dtype.newbyteorder("<") != array.dtype:
        log.warning("tensorcache: table %s is copied once more, because its elements are big-endian", name or "features")
        array = array.astype(array.dtype.newbyteorder("<"))
    if not array.flags.c_contiguous:
        log.warning("tensorcache: table %s (%d bytes) is copied once more, because its rows are not contiguous", name or "features", array.nbytes)
        array = np.ascontiguousarray(array)
    return Description(name or "features", of, array.shape, address=array.ctypes.data, owner=array)


def _tensor(tensor: Tensor, name: str) -> Description:
    import torch

    if tensor.requires_grad:
        raise GradientError(
            "tensorcache: source (a tensor that requires a gradient) must be a constant: the cache serves a copy that no gradient "
            "reaches. Pass tensor.detach() if that is meant"
        )
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"tensorcache: source (layout {tensor.layout}) must be a dense tensor")
    if tensor.device.type == "meta":
        raise ArgumentError(f"tensorcache: source (device {tensor.device}) must have memory, on the CPU or another device")
    if tensor.device.type not in ("cpu", "cuda"):
        log.warning("tensorcache: table %s is copied once more, from device %s to the host", name or "features", tensor.device)
        tensor = tensor.cpu()
    of = element(tensor.dtype)
    tensor = tensor.resolve_neg()  # a view that negates has the memory of what it negates
    if not tensor.is_contiguous():
        log.warning("tensorcache: table %s is copied once more, because the tensor is not contiguous", name or "features")
        tensor = tensor.contiguous()
    device = -1
    if tensor.is_cuda:
        device = tensor.device.index
        torch.cuda.current_stream(tensor.device).synchronize()  # what writes the tensor has ended when the library reads it
    return Description(name or "features", of, tuple(tensor.shape), address=tensor.data_ptr(), cuda_device=device, owner=tensor)


def describe_all(source: object, dtype: object = None) -> list[Description]:
    """Describes one source, or each source of a dict of them."""
    if not isinstance(source, Mapping):
        return [describe(source, dtype=dtype)]
    if not 1 <= len(source) <= 256:
        raise ArgumentError(f"tensorcache: source (a dict of {len(source)} tables) must have 1 to 256 tables")
    for name in source:
        if not isinstance(name, str):
            raise TypeError(f"tensorcache: table name ({name!r}) must be a text")
    return [describe(each, name, dtype) for name, each in source.items()]
