"""The programs in examples/ run as they are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
NEEDS = {"pyg_training": ("torch", "torch_geometric"), "torch_loop": ("torch",), "embedding": ("torch",), "graphbolt_feature": ("torch",)}

Done = subprocess.CompletedProcess[str]


def lacks(example: Path) -> list[str]:
    return [needed for needed in NEEDS.get(example.stem, ()) if importlib.util.find_spec(needed) is None]


def run(example: Path, folder: Path) -> Done:
    return subprocess.run([sys.executable, str(example)], cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[Done]]]:
    """The examples that are to be tested, side by side where there are processors for it: most of their time is imports and compilation."""
    wanted = [item.callspec.params["example"] for item in request.session.items if getattr(item, "module", None) is request.module]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        yield {example: pool.submit(run, example, tmp_path_factory.mktemp(example.stem)) for example in wanted if not lacks(example)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_runs(example: Path, runs: dict[Path, Future[Done]]) -> None:
    if lacks(example):
        pytest.skip(f"{', '.join(lacks(example))} is not installed")
    done = runs[example].result()
    assert done.returncode == 0, done.stderr
    assert "rows cached" in done.stdout
