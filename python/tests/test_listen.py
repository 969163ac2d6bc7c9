"""``tensorcache.open(..., listen="unix:PATH")``: a Python process owns the cache of others."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from conftest import on_host

import tensorcache

# Opens the table after a second, listens, and does what stdin says until it ends.
OWNER = """
import os, signal, sys, time
import numpy as np, tensorcache
if __name__ == "__main__":
    file, device, address = sys.argv[1:]
    time.sleep(0.3)
    x = tensorcache.open(file, "256KiB", device=device, listen=address)
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        if word == "row 3":
            row = x[np.array([3])]
            print((row.cpu().numpy() if hasattr(row, "cpu") else row).tolist()[0][0], flush=True)
        elif word == "fork":
            child = os.fork()
            if child == 0:
                time.sleep(600)
            print(child, flush=True)
        elif word == "close":
            x.close()
            print("closed", flush=True)
"""


def start(tmp_path: Any, rows: np.ndarray[Any, Any], device: str) -> tuple[subprocess.Popen[str], str]:
    np.save(f"{tmp_path}/features.npy", rows)
    address = f"unix:{tmp_path}/s"
    command = [sys.executable, "-c", OWNER, f"{tmp_path}/features.npy", device, address]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True), address


def ask(owner: subprocess.Popen[str], what: str) -> str:
    assert owner.stdin is not None and owner.stdout is not None
    if what:
        owner.stdin.write(what + "\n")
        owner.stdin.flush()
    return owner.stdout.readline().strip()


def test_owner(tmp_path: Any, rows: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], device: str) -> None:
    owner, address = start(tmp_path, rows, device)
    try:
        with pytest.raises(tensorcache.OwnerError, match="connect: "):
            tensorcache.open(address)
        x = tensorcache.open(address, wait=120)  # it is not there yet
        assert ask(owner, "") == "ready"
        assert x.backend == device and np.array_equal(on_host(x[ids]), rows[ids])
        x.update(np.array([3]), np.full((1, 32), 7, np.float32))
        assert ask(owner, "row 3") == "7.0"
        assert x.cache.stats()["machine"]["lookups"] == len(ids) + 1
        assert ask(owner, "close") == "closed"
        assert np.array_equal(on_host(x[np.array([5])]), rows[5:6])
        with pytest.raises(tensorcache.OwnerError):
            x.update(np.array([3]), np.zeros((1, 32), np.float32))
        x.close()
    finally:
        owner.kill()
        owner.wait()


def test_owner_that_has_forked(tmp_path: Any, rows: np.ndarray[Any, Any]) -> None:
    """A child of the owner, such as a loader's worker, keeps the connection open. Who is attached knows all the same when the owner has ended."""
    owner, address = start(tmp_path, rows, "host")
    child = 0
    try:
        assert ask(owner, "") == "ready"
        with tensorcache.open(address).cache as cache:
            child = int(ask(owner, "fork"))
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            until = time.monotonic() + 60
            while "owner" not in cache.stats().get("errors", {}):
                assert time.monotonic() < until
                time.sleep(0.01)
            assert np.array_equal(on_host(cache["features"][np.array([5])]), rows[5:6])
    finally:
        owner.kill()
        owner.wait()
        if child:
            os.kill(child, signal.SIGKILL)


def read(x: Any, ids: Any) -> tuple[Any, str]:
    return on_host(x[ids]), repr(x)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_attaches_by_itself_in_workers(tmp_path: Any, rows: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], context: str) -> None:
    """Pickled, tables of a cache that listens, or is attached, are what the worker attaches to at its first use of them."""
    with tensorcache.open({"a": rows, "b": rows + 1}, "256KiB", device="host", listen=f"unix:{tmp_path}/s") as cache, multiprocessing.get_context(context).Pool(1) as pool:
        got, said = pool.apply(read, (cache["b"], ids))
        assert np.array_equal(got, rows[ids] + 1) and f"'b' [5000, 32] float32 (640 kB) on {cache.device_names[0]}" in said
        cache["a"].update([7], rows[:1])
        with tensorcache.open(f"unix:{tmp_path}/s", name="other") as attached:
            for of in (cache, attached):
                got, _ = pool.apply(read, (of["a"], np.array([7, -1])))
                assert np.array_equal(got, rows[[0, -1]])
        there = cache["a"]
    with multiprocessing.get_context(context).Pool(1) as pool, pytest.raises(tensorcache.OwnerError):
        pool.apply(read, (there, ids))


THERE = """
import pickle, sys, tensorcache
tables = [pickle.load(sys.stdin.buffer)["b"] for _ in range(3)]
try:
    print([x[[1]].tolist() for x in tables] == [[[1.0] * 8]] * 3, tables[0] is tables[1], len({id(x.cache) for x in tables}))
    tables[0].close()
except tensorcache.ArgumentError as e:
    print(e)
"""


@pytest.mark.parametrize("change", ["none", "more rows", "longer rows", "other elements", "other order", "other name"])
def test_reference_to_what_is_no_longer_served(tmp_path: Any, change: str) -> None:
    """A reference says what rows its address served. Another owner may serve other ones there, which are not read as if they were those."""
    small, address = np.ones((50, 8), np.float32), f"unix:{tmp_path}/s"
    other = {"more rows": np.ones((60, 8), np.float32), "longer rows": np.ones((50, 4096), np.float32), "other elements": np.ones((50, 8), np.int32)}.get(change, small)
    tables = {"other order": {"b": small, "a": small}, "other name": {"a": small, "c": small}}.get(change, {"a": small, "b": other})
    with tensorcache.open({"a": small, "b": small}, "1MB", device="host", listen=address) as cache:
        sent = pickle.dumps(cache) * 3
    with tensorcache.open(tables, "2MB", device="host", listen=address):
        done = subprocess.run([sys.executable, "-c", THERE], input=sent, capture_output=True, timeout=300)
    said = done.stdout.decode()
    assert said == "True True 1\n" if change in ("none", "more rows") else f"cannot be read at {address}: it serves" in said, said + done.stderr.decode()


def test_refusals(tmp_path: Any, rows: np.ndarray[Any, Any]) -> None:
    with pytest.raises(tensorcache.ArgumentError, match="must be unix:PATH"):
        tensorcache.open(rows, "1MB", device="host", listen="tcp:1")
    with pytest.raises(TypeError, match="text"):
        tensorcache.open(rows, "1MB", device="host", listen=3)  # type: ignore[call-overload]
    with pytest.raises(tensorcache.ArgumentError, match="listen .* must not be given"):
        tensorcache.open(f"unix:{tmp_path}/none", listen="unix:/tmp/x")  # type: ignore[call-overload]
    with pytest.raises(tensorcache.ArgumentError, match="wait .* must be 0 to 1e9 seconds"):
        tensorcache.open(f"unix:{tmp_path}/none", wait=-1)
    with pytest.raises(tensorcache.ArgumentError, match="wait .* must only be given"):
        tensorcache.open(rows, "1MB", device="host", wait=1)  # type: ignore[call-overload]
    with tensorcache.open(rows, "1MB", device="host", listen=f"unix:{tmp_path}/s").cache, pytest.raises(tensorcache.ArgumentError, match="in use"):
        tensorcache.open(rows, "1MB", device="host", listen=f"unix:{tmp_path}/s")
