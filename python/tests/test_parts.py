"""Rows of parts of different types: structured arrays and files, texts, joined tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache
from tensorcache._elements import fields, parts

ROW = np.dtype([("values", "i1", (60,)), ("scale", "<f4")])
TEXT = "int8*60,float32"
ROWS = 900


def table() -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(4)
    array = np.zeros(ROWS, ROW)
    array["values"] = rng.normal(0, 9, (ROWS, 60)).astype(np.int8)
    array["scale"] = rng.normal(1, 0.1, ROWS)
    return array


def served(source: object, **options: Any) -> np.ndarray[Any, Any]:
    """Reads all rows of a table, which must be bytes for the library's codec of parts."""
    x = tensorcache.open(source, device="host", gpu_memory=20_000, codec="parts", **options)
    try:
        assert x.dtype == np.uint8 or str(x.dtype) == "torch.uint8"
        assert tuple(x.shape) == (ROWS, 64)
        assert x.stats()["tables"][0]["dtype"] == TEXT
        return np.asarray(x[np.arange(ROWS)]).copy()
    finally:
        x.close()


def test_memory_and_files(tmp_path: Path) -> None:
    array = table()
    np.save(tmp_path / "x.npy", array)
    np.savez(tmp_path / "x.npz", x=array)
    flat = array.view(np.uint8).reshape(ROWS, 64)
    np.save(tmp_path / "flat.npy", flat)
    for source, options in (
        (array, {}), (array.reshape(30, 30), {}), (str(tmp_path / "x.npy"), {}), (str(tmp_path / "x.npz:x"), {}), (flat, {"dtype": TEXT}), (flat, {"dtype": ROW}),
        (str(tmp_path / "flat.npy"), {"dtype": TEXT}), (str(tmp_path / "flat.npy"), {"dtype": ROW}),
    ):  # fmt: skip
        got = served(source, **options)
        assert (got.view(ROW)[:, 0] == array).all(), (source, options)


def test_joined_tensors(tmp_path: Path) -> None:
    array = table()
    header = {
        "v": {"dtype": "I8", "shape": [ROWS, 60], "data_offsets": [0, 60 * ROWS]},
        "s": {"dtype": "F32", "shape": [ROWS], "data_offsets": [60 * ROWS, 64 * ROWS]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + array["values"].tobytes() + array["scale"].tobytes())
    assert (served(f"{path}:v+s").view(ROW)[:, 0] == array).all()


def test_fields() -> None:
    assert fields(ROW)[0] == parts(TEXT) == parts(ROW) == parts([("v", "i1", (2, 30)), ("s", "<f4")]) == TEXT
    assert parts("float32") == parts(np.dtype("float32")) == ""
    text, of, columns = fields(np.dtype([("x", "<f4"), ("y", "<f4", (3,))]))
    assert (text, of.name, columns) == ("", "float32", 4)


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        (np.dtype([("a", "i1"), ("b", "<f4")], align=True), "must be packed: field 'b' begins at byte 4 instead of 1"),
        (np.dtype({"names": ["a", "b"], "formats": ["<f4", "i1"], "itemsize": 64}), "must be packed: 59 bytes follow its last field"),
        (np.dtype([("a", "i1"), ("b", [("c", "<f4")])]), "must not be nested: field 'b'"),
        (np.dtype([("a", "i1"), ("b", ">f4")]), "must be little-endian: field 'b'"),
        (np.dtype([("a", "<f4"), ("b", "<f4", (15,))]), "must have fields of different types"),
        ("int8*61,float32", "must have the row's 64 bytes|must be the 65 of parts"),
        ("int8*61,float31", "float31"),
    ],
)
def test_bad_dtypes(dtype: Any, said: str) -> None:
    with pytest.raises(tensorcache.ArgumentError, match=said.replace("(", "\\(")):
        tensorcache.open(table().view(np.uint8).reshape(ROWS, 64), dtype=dtype, device="host", gpu_memory=20_000)
