"""The programs in examples/ run as they are."""

from __future__ import annotations

import base64
import importlib.util
import os
import re
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


# Notebooks run in kernels of their own.
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def run(example: Path, folder: Path) -> Done:
    return subprocess.run([sys.executable, str(example)], cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[Done]]]:
    """The examples that are to be tested, side by side where there are processors for it: most of their time is imports and compilation."""
    wanted = [item.callspec.params["example"] for item in request.session.items if getattr(item, "module", None) is request.module and "example" in item.callspec.params]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        yield {example: pool.submit(run, example, tmp_path_factory.mktemp(example.stem)) for example in wanted if not lacks(example)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_runs(example: Path, runs: dict[Path, Future[Done]]) -> None:
    if lacks(example):
        pytest.skip(f"{', '.join(lacks(example))} is not installed")
    done = runs[example].result()
    assert done.returncode == 0, done.stderr
    assert "rows cached" in done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    for needed in ("torch", "matplotlib", "ipykernel", "nbclient"):
        pytest.importorskip(needed, reason=f"{needed} is not installed")
    import nbclient
    import nbformat

    book = nbformat.read(notebook, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "a notebook is kept without what it printed on some machine"
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    shown = [output.get("data", {}) for cell in book.cells for output in cell.get("outputs", [])]
    pictures = [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]
    assert len(pictures) == 1 and pictures[0].startswith(b"\x89PNG")
    assert any("rows cached" in data.get("text/html", "") for data in shown)
    assert any(re.search(r"MB gives 9\d %", output.get("text", "")) for cell in book.cells for output in cell.get("outputs", []))
