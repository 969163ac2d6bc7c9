"""The notebooks in examples/ run as they are, each in a kernel of its own."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(notebook: Path, tmp_path: Path) -> None:
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
