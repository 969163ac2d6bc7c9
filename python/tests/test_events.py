"""The events of tests, a part of the record of GPU tests: one line says that a test is to run, the last one how it ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.fixture
def broken():
    yield
    raise ValueError("broken afterwards")

def test_good(): pass
def test_bad(): assert 1 + 1 == 3, "sum"
def test_left_out(): pytest.skip("why not")
def test_before(missing): pass
def test_afterwards(broken): pass
def test_killed():
    import os
    os._exit(3)
"""


def test_every_end(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_ends.py").write_text(TESTS)
    events = tmp_path / "python.jsonl"
    options = ["-q", "-p", "no:cacheprovider", "test_ends.py"]
    subprocess.run([sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, env={**os.environ, "TENSORCACHE_TEST_EVENTS": str(events)})
    last = {}
    for line in events.read_text().splitlines():
        test = json.loads(line)
        assert test["Package"] == "python"
        last[test["Test"].partition("::")[2]] = test
    assert {name: test["Action"] for name, test in last.items()} == {
        "test_good": "pass", "test_bad": "fail", "test_left_out": "skip", "test_before": "fail", "test_afterwards": "fail", "test_killed": "run",
    }  # fmt: skip
    for name, text in (("test_bad", "sum"), ("test_before", "fixture 'missing' not found"), ("test_afterwards", "broken afterwards")):
        assert text in last[name]["Output"], last[name]
    assert not last["test_good"]["Output"]
