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
        torch.library.opcheck(torch.ops.tensorcache.embedding_bag, (numbers, offsets, x._reads().key), test_utils=["test_schema", "test_faketensor"])


class Jagged:
    """What a KeyedJaggedTensor has, as far as the collection asks."""

    def __init__(self, keys: list[str], values: Any, lengths: Any, weights: Any = None) -> None:
        self._keys, self._values, self._weights = keys, values, weights
        self._samples = len(lengths) // len(keys)
        self._offsets = torch.cat([torch.zeros(1, dtype=lengths.dtype), lengths.cumsum(0)])

    def keys(self) -> list[str]:
        return self._keys

    def stride(self) -> int:
        return self._samples

    def values(self) -> Any:
        return self._values

    def offsets(self) -> Any:
        return self._offsets

    def offset_per_key(self) -> list[int]:
        return [int(self._offsets[i * self._samples]) for i in range(len(self._keys) + 1)]

    def weights_or_none(self) -> Any:
        return self._weights


def test_collection(device: str, monkeypatch: Any) -> None:
    from tensorcache.nn import CachedEmbeddingBagCollection

    torch.manual_seed(1)
    small, large = torch.randn(100, 8), torch.randn(1000, 16)
    lengths = torch.tensor([2, 0, 3, 1, 4, 0, 0, 0, 9])
    values = torch.randint(0, 100, (19,))
    cache = tensorcache.open({"small": small, "large": large}, "50%", device=device)
    tables = {"a": cache["small"], "b": cache["large"], "c": cache["small"]}
    weights_of = {"a": small, "b": large, "c": small}
    bags = CachedEmbeddingBagCollection(tables, {"a": "sum", "b": "mean", "c": "sum"})
    assert list(bags.parameters()) == [] and "mean of" in repr(bags)
    keyed = Jagged(["a", "b", "c"], values, lengths)
    want = {}
    for i, name in enumerate(tables):
        at = keyed.offsets()[3 * i : 3 * i + 4]
        of = values[at[0] : at[3]]
        want[name] = torch.nn.functional.embedding_bag(of, weights_of[name], at - at[0], mode=bags.modes[name], include_last_offset=True)
    for got in (bags(keyed), bags({n: (values[k[0] : k[3]], k - k[0]) for n, k in ((n, keyed.offsets()[3 * i : 3 * i + 4]) for i, n in enumerate(tables))})):
        for name in tables:
            torch.testing.assert_close(got[name].cpu(), want[name], rtol=1e-5, atol=1e-6)

    torchrec = types.ModuleType("torchrec")
    torchrec.KeyedTensor = lambda keys, dims, values: (keys, dims, values)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchrec", torchrec)
    keys, dims, joined = bags(keyed)
    assert keys == ["a", "b", "c"] and dims == [8, 16, 8]
    torch.testing.assert_close(joined.cpu(), torch.cat([want[n] for n in keys], 1), rtol=1e-5, atol=1e-6)
    with pytest.raises(tensorcache.ArgumentError, match="must have c"):
        bags(Jagged(["a", "b"], values, lengths[:6]))
    with pytest.raises(tensorcache.ArgumentError, match="mode .'max'."):
        CachedEmbeddingBagCollection(tables, "max")
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
