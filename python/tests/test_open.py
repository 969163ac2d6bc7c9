"""Opening: progress, Ctrl-C, logs, snapshots, adopted memory, what is freed."""

from __future__ import annotations

import gc
import io
import logging
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache
from tensorcache._checks import format_size, parse_size

Array = np.ndarray[Any, Any]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_sizes() -> None:
    for text, size in {"10GB": 10**10, "10 GiB": 10 * 2**30, "1.5k": 1500, "25%": 250, "100": 100, ".5MB": 500000}.items():
        assert parse_size(text, 1000) == size
    assert parse_size(5e9, 0) == 5 * 10**9 and parse_size(7, 0) == 7
    for bad in ("", "GB", "1e3", "10 parsecs", "-1GB", "2^3"):
        with pytest.raises(tensorcache.ArgumentError):
            parse_size(bad, 1000)
    assert [format_size(n) for n in (999, 1000, 1.54e9, 15.4e12, 99950)] == ["999 B", "1 kB", "1.54 GB", "15.4 TB", "100 kB"]


def test_progress_is_told(tmp_path: Path) -> None:
    path = tmp_path / "wide.npy"
    np.save(path, np.random.default_rng(1).standard_normal((150_000, 64)).astype(np.float32))
    told: list[tuple[int, int, int]] = []
    with tensorcache.open(path, "1%", device="host", progress=lambda *state: told.append(state)):
        pass
    assert told and told[-1][2] == 150_000 and all(0 <= done <= of for _, done, of in told)


def test_exception_in_progress_cancels(rows: Array) -> None:
    big = np.random.default_rng(1).standard_normal((500_000, 64)).astype(np.float32)

    def fail(*_: int) -> None:
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        tensorcache.open(big, "10%", device="host", progress=fail)
    with tensorcache.open(rows, "25%", device="host") as x:
        np.testing.assert_array_equal(x[np.arange(5)], rows[:5])


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, tensorcache
table = np.random.default_rng(1).standard_normal((1_000_000, 64)).astype(np.float32)
tensorcache.open(table[:10], "1MB", device="host").close()
timer = threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT))
timer.start()
began = time.monotonic()
try:
    tensorcache.open(table, "50%", device="host", codec="ibp8", workers=1)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began < 60)
timer.join()
with tensorcache.open(table[:1000], "50%", device="host") as x:
    print("serves", np.array_equal(x[np.arange(1000)], table[:1000]))
"""


def test_ctrl_c_while_loading(python: Any) -> None:
    done = python(INTERRUPTED)
    assert done.stdout.splitlines() == ["interrupted True", "serves True"], done.stderr


def test_signal_handlers_stay(python: Any) -> None:
    program = """
import faulthandler, os, signal, time
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append("term"))
faulthandler.enable()
import numpy as np, tensorcache
x = tensorcache.open(np.zeros((100, 8), np.float32), "1MB", device="host")
os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.05)
try:
    os.kill(os.getpid(), signal.SIGINT); time.sleep(5)
except KeyboardInterrupt:
    seen.append("int")
print(seen, x[3].sum(), flush=True)
faulthandler._sigsegv()
"""
    done = python(program)
    assert done.stdout == "['term', 'int'] 0.0\n", done.stderr
    assert done.returncode == -signal.SIGSEGV and "Fatal Python error: Segmentation fault" in done.stderr, done.stderr


def test_bar_on_request(rows: Array, capfd: Any) -> None:
    big = np.random.default_rng(1).standard_normal((200_000, 64)).astype(np.float32)
    tensorcache.open(big, "1%", device="host", progress=True).close()
    assert "filling the cache" in capfd.readouterr().err
    tensorcache.open(rows, "25%", device="host", progress=False).close()
    assert capfd.readouterr().err == ""


def test_logs_arrive(rows: Array, caplog: Any) -> None:
    with caplog.at_level(logging.DEBUG, "tensorcache"):
        tensorcache.open(rows, "25%", device="host", codec="none", name="logged").close()
    assert any(record.name == "tensorcache" for record in caplog.records), caplog.text


def test_snapshot_and_restore(device: str, rows: Array, tmp_path: Path) -> None:
    hot = np.arange(3000, 3200)
    with tensorcache.open(rows, "10%", device=device, train=hot, codec="none") as x:
        x.cache.snapshot(tmp_path / "cached")
    with tensorcache.open(rows, "10%", device=device, codec="none", restore=tmp_path / "cached") as x:
        x.gather(hot)
        assert x.stats()["hits"] == len(hot)
    (tmp_path / "cached").write_bytes(b"damaged")
    with tensorcache.open(rows, "10%", device=device, restore=tmp_path / "cached") as x:
        np.testing.assert_array_equal(x.gather(hot), rows[hot])
    with tensorcache.open(rows, "10%", device="host") as x, pytest.raises(tensorcache.FileError):
        x.cache.snapshot(tmp_path / "missing" / "file")


def test_adopt(device: str, rows: Array, ids: Array) -> None:
    memory = mmap.mmap(-1, rows.nbytes)
    table = np.frombuffer(memory, np.float32).reshape(rows.shape)
    table[:] = rows
    with tensorcache.open(table, "25%", device=device, adopt=True, codec="none") as x:
        np.testing.assert_array_equal(x.gather(ids), rows[ids])


_SHRUNK = """
import os, sys, numpy as np, tensorcache
path = sys.argv[1]
np.save(path, np.zeros((50_000, 64), "f4"))
rows = np.load(path, mmap_mode="r")
os.truncate(path, 10 << 10)
try:
    tensorcache.open({"x": rows[1:], "y": np.zeros((10, 4), "f4")}, gpu_memory="1MB", device="host")
except tensorcache.FileError as e:
    print(e)
"""


def test_mapped_file_that_shrinks(python: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.npy"
    done = python(_SHRUNK, str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cache: table x: ") and "memory cannot be read" in done.stdout and done.stdout.endswith(f"source ({path})\n")


def test_packed_and_budget(device: str, rows: Array, ids: Array) -> None:
    with tensorcache.open(rows, "10%", device=device, host_tier="packed", codec="rank") as x:
        np.testing.assert_array_equal(x.gather(ids), rows[ids])
        few = x.stats()["rows_cached"]
        x.cache.set_gpu_memory("5%")
        np.testing.assert_array_equal(x.gather(ids), rows[ids])
        assert x.stats()["rows_cached"] < few


def test_memory_is_freed_with_the_last_reference(rows: Array) -> None:
    big = np.random.default_rng(1).standard_normal((100_000, 64)).astype(np.float32)
    tensorcache.open(big, "50%", device="host")
    gc.collect()
    before = resident()
    for _ in range(5):
        x = tensorcache.open(big, "50%", device="host")
        x[np.arange(100)]
        del x
    gc.collect()
    assert resident() - before < big.nbytes


@pytest.mark.parametrize("times", [200])
def test_opens_and_closes_leave_nothing(rows: Array, times: int) -> None:
    def cycle() -> None:
        with tensorcache.open(rows[:200], "50%", device="host", codec="none") as x:
            x.gather(np.arange(100))

    for _ in range(20):
        cycle()
    threads, before = threads_of_process(), resident()
    for _ in range(times):
        cycle()
    gc.collect()
    assert threads_of_process() <= threads + 4
    assert resident() - before < 32 << 20


def threads_of_process() -> int:
    return len(os.listdir("/proc/self/task"))


def test_eight_threads(device: str, rows: Array, ids: Array) -> None:
    wrong: list[object] = []
    with tensorcache.open(rows, "25%", device=device) as x:
        until = time.monotonic() + 1

        def read(seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                while time.monotonic() < until:
                    some = rng.choice(ids, 500)
                    if not np.array_equal(x.gather(some), rows[some]):
                        wrong.append("other rows")
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_exit_without_close() -> None:
    program = "import numpy as np, tensorcache; x = tensorcache.open(np.zeros((100, 8), np.float32), '1MB', device='host'); print(x[1].shape)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(8,)\n", "")


def test_closed_stderr(rows: Array, monkeypatch: Any) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    tensorcache.open(rows, "25%", device="host").close()


def test_nothing_is_left_of_an_opening_that_cannot_report(rows: Array, monkeypatch: Any) -> None:
    """If the last step of opening fails, the cache that was opened is closed."""
    from tensorcache import _opening

    def fail() -> None:
        raise BrokenPipeError

    closed: list[Any] = []
    library = _opening.library()

    class Spy:
        def __getattr__(self, name: str) -> Any:
            return getattr(library, name)

        def tc_close(self, cache: Any) -> int:
            closed.append(cache.value)
            return int(library.tc_close(cache))

    monkeypatch.setattr(_opening, "library", Spy)
    monkeypatch.setattr(_opening, "forward_logs", fail)
    with pytest.raises(BrokenPipeError):
        tensorcache.open(rows, "25%", device="host")
    assert len(closed) == 1 and closed[0]
