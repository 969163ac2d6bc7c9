"""Reads with NumPy row numbers: values, shapes, kinds of ids, out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorcache
from conftest import on_host

Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("codec", ["auto", "none", "ibp4"])
@pytest.mark.parametrize("of", [np.int32, np.int64])
def test_read_equals_source(device: str, rows: Array, ids: Array, codec: str, of: Any) -> None:
    with tensorcache.open(rows, "25%", device=device, codec=codec) as x:
        got = x.gather(ids.astype(of))
        assert isinstance(got, np.ndarray) and got.dtype == rows.dtype
        np.testing.assert_array_equal(got.view(np.uint32), rows[ids].view(np.uint32))
        stats = x.stats()
        assert stats["hits"] + stats["misses"] == len(ids)
        assert 0 < stats["rows_cached"] < len(rows)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 4), (2, 0, 5), (2, 3, 4)])
def test_ids_of_any_shape(device: str, rows: Array, shape: tuple[int, ...]) -> None:
    ids = np.random.default_rng(1).integers(0, len(rows), shape)
    with tensorcache.open(rows, "50%", device=device) as x:
        got = x.gather(np.asarray(ids))
        assert got.shape == (*shape, 32)
        np.testing.assert_array_equal(got, rows[ids])


@pytest.mark.parametrize(
    "ids", [5, slice(10, 20), slice(-5, None), slice(None, None, -700), slice(4990, 9999), [3, 1, 3], [], np.uint8([1, 2]), np.int16([[4], [5]]), np.int64(9)]
)
def test_kinds_of_ids(device: str, rows: Array, ids: Any) -> None:
    with tensorcache.open(rows, "50%", device=device) as x:
        np.testing.assert_array_equal(on_host(x[ids]), rows[ids if not isinstance(ids, list) else np.array(ids, np.int64)])


ROWS, ONE, FEW = np.array([3, 4999, 3]), np.array([-1, 7]), np.array([[-5000, 5]])


@pytest.mark.parametrize(
    "index",
    [
        -1, [-1, 2], np.int8([-3, 1]), np.array(-2, np.int32), FEW, ..., (), (...,), (ROWS,), (ROWS, slice(None)), (ROWS, ...), (ROWS, 3), (ROWS, -1), (ROWS, slice(2, 5)), (FEW, 3), (ONE, None),
        (..., 3), (..., ROWS, 3), (slice(2, 9), slice(1, 3)), (3, 4), (slice(None), None, 2), (np.arange(5000) % 9 == 0, slice(0, 2)), (np.arange(5000) % 9 == 0, ..., 0),
    ],
    ids=str,
)  # fmt: skip
def test_indices_are_those_of_arrays(rows: Array, index: Any) -> None:
    with tensorcache.open(rows, "50%", device="host") as x:
        np.testing.assert_array_equal(on_host(x[index]), rows[index])


def test_negative_numbers_count_from_the_end(rows: Array) -> None:
    """In each call that takes row numbers."""
    with tensorcache.open(rows, "50%", device="host", codec="none", train=np.arange(4000, 5000)) as x:
        np.testing.assert_array_equal(x.gather(np.array([-1]), out=np.empty((1, 32), np.float32)), rows[[-1]])
        assert [entry["row"] for entry in x.explain([-1, 3])] == [4999, 3] and x.explain(-1)[0]["cached"]
        x.prefetch([-1])
        x.invalidate([-1])
        assert not x.explain(-1)[0]["cached"]
        x.update([-1, 1], rows[[0, 0]])
        np.testing.assert_array_equal(x.gather(np.array([4999, 1])), rows[[0, 0]])
        with pytest.raises(tensorcache.RowError, match="-1"):
            x.index_select(0, [-1])  # torch's own refuses them, as do its embeddings


def test_booleans_select_rows(rows: Array) -> None:
    mask = np.arange(len(rows)) % 7 == 0
    with tensorcache.open(rows, "50%", device="host") as x:
        np.testing.assert_array_equal(x[mask], rows[mask])
        with pytest.raises(tensorcache.ArgumentError, match=r"booleans of shape \(3,\)"):
            x[np.array([True, False, True])]


@pytest.mark.parametrize("shape", [(100,), (100, 1), (50, 3, 4), (20, 2, 3, 4)])
@pytest.mark.parametrize("of", ["float16", "float32", "float64", "int8", "int64", "uint16", "bool"])
def test_shapes_and_dtypes(shape: tuple[int, ...], of: str) -> None:
    source = (np.random.default_rng(3).random(shape) * 100).astype(of)
    with tensorcache.open(source, "1MB", device="host") as x:
        assert tuple(x.shape) == shape and len(x) == shape[0] and x.ndim == len(shape)
        assert x.nbytes == source.nbytes and x.numel() == source.size and x.size(0) == shape[0]
        got = x.gather(np.array([3, 0, 3]))
        assert got.dtype == source.dtype
        np.testing.assert_array_equal(got, source[[3, 0, 3]])


def test_out(device: str, rows: Array, ids: Array) -> None:
    with tensorcache.open(rows, "25%", device=device) as x:
        out = np.empty((len(ids), 32), np.float32)
        assert x.gather(ids, out=out) is out
        np.testing.assert_array_equal(out, rows[ids])
        wide = np.full((len(ids), 40), np.float32(-1))
        x.gather(ids, out=wide[:, 4:36])
        np.testing.assert_array_equal(wide[:, 4:36], rows[ids])
        assert (wide[:, :4] == -1).all() and (wide[:, 36:] == -1).all()
        box = np.empty((30, 100, 32), np.float32)
        x.gather(ids.reshape(30, 100), out=box)
        np.testing.assert_array_equal(box.reshape(-1, 32), rows[ids])
        np.testing.assert_array_equal(x.index_select(0, ids, out=out), rows[ids])


def test_out_is_checked(rows: Array) -> None:
    ids = np.arange(10)
    with tensorcache.open(rows, "25%", device="host") as x:
        for out, error, text in [
            (np.empty((9, 32), np.float32), tensorcache.ArgumentError, r"shape \(9, 32\)"),
            (np.empty((10, 32), np.float64), TypeError, "float64"),
            (np.empty((10, 64), np.float32)[:, ::2], tensorcache.ArgumentError, "contiguous rows"),
            (np.broadcast_to(np.empty(32, np.float32), (10, 32)), tensorcache.ArgumentError, "read-only"),
            (np.lib.stride_tricks.as_strided(np.empty(400, np.float32), (10, 32), (4, 4)), tensorcache.ArgumentError, "overlap"),
            (np.empty((10, 32), np.float32)[::-1], tensorcache.ArgumentError, "overlap"),
            ([0] * 320, TypeError, "list"),
        ]:
            with pytest.raises(error, match=text):
                x.gather(ids, out=out)
        with pytest.raises(tensorcache.ArgumentError, match="one distance"):
            x.gather(ids.reshape(5, 2), out=np.empty((5, 3, 32), np.float32)[:, :2])


def test_views_are_copied_right(rows: Array, caplog: Any) -> None:
    for source in (rows[::3], rows[:, ::2], np.asfortranarray(rows), rows.astype(">f4")):
        with tensorcache.open(source, "25%", device="host") as x:
            np.testing.assert_array_equal(x.gather(np.arange(100)), source[:100])
    assert "copied once more" in caplog.text


def test_iteration_and_training(device: str, rows: Array, ids: Array, monkeypatch: Any) -> None:
    with tensorcache.open(rows[:20], "50%", device=device) as x:
        np.testing.assert_array_equal(np.stack([on_host(row) for row in x]), rows[:20])
        monkeypatch.setattr(tensorcache.table, "_BLOCK", 7 * 32 * 4)
        blocks, gather = [], tensorcache.Table.gather
        monkeypatch.setattr(tensorcache.Table, "gather", lambda self, ids: blocks.append(ids) or gather(self, ids))
        np.testing.assert_array_equal(np.stack([on_host(row) for row in x]), rows[:20])
        assert blocks == [slice(0, 7), slice(7, 14), slice(14, 21)]
        monkeypatch.undo()
    hot = np.unique(ids)[:200]
    for train in (hot, list(hot), [hot, hot.reshape(-1, 1)], (batch for batch in (hot.astype(np.int32),))):
        with tensorcache.open(rows, "10%", device=device, train=train, codec="none") as x:
            assert all(entry["cached"] for entry in x.explain(hot[:50]))
            x.gather(hot)
            assert x.stats()["hits"] == len(hot)


@pytest.mark.parametrize("shape", [(3001,), (3, 4, 5)])
def test_whole_array(device: str, shape: tuple[int, ...], monkeypatch: Any) -> None:
    """NumPy takes all rows by a few reads, not by one for each row."""
    source = np.random.default_rng(3).random(shape, np.float32)
    with tensorcache.open(source, "1MB", device=device) as x:
        monkeypatch.setattr(tensorcache.table, "_PIECE", 1000)
        monkeypatch.setattr(tensorcache.Table, "__getitem__", lambda *_: pytest.fail("rows are read one by one"))
        got = np.asarray(x)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, source)
        np.testing.assert_array_equal(np.array(x, np.float64), source.astype(np.float64))
        np.testing.assert_array_equal(np.take(x, [2, 1], axis=0), source[[2, 1]])
        with pytest.raises(tensorcache.ArgumentError, match=r"copy \(False\)"):
            x.__array__(copy=False)


def test_several_tables_share_a_cache(device: str, rows: Array) -> None:
    other = np.arange(3000, dtype=np.int64).reshape(1000, 3)
    train = {"paper": np.arange(100), "author": [np.arange(50)]}
    with tensorcache.open({"paper": rows, "author": other}, "200kB", device=device, train=train) as cache:
        assert list(cache) == ["paper", "author"] and len(cache) == 2 and "paper" in cache and "x" not in cache
        np.testing.assert_array_equal(cache["paper"].gather(np.arange(9)), rows[:9])
        np.testing.assert_array_equal(cache["author"].gather(np.arange(9)), other[:9])
        stats = cache.stats()
        assert stats["hits"] + stats["misses"] == 18
        assert cache["paper"] is cache["paper"]
        assert "paper" in repr(cache)
        with pytest.raises(KeyError):
            cache["venue"]


def test_repr_and_knowing(device: str, rows: Array, ids: Array) -> None:
    with tensorcache.open(rows, "10%", device=device, codec="ibp4") as x:
        x.gather(ids)
        stats = x.stats()
        for key in ("hits", "misses", "rows_cached", "codec", "compression_ratio", "misses_by_reason"):
            assert key in stats
        assert stats["codec"] == "ibp4" and sum(stats["misses_by_reason"].values()) == stats["misses"]
        text = repr(x)
        assert "5000, 32" in text and "ibp4" in text and "hits" in text
        assert x._repr_html_().startswith("<table><caption>tensorcache.Table</caption><tr><td>&#x27;features&#x27; [5000, 32] float32 (640 kB)</td><td>on ")
        assert x.cache._repr_html_().count("<tr>") == 1 and " rows cached (" in x.cache._repr_html_()
        entries = x.explain([0, 1, 4999])
        assert [entry["row"] for entry in entries] == [0, 1, 4999]
        assert all("cached" in entry for entry in entries)
        x.prefetch(ids)
        x.invalidate([entry["row"] for entry in entries])
        assert not any(entry["cached"] for entry in x.explain([0, 1, 4999]))
    assert "closed" in repr(x) and "closed" in repr(x.cache) and "<td>closed</td>" in x._repr_html_()


def test_update_and_append(device: str, rows: Array, ids: Array) -> None:
    truth = rows.copy()
    with tensorcache.open(rows, "25%", device=device, capacity=5100) as x:
        new = np.random.default_rng(4).standard_normal((200, 32)).astype(np.float32)
        x.update(ids[:200], new)
        for i, row in zip(ids[:200], new):
            truth[i] = row
        np.testing.assert_array_equal(x.gather(ids), truth[ids])
        with pytest.raises(tensorcache.RowError, match="row number \\(5050\\) must be at most 5000, the row after the last one of table"):
            x.update(np.array([3, 5050]), new[:2])
        assert len(x) == 5000
        np.testing.assert_array_equal(x.gather(np.array([3])), truth[[3]])
        x.update(np.array([5001, 5000]), new[:2])
        assert len(x) == 5002 and x.shape[0] == 5002
        np.testing.assert_array_equal(x.gather(np.array([5001, 5000])), new[:2])
        with pytest.raises(tensorcache.RowError, match="5100"):
            x.update([5100], new[:1])
        with pytest.raises(TypeError, match="float64"):
            x.update([0], new[:1].astype(np.float64))
        with pytest.raises(tensorcache.ArgumentError, match=r"shape \(2, 32\)"):
            x.update([0], new[:2])


def test_resident(rows: Array, ids: Array) -> None:
    truth = rows.copy()
    with tensorcache.open({"a": rows, "b": rows}, "110%", device="host", codec="ibp4", resident={"a": 64, "b": True}) as cache:
        for x in cache.values():
            np.testing.assert_array_equal(x.gather(ids), truth[ids])
        x = cache["a"]
        truth[7] = np.arange(32)
        x.update([7], truth[7:8])
        np.testing.assert_array_equal(x.gather(ids), truth[ids])
        stats = x.stats()
        assert stats["misses"] == 0 and stats["resident"]["target_bytes"] == 64 and stats["resident"]["overflow_rows"] > 0
        assert x.explain([3])[0]["tier"] == "resident"
    with tensorcache.open({"a": rows, "b": rows}, "75%", device="host", codec="ibp4", resident={"a": True}) as cache:
        np.testing.assert_array_equal(cache["b"].gather(ids), rows[ids])
        assert "resident" not in cache["b"].stats()
        with pytest.raises(tensorcache.ArgumentError, match="table b must be resident"):
            cache["b"].retarget()


def test_retarget(rows: Array, ids: Array) -> None:
    options = tensorcache.Resident(64, max_target=112, max_overflow=0.0)
    with tensorcache.open(rows, "110%", device="host", codec="ibp4", resident=options) as x:
        stats = x.stats()["resident"]
        assert stats["target_bytes"] == 64 and stats["max_target_bytes"] == 112 and stats["past_max_overflow"]
        x.retarget(96)
        assert x.stats()["resident"]["target_bytes"] == 96
        np.testing.assert_array_equal(x.gather(ids), rows[ids])
        for target, error, text in [
            (128, tensorcache.ArgumentError, r"target \(128 B\) must be at most 112 B"),
            (24, tensorcache.ArgumentError, r"target \(24\) must be a multiple of 16"),
            ("most", tensorcache.ArgumentError, r"target \('most'\) must be 'auto'"),
            (1.5, TypeError, r"target \(1.5\) must be an int"),
        ]:
            with pytest.raises(error, match=text):
                x.retarget(target)  # type: ignore[arg-type]
    with tensorcache.open(rows, "110%", device="host", codec="ibp4", resident=tensorcache.Resident(64, max_target=128, buddy="auto")) as x:
        assert x.stats()["resident"]["buddy_bytes"] > x.stats()["resident"]["peer_bytes"] == 0
        x.retarget()
        stats = x.stats()["resident"]
        assert stats["target_bytes"] > 64 and not stats["past_max_overflow"]
        np.testing.assert_array_equal(x.gather(ids), rows[ids])


def test_refresh_follows_use(device: str, rows: Array) -> None:
    late = np.arange(4000, 4400)
    with tensorcache.open(rows, "10%", device=device, codec="none", train=np.arange(400), refresh={"interval": 0, "accesses": 1.0, "churn": 1.0}) as x:
        for _ in range(30):
            x.gather(late)
        before = x.stats()["hits"]
        for _ in range(4):
            x.refresh()
        x.gather(late)
        assert x.stats()["hits"] - before > 300


def test_bfloat16_without_ml_dtypes(device: str) -> None:
    bits = np.random.default_rng(5).integers(0x3F00, 0x4100, (1000, 64)).astype(np.uint16)
    with tensorcache.open(bits, "25%", device=device, dtype="bfloat16") as x:
        got = x.gather(np.arange(500))
        np.testing.assert_array_equal(got.view(np.uint16), bits[:500])
    with pytest.raises(tensorcache.ArgumentError, match="2 bytes"):
        tensorcache.open(bits, "25%", dtype="float32")


def test_length_after_an_append_through_another_object(rows: Array) -> None:
    """A cache makes an object of a table anew once nobody holds the last one. It has the rows that were appended meanwhile."""
    with tensorcache.open({"a": rows}, "25%", device="host", capacity=5100) as cache:
        cache["a"].update([5000], rows[:1])
        assert len(cache["a"]) == 5001
        np.testing.assert_array_equal(cache["a"].gather(5000), rows[0])


def test_training_from_one_buffer(rows: Array) -> None:
    """An iterator may yield the same array with other row numbers."""
    hot = [np.arange(first, first + 50) for first in (4000, 3000, 2000)]
    buffer = np.empty(50, np.int64)

    def batches() -> Any:
        for ids in hot:
            buffer[:] = ids
            yield buffer

    with tensorcache.open(rows, "5%", device="host", codec="none", train=batches()) as x:
        assert all(entry["cached"] for ids in hot for entry in x.explain(ids))


def test_numbers_of_numpy(rows: Array) -> None:
    with tensorcache.open(rows, np.int64(1 << 20), device="host", capacity=np.int32(5100), workers=np.int64(1), seed=np.uint64(3)) as x:
        np.testing.assert_array_equal(x.gather([3]), rows[[3]])


def test_out_over_ids(device: str) -> None:
    """Row numbers may lie in the memory that receives the rows."""
    table = np.random.default_rng(1).integers(1 << 40, 1 << 62, (5000, 1))
    ids = np.random.default_rng(2).integers(0, 5000, 4000).astype(np.int32)
    with tensorcache.open(table, "25%", device=device) as x:
        out = np.empty((4000, 1), np.int64)
        inside = out.view(np.int32).reshape(-1)[:4000]
        inside[:] = ids
        np.testing.assert_array_equal(x.gather(inside, out=out), table[ids])
