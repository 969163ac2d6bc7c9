"""Fixtures of all tests.

Tests with ``device`` run on the host backend, and on a GPU (a real one, or the emulated one whose libcuda.so.1 is in LD_LIBRARY_PATH) if there
is one. With TENSORCACHE_REQUIRE_GPU=1 a missing GPU is a failure.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import pytest

import tensorcache

# A file to which events are added as go test -json prints them, for each test that is to run and for its result: a part of the record of GPU tests (lab/record).
EVENTS = os.environ.get("TENSORCACHE_TEST_EVENTS")
# What codecs cost on the emulated GPU is no use to others.
os.environ.setdefault("TENSORCACHE_CODEC_COSTS", "off")
REQUIRED = os.environ.get("TENSORCACHE_REQUIRE_GPU") == "1"


def pytest_collection_finish(session: Any) -> None:
    for item in session.items:
        _note(item.nodeid, "run")


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed" and report.when == "setup" or report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        failed = (crash.message if crash else report.longreprtext.strip())[-1000:] if report.failed else ""
        _note(report.nodeid, {"passed": "pass", "failed": "fail", "skipped": "skip"}[report.outcome], report.duration, failed)


def _note(name: str, action: str, seconds: float = 0.0, output: str = "") -> None:
    if EVENTS:
        with open(EVENTS, "a") as f:
            f.write(json.dumps({"Action": action, "Package": "python", "Test": name, "Elapsed": round(seconds, 2), "Output": output}) + "\n")


@functools.cache
def no_gpu() -> Optional[str]:
    """Why there is no GPU, or None if there is one."""
    try:
        tensorcache.open(np.zeros((8, 4), np.float32), "1MB", device="cuda", codec="none").close()
    except tensorcache.DeviceError as e:
        return str(e)
    return None


def on_host(rows: Any) -> np.ndarray[Any, Any]:
    """Returns rows as a NumPy array: they are tensors on a GPU if the program has torch."""
    return rows.cpu().numpy() if hasattr(rows, "cpu") else np.asarray(rows)


@pytest.fixture(params=["host", "cuda"])
def device(request: Any) -> str:
    reason = no_gpu() if request.param == "cuda" else None
    if reason is not None:
        (pytest.fail if REQUIRED else pytest.skip)(f"no GPU: {reason}")
    return str(request.param)


@pytest.fixture
def rows() -> np.ndarray[Any, Any]:
    """A table of 5,000 rows of 32 float32 whose columns differ in scale."""
    rng = np.random.default_rng(7)
    return (rng.standard_normal((5000, 32)) * np.exp(rng.standard_normal(32))).astype(np.float32)


@pytest.fixture
def ids() -> np.ndarray[Any, Any]:
    """Row numbers with duplicates, some of them more often."""
    rng = np.random.default_rng(8)
    return (5000 * rng.random(3000) ** 3).astype(np.int64)


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program in a fresh process, which takes interrupts: a shell has its background jobs ignore them."""

    def interruptible() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **environment},
            preexec_fn=interruptible,
        )

    return run
