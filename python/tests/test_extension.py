"""The extension for torch, ``libtensorcache_torch.so``: what it refuses, and what it gives back."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache import _extension, _library, _tensors  # noqa: E402

pytestmark = pytest.mark.skipif(_extension.extension is None, reason="there is no extension for this torch")
Array = np.ndarray[Any, Any]


def test_weights_have_the_shape_of_ids(rows: Array) -> None:
    ids, weights = torch.arange(6).view(2, 3), torch.ones(3, 2)
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        with pytest.raises((ValueError, RuntimeError), match="must have the shape of ids"):
            torch.ops.tensorcache.embedding_bag(ids, None, x.key, "sum", weights)
        with pytest.raises(tensorcache.ArgumentError, match=r"per_sample_weights \(shape \(3, 2\)\) must have the shape of ids"):
            x.embedding_bag(ids, mode="sum", per_sample_weights=weights)


def test_lists_of_other_lengths_are_given_up(rows: Array) -> None:
    """A tensor of a list that is refused has no owner but the caller."""
    of = torch.ops.tensorcache
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        key, memory = x.key, np.arange(4)
        held = sys.getrefcount(memory)
        for call in (
            lambda ids: of.embedding_bags([ids], [], [key], ["sum"], [None]),
            lambda ids: of.embedding_bags([ids], [ids], [key], ["sum"], [ids, None]),
            lambda ids: of.embedding_bags([ids], [ids], ["none"], ["sum"], [ids]),
            lambda ids: of.keyed_bags(ids, ids, [key], [], 1, ["sum"]),
        ):
            with pytest.raises((ValueError, RuntimeError), match="as long as|must be open"):
                call(torch.from_numpy(memory))
            assert sys.getrefcount(memory) == held


def test_rows_of_another_shape_are_refused(rows: Array) -> None:
    """What is read goes to memory for as many elements as the library's rows have."""
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        x._row_shape = (4,)  # as a pickle of another cache says
        with pytest.raises(tensorcache.Error, match="features must have rows of 4 elements: it has 32") as e:
            _tensors.TensorReads(x)
        assert not isinstance(e.value, tensorcache.ArgumentError)  # which says that the extension has no room, and Python may read


def test_interface(tmp_path: Path, monkeypatch: Any) -> None:
    """A library of another release is an error: of another interface, or so old that it has no number."""
    library = _library.library_path()
    monkeypatch.setattr(_extension, "_INTERFACE", -1)
    with pytest.raises(tensorcache.errors.LibraryError, match=r"libtensorcache_torch.so has interface \d+, and the package needs -1"):
        _extension._load()
    monkeypatch.undo()
    (tmp_path / "libtensorcache_torch.so").symlink_to(os.path.abspath(library))  # one without the function
    monkeypatch.setattr(_extension, "library_path", lambda: str(tmp_path / "libtensorcache.so"))
    with pytest.raises(tensorcache.errors.LibraryError, match="has interface 0"):
        _extension._load()


def test_reader_of_no_table() -> None:
    with pytest.raises(tensorcache.Error, match=r"table none:float32\[4\] must be open in this process"):
        _extension.functions("none:float32[4]", ())


def test_limits(rows: Array) -> None:
    """Of GPUs and of axes of a row."""
    library, row, gpus = _extension.extension, (ctypes.c_int64 * 17)(*[1] * 16, 32), (ctypes.c_int32 * 9)(*range(9))
    assert library is not None
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        for axes, devices, text in ((1, 9, "9 GPUs. must have at most 8"), (17, 0, "rows of 17 axes. must have rows of at most 16")):
            assert library.tensorcache_torch_register_as(b"x:float32[32]", x._handle, x._index, row, axes, gpus, devices) == tensorcache._abi.ERROR_ARGUMENT
            assert re.search(text, _extension._error())


def test_second_copy(rows: Array, tmp_path: Path) -> None:
    """The operators are those of the copy that is loaded first: what the other one has registered they would not find."""
    assert _extension.extension is not None
    copy = ctypes.CDLL(shutil.copy(_extension.extension._name, tmp_path))
    copy.tensorcache_torch_error.restype = ctypes.c_char_p
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        assert copy.tensorcache_torch_register(b"x", ctypes.c_void_p(x._handle), x._index) == tensorcache._abi.ERROR_ARGUMENT
        assert b"that was loaded first" in copy.tensorcache_torch_error()
