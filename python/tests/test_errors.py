"""Bad input: an exception that says what, the value and the constraint; the cache serves on."""

from __future__ import annotations

import pathlib
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tensorcache

Array = np.ndarray[Any, Any]


def test_rows_out_of_range_are_named_and_counted(device: str, rows: Array) -> None:
    with tensorcache.open(rows, "25%", device=device) as x:
        out = np.full((4, 32), np.float32(7))
        for bad in ([1, 5000, 2, -5001], [1, 2**40, -(2**62), 3]):
            with pytest.raises(tensorcache.RowError, match=rf"{bad[1]}") as caught:
                x.gather(np.array(bad), out=out)
            assert "2" in str(caught.value) and isinstance(caught.value, IndexError)
            assert (out == 7).all()
        for bad_row in (5000, -5001):
            with pytest.raises(IndexError, match=str(bad_row)):
                x[bad_row]
        with pytest.raises(tensorcache.RowError):
            x[np.array([2**63], np.uint64)]
        with pytest.raises(tensorcache.RowError):
            x.prefetch([5000])
        with pytest.raises(tensorcache.RowError):
            x.explain([5000])
        with pytest.raises(tensorcache.RowError):
            x.invalidate([-5001])
        np.testing.assert_array_equal(x.gather(np.arange(50)), rows[:50])
        x.cache.check()


@pytest.mark.parametrize("row", [-5001, 5000, 2**70])
def test_one_rule_for_all_kinds_of_row_numbers(rows: Array, row: int) -> None:
    """What is outside the table is so as a number or in a list, an array or a tensor, and for every call."""
    with tensorcache.open(rows, "25%", device="host") as x:
        forms: list[Any] = [row] + ([[row], [[row]], np.int64(row), np.array(row), np.array([row], np.int32)] if abs(row) < 2**31 else [])
        torch = sys.modules.get("torch")
        if torch is not None and abs(row) < 2**31:
            forms += [torch.tensor(row), torch.tensor([row])]
        calls = [x.gather, x.__getitem__, x.explain, x.prefetch, x.invalidate, lambda ids: x.update(ids, np.zeros((*np.shape(ids), 32), np.float32))]
        for form in forms:
            for call in calls:
                with pytest.raises(tensorcache.RowError, match=str(row)):
                    call(form)
        np.testing.assert_array_equal(x.gather(slice(-3, None)), rows[-3:])  # the bounds of a slice are no row numbers


def test_ids_of_other_types(rows: Array) -> None:
    with tensorcache.open(rows, "25%", device="host") as x:
        for ids in (np.array([1.0]), "abc", None, {}, np.array(["a"]), 1.5, [0.5]):
            with pytest.raises(TypeError):
                x[ids]
        with pytest.raises(TypeError, match="behind the row numbers must be an int"):
            x[[1], [2]]
        with pytest.raises(tensorcache.ArgumentError, match="dim .1."):
            x.index_select(1, [0])
        with pytest.raises(tensorcache.ArgumentError, match="one axis"):
            x.index_select(0, np.zeros((2, 2), np.int64))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"gpu_memory": "a lot"}, tensorcache.ArgumentError, "a lot"),
        ({"gpu_memory": 0}, tensorcache.ArgumentError, "gpu_memory"),
        ({"gpu_memory": -5}, tensorcache.ArgumentError, "-5"),
        ({"gpu_memory": None}, TypeError, "None"),
        ({"gpu_memory": True}, TypeError, "True"),
        ({"gpu_memory": 16}, tensorcache.ArgumentError, r"gpu_memory \(16 B\) must hold"),
        ({"gpu_memory": "10 bananas"}, tensorcache.ArgumentError, r"gpu_memory \('10 bananas'\) must be a size such as"),
        ({"host_memory": "x"}, tensorcache.ArgumentError, r"host_memory \('x'\) must be a size such as"),
        ({"codec": "zipp"}, tensorcache.ArgumentError, "zipp"),
        ({"codec": {"other": "none"}}, tensorcache.ArgumentError, "other"),
        ({"codec": 3}, TypeError, "3"),
        ({"device": "tpu"}, tensorcache.ArgumentError, "tpu"),
        ({"device": []}, tensorcache.ArgumentError, "device"),
        ({"device": list(range(9))}, tensorcache.ArgumentError, "ordinals"),
        ({"host_tier": "disk"}, tensorcache.ArgumentError, "disk"),
        ({"policy": "random-ish"}, tensorcache.ArgumentError, "random-ish"),
        ({"refresh": -1}, tensorcache.ArgumentError, "-1"),
        ({"refresh": {"bytes": 2**70}}, tensorcache.ArgumentError, "bytes"),
        ({"refresh": {"bytes": float("inf")}}, tensorcache.ArgumentError, "bytes"),
        ({"device": 2**32}, tensorcache.ArgumentError, "device"),
        ({"device": [True]}, tensorcache.ArgumentError, "device"),
        ({"refresh": {"every": 3}}, tensorcache.ArgumentError, "every"),
        ({"refresh": {"churn": 7.0}}, tensorcache.ArgumentError, "7"),
        ({"train": [[5000]]}, tensorcache.Error, "5000"),
        ({"train": 3}, TypeError, "train"),
        ({"train": {"y": [1]}}, tensorcache.ArgumentError, "'y'"),
        ({"train": np.array([0.5])}, TypeError, "float64"),
        ({"capacity": 2**60}, tensorcache.ArgumentError, "capacity"),
        ({"resident": 24}, tensorcache.ArgumentError, r"target \(24\) must be a multiple of 16"),
        ({"resident": 0}, tensorcache.ArgumentError, "resident"),
        ({"resident": "yes"}, TypeError, "resident"),
        ({"resident": tensorcache.Resident("long")}, tensorcache.ArgumentError, r"target \('long'\) must be 'auto'"),
        ({"resident": tensorcache.Resident(max_target=24)}, tensorcache.ArgumentError, r"max_target \(24\) must be a multiple of 16"),
        ({"resident": tensorcache.Resident(max_overflow=1.5)}, tensorcache.ArgumentError, r"max_overflow \(1.5\) must be 0 to 1"),
        ({"resident": tensorcache.Resident(retarget=1)}, TypeError, r"retarget \(1\) must be a bool"),  # type: ignore[arg-type]
        ({"resident": tensorcache.Resident(buddy=True)}, TypeError, r"buddy \(True\) must be a str"),  # type: ignore[arg-type]
        ({"resident": tensorcache.Resident(buddy="gpu")}, tensorcache.ArgumentError, r"buddy \('gpu'\) must be one of 'host', 'peer', 'auto'"),
        ({"resident": tensorcache.Resident(64, buddy="peer"), "gpu_memory": "110%", "codec": "none"}, tensorcache.ArgumentError, r"resident_buddy \(peer\) needs at least 2 devices, there is 1"),
        ({"resident": True, "gpu_memory": "1%"}, tensorcache.Error, "must be at least"),
        ({"workers": -1}, tensorcache.ArgumentError, "workers"),
        ({"workers": 1.5}, TypeError, "workers"),
        ({"seed": -1}, tensorcache.ArgumentError, "seed"),
        ({"name": "a\0b"}, TypeError, "zero bytes"),
        ({"restoer": "x"}, TypeError, "restoer"),
    ],
)
def test_options(rows: Array, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        tensorcache.open(rows, **{"gpu_memory": "25%", "device": "host", **options})


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        ([1, 2], TypeError, "list"),
        (None, TypeError, "NoneType"),
        (np.zeros((3, 4), complex), TypeError, "complex"),
        (np.zeros((3, 4), object), TypeError, "object"),
        (np.float32(3), TypeError, "float32"),
        (np.zeros((), np.float32), tensorcache.ArgumentError, "at least one axis"),
        (np.zeros((5, 0), np.float32), tensorcache.ArgumentError, "at least one element"),
        (np.zeros((0, 5), np.float32), tensorcache.ArgumentError, "at least one row"),
        (np.zeros((2, 1 << 20), np.float32), tensorcache.ArgumentError, "row"),
        ({}, tensorcache.ArgumentError, "1 to 256"),
        ({3: np.zeros((3, 4))}, TypeError, "table name"),
        (b"features.npy", TypeError, "bytes"),
    ],
)
def test_sources(source: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        tensorcache.open(source, "1MB", device="host")


def test_folder_without_pages(tmp_path: pathlib.Path) -> None:
    with pytest.raises(tensorcache.FileError, match="not a table of page files: .*manifest"):
        tensorcache.open(tmp_path, "1MB", device="host")


def test_empty_table_by_share() -> None:
    """10 % of nothing: the table is what is wrong, not the share."""
    with pytest.raises(tensorcache.ArgumentError, match=r"shape \(0, 5\)\) must have at least one row"):
        tensorcache.open(np.zeros((0, 5), np.float32), "10%", device="host")


def test_ids_are_named_by_their_type(rows: Array) -> None:
    with tensorcache.open(rows, "25%", device="host") as x:
        for ids, name in ((None, "NoneType"), ("abc", "str"), (np.array([1.0]), "float64"), ([0.5], "float64")):
            with pytest.raises(TypeError, match=rf"ids \({name}\) must be integers"):
                x[ids]


def test_plan_checks_row_numbers(rows: Array) -> None:
    with tensorcache.open(rows, "25%", device="host") as x:
        with pytest.raises(tensorcache.RowError, match=r"ids \(6000\) must be 0 to 4999; 2 of 3 are out of range"):
            x.plan([1, 6000, -3])


def test_failed_open_is_said_once(python: Any) -> None:
    """The exception says it: Python prints warnings of a program without logging to stderr, too. Those that are printed say whose they are."""
    done = python(
        """
import numpy as np, tensorcache
table = np.zeros((100, 8), np.float32)
try:
    tensorcache.open(table, 16, device="host")
except tensorcache.ArgumentError:
    pass
tensorcache.open(table, "1MB", device="host", restore="/proc/version").close()
"""
    )
    assert done.returncode == 0 and "not loaded" not in done.stderr
    assert done.stderr.startswith("tensorcache: snapshot not restored")


def test_closed_cache(device: str, rows: Array) -> None:
    x = tensorcache.open(rows, "25%", device=device)
    x.close()
    x.close()
    assert x.cache.closed
    for call in (lambda: x.gather(np.arange(3)), x.stats, lambda: x.explain([1]), lambda: x.update([0], rows[:1]), x.refresh, x.cache.check):
        with pytest.raises(tensorcache.ClosedError, match="^tensorcache: cache is closed$"):
            call()


def test_close_while_reading(device: str, rows: Array, ids: Array) -> None:
    x = tensorcache.open(rows, "25%", device=device)
    wrong: list[object] = []

    def read() -> None:
        try:
            while True:
                if not np.array_equal(x.gather(ids), rows[ids]):
                    wrong.append("other rows")
        except tensorcache.ClosedError:
            pass
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    x.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong


def test_no_gpu_says_why(rows: Array) -> None:
    """Without a driver the text says so; with fewer GPUs, how many there are."""
    with pytest.raises((tensorcache.DeviceError, tensorcache.ArgumentError), match=r"driver|7|no CUDA|device"):
        tensorcache.open(rows, "25%", device="cuda:7")


def test_adopted_memory_is_checked() -> None:
    wrong = np.zeros(5000 * 32 + 1024 + 4, np.float32)
    at = -wrong.ctypes.data % 4096 // 4 + 4  # 16 bytes behind the start of a page
    with pytest.raises(tensorcache.ArgumentError, match=r"must begin at a page.*adopt=False"):
        tensorcache.open(wrong[at : at + 5000 * 32].reshape(5000, 32), "25%", device="host", adopt=True)
