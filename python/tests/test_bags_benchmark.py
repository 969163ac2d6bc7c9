"""A small run of lab/python/embedding_bag.py on the host backend."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lab" / "python"))

import embedding_bag  # type: ignore[import-not-found]  # noqa: E402

import tensorcache  # noqa: E402

SMALL = ["--device", "host", "--bytes", str(1 << 20), "--batches", "2000", "--codecs", "none,rank"]


def test_report(tmp_path: Path) -> None:
    """There is a figure for each method, type of rows and bag, as docs/performance.md has them."""
    embedding_bag.main([*SMALL, "--commit", "0123456789ab", "--json", str(tmp_path / "bags.json")])
    report = json.loads((tmp_path / "bags.json").read_text())
    assert report["commit"] == "0123456789ab" and report["torch"] == torch.__version__ and report["table_bytes"] == 1 << 20
    found = {(r["method"], r["dtype"], r["row_bytes"], r["batch"], r["bag"]) for r in report["results"]}
    assert found == {
        (method, dtype, row_bytes, 2000, bag)
        for method in ("torch", "tensorcache none", "tensorcache rank")
        for dtype, row_bytes in (("float32", 512), ("bfloat16", 256))
        for bag in (1, 10, 40, 200)
    }
    assert len(found) == len(report["results"]) and all(r["gb_per_second"] > 0 for r in report["results"])


def test_wrong_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are not torch's end the run, and nothing is written."""
    right = tensorcache.Table.embedding_bag
    monkeypatch.setattr(tensorcache.Table, "embedding_bag", lambda self, ids, mode: right(self, ids, mode="mean"))
    with pytest.raises(SystemExit, match="tensorcache none, float32, bags of 10: sums must be torch's"):
        embedding_bag.main([*SMALL, "--json", str(tmp_path / "bags.json")])
    assert not (tmp_path / "bags.json").exists()


def test_arguments() -> None:
    for wrong in (["--batches", "2001"], ["--batches", "0"], ["--bytes", "1"], *([] if torch.cuda.is_available() else [["--device", "cuda"]])):
        with pytest.raises(SystemExit):
            embedding_bag.main([*SMALL, *wrong])
