"""The extension for torch, ``libtensorcache_torch.so``: operators in C++, and reads that do without ctypes. With torch before 2.10 there is none, and Python does
both.

It is found beside the library. Loading it does not load the library, which a program may want to do in a child.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_void_p, py_object
from typing import TYPE_CHECKING, Any, Optional

import torch

from ._library import fail, forked, library_path, log
from .errors import Error, LibraryError

if TYPE_CHECKING:
    from ._tensors import TensorReads

_OLDEST = (2, 10)  # of torch: the first with the functions that capi/torch/shim.h declares
_INTERFACE = 1  # what tensorcache_torch_interface in capi/torch/operators.cc returns


def _load() -> Optional[Any]:
    version = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if version is None or (int(version[1]), int(version[2])) < _OLDEST:
        return None
    path = os.path.join(os.path.dirname(library_path()), "libtensorcache_torch.so")
    try:
        found = ctypes.PyDLL(path)  # its functions release the GIL themselves
    except OSError as e:
        log.info("tensorcache: %s cannot be loaded, and operators run in Python: %s", path, e)
        return None
    # An error, as loading it has defined its operators, which Python cannot replace.
    interface = found.tensorcache_torch_interface() if hasattr(found, "tensorcache_torch_interface") else 0
    if interface != _INTERFACE:
        raise LibraryError(
            f"tensorcache: {path} has interface {interface}, and the package needs {_INTERFACE}: they must be of one release. Install the package again, "
            "or unset TENSORCACHE_LIBRARY"
        )
    found.tensorcache_torch_register_as.argtypes = [c_char_p, c_void_p, c_int32, POINTER(c_int64), c_int32, POINTER(c_int32), c_int32]
    found.tensorcache_torch_unregister.argtypes = [c_char_p, c_void_p, c_int32]
    found.tensorcache_torch_reader.argtypes, found.tensorcache_torch_reader.restype = [c_char_p, c_int, py_object, c_int], py_object
    found.tensorcache_torch_error.restype = c_char_p
    return found


extension = _load()


def _error() -> str:
    """Why the last call failed. The text is cut, maybe within a character."""
    assert extension is not None
    return str(extension.tensorcache_torch_error().decode(errors="replace"))


def register(reads: TensorReads, gpus: list[int]) -> None:
    """Lets the operators find a table under its key. ``gpus`` are those of the cache, as torch numbers them; none for reads on the host.
    ``ArgumentError``: the extension has no room for the name, for as many axes of a row or for as many GPUs."""
    assert extension is not None
    row = reads._row_shape
    status = extension.tensorcache_torch_register_as(
        reads.key.encode(), reads._handle, reads._index, (c_int64 * len(row))(*row), len(row), (c_int32 * len(gpus))(*gpus), len(gpus)
    )
    if status:
        fail(status, _error())


def unregister(key: str, handle: int, index: int) -> None:
    """Undoes ``register``."""
    if extension is not None and not forked():
        extension.tensorcache_torch_unregister(key.encode(), handle, index)


def functions(key: str, watchers: tuple[Any, ...]) -> tuple[Any, Any]:
    """Returns functions of a registered table: one that reads rows, and one that adds them up in bags. They return None for what they leave to Python: tensors that are not plain ones or
    that are on another device, arguments that are wrong, or if one of ``watchers`` returns something true. An ``Error`` says that no table has the key."""
    assert extension is not None
    # Of torch before 2.14, which has stable functions for it.
    handles = (getattr(getattr(torch._C, "_aoti", None), name, None) for name in ("unsafe_alloc_void_ptr_from_tensor", "alloc_tensors_by_stealing_from_void_ptrs"))
    arguments = (torch.Tensor, fail, None, *handles, *watchers)
    read, add_up = (extension.tensorcache_torch_reader(key.encode(), sums, arguments, len(arguments)) for sums in (False, True))
    if not callable(read) or not callable(add_up):
        raise Error(_error())
    return read, add_up
