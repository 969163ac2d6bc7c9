"""``tensorcache.open("unix:PATH")``: the cache of another process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import REQUIRED, on_host

import tensorcache

OWNER = os.environ.get("TENSORCACHED") or os.path.join(os.path.dirname(__file__), "..", "..", "build", "tensorcached")


class Owner:
    """A tensorcached of a table, restarted by ``start``."""

    def __init__(self, folder: Any, rows: np.ndarray[Any, Any], device: str) -> None:
        self.address = f"unix:{folder}/s"
        self._file = f"{folder}/features.npy"
        self._device = device
        np.save(self._file, rows)
        self.start()

    def start(self) -> None:
        command = [OWNER, "--features", self._file, "--gpu-memory", "256KiB", "--device", self._device, "--listen", self.address]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert "ready" in ready, ready

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def owner(tmp_path: Any, rows: np.ndarray[Any, Any], device: str) -> Iterator[Owner]:
    if not os.path.exists(OWNER):
        (pytest.fail if REQUIRED and "TENSORCACHED" in os.environ else pytest.skip)(f"no tensorcached at {OWNER}: make service")
    owner = Owner(tmp_path, rows, device)
    yield owner
    owner.kill()


def test_reads_and_changes(owner: Owner, rows: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], device: str) -> None:
    x = tensorcache.open(owner.address, name="test")
    assert isinstance(x, tensorcache.Table)
    assert tuple(x.shape) == rows.shape and x.backend == device and x.name == "features"
    assert np.array_equal(on_host(x[ids]), rows[ids])
    new = np.full((2, 32), 7, np.float32)
    x.update(np.array([1, 3]), new)
    assert np.array_equal(on_host(x[np.array([1, 2, 3])]), np.stack([new[0], rows[2], new[1]]))
    stats = x.cache.stats()
    assert stats["lookups"] == len(ids) + 3 and stats["rows_cached"] > 0
    with tensorcache.open(owner.address).cache as other:
        assert np.array_equal(on_host(other["features"][np.array([3, 4])]), np.stack([new[1], rows[4]]))
    x.cache.refresh()
    assert x.explain(np.array([5]))[0]["row"] == 5
    with pytest.raises(IndexError):
        x[np.array([5000])]
    x.cache.close()
    with pytest.raises(tensorcache.ClosedError):
        x[ids]


def test_owner_ends(owner: Owner, rows: np.ndarray[Any, Any], ids: np.ndarray[Any, Any]) -> None:
    x = tensorcache.open(owner.address)
    assert np.array_equal(on_host(x[ids]), rows[ids])
    owner.kill()
    assert np.array_equal(on_host(x[ids]), rows[ids])
    with pytest.raises(tensorcache.OwnerError):
        x.update(np.array([1]), np.zeros((1, 32), np.float32))
    assert "no owner" in x.cache.stats()["errors"]["owner"]
    owner.start()
    until = time.monotonic() + 60
    while True:
        try:
            x.update(np.array([1]), np.zeros((1, 32), np.float32))
            break
        except tensorcache.OwnerError:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert not on_host(x[np.array([1])]).any()
    x.cache.close()


def test_several_tables(tmp_path: Any, rows: np.ndarray[Any, Any]) -> None:
    if not os.path.exists(OWNER):
        pytest.skip(f"no tensorcached at {OWNER}: make service")
    np.save(f"{tmp_path}/a.npy", rows)
    np.save(f"{tmp_path}/b.npy", rows[:100, :7].astype(np.float64))
    tables = ["--table", f"file={tmp_path}/a.npy,codec=ibp4,resident=64,max_target=96", "--features", f"{tmp_path}/b.npy"]
    command = [OWNER, *tables, "--gpu-memory", "1MiB", "--device", "host", "--listen", f"unix:{tmp_path}/s"]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert owner.stdout is not None and "ready" in owner.stdout.readline()
        with tensorcache.open(f"unix:{tmp_path}/s") as x:
            assert list(x) == ["a", "b"] and tuple(x["b"].shape) == (100, 7)
            assert np.array_equal(on_host(x["a"][np.array([4999, 0])]), rows[[4999, 0]])
            assert np.array_equal(on_host(x["b"][np.array([99])]), rows[99:100, :7].astype(np.float64))
            x["a"].retarget(96)  # by the owner
            assert np.array_equal(on_host(x["a"][np.arange(5000)]), rows)
            stats = x["a"].stats()
            assert stats["resident"]["target_bytes"] == 96 and stats["misses"] == 0 and stats["hits"] == 5002
            with pytest.raises(tensorcache.ArgumentError, match="must be at most 96 B"):
                x["a"].retarget(112)
            with pytest.raises(tensorcache.ArgumentError, match="table b must be resident"):
                x["b"].retarget()
    finally:
        owner.kill()
        owner.wait()


def test_scratch(tmp_path: Any, rows: np.ndarray[Any, Any], ids: np.ndarray[Any, Any]) -> None:
    if not os.path.exists(OWNER):
        pytest.skip(f"no tensorcached at {OWNER}: make service")
    np.save(f"{tmp_path}/a.npy", rows)
    address = f"unix:{tmp_path}/s"
    command = [OWNER, "--features", f"{tmp_path}/a.npy", "--gpu-memory", "1MiB", "--device", "host", "--listen", address, "--max-scratch", "4MiB"]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert owner.stdout is not None and "ready" in owner.stdout.readline()
        with pytest.raises(tensorcache.OwnerError, match="scratch .* must be at most 4194304, the owner's limit for a client"):
            tensorcache.open(address, scratch="5MiB")
        x = tensorcache.open(address, scratch="2MiB")
        assert np.array_equal(on_host(x[ids]), rows[ids])
        status = json.loads(subprocess.check_output([OWNER, "status", "--connect", address, "--json"]))
        assert [client["max_scratch"] for client in status["attached"]] == [2 << 20]
        x.cache.close()
    finally:
        owner.kill()
        owner.wait()


def test_stopped_owner(tmp_path: Any, rows: np.ndarray[Any, Any]) -> None:
    """Nothing waits for an owner that is stopped for longer than ``timeout``, and the error names it; reads go on."""
    if not os.path.exists(OWNER):
        pytest.skip(f"no tensorcached at {OWNER}: make service")
    np.save(f"{tmp_path}/a.npy", rows)
    address = f"unix:{tmp_path}/s"
    owner = subprocess.Popen([OWNER, "--features", f"{tmp_path}/a.npy", "--gpu-memory", "1MiB", "--device", "host", "--listen", address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert owner.stdout is not None and "ready" in owner.stdout.readline()
        x = tensorcache.open(address, timeout=0.4)
        os.kill(owner.pid, signal.SIGSTOP)
        os.waitpid(owner.pid, os.WUNTRACED)
        silent = rf"owner at {re.escape(address)} \(process {owner.pid}\) has not answered \w+ within 400ms"
        for request in (
            lambda: x.update([1], rows[1:2]),
            lambda: x.explain([1]),
            lambda: x.cache.refresh(),
            lambda: tensorcache.open(address, timeout=0.4),
        ):
            with pytest.raises(tensorcache.OwnerError, match=silent):
                request()
        assert re.search(silent, x.cache.stats()["errors"]["owner"])
        assert np.array_equal(on_host(x[np.array([7, 4999])]), rows[[7, 4999]])
        x.cache.close()
    finally:
        owner.kill()
        owner.wait()


def test_refusals(tmp_path: Any) -> None:
    with pytest.raises(tensorcache.OwnerError, match="no such file"):
        tensorcache.open(f"unix:{tmp_path}/none")
    with pytest.raises(tensorcache.ArgumentError, match="gpu_memory .* must not be given"):
        tensorcache.open(f"unix:{tmp_path}/none", gpu_memory="1GB")
    with pytest.raises(tensorcache.ArgumentError, match="scratch .5. must be at least 1048576"):
        tensorcache.open(f"unix:{tmp_path}/none", scratch=5)
    with pytest.raises(tensorcache.ArgumentError, match="timeout .0.01. must be 0.1 to 1e9 seconds"):
        tensorcache.open(f"unix:{tmp_path}/none", timeout=0.01)
    with pytest.raises(tensorcache.ArgumentError, match="timeout .5. must only be given for the address"):
        tensorcache.open("features.npy", "1GB", timeout=5)  # type: ignore[call-overload]
    with pytest.raises(tensorcache.ArgumentError, match="scratch .5. must only be given for the address"):
        tensorcache.open("features.npy", "1GB", scratch=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="gpu_memory"):
        tensorcache.open("features.npy")  # type: ignore[call-overload]
