"""Reads with torch tensors: kinds, order of streams, compiled programs, captured graphs, gradients."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache import _bag_tensors, _tensors  # noqa: E402

Array = np.ndarray[Any, Any]
HAS_CUDA = torch.cuda.is_available()
on_gpu = pytest.mark.skipif(not HAS_CUDA, reason="torch has no CUDA device")
# torch's default compiler makes its launchers by a C compiler.
INDUCTOR = HAS_CUDA and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def where(device: str) -> str:
    return "cuda" if device == "cuda" and HAS_CUDA else "cpu"


@pytest.mark.parametrize("of", [torch.int32, torch.int64, torch.uint8])
def test_read_equals_index(device: str, rows: Array, ids: Array, of: Any) -> None:
    table = torch.from_numpy(rows)
    numbers = torch.from_numpy(ids % 200).to(of)
    with tensorcache.open(table, "25%", device=device) as x:
        assert x.dtype is torch.float32 and x.shape == torch.Size([5000, 32]) and x.device.type == where(device)
        assert x.is_cuda == (where(device) == "cuda") and not x.requires_grad
        for each in {"cpu", where(device)}:
            got = x[numbers.to(each)]
            assert got.device == x.device and got.dtype == torch.float32
            assert torch.equal(got.cpu(), table[numbers.long()])
        x.cache.check()


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 0), (2, 3, 4)])
def test_ids_of_any_shape(device: str, rows: Array, shape: tuple[int, ...]) -> None:
    table = torch.from_numpy(rows).reshape(5000, 4, 8)
    numbers = torch.randint(0, 5000, shape)
    with tensorcache.open(table, "50%", device=device) as x:
        for each in {"cpu", where(device)}:
            got = x[numbers.to(each)]
            assert got.shape == (*shape, 4, 8)
            assert torch.equal(got.cpu(), table[numbers])


@pytest.mark.parametrize("of", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "int8", "int64", "uint8", "bool"])
def test_dtypes(device: str, of: str) -> None:
    table = (torch.randn(500, 16) * 4).to(getattr(torch, of))
    numbers = torch.randint(0, 500, (200,))
    with tensorcache.open(table, "50%", device=device) as x:
        got = x[numbers].cpu()
        assert got.dtype == table.dtype
        assert torch.equal(got.view(torch.uint8), table[numbers].view(torch.uint8))


def test_other_ids(device: str, rows: Array) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "50%", device=device) as x:
        some, mask = torch.tensor([1, -1]), torch.arange(5000) % 9 == 0
        for ids in (
            5, -5, slice(10, 20), slice(-5, None), [3, -1], mask, torch.arange(100).reshape(10, 10).t(), some, some.int(), torch.tensor(-2, dtype=torch.int8), torch.tensor([[-5000]]), ...,
            (some, slice(None)), (some, 3), (some, slice(2, 5)), (..., some, 3), (some[:, None], None, ...), (mask, 0), (3, 4),
        ):  # fmt: skip
            assert torch.equal(x[ids].cpu(), table[ids]), ids
        with pytest.raises(TypeError, match=r"index \(Tensor\) behind the row numbers must be an int"):
            x[some, some]
        for outside in (torch.tensor([-5001]), torch.tensor([-1, 5000]), torch.tensor([2**64 - 1], dtype=torch.uint64)):
            with pytest.raises(tensorcache.RowError):
                x[outside]
        assert isinstance(x[np.arange(3)], np.ndarray)
        with pytest.raises(TypeError, match="float32"):
            x[torch.zeros(3)]
        with pytest.raises(tensorcache.ArgumentError, match="booleans"):
            x[torch.zeros(3, dtype=torch.bool)]
        with pytest.raises(TypeError, match="dense"):
            x[torch.arange(3).to_sparse()]
        with pytest.raises(tensorcache.RowError, match="5000"):
            x[torch.tensor([1, 5000])]
        with pytest.raises(tensorcache.ArgumentError, match="meta"):
            tensorcache.open(table.to("meta"), "50%")


def test_out(device: str, rows: Array, ids: Array) -> None:
    table, numbers = torch.from_numpy(rows), torch.from_numpy(ids).to(where(device))
    with tensorcache.open(table, "25%", device=device) as x:
        wide = torch.full((len(ids), 40), -1.0, device=x.device)
        assert x.gather(numbers, out=wide[:, 4:36]).data_ptr() == wide[:, 4:].data_ptr()
        assert torch.equal(wide[:, 4:36].cpu(), table[ids]) and (wide[:, :4] == -1).all() and (wide[:, 36:] == -1).all()
        assert torch.equal(x.index_select(0, numbers, out=torch.empty(len(ids), 32, device=x.device)).cpu(), table[ids])
        on_host = torch.empty(len(ids), 32)
        assert torch.equal(x.gather(numbers.cpu(), out=on_host), table[ids])
        for out, error in [
            (torch.empty(3, 32, device=x.device), tensorcache.ArgumentError),
            (torch.empty(len(ids), 32, dtype=torch.float64, device=x.device), TypeError),
            (torch.empty(len(ids), 64, device=x.device)[:, ::2], tensorcache.ArgumentError),
            (torch.empty(1, 32, device=x.device).expand(len(ids), 32), tensorcache.ArgumentError),
            (torch.empty(len(ids), 32, device=x.device, requires_grad=True), tensorcache.GradientError),
            (torch.empty(len(ids), 32, device="meta"), tensorcache.ArgumentError),
            (np.empty((len(ids), 32), np.float32), TypeError),
        ]:
            with pytest.raises(error):
                x.gather(numbers, out=out)


def test_torch_functions(rows: Array, ids: Array) -> None:
    table, numbers = torch.from_numpy(rows), torch.from_numpy(ids)
    with tensorcache.open(table, "25%", device="host") as x:
        for call in (
            lambda t: torch.nn.functional.embedding(numbers, t),
            lambda t: torch.nn.functional.embedding(numbers, t, padding_idx=0),
            lambda t: torch.embedding(t, numbers),
            lambda t: torch.index_select(t, 0, numbers),
        ):
            assert torch.equal(call(x), call(table))
        with pytest.raises(tensorcache.ArgumentError, match="max_norm"):
            torch.nn.functional.embedding(numbers, x, max_norm=1.0)
        with pytest.raises(tensorcache.GradientError):
            torch.nn.functional.embedding(numbers, x, sparse=True)
        for of in (x, table):
            with pytest.raises(IndexError):
                torch.nn.functional.embedding(torch.tensor([-1]), of)
        for call in (torch.as_tensor, torch.tensor, torch.asarray, torch.from_dlpack, np.from_dlpack):
            with pytest.raises(TypeError, match=r"table 'features' \(640 kB\) is no tensor: read rows by x\[ids\], or all of them by x\[:\]"):
                call(x)
        with pytest.raises(TypeError, match=r"torch.matmul must be given rows, x\[ids\], or all of them"):
            torch.matmul(x, x)


def test_gradients_are_refused(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with pytest.raises(tensorcache.GradientError, match="detach"):
        tensorcache.open(table.clone().requires_grad_(), "25%")
    with pytest.raises(tensorcache.GradientError):
        tensorcache.open(torch.nn.Embedding(10, 4).weight, "1MB")
    with tensorcache.open(table, "25%", device="host") as x:
        with pytest.raises(tensorcache.GradientError):
            x.update([0], table[:1].clone().requires_grad_())
        with pytest.raises(tensorcache.GradientError, match="no gradient"):
            torch.ops.tensorcache.gather.default  # noqa: B018
            from tensorcache._tensors import _no_gradient

            _no_gradient(None, None)
        weight = torch.ones(32, requires_grad=True)
        (x[torch.arange(4)] * weight).sum().backward()  # what is computed from rows has gradients
        assert torch.allclose(weight.grad, table[:4].sum(0))


def test_update_from_tensors(device: str, rows: Array) -> None:
    table = torch.from_numpy(rows).to(torch.bfloat16)
    with tensorcache.open(table, "25%", device=device) as x:
        new = torch.randn(10, 32, dtype=torch.bfloat16, device=where(device))
        x.update(torch.arange(10, device=where(device)), new)
        assert torch.equal(x[torch.arange(10)].cpu(), new.cpu())
        with pytest.raises(TypeError, match="float32"):
            x.update([0], torch.zeros(1, 32))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(device: str, rows: Array, dynamic: bool) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device=device) as x:
        weight = torch.randn(32, 8, device=x.device)

        def step(ids: Any) -> Any:
            return (x[ids] @ weight).relu().sum(dim=0)

        compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend="inductor" if INDUCTOR and device == "cuda" else "aot_eager")
        for n in (50, 60, 70):
            numbers = torch.randint(0, 5000, (n,), device=where(device))
            torch.testing.assert_close(compiled(numbers), step(numbers))
        expected = table[numbers.cpu()] @ weight.cpu()
        torch.testing.assert_close(compiled(numbers).cpu(), expected.relu().sum(dim=0), atol=1e-4, rtol=1e-4)


def test_operator(device: str, rows: Array) -> None:
    with tensorcache.open(torch.from_numpy(rows), "25%", device=device) as x:
        key = x.key
        ids = torch.arange(9, device=where(device))
        torch.library.opcheck(torch.ops.tensorcache.gather.default, (ids, key), test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"))
        exported = torch.export.export(Model(x), (ids,))
        assert torch.equal(exported.module()(ids).cpu(), torch.from_numpy(rows)[:9] + 1)
    with pytest.raises((tensorcache.Error, RuntimeError), match="no longer there"):
        torch.ops.tensorcache.gather(ids, "gone#1")


@pytest.mark.parametrize("operator", ["gather", "gather_as", "embedding_bag", "embedding_bags", "keyed_bags"])
def test_operators_are_as_torch_wants_them(rows: Array, operator: str) -> None:
    """What torch checks of an operator: its schema, autograd, fake tensors, and programs of dynamic shapes."""
    table = torch.from_numpy(rows)
    with tensorcache.open({"a": table, "b": table[:, :8].contiguous()}, "25%", device="host") as cache:
        tables = list(cache.values())  # kept: programs have their names only
        a, b = (x.key for x in tables)
        ids, offsets, factors = torch.arange(12), torch.tensor([0, 4, 4, 12]), torch.rand(12)
        given: dict[str, list[tuple[Any, ...]]] = {
            "gather": [(ids, a), (ids.view(3, 4).t(), a), (ids.to(torch.uint8), b), (ids[:0], a), (ids[3], a)],
            "gather_as": [(ids, a, "bfloat16"), (ids.view(3, 4), b, "float16")],
            "embedding_bag": [(ids, offsets, a), (ids, offsets.int(), b, "sum", factors, True, 3, "float16"), (ids.view(3, 4), None, a, "max", None, False, -1)],
            "embedding_bags": [([ids, ids], [offsets, offsets], [a, b], ["sum", "max"], [factors, None], True), ([ids.view(2, 6)], [None], [b], ["mean"], [None])],
            "keyed_bags": [(ids, torch.arange(0, 13, 3), [a, b], [0, 2], 2, ["sum", "sum"], factors), (ids, torch.arange(0, 13, 3), [b], [1], 3, ["mean"], None, "bfloat16")],
        }
        for arguments in given[operator]:
            torch.library.opcheck(getattr(torch.ops.tensorcache, operator).default, arguments)


def test_update_operator(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device="host") as x:
        ids, key = torch.tensor([3, 7], dtype=torch.int32), x.key
        torch.ops.tensorcache.update(ids, torch.ones(32, 2).t(), key)
        assert (x[ids] == 1).all() and torch.equal(x[torch.tensor([4])], table[4:5])
        for wrong in ((ids, torch.ones(2, 31), key), (ids, torch.ones(2, 32).double(), key), (ids, torch.ones(64), key)):
            with pytest.raises((ValueError, TypeError, RuntimeError), match="tensorcache: rows"):
                torch.ops.tensorcache.update(*wrong)
        with pytest.raises((IndexError, RuntimeError), match="out of range"):
            torch.ops.tensorcache.update(ids + 4995, torch.ones(2, 32), key)
        with pytest.raises(Exception, match="call it outside"):  # of torch's compiler, for UnsupportedError
            torch.compile(lambda i: torch.ops.tensorcache.update(i, torch.ones(2, 32), key), backend="aot_eager", fullgraph=True)(ids)
        assert (x[ids] == 1).all()


def test_operators_raise_what_torch_knows(rows: Array) -> None:
    """An operator's errors have the library's text, and are IndexError for row numbers. At once, outside programs, they are those of this package."""
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device="host") as x:
        beyond, offsets, key = torch.tensor([1, 5000]), torch.tensor([0]), x.key
        of = torch.ops.tensorcache
        for call in (lambda: of.gather(beyond, key), lambda: of.gather_as(beyond, key, "float16"), lambda: of.embedding_bag(beyond, offsets, key)):
            with pytest.raises(IndexError, match="row number .5000."):
                call()
        for call in (lambda: x[beyond], lambda: x.gather(beyond, dtype=torch.float16), lambda: x.embedding_bag(beyond, offsets)):
            with pytest.raises(tensorcache.RowError, match="row number .5000."):
                call()
        with pytest.raises(Exception, match="features:float32.32. must be features:float16.32.|must be open in this process"):
            of.gather(beyond, "features:float16[32]")
    for call in (lambda: x[offsets], lambda: x.gather(offsets, dtype=torch.float16), lambda: x.embedding_bag(offsets, offsets)):
        with pytest.raises(tensorcache.ClosedError):
            call()


def test_names_of_programs(rows: Array) -> None:
    """A program has a table's name, type and row shape. A second table that is open gets another name; one that is opened later gets that of a closed one."""
    table = torch.from_numpy(rows)
    first, second, other = (tensorcache.open({"users": of}, "25%", device="host")["users"] for of in (table, table + 1, table.view(5000, 4, 8).half()))
    keys = [x.key for x in (first, second, other)]
    assert keys == ["users:float32[32]", "users#2:float32[32]", "users:float16[4,8]"]
    ids = torch.arange(3)
    read = torch.compile(lambda i: torch.ops.tensorcache.gather(i, keys[0]), backend="aot_eager")
    assert torch.equal(read(ids), table[:3])
    first.close()
    with pytest.raises((tensorcache.ClosedError, RuntimeError), match="closed"):
        read(ids)
    third = tensorcache.open({"users": table + 2}, "25%", device="host")["users"]
    assert third.key == keys[0] and torch.equal(read(ids), table[:3] + 2)
    del first  # takes nothing from the third
    assert torch.equal(read(ids), table[:3] + 2) and torch.equal(torch.ops.tensorcache.gather(ids, keys[1]), table[:3] + 1)
    for x in (second, third, other):
        x.close()


def test_name_that_is_no_text(rows: Array, tmp_path: Path) -> None:
    """Names of files need not be UTF-8."""
    file = os.fsdecode(os.fsencode(tmp_path) + b"/users\xff.npy")
    np.save(file, rows)
    ids = torch.arange(3)
    with tensorcache.open(file, "25%", device="host") as x:
        assert x.key == "users?:float32[32]" and torch.equal(x[ids], torch.from_numpy(rows[:3]))
        assert torch.equal(torch.ops.tensorcache.gather(ids, x.key), x[ids])


@pytest.mark.parametrize(("name", "axes"), [("n" * 1100, 1), ("users", 17)])
def test_beyond_the_room_of_the_extension(name: str, axes: int) -> None:
    table = torch.arange(20.0).view(5, 4, *[1] * (axes - 1))
    with tensorcache.open({name: table}, "1MB", device="host") as cache:
        x, ids = cache[name], torch.tensor([3, -1])
        assert torch.equal(x[ids], table[ids]) and torch.equal(x.gather(ids, dtype=torch.float16), table[ids].half())
        assert torch.equal(x.embedding_bag(ids % 5, torch.tensor([0]), "sum"), table[ids].sum(0, keepdim=True))


@pytest.mark.parametrize("padding", [5000, -5001, 2**63, -(2**64)])
def test_padding_out_of_range(rows: Array, padding: int) -> None:
    with tensorcache.open(rows, "25%", device="host") as x, pytest.raises(tensorcache.ArgumentError, match=f"padding_idx .{padding}. must be a row of the table"):
        x.embedding_bag(torch.tensor([1, 2]), torch.tensor([0]), padding_idx=padding)


def test_names_outlive_earlier_reads(rows: Array) -> None:
    """Reads that end when others of their table have been made, as by another thread meanwhile, take no name from those."""
    with tensorcache.open({"users": rows}, "25%", device="host") as cache:
        x, ids = cache["users"], torch.arange(3)
        first, x._tensors = x._reads(), None
        key = first.key
        _tensors._by_key.pop(key)  # as when the first are being freed
        assert x.key == key
        del first
        assert torch.equal(torch.ops.tensorcache.gather(ids, key), torch.from_numpy(rows[:3]))


def test_registered_from_c(rows: Array) -> None:
    """What tensorcache_torch_register names a table is what Python names it."""
    from tensorcache._extension import extension

    if extension is None:
        pytest.skip("there is no extension for this torch")
    parts = np.zeros((50, 66), np.uint8)
    with tensorcache.open(rows, "25%", device="host") as a, tensorcache.open(parts, "1MB", device="host", dtype="float8_e4m3fn*64,float8_e8m0fnu*2") as b:
        for table in (a, b):
            key, ids = table.key, torch.arange(5)
            mine = key.replace(f"{table.name}:", "mine:", 1)
            with pytest.raises(RuntimeError, match="must be open in this process"):
                torch.ops.tensorcache.gather.default._op(ids, mine)
            assert extension.tensorcache_torch_register(b"mine", ctypes.c_void_p(table._handle), table._index) == 0
            assert torch.equal(torch.ops.tensorcache.gather.default._op(ids, mine), table[ids])
            assert extension.tensorcache_torch_unregister(b"mine", table._handle, table._index) == 0
            assert extension.tensorcache_torch_unregister(b"mine", table._handle, table._index) == tensorcache._abi.ERROR_TABLE
        assert extension.tensorcache_torch_register(b"mine", ctypes.c_void_p(a._handle), 2) == tensorcache._abi.ERROR_TABLE
        assert extension.tensorcache_torch_register(b"n" * 1100, ctypes.c_void_p(a._handle), 0) == tensorcache._abi.ERROR_ARGUMENT
        assert b"less than 1024" in extension.tensorcache_torch_error()


def test_operators_do_not_load_the_library(python: Any) -> None:
    """A program may import everything, and fork, before it opens a cache."""
    done = python("import torch, tensorcache.nn\nprint('libtensorcache.so' in open('/proc/self/maps').read(), 'gather' in dir(torch.ops.tensorcache.gather.default) or True)")
    assert done.stdout == "False True\n", done.stderr


def test_without_the_extension(tmp_path: Any) -> None:
    """What older releases of torch run: the library in a folder of its own, where no extension is beside it."""
    (tmp_path / "libtensorcache.so").symlink_to(os.path.abspath(tensorcache._library.library_path()))
    tests = ["test_torch.py", "test_tracers.py", "test_embedding_bag.py"]
    chosen = "not cuda and not extension and (operator or names or index or bags_of_one or default_device or collection or gather_of_another or embedding_bag)"
    environment = {**os.environ, "TENSORCACHE_LIBRARY": str(tmp_path / "libtensorcache.so")}
    environment.pop("TENSORCACHE_TEST_EVENTS", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-k", chosen, *tests], cwd=os.path.dirname(__file__), env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:]


def test_declarations_are_those_of_torch(tmp_path: Any) -> None:
    """capi/torch/shim.h declares functions of torch's stable interface. A compiler compares them with torch's own headers."""
    shim, compiler = Path(__file__).parents[2] / "capi/torch/shim.h", shutil.which("g++") or shutil.which("clang++")
    headers = Path(torch.__path__[0]) / "include"
    if compiler is None or not shim.exists() or not (headers / "torch/csrc/stable/c/shim.h").exists():
        pytest.skip("there is no C++ compiler, no source, or no torch with a stable interface")
    source = tmp_path / "both.cc"
    source.write_text(f'#define USE_CUDA\n#include <torch/csrc/stable/c/shim.h>\n#include "{shim}"\n')
    done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{headers}", str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


class Model(torch.nn.Module):
    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def forward(self, ids: Any) -> Any:
        return self.table[ids] + 1


def test_torch_imported_later(python: Any) -> None:
    program = """
import numpy as np, tensorcache, sys
rows = np.arange(800, dtype=np.float32).reshape(100, 8)
x = tensorcache.open(rows, "1MB", device="host")
assert "torch" not in sys.modules and isinstance(x[[1, 2]], np.ndarray) and x.device == "cpu" and x.dtype == np.float32
import torch
got = x[torch.tensor([3, 4])]
assert isinstance(got, torch.Tensor) and (got.numpy() == rows[[3, 4]]).all() and isinstance(x[[1, 2]], np.ndarray)
print("ok")
"""
    done = python(program)
    assert done.stdout == "ok\n", done.stderr


def test_python_time_of_a_call(rows: Array) -> None:
    """A read of one row on the host: what Python adds, in time of its processor, of which other programs take none."""
    with tensorcache.open(torch.from_numpy(rows), "100%", device="host", codec="none") as x:
        ids = torch.zeros(1, dtype=torch.int64)
        best = min(_time(lambda: x[ids], clock=time.thread_time) for _ in range(5))
    assert best < 200e-6, f"{best * 1e6:.1f} µs"


def _time(call: Any, n: int = 300, clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    for _ in range(n):
        call()
    return (clock() - began) / n


def test_out_over_ids(rows: Array) -> None:
    table = torch.randint(1 << 40, 1 << 62, (5000, 1))
    ids = torch.randint(0, 5000, (4000,), dtype=torch.int32)
    with tensorcache.open(table, "25%", device="host") as x:
        out = torch.empty(4000, 1, dtype=torch.int64)
        inside = out.view(-1).view(torch.int32)[:4000]
        inside.copy_(ids)
        assert torch.equal(x.gather(inside, out=out), table[ids.long()])


def test_views_that_negate(rows: Array) -> None:
    """torch negates such views when it reads them: their memory is that of what they negate."""
    table = torch.from_numpy(rows)
    with tensorcache.open(torch._neg_view(table), "25%", device="host") as x:
        assert torch.equal(x[torch.arange(9)], -table[:9])
        x.update([3], torch._neg_view(table[5:6].clone()))
        assert torch.equal(x[torch.tensor([3])], -table[5:6])


@pytest.mark.parametrize("of", ["uint16", "uint32", "uint64"])
def test_unsigned_ids(rows: Array, of: str) -> None:
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        assert torch.equal(x[torch.tensor([1, 4000]).to(getattr(torch, of))], torch.from_numpy(rows)[[1, 4000]])


def test_read_only_ids(rows: Array, recwarn: Any) -> None:
    ids = np.arange(3)
    ids.flags.writeable = False
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        assert torch.equal(x.gather(ids, out=torch.empty(3, 32)), torch.from_numpy(rows)[:3])
    assert not [w for w in recwarn if "writable" in str(w.message)]


def test_numbers_in_host_memory_are_checked_there(rows: Array, monkeypatch: Any) -> None:
    """Of a cache on a GPU, rows of another type are read by a function that has the GPU check their numbers, later than the read: those in host memory are checked before."""
    given: list[Any] = []

    def read(ids: Any, *_: Any) -> Any:
        given.append(ids.tolist())
        return torch.zeros(0)

    with tensorcache.open(rows, "25%", device="host") as x:
        reads = x._reads()
        monkeypatch.setattr(reads, "_cuda", True)
        monkeypatch.setattr(_bag_tensors, "embedding_bags", lambda requests, outs: [read(requests[0].ids)])
        monkeypatch.setattr(reads, "_add_up_at_once", read, raising=False)
        for ids in (torch.tensor([-1, 2]), [-1, 2], -1, torch.tensor([4998], dtype=torch.int16)):
            x.gather(ids, dtype=torch.bfloat16)
        assert given == [[4999, 2], [4999, 2], 4999, [4998]]
        for ids in (torch.tensor([5000]), [3, -5001]):
            with pytest.raises(tensorcache.RowError, match="of table features"):
                x.gather(ids, dtype=torch.bfloat16)
    assert len(given) == 4


def test_fake_rows_are_on_the_current_gpu(rows: Array, monkeypatch: Any) -> None:
    """With several GPUs rows for row numbers on the CPU go to the current one, also in compiled programs."""
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        reads = x._reads()
        gpus = [torch.device("cuda", 0), torch.device("cuda", 1)]
        monkeypatch.setattr(reads, "_cuda", True)
        monkeypatch.setattr(reads, "_slots", dict(enumerate(enumerate(gpus))))
        monkeypatch.setattr(reads, "device", gpus[0])
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
        ids = torch.arange(3)
        made = []

        class Ids:
            dtype, shape, is_cuda = ids.dtype, ids.shape, False

            def new_empty(self, shape: Any, **options: Any) -> None:
                made.append(options["device"])

        _tensors._fake(Ids(), reads.key)
        assert made == [gpus[1]]


# ---- with a GPU that torch sees


@on_gpu
@pytest.mark.parametrize("pinned", [False, True])
def test_from_other_memory(rows: Array, pinned: bool) -> None:
    table = torch.from_numpy(rows)
    source = table.pin_memory() if pinned else table.cuda()
    with tensorcache.open(source, "25%", device="cuda") as x:
        assert torch.equal(x[torch.arange(5000, device="cuda")].cpu(), table)
    assert torch.equal(source.cpu(), table)


@on_gpu
def test_adopted_pinned_tensor(rows: Array, ids: Array) -> None:
    rows = np.tile(rows, (16, 1))  # smaller tensors share pages
    source = torch.from_numpy(rows).pin_memory()
    with tensorcache.open(source, "25%", device="cuda", adopt=True, codec="none") as x:
        assert torch.equal(x[torch.from_numpy(ids).cuda()].cpu(), torch.from_numpy(rows)[ids])


@on_gpu
def test_rows_out_of_range_on_the_gpu(rows: Array) -> None:
    with tensorcache.open(torch.from_numpy(rows), "25%", device="cuda") as x:
        got = x[torch.tensor([1, 5000, -7, 2], device="cuda")]
        with pytest.raises(tensorcache.RowError, match="2"):
            x.cache.check()
        assert torch.equal(got[[0, 3]].cpu(), torch.from_numpy(rows)[[1, 2]]) and not got[[1, 2]].any()
        x.cache.check()
        x[torch.tensor([6000], device="cuda")]
        torch.cuda.synchronize()
        with pytest.raises(tensorcache.RowError):  # a later read says so, too
            for _ in range(100):
                x[torch.tensor([1], device="cuda")]
                time.sleep(0.01)


@on_gpu
def test_order_of_streams(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device="cuda") as x:
        side = torch.cuda.Stream()
        for i in range(50):
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
                ids = torch.randint(0, 5000, (3000,), device="cuda") + 0
                got = x[ids]
                double = got * 2  # in the order of the stream
            side.synchronize()
            assert torch.equal(double.cpu(), table[ids.cpu()] * 2), i


@on_gpu
def test_memory_is_used_again_in_order(rows: Array) -> None:
    """Outputs and row numbers that are dropped at once may be overwritten only by work that is enqueued later."""
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "10%", device="cuda") as x:
        kept = []
        for seed in range(200):
            ids = torch.randint(0, 5000, (20_000,), device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
            kept.append((seed, x[ids].sum(dim=1)[:100].clone()))
            del ids
            torch.full((20_000,), -1, dtype=torch.int64, device="cuda")
        for seed, got in kept:
            ids = torch.randint(0, 5000, (20_000,), device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
            torch.testing.assert_close(got, table.cuda()[ids].sum(dim=1)[:100])


@on_gpu
def test_captured_graph(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device="cuda") as x:
        ids = torch.zeros(1000, dtype=torch.int64, device="cuda")
        x[ids]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = x[ids] * 3
        for seed in range(5):
            numbers = torch.randint(0, 5000, (1000,), generator=torch.Generator().manual_seed(seed))
            ids.copy_(numbers)
            graph.replay()
            assert torch.equal(got.cpu(), table[numbers] * 3)
        x.update([1], torch.full((1, 32), 9.0))
        ids.fill_(1)
        graph.replay()
        assert (got == 27).all()
        with pytest.raises(tensorcache.errors.UnsupportedError):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                x[torch.arange(5)]
        torch.cuda.synchronize()
        del graph


@pytest.mark.skipif(not INDUCTOR, reason="no CUDA device, or no C compiler for torch.compile")
def test_compiled_with_graphs(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device="cuda") as x:
        step = torch.compile(lambda ids: x[ids] + 1, fullgraph=True, mode="reduce-overhead")
        for seed in range(5):
            numbers = torch.randint(0, 5000, (256,), generator=torch.Generator().manual_seed(seed)).cuda()
            assert torch.equal(step(numbers).cpu(), table[numbers.cpu()] + 1)


@on_gpu
def test_cost_of_a_call() -> None:
    """x[ids] costs the Python thread little more than torch.empty and one launch; lab/python/calls.py measures it on an idle machine."""
    with tensorcache.open(torch.randn(100_000, 128), "100%", device="cuda", codec="none") as x:
        ids = torch.randint(0, 100_000, (256,), device="cuda")
        out = torch.empty(256, 128, device="cuda")

        def ours() -> float:
            torch.cuda.synchronize()
            return _time(lambda: x[ids], 200)

        def theirs() -> float:
            torch.cuda.synchronize()
            return _time(lambda: (torch.empty(256, 128, device="cuda"), out.add_(1)), 200)

        ours(), theirs()
        extra = min(ours() for _ in range(7)) - min(theirs() for _ in range(7))
    print(f"x[ids] beyond torch.empty and a launch: {extra * 1e6:.1f} µs")
    assert extra < 25e-6, f"{extra * 1e6:.1f} µs"


@on_gpu
def test_cupy_arrays(rows: Array, ids: Array) -> None:
    cupy = pytest.importorskip("cupy")
    with tensorcache.open(rows, "25%", device="cuda") as x:
        got = x.gather(cupy.asarray(ids))
        assert isinstance(got, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(got), rows[ids])


def test_ids_without_memory(rows: Array) -> None:
    with tensorcache.open(rows, "25%", device="host") as x:
        for read in (lambda: x[torch.arange(4, device="meta")], lambda: x.gather(torch.arange(4, device="meta"))):
            with pytest.raises(tensorcache.ArgumentError, match="device meta"):
                read()
