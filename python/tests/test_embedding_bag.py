"""Rows added up in bags: ``Table.embedding_bag``, ``torch.nn.functional.embedding_bag``, the collection of several tables, PyG's aggregation."""

from __future__ import annotations

import sys
import types
from typing import Any, Optional

import numpy as np
import pytest

import tensorcache

Array = np.ndarray[Any, Any]


def reference(rows: Array, ids: Array, bounds: list[tuple[int, int]], mode: str, weights: Optional[Array], padding: Optional[int]) -> Array:
    """Sums in float64, and which of them to trust how far."""
    out = np.zeros((len(bounds), *rows.shape[1:]))
    for bag, (begin, end) in enumerate(bounds):
        keep = [i for i in range(begin, end) if ids[i] != padding]
        if not keep:
            continue
        of = rows[ids[keep]].astype(np.float64)
        if weights is not None:
            of = of * weights[keep].astype(np.float64).reshape(-1, *(1,) * (rows.ndim - 1))
        out[bag] = {"sum": of.sum, "mean": of.mean, "max": of.max}[mode](axis=0)
    return out


OFFSETS = np.array([0, 0, 3, 50, 50, 1500, 2999])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_numpy(device: str, rows: Array, ids: Array, mode: str, kind: Any) -> None:
    ids = ids[:3000].astype(kind)
    with tensorcache.open(rows, "25%", device=device) as x:
        ends = [*OFFSETS[1:], len(ids)]
        got = x.embedding_bag(ids, OFFSETS.astype(kind), mode)
        assert isinstance(got, np.ndarray) and got.dtype == np.float32 and got.shape == (len(OFFSETS), 32)
        np.testing.assert_allclose(got, reference(rows, ids, list(zip(OFFSETS, ends)), mode, None, None), rtol=1e-4, atol=1e-3)
        last = x.embedding_bag(ids, np.append(OFFSETS, 2999), mode, include_last_offset=True, padding_idx=int(ids[4]))
        np.testing.assert_allclose(
            last, reference(rows, ids, list(zip(OFFSETS, [*OFFSETS[1:], 2999])), mode, None, int(ids[4])), rtol=1e-4, atol=1e-3
        )
        fixed = x.embedding_bag(ids.reshape(300, 10), mode=mode, padding_idx=-5000)
        np.testing.assert_allclose(fixed, reference(rows, ids, [(i, i + 10) for i in range(0, 3000, 10)], mode, None, 0), rtol=1e-5, atol=1e-4)
        wide = np.full((300, 40), 7, np.float32)
        assert x.embedding_bag(ids.reshape(300, 10), mode=mode, padding_idx=0, out=wide[:, 4:36]).base is wide
        assert np.array_equal(wide[:, 4:36], fixed) and (wide[:, :4] == 7).all() and (wide[:, 36:] == 7).all()


def test_numpy_weights_and_types(rows: Array, ids: Array) -> None:
    ids = ids[:3000]
    weights = np.random.default_rng(1).standard_normal(3000).astype(np.float32)
    for of in (np.float32, np.float16):
        table = (rows / 50).astype(of)
        with tensorcache.open(table.reshape(5000, 4, 8), "25%", device="host") as x:
            for out in (None, "float32", "float16", "bfloat16"):
                got = x.embedding_bag(ids.reshape(300, 10), None, "sum", weights.reshape(300, 10), dtype=out)
                assert got.shape == (300, 4, 8)
                want = reference(table, ids, [(i, i + 10) for i in range(0, 3000, 10)], "sum", weights, None).reshape(300, 4, 8)
                if out == "bfloat16":
                    got = (got.view(np.uint16).astype(np.uint32) << 16).view(np.float32)  # elements of ml_dtypes, if it is installed
                np.testing.assert_allclose(got, want, rtol=1e-2, atol=1e-2)
            # One row a bag converts.
            as_half = x.embedding_bag(ids.reshape(-1, 1), dtype=np.float16)
            assert np.array_equal(as_half, table.astype(np.float16).reshape(5000, 4, 8)[ids])
            assert x.embedding_bag(np.zeros((3, 0), np.int64)).tolist() == np.zeros((3, 4, 8)).tolist()
            assert x.embedding_bag(np.zeros(0, np.int64), np.zeros(2, np.int64)).tolist() == np.zeros((2, 4, 8)).tolist()


def test_faults(rows: Array) -> None:
    ids = np.arange(10)
    with tensorcache.open(rows, "25%", device="host") as x:
        for words, error, call in (
            ("offsets .None. must be", tensorcache.ArgumentError, lambda: x.embedding_bag(ids)),
            ("offsets must be None for ids of two axes", tensorcache.ArgumentError, lambda: x.embedding_bag(ids.reshape(2, 5), [0])),
            ("offset .3. at position 2 must be 5 to 10", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0, 5, 3]))),
            ("offset .11. at position 1 must be 0 to 10", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0, 11]))),
            ("first offset .1. must be 0", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([1]))),
            ("mode .'min'.", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0]), "min")),
            ("per_sample_weights must come with mode 'sum'", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0]), "mean", np.ones(10))),
            ("per_sample_weights .shape .9,..", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0]), "sum", np.ones(9))),
            ("padding_idx .5000.", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0]), padding_idx=5000)),
            ("padding_idx .3.0. must be an int", TypeError, lambda: x.embedding_bag(ids, np.array([0]), padding_idx=3.0)),
            ("padding_idx .True. must be an int", TypeError, lambda: x.embedding_bag(ids, np.array([0]), padding_idx=True)),
            ("offsets .float64. must be integers", TypeError, lambda: x.embedding_bag(ids, [0.0])),
            ("offsets .bool. must be integers", TypeError, lambda: x.embedding_bag(ids, np.zeros(11, bool))),
            ("per_sample_weights .<U1. must be real", TypeError, lambda: x.embedding_bag(ids, [0], "sum", ["a"] * 10)),
            ("dtype .int8.", TypeError, lambda: x.embedding_bag(ids, np.array([0]), dtype="int8")),
            ("row number .5000.", tensorcache.RowError, lambda: x.embedding_bag(np.array([5000]), np.array([0]))),
            ("include_last_offset", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.zeros(0, np.int64), include_last_offset=True)),
            ("out .shape", tensorcache.ArgumentError, lambda: x.embedding_bag(ids, np.array([0]), out=np.zeros((2, 32), np.float32))),
        ):
            with pytest.raises(error, match=words):
                call()
    with tensorcache.open(np.arange(64).reshape(8, 8), "1MB", device="host") as y, pytest.raises(TypeError, match="table .int64. must have float32"):
        y.embedding_bag(ids[:4], np.array([0]))


torch: Any = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_is_torch_embedding_bag(device: str, rows: Array, ids: Array, of: str, mode: str) -> None:
    table = torch.from_numpy(rows / 50).to(getattr(torch, of))
    numbers, offsets = torch.from_numpy(ids[:3000]), torch.tensor([*OFFSETS, 3000])
    functional = torch.nn.functional.embedding_bag
    with tensorcache.open(table, "25%", device=device) as x:
        for arguments in (
            {"offsets": offsets, "include_last_offset": True},
            {"offsets": offsets[:-1], "padding_idx": int(numbers[5])},
            {"offsets": offsets[:-1].int()},
            {},
        ):
            given = numbers if "offsets" in arguments else numbers.reshape(300, 10)
            if arguments.get("offsets", offsets).dtype == torch.int32:
                given = given.int()
            weights = torch.rand(given.shape) if mode == "sum" else None
            want = functional(
                given, table.float(), mode=mode, per_sample_weights=weights, **{k: v for k, v in arguments.items()}
            ).to(table.dtype)
            ours = functional(given, x, mode=mode, per_sample_weights=weights, **arguments)
            assert ours.dtype == table.dtype and ours.device == x.device
            torch.testing.assert_close(ours.cpu(), want, rtol=1e-2 if of != "float32" else 1e-4, atol=1e-2 if of != "float32" else 1e-4)
            again = x.embedding_bag(given, mode=mode, per_sample_weights=weights, **arguments)
            assert torch.equal(ours, again)
            lists = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in arguments.items()}
            assert torch.equal(x.embedding_bag(given, mode=mode, per_sample_weights=None if weights is None else weights.tolist(), **lists), ours)
        with pytest.raises(TypeError, match="offsets .float64. must be integers"):
            x.embedding_bag(numbers, [0.0])
        if mode == "sum":
            with pytest.raises(TypeError, match="per_sample_weights .torch.complex64. must be real"):
                x.embedding_bag(numbers, offsets[:-1], mode, torch.ones(3000, dtype=torch.complex64))
        x.cache.check()


def test_odd_numbers_as_torch_has_them() -> None:
    nan, inf = float("nan"), float("inf")
    table = torch.tensor([[1.0], [nan], [3.0], [-0.0], [0.0], [inf], [-inf]])
    functional = torch.nn.functional.embedding_bag
    with tensorcache.open(table, "1MB", device="host") as x:
        for ids in ([0, 1, 2], [1, 0, 2], [3, 4], [4, 3], [5, 6], [6, 6], [5, 0], [0, 5, 1], [2, 1]):
            for mode in ("sum", "mean", "max"):
                given = torch.tensor([ids])
                torch.testing.assert_close(functional(given, x, mode=mode), functional(given, table, mode=mode), rtol=0, atol=0, equal_nan=True)


def test_sums_of_minus_zeros() -> None:
    """Where all elements are -0, torch's sums and means are +0, as it begins with +0, and ours are -0: rows that are only converted keep their signs."""
    table = torch.tensor([[-0.0], [0.0]])
    functional = torch.nn.functional.embedding_bag
    with tensorcache.open(table, "1MB", device="host") as x:
        for ids in ([0], [0, 0]):
            for mode in ("sum", "mean", "max"):
                given = torch.tensor([ids])
                assert functional(given, table, mode=mode).signbit().item() == (mode == "max")
                assert functional(given, x, mode=mode).signbit().item()
        assert not functional(torch.tensor([[0, 1]]), x, mode="sum").signbit().item()
        assert x.gather(torch.tensor([0]), dtype=torch.bfloat16).signbit().item()


@pytest.mark.parametrize("as_", ["float32", "float16", "bfloat16"])
def test_gather_of_another_type(device: str, rows: Array, ids: Array, as_: str) -> None:
    table = torch.from_numpy(rows * 1000).reshape(5000, 4, 8)
    dtype = getattr(torch, as_)
    with tensorcache.open(table, "25%", device=device) as x:
        numbers = torch.from_numpy(ids[:600]).reshape(20, 30)
        want = table[numbers].to(dtype)
        got = x.gather(numbers, dtype=dtype)
        assert got.dtype is dtype and got.device == x.device and torch.equal(got.cpu(), want)
        out = torch.empty((600, 4, 8), dtype=dtype, device=x.device)
        assert x.gather(numbers.view(-1).int().to(x.device), out=out, dtype=as_) is out and torch.equal(out.cpu(), want.view(600, 4, 8))
        assert torch.equal(torch.as_tensor(x.gather([5, 7], dtype=dtype)).cpu(), table[[5, 7]].to(dtype))
        assert torch.equal(x.gather(numbers.to(x.device)[:0], dtype=dtype).cpu(), want[:0])
        array = x.gather(ids[:600].reshape(20, 30), dtype=as_)
        assert isinstance(array, np.ndarray) and array.tobytes() == want.contiguous().view(torch.uint8).numpy().tobytes()
        into = np.zeros((20, 30, 4, 8), array.dtype)
        assert x.gather(ids[:600].reshape(20, 30), out=into, dtype=as_) is into and into.tobytes() == array.tobytes()
        compiled = torch.compile(lambda i: x.gather(i, dtype=dtype) * 2, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(numbers).cpu(), want * 2)
        torch.library.opcheck(torch.ops.tensorcache.gather_as, (numbers, x.key, as_), test_utils=["test_schema", "test_faketensor"])
        with pytest.raises(TypeError, match="dtype .int8."):
            x.gather(numbers, dtype=torch.int8)
        with pytest.raises(TypeError, match="out .* must have dtype"):
            x.gather(numbers.view(-1), out=torch.empty((600, 4, 8), dtype=torch.int32), dtype=dtype)
        with pytest.raises(tensorcache.RowError):
            x.gather(ids[:3] + 5000, dtype=as_)
        x.cache.check()


@pytest.mark.parametrize("values", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_with_scales(device: str, ids: Array, values: str) -> None:
    """The type of rows of parts says what their bytes are."""
    torch.manual_seed(2)
    numbers = torch.from_numpy(ids[:600])
    eights = torch.randn(5000, 64).to(getattr(torch, values))
    scales = torch.randint(120, 134, (5000, 2), dtype=torch.uint8)
    wide = eights.float() * (2.0 ** (scales.float() - 127)).repeat_interleave(32, 1)
    table = torch.cat([eights.view(torch.uint8), scales], 1)
    of = f"{values}*64,float8_e8m0fnu*2"
    with tensorcache.open(table, "25%", device=device, dtype=of) as x:
        assert x.dtype is torch.uint8 and torch.equal(x[numbers].cpu(), table[numbers])
        assert torch.equal(x.gather(numbers, dtype=torch.float32).cpu(), wide[numbers])
        assert torch.equal(x.gather(numbers.view(20, 30), dtype=torch.bfloat16).cpu(), wide[numbers].bfloat16().view(20, 30, 64))
        assert x.gather(ids[:600], dtype="float32").tobytes() == wide[numbers].numpy().tobytes()
        for mode in ("sum", "mean", "max"):
            want = torch.nn.functional.embedding_bag(numbers.view(60, 10), wide, mode=mode)
            got = x.embedding_bag(numbers.view(60, 10), mode=mode)
            assert got.dtype is torch.float32 and got.shape == (60, 64)
            torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-4)
            array = x.embedding_bag(ids[:600].reshape(60, 10), mode=mode)
            assert array.tobytes() == got.cpu().numpy().tobytes()
        compiled = torch.compile(lambda i: x.embedding_bag(i, mode="sum"), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(numbers.view(60, 10)), x.embedding_bag(numbers.view(60, 10), mode="sum"))
        x.cache.check()
    with tensorcache.open(table, "25%", device="host") as y, pytest.raises(TypeError, match="table .uint8. must have float32"):
        y.embedding_bag(numbers.view(60, 10))


def test_compiled_and_without_gradient(rows: Array, ids: Array) -> None:
    numbers, offsets = torch.from_numpy(ids[:100]), torch.tensor([0, 10, 10, 60])
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:

        def model(numbers: Any, offsets: Any) -> Any:
            return x.embedding_bag(numbers, offsets, "sum", dtype=torch.bfloat16) * 2

        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(numbers, offsets), model(numbers, offsets))
        square = torch.compile(lambda i: x.embedding_bag(i), fullgraph=True, backend="aot_eager")
        assert torch.equal(square(numbers.reshape(10, 10)), x.embedding_bag(numbers.reshape(10, 10)))
        weights = torch.rand(100, requires_grad=True)
        with pytest.raises(tensorcache.GradientError, match="per_sample_weights"):
            x.embedding_bag(numbers, offsets, "sum", weights)
        with torch.no_grad():
            assert x.embedding_bag(numbers, offsets, "sum", weights).shape == (4, 32)
        torch.library.opcheck(torch.ops.tensorcache.embedding_bag, (numbers, offsets, x.key), test_utils=["test_schema", "test_faketensor"])


class Jagged:
    """What a KeyedJaggedTensor has, as far as the collection asks."""

    def __init__(self, keys: list[str], values: Any, lengths: Any, weights: Any = None) -> None:
        self._keys, self._values, self._weights = keys, values, weights
        self._samples = len(lengths) // len(keys)
        self._offsets = torch.cat([torch.zeros(1, dtype=lengths.dtype, device=lengths.device), lengths.cumsum(0)])

    def keys(self) -> list[str]:
        return self._keys

    def stride(self) -> int:
        return self._samples

    def values(self) -> Any:
        return self._values

    def offsets(self) -> Any:
        return self._offsets

    def weights_or_none(self) -> Any:
        return self._weights


class Features:
    """Three features of two tables, and what torch makes of them."""

    def __init__(self, device: str, weighted: bool = False, dtype: Any = None) -> None:
        from tensorcache.nn import CachedEmbeddingBagCollection

        torch.manual_seed(1)
        self.small, self.large = torch.randn(100, 8), torch.randn(1000, 16)
        self.lengths = torch.tensor([2, 0, 3, 1, 4, 0, 0, 0, 9])
        self.values = torch.randint(0, 100, (19,))
        self.weights = torch.rand(19) if weighted else None
        self.cache = tensorcache.open({"small": self.small, "large": self.large}, "50%", device=device)
        self.tables = {"a": self.cache["small"], "b": self.cache["large"], "c": self.cache["small"]}
        modes = {"a": "sum", "b": "sum" if weighted else "mean", "c": "sum"}
        self.bags = CachedEmbeddingBagCollection(self.tables, modes, dtype)
        self.keyed = Jagged(["a", "b", "c"], self.values, self.lengths, self.weights)
        self.parts, self.want = {}, {}
        for i, (name, of) in enumerate({"a": self.small, "b": self.large, "c": self.small}.items()):
            at = self.keyed.offsets()[3 * i : 3 * i + 4]
            numbers, weights = self.values[at[0] : at[3]], self.weights[at[0] : at[3]] if weighted else None
            self.parts[name] = (numbers, at - at[0], *([weights] if weighted else []))
            self.want[name] = torch.nn.functional.embedding_bag(
                numbers, of, at - at[0], mode=modes[name], include_last_offset=True, per_sample_weights=weights
            )

    def close(self, got: Any) -> None:
        for name, want in self.want.items():
            assert got[name].shape == want.shape
            torch.testing.assert_close(got[name].cpu().float(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_collection(device: str, weighted: bool, monkeypatch: Any) -> None:
    from tensorcache.nn import CachedEmbeddingBagCollection

    f = Features(device, weighted)
    assert list(f.bags.parameters()) == [] and "sum of" in repr(f.bags)
    for got in (f.bags(f.keyed), f.bags(f.parts)):
        f.close(got)
    f.close({name: x.cpu() for name, x in f.bags({name: f.parts[name] for name in "cab"}).items()})
    for dtype in (torch.float16, "float32", torch.float64):
        half = CachedEmbeddingBagCollection(f.tables, f.bags.modes, dtype)
        for got in (half(f.keyed), half(f.parts)):
            for name, want in f.want.items():
                torch.testing.assert_close(got[name].cpu(), want.to(half.dtype), rtol=1e-3, atol=1e-3)

    torchrec = types.ModuleType("torchrec")
    torchrec.KeyedTensor = lambda keys, dims, values: (keys, dims, values)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchrec", torchrec)
    keys, dims, joined = f.bags(f.keyed)
    assert keys == ["a", "b", "c"] and dims == [8, 16, 8]
    torch.testing.assert_close(joined.cpu(), torch.cat([f.want[n] for n in keys], 1), rtol=1e-5, atol=1e-6)
    other = tensorcache.open(f.large, "50%", device=device)  # of another cache
    keys, dims, joined = CachedEmbeddingBagCollection({**f.tables, "b": other}, f.bags.modes)(f.keyed)
    assert keys == ["a", "b", "c"] and dims == [8, 16, 8]
    torch.testing.assert_close(joined.cpu(), torch.cat([f.want[n] for n in keys], 1), rtol=1e-5, atol=1e-6)
    other.close()
    with pytest.raises(tensorcache.ArgumentError, match="must have c"):
        f.bags(Jagged(["a", "b"], f.values, f.lengths[:6]))
    with pytest.raises(tensorcache.ArgumentError, match="mode .'max'."):
        CachedEmbeddingBagCollection(f.tables, "max")
    if not weighted:
        with pytest.raises(tensorcache.ArgumentError, match="per_sample_weights must come with mode 'sum'"):
            f.bags(Jagged(["a", "b", "c"], f.values, f.lengths, torch.rand(19)))
    assert f.bags(Jagged(["a", "b", "c"], f.values[:0], f.lengths[:0]))[2].shape == (0, 32)
    f.cache.close()


def test_collection_compiled() -> None:
    f = Features("host")
    torch._dynamo.reset()
    compiled = torch.compile(f.bags, fullgraph=True, backend="aot_eager")
    for got in (compiled(f.parts), compiled(f.keyed)):
        f.close(got)

    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = f.bags

        def forward(self, parts: Any) -> Any:
            return {name: 2 * x for name, x in self.bags(parts).items()}

    exported = torch.export.export(Doubled(), (f.parts,))
    assert "tensorcache.embedding_bags" in str(exported.graph)
    f.close({name: x / 2 for name, x in exported.module()(f.parts).items()})
    keys = [t.key for t in f.tables.values()]
    ids, offsets = [x[0] for x in f.parts.values()], [x[1] for x in f.parts.values()]
    modes = ["sum", "mean", "sum"]
    for operator, arguments in (
        (torch.ops.tensorcache.embedding_bags, (ids, offsets, keys, modes, [None] * 3, True, "bfloat16")),
        (torch.ops.tensorcache.embedding_bags, ([i[:4].view(2, 2) for i in ids], [None] * 3, keys, ["max"] * 3, [None] * 3, True)),
        (torch.ops.tensorcache.keyed_bags, (f.values, f.keyed.offsets(), keys, [0, 3, 6], 3, modes)),
        (torch.ops.tensorcache.keyed_bags, (f.values, f.keyed.offsets(), keys, [0, 3, 6], 3, ["sum"] * 3, torch.rand(19), "float16")),
    ):
        torch.library.opcheck(operator, arguments, test_utils=["test_schema", "test_faketensor"])
    with pytest.raises(tensorcache.GradientError):
        weights = torch.rand(19, requires_grad=True)
        torch.ops.tensorcache.keyed_bags(f.values, f.keyed.offsets(), keys, [0, 3, 6], 3, ["sum"] * 3, weights).sum().backward()
    f.cache.close()


@pytest.mark.parametrize("weighted", [False, True])
def test_collection_of_torchrec(device: str, weighted: bool) -> None:
    torchrec = pytest.importorskip("torchrec", reason="torchrec is not installed")
    f = Features(device, weighted)
    keyed = torchrec.KeyedJaggedTensor(["a", "b", "c"], f.values, lengths=f.lengths, weights=f.weights)
    got = f.bags(keyed)
    assert isinstance(got, torchrec.KeyedTensor) and list(got.keys()) == ["a", "b", "c"] and got.length_per_key() == [8, 16, 8]
    f.close(got.to_dict())
    f.close(f.bags(torchrec.KeyedJaggedTensor(["a", "b", "c"], f.values, offsets=f.keyed.offsets().int(), weights=f.weights)).to_dict())
    ours = torchrec.EmbeddingBagCollection(
        [
            torchrec.EmbeddingBagConfig(name="small", embedding_dim=8, num_embeddings=100, feature_names=["a", "c"]),
            torchrec.EmbeddingBagConfig(name="large", embedding_dim=16, num_embeddings=1000, feature_names=["b"]),
        ],
        is_weighted=weighted,
    )
    with torch.no_grad():
        ours.embedding_bags["small"].weight.copy_(f.small)
        ours.embedding_bags["large"].weight.copy_(f.large)
        if weighted:
            for name, of in ours(keyed).to_dict().items():
                torch.testing.assert_close(got[name].cpu(), of, rtol=1e-5, atol=1e-6)
    f.cache.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device")
def test_captured(rows: Array) -> None:
    """Bags of one table, rows of another type, and a collection, in a captured graph, and from row numbers on the GPU without a wait of the host."""
    from tensorcache.nn import CachedEmbeddingBagCollection

    table = torch.from_numpy(rows)
    cache = tensorcache.open({"x": table, "y": table.bfloat16()}, "50%", device="cuda")
    x = cache["x"]
    bags = CachedEmbeddingBagCollection({"p": x, "q": cache["y"], "r": x}, "sum", torch.float32)
    ids, offsets = torch.zeros(1000, dtype=torch.int64, device="cuda"), torch.arange(0, 1000, 10, device="cuda")
    weights = torch.ones(1000, device="cuda")
    lengths = torch.full((30,), 20, device="cuda")
    keyed = Jagged(["p", "q", "r"], ids, lengths, weights)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(2):
            x.embedding_bag(ids, offsets, "sum", weights), x.gather(ids, dtype=torch.float16), bags(keyed)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        summed = x.embedding_bag(ids, offsets, "sum", weights)
        half = x.gather(ids, dtype=torch.float16)
        found = bags(keyed)
        found = found if isinstance(found, dict) else found.to_dict()
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        numbers, factors = torch.randint(0, 5000, (1000,), generator=generator), torch.rand(1000, generator=generator)
        ids.copy_(numbers)
        weights.copy_(factors)
        graph.replay()
        want = torch.nn.functional.embedding_bag(numbers, table, offsets.cpu(), mode="sum", per_sample_weights=factors)
        torch.testing.assert_close(summed.cpu(), want, rtol=1e-5, atol=1e-5)
        assert torch.equal(half.cpu(), table[numbers].half())
        for i, (name, of) in enumerate({"p": table, "q": table.bfloat16().float(), "r": table}.items()):
            part = slice(200 * i, 200 * i + 200)
            want = torch.nn.functional.embedding_bag(numbers[part].view(10, 20), of, mode="sum", per_sample_weights=factors[part].view(10, 20))
            torch.testing.assert_close(found[name].cpu(), want, rtol=1e-5, atol=1e-5)
    cache.check()
    busy = torch.ones(6000, 6000, device="cuda")
    for _ in range(40):
        busy = busy @ busy.clamp(max=1e-3)
    done = torch.cuda.Event()
    done.record()
    bags(keyed)
    assert not done.query(), "the host waited for the GPU"
    torch.cuda.synchronize()
    del graph
    cache.close()


def test_aggregate(device: str, rows: Array) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    from tensorcache.pyg import aggregate

    torch.manual_seed(2)
    table = torch.from_numpy(rows)
    rowptr = torch.tensor([0, 3, 3, 10, 40])
    col = torch.randint(0, 5000, (40,))
    adjacency = torch.zeros(4, 5000)
    for i in range(4):
        for j in col[rowptr[i] : rowptr[i + 1]]:
            adjacency[i, j] += 1
    degree = (rowptr[1:] - rowptr[:-1]).clamp(min=1)
    want = adjacency.double() @ table.double() / degree[:, None]
    with tensorcache.open(table, "25%", device=device) as x:
        sparse = torch.sparse_csr_tensor(rowptr, col, torch.ones(40), size=(4, 5000))
        nodes, local = col.unique(return_inverse=True)
        for got in (aggregate(x, (rowptr, col)), aggregate(x, sparse), aggregate(x, (rowptr, local), n_id=nodes)):
            torch.testing.assert_close(got.cpu().double(), want, rtol=1e-4, atol=1e-4)
        factors = torch.rand(40)
        weighted = aggregate(x, (rowptr, col), "sum", factors)
        torch.testing.assert_close(weighted.cpu()[0], (table[col[:3]] * factors[:3, None]).sum(0), rtol=1e-4, atol=1e-4)
        with pytest.raises(TypeError, match="csr"):
            aggregate(x, 3)
