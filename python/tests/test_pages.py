"""Tables of pages: a part of the rows in memory, the others in a directory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import on_host
from pages_writer import write_pages

import tensorcache

Array = np.ndarray[Any, Any]

MEMORY = "400KB"  # with the index a sixth of the rows


@pytest.fixture
def directory(rows: Array, tmp_path: Path) -> Path:
    return write_pages(tmp_path / "features.tc", rows)


def opened(directory: Path, **options: Any) -> Any:
    return tensorcache.open(directory, "60KB", host_memory=options.pop("host_memory", MEMORY), **options)


def tiers(x: Any) -> Any:
    return x.stats()["tiers"]


def test_rows(device: str, directory: Path, rows: Array, ids: Array) -> None:
    with opened(directory, device=device) as x:
        assert x.name == "features" and tuple(x.shape) == rows.shape
        np.testing.assert_array_equal(on_host(x.gather(ids)), rows[ids])
        np.testing.assert_array_equal(on_host(x), rows)
        found = tiers(x)
        assert 0 < found["host"]["rows"] < len(rows) and found["cold"]["absent_rows"] > 0 and found["cold"]["pages_read"] > 0
        assert {entry["tier"] for entry in x.explain(np.arange(len(rows)))} >= {"host", "pages"}


def test_prefetch(device: str, directory: Path, rows: Array) -> None:
    with opened(directory, device=device) as x:
        wanted = np.array([entry["row"] for entry in x.explain(np.arange(len(rows))) if entry["tier"] == "pages"][:50])
        x.prefetch(wanted)
        for _ in range(6000):
            if tiers(x)["prefetch"]["rows"] == len(wanted) and all(entry["tier"] == "host" for entry in x.explain(wanted)):
                break
            time.sleep(0.01)
        before = tiers(x)["cold"]["absent_rows"]
        np.testing.assert_array_equal(on_host(x.gather(wanted)), rows[wanted])
        found = tiers(x)
        assert found["prefetch"]["rows"] == len(wanted) and found["cold"]["absent_rows"] == before
        with pytest.raises(tensorcache.RowError):
            x.prefetch([len(rows)])


def prefetched(x: Any, n: int) -> int:
    """Waits until n rows have been prefetched, and returns how many were."""
    for _ in range(6000):
        if tiers(x)["prefetch"]["rows"] >= n:
            break
        time.sleep(0.01)
    return int(tiers(x)["prefetch"]["rows"])


def test_loader_reads_ahead(device: str, directory: Path, rows: Array) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    with opened(directory, device=device) as x:
        absent = [entry["row"] for entry in x.explain(np.arange(len(rows))) if entry["tier"] == "pages"]
        assert len(absent) >= 100
        for ahead, want, mine in ((0, 0, absent[:50]), (None, 30, absent[50:100])):  # the first, and two ahead
            batches = [SimpleNamespace(n_id=torch.tensor(mine[i : i + 10])) for i in range(0, 50, 10)]
            loader = iter(tensorcache.pyg.attach(batches, x, ahead=ahead))
            first = next(loader)
            assert prefetched(x, want) == want
            found = [first, *loader]
            assert len(found) == 5
            for batch in found:
                np.testing.assert_array_equal(batch.x.cpu(), rows[batch.n_id])
        with pytest.raises(tensorcache.ArgumentError, match=r"ahead \(-1\)"):
            tensorcache.pyg.attach(batches, x, ahead=-1)


def test_updates_are_there_again(device: str, directory: Path, rows: Array) -> None:
    truth = rows.copy()
    durable = tensorcache.Pages(durable=True)
    for round_ in range(3):
        with opened(directory, device=device, pages=durable if round_ % 2 == 0 else None) as x:
            np.testing.assert_array_equal(on_host(x), truth)
            changed = np.random.default_rng(round_).integers(0, len(rows), 200)
            changed = np.unique(changed)
            truth[changed] = -truth[changed] - round_
            x.update(changed, truth[changed])
            np.testing.assert_array_equal(on_host(x.gather(changed)), truth[changed])
            if round_ == 1:
                x.merge_updates()
                np.testing.assert_array_equal(on_host(x), truth)
    assert (directory / "g2").is_dir() and not (directory / "g1").is_dir()
    with opened(directory, device=device) as x:
        np.testing.assert_array_equal(on_host(x), truth)


def test_killed_after_a_durable_update(directory: Path, rows: Array) -> None:
    program = """if True:
        import os, signal, sys
        import numpy as np, tensorcache
        x = tensorcache.open(sys.argv[1], "60KB", host_memory="400KB", device="host", pages=tensorcache.Pages(durable=True))
        x.update(np.arange(100), np.zeros((100, 32), np.float32))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert subprocess.run([sys.executable, "-c", program, str(directory)], timeout=300).returncode < 0
    truth = rows.copy()
    truth[:100] = 0
    with opened(directory, device="host") as x:
        np.testing.assert_array_equal(on_host(x), truth)


def test_log_elsewhere(directory: Path, rows: Array, tmp_path: Path) -> None:
    more = tensorcache.Pages(log=tmp_path / "log")
    with opened(directory, device="host", pages={"features": more}) as x:
        x.update([5], np.ones((1, 32), np.float32))
    assert (tmp_path / "log").is_dir() and not (directory / "delta").exists()
    with opened(directory, device="host", pages=more) as x:
        assert on_host(x.gather([5])).all()
    with opened(directory, device="host") as x:
        np.testing.assert_array_equal(on_host(x.gather([5])), rows[[5]])


def page_file(directory: Path) -> Path:
    return next(directory.glob("g*/pages-00000"))


def checked(x: Any, ids: Any) -> Array:
    """Returns rows, or raises what was wrong with them: reads on a GPU are asynchronous, and give zeros until then."""
    got = on_host(x.gather(ids))
    x.cache.check()
    return got


def test_damaged_page(device: str, directory: Path, rows: Array) -> None:
    path = page_file(directory)
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[len(broken) // 3] ^= 1
    path.write_bytes(broken)
    with opened(directory, device=device) as x:
        lost = []
        for i in range(len(rows)):
            try:
                np.testing.assert_array_equal(checked(x, [i]), rows[[i]])
            except tensorcache.FileError as e:
                assert "page " in str(e)
                lost.append(i)
        assert 0 < len(lost) < len(rows) // 2
        store = tiers(x)["cold"]["stores"][0]
        assert store["failed_pages"] > 0 and "corrupt page" in store["fault"] and "page " in store["fault"]
        path.write_bytes(whole)
        np.testing.assert_array_equal(checked(x, lost), rows[lost])


def test_errors_of_files(directory: Path, rows: Array) -> None:
    """What is wrong with files is a FileError, and no ValueError, as those of arguments are."""
    path = page_file(directory)
    whole = path.read_bytes()
    path.write_bytes(b"")
    with pytest.raises(tensorcache.FileError, match="none of .* rows could be read: .*page "):
        opened(directory, device="host")
    path.unlink()
    with pytest.raises(tensorcache.FileError, match="none of .* rows could be read: .*page "):
        opened(directory, device="host")
    path.write_bytes(whole)
    with opened(directory, device="host") as x:
        x.update([3], rows[:1])
    segment = next(path for path in (directory / "delta").iterdir() if path.stat().st_size > 100)
    logged = segment.read_bytes()
    segment.write_bytes(b"x" * 20 + logged[20:])
    with pytest.raises(tensorcache.FileError, match="delta"):
        opened(directory, device="host")


def test_host_memory_is_said(directory: Path) -> None:
    with opened(directory, device="host") as x:
        taken = x.stats()["host_taken_bytes"]
        assert taken > tiers(x)["host"]["memory"] and "of host memory>" in repr(x)


def test_bad_arguments(directory: Path, rows: Array) -> None:
    for source, more, error, text in (
        (rows, tensorcache.Pages(durable=True), tensorcache.ArgumentError, "pages must not be given for table features, which is in memory"),
        (directory, tensorcache.Pages(durable=1), TypeError, "durable"),  # type: ignore[arg-type]
        (directory, tensorcache.Pages(cold="/tmp"), tensorcache.ArgumentError, "must be the address of a cluster"),
        (directory, tensorcache.Pages(cold_cache="/tmp/x"), tensorcache.ArgumentError, "must be of a table in a cluster"),
        (directory, True, TypeError, "pages"),
        ("redis://127.0.0.1:1/features", None, tensorcache.Error, "127.0.0.1:1"),
        ("redis://user:secret@127.0.0.1/features", None, tensorcache.Error, "must not have user or password"),
    ):
        with pytest.raises(error, match=text) as e:
            tensorcache.open(source, "60KB", device="host", host_memory=MEMORY, pages=more)
        assert "secret" not in str(e.value)
    with pytest.raises(tensorcache.ArgumentError, match="host memory .* must be at least"):
        opened(directory, device="host", host_memory="10KB")
