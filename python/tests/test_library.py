"""The shared library: loaded at first use, of the package's version, not used in a child of fork."""

from __future__ import annotations

import copy
import multiprocessing
import operator
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache
from conftest import REQUIRED, no_gpu

Array = np.ndarray[Any, Any]
TABLE = "import numpy as np; table = np.arange(800, dtype=np.float32).reshape(100, 8)\n"


def test_loaded_at_first_use(python: Any) -> None:
    program = (
        TABLE
        + """
import tensorcache, os
loaded = lambda: "libtensorcache" in open("/proc/self/maps").read()
print(loaded())
pid = os.fork()
if pid == 0:  # nothing was loaded before the fork, so the child may
    with tensorcache.open(table, "1MB", device="host") as x:
        os._exit(0 if (x[np.array([7])] == table[7]).all() else 1)
print(os.waitpid(pid, 0)[1], loaded())
tensorcache.open(table, "1MB", device="host").close()
print(loaded())
"""
    )
    assert python(program).stdout.split() == ["False", "0", "False", "True"]


FORKED = (
    TABLE
    + """
import multiprocessing, os, sys, tensorcache
x = tensorcache.open(table, "1MB", device="host")
pid = os.fork()
if pid == 0:
    for call in (lambda: x[np.array([1])], x.stats, lambda: x.update([1], table[:1]), lambda: tensorcache.open(table, "1MB", device="host"), x.cache.check):
        try:
            call()
            os._exit(1)
        except tensorcache.ForkedError as e:
            if "spawn" not in str(e):
                os._exit(2)
    repr(x)
    x.close()
    del x
    sys.exit(0)  # runs the destructors
print(os.waitpid(pid, 0)[1], (x[np.array([1])] == table[1]).all())
"""
)


def test_forked_child(python: Any) -> None:
    done = python(FORKED)
    assert done.stdout == "0 True\n", done.stdout + done.stderr


THERE = """
import pickle, sys, tensorcache
x = pickle.load(sys.stdin.buffer)
assert isinstance(x, tensorcache.Table) and len(x) == 100 and "of process" in repr(x), x
assert repr(pickle.loads(pickle.dumps(x))) == repr(x) and not hasattr(x, "other")
for call in (lambda: x[[1]], lambda: x.stats(), lambda: x.close()):
    try: call()
    except tensorcache.Error as e: print("cannot be read in another" in str(e))
"""


def test_sent_to_another_process(rows: Array) -> None:
    with tensorcache.open(rows[:100], "1MB", device="host") as x:
        assert copy.deepcopy(x) is x and copy.copy(x) is x and pickle.loads(pickle.dumps(x)) is x
        done = subprocess.run([sys.executable, "-c", THERE], input=pickle.dumps(x), capture_output=True)
    assert done.stdout.split() == [b"True"] * 3, done.stderr


def test_cache_of_several_sent_to_another_process(rows: Array) -> None:
    """As a table, also inside of other objects."""
    with tensorcache.open({"a": rows, "b": rows}, "1MB", device="host") as cache, multiprocessing.get_context("spawn").Pool(1) as pool:
        assert copy.deepcopy({"c": cache})["c"] is cache and copy.copy(cache) is cache
        here, tables = pickle.loads(pickle.dumps((cache, dict(cache))))
        assert here is cache and tables == dict(cache)
        assert pool.apply(list, (cache,)) == ["a", "b"] and pool.apply(repr, ([cache],)).startswith("[<tensorcache.Cache of a, b, of process")
        assert pool.apply(operator.itemgetter("b"), (cache,)) is cache["b"]  # there and back
        for call in (operator.methodcaller("stats"), operator.methodcaller("close")):
            with pytest.raises(tensorcache.Error, match="the cache of 'a', 'b' is open in process"):
                pool.apply(call, (cache,))


OPENED = """
import os, pickle, sys, numpy as np, tensorcache, tensorcache.cache
os.getpid = lambda: 7  # as in containers
x = tensorcache.open(np.full((9, 4), float(sys.argv[1]), np.float32), "1MB", device="host")
if len(sys.argv) > 2:
    try: print(pickle.loads(bytes.fromhex(sys.argv[2]))[1])
    except tensorcache.Error as e: print("cannot be read in another" in str(e))
else: print(pickle.dumps(x).hex())
"""


def test_sent_to_a_process_of_the_same_number(python: Any) -> None:
    """It does not take a cache of its own for the other's."""
    sent = python(OPENED, "1").stdout.strip()
    done = python(OPENED, "2", sent)
    assert done.stdout == "True\n", done.stdout + done.stderr


def test_licences_of_modules_in_the_library() -> None:
    """The wheel has a licence text for Go, and for every module that the library says it is built of."""
    from importlib.metadata import files

    found = [f for f in files("tensorcache") or [] if f.name == "THIRD_PARTY_LICENSES"]
    assert len(found) == 1 and found[0].parent.name == "licenses"
    text = found[0].read_text()
    library = Path(tensorcache.__file__).with_name("libtensorcache.so").read_bytes()
    modules = set(re.findall(rb"\ndep\t([^\t\n]+)\t([^\t\n]+)", library))
    assert len(modules) > 10
    titles = set(re.findall(r"^=+\n(.*): .*\n=+$", text, re.M))
    assert {b" ".join(m).decode() for m in modules} <= titles
    assert any(t.startswith("Go go1.") for t in titles)


def test_missing_library(python: Any, tmp_path: Path) -> None:
    program = TABLE + "import tensorcache\ntry:\n  tensorcache.open(table, '1MB')\nexcept tensorcache.LibraryError as e:\n  print(e)"
    said = python(program, TENSORCACHE_LIBRARY=str(tmp_path / "none.so")).stdout
    assert "none.so" in said and "cannot be loaded" in said


def test_version_mismatch(python: Any, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "old.c"
    source.write_text('const char *tc_version(void) { return "0.0.1"; }\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(tmp_path / "old.so"), str(source)], check=True)
    program = TABLE + "import tensorcache\ntry:\n  tensorcache.open(table, '1MB')\nexcept tensorcache.LibraryError as e:\n  print(e)"
    said = python(program, TENSORCACHE_LIBRARY=str(tmp_path / "old.so")).stdout
    assert "version 0.0.1" in said and f"version {tensorcache.__version__}" in said


LOCKED = """
import resource
import numpy as np, tensorcache
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]))
table = np.zeros((1_250_000, 32), np.float32)
try:
    tensorcache.open(table, "1MB", device="cuda", codec="none").close()
except tensorcache.OutOfMemoryError as e:
    print(e)
with tensorcache.open(table[:1000], "1MB", device="cuda", codec="none") as x:
    print("opened", x.gather([1, 2]).sum())
"""


def test_cuda_with_too_little_page_locked_memory(python: Any) -> None:
    """A driver with less page-locked memory than the table, under a low ``ulimit -l``: the text says how much there is and what to do."""
    reason = no_gpu()
    if reason is not None:
        (pytest.fail if REQUIRED else pytest.skip)(f"no GPU: {reason}")
    done = python(LOCKED, TENSORCACHE_EMULATOR_HOST_MEMORY=str(128 << 20))
    assert done.returncode == 0 and done.stdout.endswith("opened 0.0\n"), done.stdout + done.stderr
    if done.stdout == "opened 0.0\n":
        pytest.skip("this GPU's driver locks as much memory as there is")
    for part in ("host tier (160000128 bytes)", "page-locked", "This process may still take", "`ulimit -l` is 64 KiB: set it to unlimited"):
        assert part in done.stdout
