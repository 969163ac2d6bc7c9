"""Reads while torch looks on: traced programs, transforms of torch.func, modes, and a default device."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages_writer import write_pages

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache import nn  # noqa: E402
from tensorcache._extension import extension  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
F = torch.nn.functional
Array = np.ndarray[Any, Any]


def make_fx(function: Any, *given: Any, **options: Any) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx as make

    return make(function, **options)(*given)


def exported(function: Any, *given: Any) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return function(*arguments)

    return torch.export.export(Module(), given, strict=False).module()


# Each makes a program of a function and of arguments, which is then called with others of their shapes.
TRACERS: dict[str, Callable[..., Any]] = {
    "jit.trace": lambda f, *given: torch.jit.trace(f, given, check_trace=False),
    "make_fx": make_fx,
    "make_fx fake": lambda f, *given: make_fx(f, *given, tracing_mode="fake"),
    "make_fx symbolic": lambda f, *given: make_fx(f, *given, tracing_mode="symbolic"),
    "make_fx before dispatch": lambda f, *given: make_fx(f, *given, pre_dispatch=True),
    "compile": lambda f, *given: (torch._dynamo.reset(), torch.compile(f, fullgraph=True, backend="aot_eager"))[1],
    "export": exported,
    "functionalize": lambda f, *given: make_fx(torch.func.functionalize(f), *given),
}

# Each reads from a table of a cache as from a tensor.
READS: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda t, i: t[i],
    "embedding": lambda t, i: F.embedding(i, t),
    "index_select": lambda t, i: torch.index_select(t, 0, i),
    "bags": lambda t, i: F.embedding_bag(i, t, torch.tensor([0, 2]), mode="sum"),
    "bags of one length": lambda t, i: F.embedding_bag(i.view(1, -1), t, mode="mean"),
    "gather as bfloat16": lambda t, i: t.gather(i, dtype=torch.bfloat16) if isinstance(t, tensorcache.Table) else t[i].bfloat16(),
    "gather into out": lambda t, i: t.gather(i, out=torch.empty(4, 32)) if isinstance(t, tensorcache.Table) else t[i],
    "constant numbers": lambda t, i: t[torch.tensor([7, 9])] + i.sum(),
    "slice": lambda t, i: t[3:5] + i.sum(),
    "int": lambda t, i: t[3] + i.sum(),
}


@pytest.fixture
def table(rows: Array) -> Any:
    return torch.from_numpy(rows)


def same(got: Any, expected: Any) -> bool:
    return bool(torch.equal(got.cpu(), expected))


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("tracer", TRACERS)
def test_traced_programs_read(table: Any, tracer: str, read: str) -> None:
    first, then = torch.tensor([1, 2, 7, 3]), torch.tensor([3, 4, 5, 6])
    if tracer == "compile" and read in ("slice", "int"):
        pytest.skip("torch.compile takes row numbers in tensors only")
    with tensorcache.open(table, "25%", device="host") as x:
        program = TRACERS[tracer](lambda i: READS[read](x, i) * 1, first)
        assert same(program(then), READS[read](table, then))
        if tracer == "jit.trace" and read in ("slice", "int"):
            return  # torch.jit runs what depends on no input once
        x.update(np.array([3, 4]), np.zeros((2, 32), np.float32))  # a program reads when it runs
        changed = table.clone()
        changed[[3, 4]] = 0
        assert same(program(then), READS[read](changed, then))


@pytest.mark.parametrize("tracer", TRACERS)
def test_traced_modules_read(table: Any, tracer: str) -> None:
    first, then = torch.tensor([1, 2, 7, 3]), torch.tensor([3, 4, 5, 6])
    with tensorcache.open({"a": table, "b": table + 1}, "25%", device="host") as cache:
        embedding, bags = nn.CachedEmbedding(cache["a"]), nn.CachedEmbeddingBagCollection({"a": cache["a"], "b": cache["b"]})
        assert same(TRACERS[tracer](lambda i: embedding(i) * 1, first)(then), table[then])

        def both(i: Any) -> Any:
            factors = torch.tensor([1.0, 2.0, 3.0, 4.0])
            found = bags({"a": (i, torch.tensor([0, 2, 4])), "b": (i, torch.tensor([0, 4]), factors)})
            return torch.cat([found["a"], found["b"]])

        expected = torch.cat([table[then].view(2, 2, 32).sum(1), ((table[then] + 1) * torch.arange(1, 5)[:, None]).sum(0, keepdim=True)])
        torch.testing.assert_close(TRACERS[tracer](both, first)(then), expected)


@pytest.mark.parametrize("tracer", ["jit.trace", "make_fx"])
def test_traced_programs_take_masks(table: Any, tracer: str) -> None:
    mask = torch.arange(5000) % 9 == 0
    with tensorcache.open(table, "25%", device="host") as x:
        for read in (lambda i: x[i] * 1, lambda i: x.gather(i) * 1):
            assert same(TRACERS[tracer](read, mask)(mask), table[mask])


def test_symbolic_trace(table: Any) -> None:
    with tensorcache.open(table, "25%", device="host") as x:
        program = torch.fx.symbolic_trace(torch.nn.Sequential(nn.CachedEmbedding(x), torch.nn.Identity()))
        assert same(program(torch.tensor([3, 4])), table[3:5])


# Transforms of a function of numbers, and of a vector that is multiplied with rows.
TRANSFORMS: dict[str, Callable[[Callable[[Any], Any], Any, Any], Any]] = {
    "grad": lambda read, i, p: torch.func.grad(lambda p: (read(i) * p).sum())(p),
    "vmap": lambda read, i, p: torch.vmap(read)(torch.stack([i, i + 1, i + 2])),
    "vmap of the second axis": lambda read, i, p: torch.vmap(read, in_dims=1)(torch.stack([i, i + 1, i + 2], 1)),
    "vmap of vmap": lambda read, i, p: torch.vmap(torch.vmap(read))(torch.stack([i, i + 1, i + 2, i + 3]).view(2, 2, -1)),
    "jvp": lambda read, i, p: torch.func.jvp(lambda p: (read(i) * p).sum(), (p,), (p,))[1],
    "jacrev": lambda read, i, p: torch.func.jacrev(lambda p: (read(i) * p).sum(-1))(p),
    "hessian": lambda read, i, p: torch.func.hessian(lambda p: (read(i) * p * p).sum())(p),
    "gradient of each sample": lambda read, i, p: torch.vmap(torch.func.grad(lambda p, j: (read(j) * p).sum()), (None, 0))(p, torch.stack([i, i + 1])),
    "functionalize": lambda read, i, p: torch.func.functionalize(read)(i),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(table: Any, transform: str, read: str) -> None:
    numbers, factors = torch.tensor([3, 4, 5, 6]), torch.linspace(1, 2, 32)
    if read == "gather into out" and "vmap" in transform or "each sample" in transform and read == "gather into out":
        pytest.skip("torch.vmap writes to no tensor that is not mapped")
    with tensorcache.open(table, "25%", device="host") as x:
        got = TRANSFORMS[transform](lambda i: READS[read](x, i), numbers, factors)
        torch.testing.assert_close(got, TRANSFORMS[transform](lambda i: READS[read](table, i), numbers, factors))


def test_vmap_of_bags(table: Any) -> None:
    """Offsets and factors that are mapped, and those that are not; several tables."""
    numbers = torch.arange(24).view(3, 8)
    offsets, factors = torch.tensor([[0, 2], [0, 8], [0, 3]]), torch.linspace(1, 2, 24).view(3, 8)
    with tensorcache.open({"a": table, "b": table + 1}, "25%", device="host") as cache:
        x = cache["a"]
        got = torch.vmap(lambda i, o, w: x.embedding_bag(i, o, "sum", w))(numbers, offsets, factors)
        one = torch.vmap(lambda i, w: x.embedding_bag(i, offsets[0], "sum", w), (None, 0))(numbers[0], factors)
        bags = nn.CachedEmbeddingBagCollection({"a": x, "b": cache["b"]})
        several = torch.vmap(lambda i: bags({"a": i.view(2, 4), "b": (i, torch.tensor([0, 8]))}))(numbers)
        with pytest.raises(tensorcache.ArgumentError, match="0 elements"):
            torch.vmap(lambda i: x.embedding_bag(i.view(1, 8)))(numbers[:0])
        assert torch.vmap(lambda i: x[i])(numbers[:0]).shape == (0, 8, 32)
        for k in range(3):
            assert same(got[k], x.embedding_bag(numbers[k], offsets[k], "sum", factors[k]))
            assert same(one[k], x.embedding_bag(numbers[0], offsets[0], "sum", factors[k]))
            torch.testing.assert_close(several["b"][k], (table[numbers[k]] + 1).sum(0, keepdim=True))
            assert same(several["a"][k], x.embedding_bag(numbers[k].view(2, 4), mode="sum"))


@pytest.mark.parametrize("read", READS)
def test_modes_see_reads(table: Any, read: str) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Functions(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    numbers = torch.tensor([3, 4, 5, 6])
    with tensorcache.open(table, "25%", device="host") as x:
        for mode in (Functions, Operators):
            seen.clear()
            with mode():
                got = READS[read](x, numbers)
            assert same(got, READS[read](table, numbers))
            # A mode of functions sees torch's functions of a table as such.
            assert any("tensorcache" in name or mode is Functions and ("embedding" in name or "index_select" in name) for name in seen), seen


def test_fake_mode(table: Any) -> None:
    """Nothing is read: rows have shape, type and device only."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with tensorcache.open(table, "25%", device="host") as x:
        with FakeTensorMode() as mode:
            got = x[torch.arange(3)]
            assert isinstance(got, mode.from_tensor(table).__class__) and got.shape == (3, 32) and got.device.type == "cpu"
            assert x.gather(slice(0, 3), dtype=torch.float16).dtype == torch.float16
        assert x.stats()["hits"] + x.stats()["misses"] == 0


def test_changes_are_not_traced(table: Any) -> None:
    with tensorcache.open(table, "25%", device="host") as x:

        def step(i: Any) -> Any:
            x.update(i, torch.zeros(2, 32))
            return i + 1

        for tracer in ("jit.trace", "make_fx"):
            with pytest.raises(tensorcache.errors.UnsupportedError, match=r"update \(of table 'features'\) cannot be part of a program that torch traces") as e:
                TRACERS[tracer](step, torch.tensor([1, 2]))
            assert same(x[torch.tensor([1, 2])], table[1:3]), e
        x.prefetch(torch.tensor([1]))
        torch.vmap(lambda i: (x.prefetch(i), x[i])[1])(torch.tensor([[1], [2]]))


def test_updates_with_arrays_need_no_torch(python: Any) -> None:
    """A program may import torch for something else, one that reads with tensors cannot use. Recorded programs are refused all the same."""
    done = python("""
import numpy as np, sys, tensorcache
x = tensorcache.open(np.zeros((9, 4), np.float32), "1MB", device="host")
import torch
sys.modules["tensorcache._tensors"] = None  # its import fails
x.update([3], np.ones((1, 4), np.float32))
assert x[[3]].tolist() == [[1, 1, 1, 1]]
def step(i):
    x.update([4], np.ones((1, 4), np.float32))
    return i + 1
try: torch.jit.trace(step, torch.tensor([1]), check_trace=False)
except tensorcache.errors.UnsupportedError as e: print("refused")
""")
    assert done.stdout == "refused\n", done.stderr


@pytest.mark.parametrize("how", ["set", "with"])
def test_default_device(table: Any, how: str) -> None:
    """As with a tensor on the host, the default device moves no result and nothing that a read needs meanwhile."""
    numbers = torch.tensor([3, 4, 5, 6])
    with tensorcache.open({"x": table, "f": table.to(torch.float8_e4m3fn)}, "25%", device="host") as cache:
        x, bags = cache["x"], nn.CachedEmbeddingBagCollection({"x": cache["x"]})
        read: dict[str, Callable[[], Any]] = {
            "tensor": lambda: x[numbers],
            "int32": lambda: x[numbers.int()],
            "uint8": lambda: x[numbers.to(torch.uint8)],
            "mask": lambda: x[numbers_mask],
            "list": lambda: x[[3, 4]],
            "slice": lambda: x[3:5],
            "int": lambda: x[3],
            "dtype": lambda: x.gather(numbers, dtype=torch.float16),
            "bags": lambda: x.embedding_bag(numbers, [0, 2], "sum", [1.0, 2.0, 3.0, 4.0]),
            "lists": lambda: x.embedding_bag(numbers.tolist(), offsets, "sum", [1.0, 2.0, 3.0, 4.0]),
            "collection": lambda: bags({"x": numbers.view(2, 2)})["x"],
            "float8": lambda: cache["f"].gather(numbers, dtype=torch.float32),
            "out": lambda: x.gather(numbers, out=torch.empty(4, 32, device="cpu")),
            "bags into out": lambda: x.embedding_bag(numbers, offsets, "sum", out=torch.empty(2, 32, device="cpu")),
        }
        offsets = torch.tensor([0, 2])
        numbers_mask = torch.arange(5000) % 1000 == 3
        expected = {name: of() for name, of in read.items()}
        opened = None
        try:
            if how == "set":
                torch.set_default_device("meta")
                got = {name: of() for name, of in read.items()}
                opened = tensorcache.open(np.ones((10, 4), np.float32), "1MB", device="host")
                x.update([3], np.zeros((1, 32), np.float32))
            else:
                with torch.device("meta"):
                    got = {name: of() for name, of in read.items()}
                    opened = tensorcache.open(np.ones((10, 4), np.float32), "1MB", device="host")
                    x.update([3], np.zeros((1, 32), np.float32))
        finally:
            torch.set_default_device(None)
        for name in read:
            assert got[name].device.type == "cpu" and torch.equal(got[name], expected[name]), name
        assert opened is not None and opened[0].tolist() == [1, 1, 1, 1]
        assert not x[3].any()


def test_default_device_for_ngrams() -> None:
    from tensorcache.ngram import NgramHash, NgramTable, RowFormat

    table = torch.randint(0, 100, (500, 64), dtype=torch.uint8)
    with tensorcache.open(table, "25%", device="host") as x:
        tokens = torch.arange(20)
        with torch.device("meta"):
            grams, numbers = NgramTable(x, RowFormat(64)), NgramHash((2,), 2, 1, 400)
            ids = numbers(tokens)
            values = [grams.values(ids), grams.values(ids.numpy())]
        assert all(same(of, grams.values(ids)) for of in values) and ids.device.type == "cpu"


@pytest.mark.skipif(shutil.which("g++") is None or not hasattr(torch._inductor, "aoti_compile_and_package"), reason="AOTInductor needs g++, and torch 2.6")
def test_compiled_ahead_of_time(table: Any, tmp_path: Path) -> None:
    """A package of AOTInductor with every operator that reads: bags of several tables, padding, factors, another type, and numbers of rows that are not those it was compiled with."""
    if extension is None:
        pytest.skip("operators in Python run in eager and compiled programs only")

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, i: Any, o: Any) -> Any:
            both = bags({"a": (i, o), "b": (i, o, i / 7)})
            return (
                a[i] * 2, b.gather(i, dtype=torch.bfloat16), F.embedding_bag(i, a, o, mode="max", padding_idx=4), both["a"] + both["b"],
                torch.ops.tensorcache.keyed_bags(i, o, keys, [0, 0], 2, ["mean", "sum"], None, "float16"),
            )  # fmt: skip

    with tensorcache.open({"a": table, "b": table.half()}, "25%", device="host") as cache, torch.no_grad():
        a, b = cache["a"], cache["b"]
        bags, keys = nn.CachedEmbeddingBagCollection({"a": a, "b": b}), [x.key for x in (a, b)]
        model, offsets = Model(), torch.tensor([0, 2, 4])
        program = torch.export.export(model, (torch.tensor([1, 2, 7, 3]), offsets), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=64)}, None))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
        compiled = torch._inductor.aoti_load_package(package)
        numbers = torch.tensor([3, 4, 5, 6, 4999])
        for given, upto in ((numbers, torch.tensor([0, 1, 5])), (numbers[:2], torch.tensor([0, 0, 2]))):
            for got, want in zip(compiled(given, upto), model(given, upto)):
                assert got.dtype == want.dtype and torch.equal(got, want)
        a.update(torch.tensor([3]), torch.zeros(1, 32))
        assert not compiled(numbers, offsets)[0][0].any()  # a package reads when it runs
        with pytest.raises(RuntimeError):
            compiled(numbers + 1, offsets)


def test_operators_in_scripts_and_modes(table: Any) -> None:
    with tensorcache.open({"users": table}, "25%", device="host") as cache:
        x, numbers = cache["users"], torch.tensor([3, 4, 5, 6])

        def read(i: torch.Tensor) -> torch.Tensor:
            return torch.ops.tensorcache.gather(i, "users:float32[32]") + 1

        script = torch.jit.script(read)
        assert same(script(numbers), table[3:7] + 1)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                rows, sums = x[numbers], x.embedding_bag(numbers, torch.tensor([0]), "sum")
                assert rows.is_inference() == torch.is_inference_mode_enabled() == sums.is_inference()
                assert same(rows, table[3:7]) and same(script(numbers), table[3:7] + 1)
        compiled = torch.compile(read, fullgraph=True, dynamic=True, backend="aot_eager")
        for n in (1, 2, 5):
            assert same(compiled(torch.arange(n)), table[:n] + 1)


@pytest.fixture
def default_device() -> Iterator[None]:
    torch.set_default_device("cpu")
    yield
    torch.set_default_device(None)


def operators(function: Callable[[], Any]) -> set[str]:
    """The names of the operators that a function calls."""
    with torch.autograd.profiler.profile() as found:
        function()
    return {event.name for event in found.function_events}


@pytest.mark.usefixtures("default_device")
def test_reads_by_the_default_device_are_eager(table: Any) -> None:
    """The mode of a default device lasts as long as the program, and no read needs it: nothing is read into other memory and copied, or converted afterwards."""
    from tensorcache.ngram import NgramHash, NgramTable, RowFormat

    numbers, offsets = torch.tensor([3, 4, 5, 6]), torch.tensor([0, 2])
    out, bags = torch.empty(4, 32), torch.empty(2, 32)
    bytes_ = torch.arange(5000 * 64).view(5000, 64).to(torch.uint8) % 100
    with tensorcache.open({"x": table, "g": bytes_}, "25%", device="host") as cache:
        x, grams, hashed, values = cache["x"], NgramTable(cache["g"], RowFormat(64)), NgramHash((2,), 2, 1, 400), torch.empty(4, 64)
        collection = nn.CachedEmbeddingBagCollection({"x": x})
        reads: list[Callable[[], Any]] = [
            lambda: x[numbers], lambda: F.embedding(numbers, x), lambda: x.gather(numbers, out=out), lambda: x.embedding_bag(numbers, offsets, "sum", out=bags),
            lambda: collection({"x": numbers.view(2, 2)}), lambda: grams.values(numbers, torch.float32, out=values),
        ]  # fmt: skip
        for i, read in enumerate(reads):
            called = operators(read)
            assert not [name for name in called if "tensorcache" in name or "copy_" in name or "mul" in name], (i, called)
        assert same(out, table[3:7]) and same(values, grams.format.dequantise(bytes_[3:7], torch.float32))
        torch.testing.assert_close(bags, table[3:7].view(2, 2, 32).sum(1))
        hashed(torch.arange(20))
        kept = hashed._constants(torch.device("cpu"))
        assert hashed._constants(torch.device("cpu")) is kept


@pytest.mark.usefixtures("default_device")
def test_prefetch_by_a_default_device(rows: Array, tmp_path: Path) -> None:
    with tensorcache.open(write_pages(tmp_path / "t.tc", rows), "60KB", host_memory="400KB", device="host") as x:
        absent = torch.tensor([entry["row"] for entry in x.explain(np.arange(len(rows))) if entry["tier"] == "pages"][:50])
        x.prefetch(absent)
        for _ in range(6000):
            if x.stats()["tiers"]["prefetch"]["rows"] >= 50:
                break
            time.sleep(0.01)
        assert x.stats()["tiers"]["prefetch"]["rows"] == 50


@pytest.mark.usefixtures("default_device")
@pytest.mark.parametrize("read", READS)
def test_modes_by_a_default_device_see_reads(table: Any, read: str) -> None:
    test_modes_see_reads(table, read)


@pytest.mark.usefixtures("default_device")
@pytest.mark.parametrize("tracer", TRACERS)
def test_programs_traced_by_a_default_device_read(table: Any, tracer: str) -> None:
    test_traced_programs_read(table, tracer, "index")


def test_hash_keeps_no_constants_of_a_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    from tensorcache.ngram import NgramHash

    numbers, tokens = NgramHash((2,), 2, 1, 400), torch.arange(20)
    with FakeTensorMode() as mode:
        assert numbers(mode.from_tensor(tokens)).shape == (20, 2)
    assert torch.equal(numbers(tokens), torch.from_numpy(numbers(tokens.numpy())))


def test_cost_of_looking(rows: Array) -> None:
    """What the checks take of the Python thread's time beside a read on the host: a ratio, as the machine may be busy."""
    from tensorcache import _tensors

    ids = torch.zeros(1, dtype=torch.int64)
    with tensorcache.open(torch.from_numpy(rows), "100%", device="host", codec="none") as x:
        reads = x._reads()
        read, look = (min(_time(call) for _ in range(9)) for call in (lambda: reads.eager(ids), _tensors.watched))
    assert look < read / 2, f"{look * 1e9:.0f} ns of {read * 1e9:.0f}"


def _time(call: Any, n: int = 500) -> float:
    began = time.thread_time()
    for _ in range(n):
        call()
    return (time.thread_time() - began) / n
