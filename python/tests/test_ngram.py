"""N-gram tables: hashes, rows and values against references in NumPy, prefetch, and the place of an engine's embedding."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from ngram_stand_in import Model, StandIn  # noqa: E402
from tensorcache.ngram import NgramEmbedding, NgramHash, NgramTable, RowFormat  # noqa: E402

Array = np.ndarray[Any, Any]
GOLDEN = pathlib.Path(__file__).parents[2] / "bench" / "workload" / "testdata" / "ngram_hash.json"


@pytest.fixture
def packed() -> Array:
    """5,000 rows of 64 float8 values and 2 scales: any bytes."""
    return np.random.default_rng(5).integers(0, 256, (5000, 66), np.uint8)


def test_hash_is_that_of_cachebench() -> None:
    """The same numbers as bench/workload's test, which were computed with integers of any length."""
    cases = json.loads(GOLDEN.read_text())
    assert len(cases) >= 3
    for case in cases:
        h = NgramHash(case["orders"], case["heads"], case["layers"], case["rows"], case["seed"])
        assert h.lengths == case["lengths"] and h.tables == len(h.lengths) and h.rows == sum(h.lengths) <= case["rows"]
        tokens = np.array(case["tokens"])
        np.testing.assert_array_equal(h(tokens), case["ids"])
        found = h(torch.from_numpy(tokens).int())
        assert found.dtype == torch.int64 and found.tolist() == case["ids"]


def test_hash_of_sequences() -> None:
    """Each sequence is hashed as it would be alone; the last tokens and a layer are parts of the whole; -1 is what lies before a text."""
    h = NgramHash((3, 1), heads=3, layers=2, rows=10_000, seed=2**64 - 1)
    tokens = np.random.default_rng(1).integers(0, 2**24, (4, 9))
    alone = np.stack([h(row) for row in tokens])
    assert alone.shape == (4, 9, 12)
    for of in (tokens, torch.from_numpy(tokens), tokens.astype(np.uint32)):
        np.testing.assert_array_equal(h(of), alone)
        np.testing.assert_array_equal(h(of, last=2), alone[:, -2:])
        np.testing.assert_array_equal(h(of[:, -3:], last=1), alone[:, -1:])
        np.testing.assert_array_equal(h(of, last=9, layer=1), alone[..., 6:])
        assert h(of, last=0).shape == (4, 0, 12)
    padded = np.concatenate([np.full((4, 2), -1), tokens], axis=1)
    np.testing.assert_array_equal(h(padded)[:, 2:], alone)
    np.testing.assert_array_equal(h(torch.from_numpy(padded))[:, 2:], alone)
    assert (alone >= np.array(h.offsets)).all() and (alone < np.array(h.offsets) + np.array(h.lengths)).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"orders": (0,)}, r"orders .0. must be 1 to 8"),
        ({"orders": (2, 2)}, "none twice"),
        ({"orders": ()}, "at least one"),
        ({"heads": 257}, r"heads .257. must be 1 to 256"),
        ({"rows": 0}, r"rows .0. must be"),
        ({"rows": 600}, "16 tables of 37 rows at most need as many different primes"),
        ({"seed": -1}, "seed"),
    ],
)
def test_hash_bad_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(tensorcache.ArgumentError, match=text):
        NgramHash(**options)


def test_hash_bad_tokens() -> None:
    h = NgramHash(rows=5000)
    for bad in ([1, 2], np.zeros(3), torch.zeros(3), torch.zeros(3, dtype=torch.bool)):
        with pytest.raises(TypeError, match="tokens"):
            h(bad)  # type: ignore[arg-type]
    for arguments in ({"last": 4}, {"last": -1}, {"layer": 1}):
        with pytest.raises(tensorcache.ArgumentError):
            h(np.zeros(3, np.int64), **arguments)
    with pytest.raises(tensorcache.ArgumentError, match="axis"):
        h(torch.tensor(3))


def float8(values: str) -> Array:
    """The 256 values of a float8 type, by its definition."""
    bits = np.arange(256)
    mantissa = 3 if values == "float8_e4m3fn" else 2
    bias = 7 if mantissa == 3 else 15
    exponent, fraction = (bits & 127) >> mantissa, (bits & (2**mantissa - 1)) / 2**mantissa
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if mantissa == 3:
        size[(bits & 127) == 127] = np.nan
    else:
        size[exponent == 31] = np.where(fraction[exponent == 31] == 0, np.inf, np.nan)
    return np.where(bits > 127, -size, size)


@pytest.mark.parametrize("values", ["float8_e4m3fn", "float8_e5m2"])
def test_dequantise_all_values_and_scales(values: str) -> None:
    """Every value with every scale. float64 holds the products exactly; float32 and bfloat16 are those rounded."""
    rows = np.concatenate([np.tile(np.arange(256, dtype=np.uint8), (256, 1)), np.repeat(np.arange(256, dtype=np.uint8)[:, None], 8, 1)], axis=1)
    scales = 2.0 ** (np.arange(256.0) - 127)
    scales[255] = np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        exact = float8(values) * scales[:, None]
        wanted = torch.from_numpy(exact.astype(np.float32))
    row_format = RowFormat(256, values, 32)
    assert row_format.row_bytes == 264
    got = row_format.dequantise(torch.from_numpy(rows), torch.float32)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)
    halves = row_format.dequantise(torch.from_numpy(rows))
    assert halves.dtype == torch.bfloat16
    torch.testing.assert_close(halves, wanted.to(torch.bfloat16), rtol=0, atol=0, equal_nan=True)
    whole = RowFormat(256, values, scale=0.375).dequantise(torch.from_numpy(rows[0, :256]), torch.float32)
    torch.testing.assert_close(whole, torch.from_numpy((float8(values) * 0.375).astype(np.float32)), rtol=0, atol=0, equal_nan=True)
    each = RowFormat(64, values, 32).dequantise(torch.from_numpy(np.array([[0x38] * 64 + [127, 129]], np.uint8)), torch.float32)
    assert each[0, 31] == each[0, 0] and each[0, 32] == 4 * each[0, 0] == each[0, 63]


def test_rows_and_values(device: str, packed: Array, ids: Array) -> None:
    row_format = RowFormat(64, block=32)
    with tensorcache.open(packed, "10%", device=device, train=ids) as x:
        table = NgramTable(x, row_format)
        numbers = ids[:480].reshape(30, 16)
        got = table[numbers]
        assert got.shape == (30, 16, 66) and got.dtype == np.uint8
        np.testing.assert_array_equal(got, packed[numbers])
        on = torch.from_numpy(numbers)
        np.testing.assert_array_equal(table[on].cpu(), packed[numbers])
        values = row_format.dequantise(torch.from_numpy(packed[numbers]))
        for given in (on, numbers):
            torch.testing.assert_close(table.values(given).cpu(), values, rtol=0, atol=0, equal_nan=True)
        ahead = table.prefetch(on)
        np.testing.assert_array_equal(ahead.wait().cpu(), packed[numbers])
        out = torch.zeros((30, 16, 66), dtype=torch.uint8, device=x.device)
        assert table.prefetch(on, out).wait() is out
        np.testing.assert_array_equal(out.cpu(), packed[numbers])
        with pytest.raises(tensorcache.RowError):
            table[torch.tensor([5000])]
        with pytest.raises(TypeError, match="uint8"):
            table.read(on, out.int())
        assert "RowFormat" in repr(table)


@pytest.mark.parametrize("row_format", [RowFormat(64, block=32), RowFormat(64, "float8_e5m2", 32, scale=0.3), RowFormat(66, scale=2.0), RowFormat(44, block=2)], ids=str)
def test_values_are_converted_by_the_read(device: str, packed: Array, ids: Array, row_format: RowFormat) -> None:
    """Values of the kernel that reads are those of ``dequantise``; blocks of 2 values are converted by torch."""
    with tensorcache.open(packed, "10%", device=device, train=ids) as x:
        table = NgramTable(x, row_format)
        on = torch.from_numpy(ids[:480].reshape(30, 16))
        rows = torch.from_numpy(packed[ids[:480].reshape(30, 16)])
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            assert table.converts(dtype) == (row_format.block != 2)
            wanted = row_format.dequantise(rows, dtype)
            got = table.values(on, dtype)
            assert got.dtype == dtype and got.device == x.device
            torch.testing.assert_close(got.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
            out = torch.zeros((30, 16, row_format.elements), dtype=dtype, device=x.device)
            assert table.prefetch_values(on, dtype, out).wait() is out
            torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(table.values(on, torch.float64).cpu(), row_format.dequantise(rows, torch.float64), rtol=0, atol=0, equal_nan=True)
        assert table.values(on[:0]).shape == (0, 16, row_format.elements)
        with pytest.raises(tensorcache.RowError):
            table.values(torch.tensor([5000])).cpu()
            x.cache.check()


def test_bags_of_float8(packed: Array, ids: Array) -> None:
    """Tables of float8 values are added up as float32."""
    source = torch.from_numpy(packed[:, :64] & np.uint8(0x47)).view(torch.float8_e4m3fn)
    with tensorcache.open(source, "10%", device="host") as x:
        on = torch.from_numpy(ids[:480].reshape(48, 10))
        got = x.embedding_bag(on, mode="sum")
        assert got.dtype == torch.float32
        assert torch.equal(got, source.float()[on].sum(1))


def test_float8_tables(packed: Array, ids: Array) -> None:
    """A table of a float8 type is the same bytes."""
    source = torch.from_numpy(packed[:, :64].copy()).view(torch.float8_e5m2)
    with tensorcache.open(source, "10%", device="host") as x:
        table = NgramTable(x, RowFormat(64, "float8_e5m2"))
        on = torch.from_numpy(ids)
        assert torch.equal(table[on], source.view(torch.uint8)[on])
        out = torch.empty((len(ids), 64), dtype=torch.uint8)
        assert torch.equal(table.read(on, out), source.view(torch.uint8)[on])
        torch.testing.assert_close(table.values(on, torch.float32), source[on].float(), rtol=0, atol=0, equal_nan=True)


def test_bad_tables(rows: Array, packed: Array) -> None:
    with tensorcache.open(packed, "10%", device="host") as x:
        with pytest.raises(tensorcache.ArgumentError, match=r"rows of 66 bytes.*264"):
            NgramTable(x, RowFormat(256, block=32))
        with pytest.raises(TypeError, match="ndarray"):
            NgramTable(packed, RowFormat(64, block=32))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="NgramTable"):
            NgramEmbedding(x, 4, 2)  # type: ignore[arg-type]
        with pytest.raises(tensorcache.ArgumentError, match="max_tokens"):
            NgramEmbedding(NgramTable(x, RowFormat(64, block=32)), 0, 2)
    with tensorcache.open(rows, "10%", device="host") as x, pytest.raises(tensorcache.ArgumentError, match="rows of bytes"):
        NgramTable(x, RowFormat(128))
    for options, text in (({"elements": 0}, "elements"), ({"elements": 64, "block": 33}, "block"), ({"elements": 4, "values": "int4"}, "values")):
        with pytest.raises(tensorcache.ArgumentError, match=text):
            RowFormat(**options)  # type: ignore[arg-type]


def test_in_the_place_of_an_engines_embedding(device: str) -> None:
    """Decode and prefill steps of a model give the same bits with either embedding."""
    row_format = RowFormat(64, block=32)
    generator = np.random.default_rng(9)
    source = generator.integers(0, 0x77, (5000, 66), np.uint8)  # no NaN
    source[:, 64:] = generator.integers(120, 130, (5000, 2))
    with tensorcache.open(source, "20%", device=device) as x:
        on = "cuda" if device == "cuda" and torch.cuda.is_available() else "cpu"
        ours = Model(NgramEmbedding(NgramTable(x, row_format), max_tokens=64, heads=8), 512).to(on)
        theirs = Model(StandIn(torch.from_numpy(source).to(on), row_format, 64, 8), 512).to(on)
        text = torch.from_numpy(generator.integers(0, 50, 400)).to(on)
        for step, tokens in enumerate((64, 1, 17, 64)):
            windows = text[step * 80 : step * 80 + tokens + 2].unfold(0, 3, 1)
            assert torch.equal(ours(windows), theirs(windows))
        assert list(ours.ngrams.parameters()) == [] and ours.ngrams.state_dict() == {}
        embedding = ours.ngrams.half()
        assert torch.equal(ours(windows), theirs(windows)) and "max_tokens=64" in repr(embedding)
        with pytest.raises(tensorcache.ArgumentError, match="at most max_tokens"):
            embedding.start_prefetch(None, torch.zeros((65, 8), dtype=torch.int64, device=on))
        with pytest.raises(tensorcache.ArgumentError, match=r"\[tokens, 8\]"):
            embedding.start_prefetch(None, torch.zeros((6, 7), dtype=torch.int64, device=on))
        with pytest.raises(tensorcache.ArgumentError, match="512"):
            embedding.finalize_prefetch(torch.zeros((6, 511), device=on))
