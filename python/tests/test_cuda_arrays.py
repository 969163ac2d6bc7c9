"""Reads with GPU arrays that are not torch's, by the CUDA array interface: on a GPU, or the emulated one, whose memory comes from its driver."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensorcache
from conftest import REQUIRED, no_gpu
from test_attach import OWNER, Owner

Array = np.ndarray[Any, Any]


class Memory:
    """An array in GPU memory, with no framework around it."""

    driver: Any = None

    def __init__(self, source: Array) -> None:
        self.source = np.ascontiguousarray(source)
        pointer = ctypes.c_uint64()
        assert self.driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(max(1, source.nbytes))) == 0
        self.pointer = pointer.value
        self.copy("HtoD", ctypes.c_uint64(self.pointer), ctypes.c_void_p(self.source.ctypes.data), source.nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.source.shape, "typestr": self.source.dtype.str, "data": (self.pointer, False), "version": 3, "strides": None}

    def numpy(self) -> Array:
        got = np.empty_like(self.source)
        self.copy("DtoH", ctypes.c_void_p(got.ctypes.data), ctypes.c_uint64(self.pointer), got.nbytes)
        return got

    def copy(self, way: str, to: Any, source: Any, size: int) -> None:
        """Copies in the order of the default stream, and waits."""
        assert getattr(self.driver, f"cuMemcpy{way}Async_v2")(to, source, ctypes.c_size_t(size), None) == 0
        assert self.driver.cuStreamSynchronize(None) == 0


@pytest.fixture
def memory() -> Any:
    reason = no_gpu()
    if reason is not None:
        (pytest.fail if REQUIRED else pytest.skip)(f"no GPU: {reason}")
    if Memory.driver is None:
        driver = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        assert driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        Memory.driver, Memory.context = driver, context  # type: ignore[attr-defined]
    assert Memory.driver.cuCtxSetCurrent(Memory.context) == 0  # type: ignore[attr-defined]
    return Memory


@pytest.mark.parametrize("of", [np.int32, np.int64])
def test_read(memory: Any, rows: Array, ids: Array, of: Any) -> None:
    with tensorcache.open(rows, "25%", device="cuda") as x:
        out = memory(np.zeros((len(ids), 32), np.float32))
        assert x.gather(memory(ids.astype(of)), out=out) is out
        np.testing.assert_array_equal(out.numpy(), rows[ids])
        x.cache.check()


def test_rows_out_of_range_are_zeros_and_reported(memory: Any, rows: Array) -> None:
    with tensorcache.open(rows, "25%", device="cuda") as x:
        out = memory(np.ones((4, 32), np.float32))
        x.gather(memory(np.array([1, 5000, -7, 2])), out=out)
        with pytest.raises(tensorcache.RowError, match="2"):
            x.cache.check()
        got = out.numpy()
        np.testing.assert_array_equal(got[[0, 3]], rows[[1, 2]])
        assert not got[[1, 2]].any()
        x.cache.check()


def test_arguments(memory: Any, rows: Array) -> None:
    with tensorcache.open(rows, "25%", device="cuda") as x:
        ids = memory(np.arange(4))
        for out, error in [
            (None, tensorcache.ArgumentError),
            (np.empty((4, 32), np.float32), TypeError),
            (memory(np.zeros((3, 32), np.float32)), tensorcache.ArgumentError),
            (memory(np.zeros((4, 32), np.float64)), TypeError),
        ]:
            with pytest.raises(error):
                x.gather(ids, out=out)
        elsewhere = memory(np.arange(4))
        elsewhere.__class__ = type("Elsewhere", (memory,), {"__dlpack_device__": lambda self: (2, 7)})
        with pytest.raises(tensorcache.ArgumentError, match="GPU 7"):
            x.gather(elsewhere, out=memory(np.zeros((4, 32), np.float32)))
        elsewhere.__class__ = type("Here", (memory,), {"__dlpack_device__": lambda self: (2, 0)})
        x.gather(elsewhere, out=memory(np.zeros((4, 32), np.float32)))
        with pytest.raises(TypeError, match="float32"):
            x.gather(memory(np.zeros(4, np.float32)), out=memory(np.zeros((4, 32), np.float32)))
    with tensorcache.open(rows, "25%", device="host") as x, pytest.raises(tensorcache.ArgumentError, match="host backend"):
        x.gather(ids, out=out)


def test_graph_of_an_owner_that_has_ended(memory: Any, rows: Array, ids: Array, tmp_path: Any) -> None:
    """``check`` says that a graph was replayed which reads the rows of an owner in whose place there is another one."""
    if not os.path.exists(OWNER):
        pytest.skip(f"no tensorcached at {OWNER}: make service")
    driver, owner = memory.driver, Owner(tmp_path, rows, "cuda")
    stream, graph, replayed = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0

    class OnStream(memory):  # type: ignore[misc]
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {**super().__cuda_array_interface__, "stream": stream.value}

    try:
        with tensorcache.open(owner.address) as x:
            numbers, out = OnStream(ids), OnStream(np.zeros((len(ids), 32), np.float32))
            assert driver.cuStreamBeginCapture_v2(stream, 2) == 0
            x.gather(numbers, out=out)
            assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
            assert driver.cuGraphInstantiateWithFlags(ctypes.byref(replayed), graph, ctypes.c_ulonglong(0)) == 0

            def replay() -> None:
                assert driver.cuGraphLaunch(replayed, stream) == 0 and driver.cuStreamSynchronize(stream) == 0
                np.testing.assert_array_equal(out.numpy(), rows[ids])

            replay()
            x.cache.check()
            owner.kill()
            owner.start()
            until = time.monotonic() + 60
            while "owner" in x.cache.stats().get("errors", {}) or not updated(x):
                assert time.monotonic() < until
                time.sleep(0.05)
            x.cache.check()
            replay()
            with pytest.raises(tensorcache.OwnerError, match="capture it again"):
                x.cache.check()
            x.cache.check()
            assert driver.cuGraphExecDestroy(replayed) == 0 and driver.cuGraphDestroy(graph) == 0
    finally:
        owner.kill()


def updated(x: Any) -> bool:
    """Says whether the owner that there is takes an update."""
    try:
        x.update(np.array([0]), np.zeros((1, 32), np.float32))
    except tensorcache.OwnerError:
        return False
    return True


TWO = """
import numpy as np, tensorcache
rows = np.arange(64000, dtype=np.float32).reshape(2000, 32)
try:
    x = tensorcache.open(rows, "25%", device=[0, 1], codec="none")
except tensorcache.DeviceError as e:
    if "at most 1, the number of GPUs" not in str(e):
        raise
    print("one GPU:", e)
else:
    ids = np.random.default_rng(1).integers(0, 2000, 500)
    print(x.cache.gpus, len(x.cache.device_names), all((x.gather(ids) == rows[ids]).all() for _ in range(10)))
    for buddy in "host", "peer", "auto":
        with tensorcache.open(rows, "110%", device=[0, 1], codec="none", resident=tensorcache.Resident(64, buddy=buddy)) as x:
            stats = x.stats()["resident"]
            print(buddy, (x.gather(ids) == rows[ids]).all(), stats["peer_bytes"] / stats["buddy_bytes"])
"""


def test_cache_over_two_gpus(memory: Any, python: Any) -> None:
    done = python(TWO, TENSORCACHE_EMULATOR_DEVICES="2")
    if done.stdout.startswith("one GPU:"):
        pytest.skip(done.stdout)
    assert done.stdout == "[0, 1] 2 True\nhost True 0.0\npeer True 1.0\nauto True 1.0\n", done.stdout + done.stderr


def test_cupy_arrays_of_another_gpu_than_the_current_one(monkeypatch: Any) -> None:
    """Output is allocated on the GPU of the row numbers, and the stream is that GPU's."""
    from tensorcache import _device_arrays
    from tensorcache._elements import element

    current = [0]

    class Device:
        def __enter__(self) -> None:
            current.append(1)

        def __exit__(self, *_: object) -> None:
            current.pop()

    class Array:
        device = Device()

        def __init__(self, shape: Any, dtype: Any) -> None:
            self.on = current[-1]
            self.__cuda_array_interface__ = {"shape": shape, "typestr": np.dtype(dtype).str, "data": (4096, False), "version": 3}

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 1

    cupy = SimpleNamespace(
        ndarray=Array, empty=Array, cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=7000 + current[-1]))
    )
    calls: list[Any] = []
    library = SimpleNamespace(tc_check=lambda *_: 0, tc_gather=lambda *arguments: calls.append(arguments) or 0)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(_device_arrays, "library", lambda: library)
    cache = SimpleNamespace(gpus=[0, 1])
    table: Any = SimpleNamespace(backend="cuda", shape=(9, 4), ndim=2, cache=cache, _element=element("float32"), _row_shape=(4,), _handle=1, _index=0)
    out = _device_arrays.gather(table, Array((3,), np.int64), None)
    assert out.on == 1 and calls[0][1] == 1 and calls[0][8] == 7001
