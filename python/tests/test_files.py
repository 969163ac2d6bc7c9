"""Tables in files: .npy, .npz, .safetensors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache

Array = np.ndarray[Any, Any]


def safetensors(path: Path, **tensors: Array) -> str:
    """Writes a .safetensors file by its published layout."""
    names = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}
    header: dict[str, Any] = {"__metadata__": {"by": "a test"}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": names[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t.tobytes() for t in tensors.values()))
    return str(path)


def test_npy(device: str, rows: Array, ids: Array, tmp_path: Path) -> None:
    path = tmp_path / "features.npy"
    np.save(path, rows)
    for source in (path, str(path), np.load(path, mmap_mode="r")):
        with tensorcache.open(source, "25%", device=device) as x:
            assert tuple(x.shape) == rows.shape
            np.testing.assert_array_equal(x.gather(ids), rows[ids])
    assert np.array_equal(np.load(path), rows)
    with tensorcache.open(path, "25%", device=device) as x:
        assert x.name == "features"


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(rows: Array, ids: Array, tmp_path: Path, save: Any) -> None:
    path = tmp_path / "data.npz"
    save(path, features=rows, other=np.zeros((3, 4), np.int64), y=np.arange(9))
    with tensorcache.open(path, "25%", device="host") as x:
        assert x.name == "features"
        np.testing.assert_array_equal(x.gather(ids), rows[ids])
    with tensorcache.open(f"{path}:other", "1MB", device="host") as x:
        assert tuple(x.shape) == (3, 4)
    with tensorcache.open(f"{path}:y", "1MB", device="host") as x:
        assert tuple(x.shape) == (9,)
        np.testing.assert_array_equal(x[:], np.arange(9))
    with pytest.raises(tensorcache.ArgumentError, match=r"data.npz: array .\"z\". must be one of \"features\", \"other\", \"y\""):
        tensorcache.open(f"{path}:z", "1MB")


def test_truncated_safetensors(tmp_path: Path) -> None:
    path = Path(safetensors(tmp_path / "model.safetensors", emb=np.zeros((100, 8), np.float32)))
    whole = path.read_bytes()
    for length, text in ((len(whole) - 7, r"data bytes \(3193\) must be 3200: truncated"), (5, r"file \(5 bytes\)")):
        path.write_bytes(whole[:length])
        with pytest.raises(tensorcache.FileError, match=text):
            tensorcache.open(path, "1MB", device="host")
    path.write_bytes(whole.replace(b"[100, 8]", b"[100, 9]"))
    with pytest.raises(tensorcache.FileError, match=r"tensor .emb. must span the 3600 bytes of shape \[100 9\] of F32"):
        tensorcache.open(path, "1MB", device="host")


def test_safetensors(device: str, rows: Array, ids: Array, tmp_path: Path) -> None:
    half = (rows[:, :8] * 10).astype(np.float16)
    path = safetensors(tmp_path / "model.safetensors", emb=rows, half=half, bf=half.view(np.uint16))
    for name, truth in (("emb", rows), ("half", half), ("bf", half.view(np.uint16))):
        with tensorcache.open(f"{path}:{name}", "25%", device=device) as x:
            got = x.gather(ids)
            np.testing.assert_array_equal(got.view(np.uint8), truth[ids].view(np.uint8))
    with pytest.raises(tensorcache.ArgumentError, match="must be one, or be chosen as FILE.safetensors:NAME from \"emb\""):
        tensorcache.open(path, "25%")


@pytest.mark.parametrize("of", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8"])
def test_float8(rows: Array, ids: Array, tmp_path: Path, of: str) -> None:
    table = (rows * 4).astype(np.int8)
    np.save(tmp_path / "void.npy", table.view("V1"))  # as ml_dtypes saves float8_e4m3fn and float8_e8m0fnu
    np.save(tmp_path / "bytes.npy", table)
    for source in (tmp_path / "void.npy", str(tmp_path / "bytes.npy"), table.view(np.uint8)):
        with tensorcache.open(source, "25%", device="host", dtype=of) as x:
            assert str(x.dtype).endswith((of, "uint8", "int8"))
            np.testing.assert_array_equal(x.gather(ids).view(np.int8), table[ids])
    with tensorcache.open(tmp_path / "void.npy", "25%", device="host") as x:
        np.testing.assert_array_equal(x.gather(ids).view(np.int8), table[ids])
    with pytest.raises(tensorcache.ArgumentError, match="must have elements of 1 bytes"):
        tensorcache.open(tmp_path / "void.npy", "25%", device="host", dtype="float16")


def test_axes_and_orders(tmp_path: Path) -> None:
    for shape in ((50,), (50, 3), (50, 3, 4), (20, 2, 3, 4)):
        array = np.random.default_rng(1).integers(0, 2**31, shape)
        for saved in (array, np.asfortranarray(array), array.astype(">i8")):
            np.save(tmp_path / "a.npy", saved)
            with tensorcache.open(tmp_path / "a.npy", "1MB", device="host") as x:
                assert tuple(x.shape) == shape
                np.testing.assert_array_equal(x[:], array)


def test_bad_files(tmp_path: Path, rows: Array) -> None:
    (tmp_path / "text.npy").write_text("this is no array")
    (tmp_path / "cut.npy").write_bytes(b"")
    np.save(tmp_path / "whole.npy", rows)
    (tmp_path / "short.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-100])
    (tmp_path / "zip.npz").write_bytes(b"PK\3\4 nonsense")
    (tmp_path / "huge.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    (tmp_path / "list.safetensors").write_bytes((2).to_bytes(8, "little") + b"[]")
    (tmp_path / "beyond.safetensors").write_bytes(
        (lambda text: len(text).to_bytes(8, "little") + text)(b'{"a":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}')
    )
    np.save(tmp_path / "strings.npy", np.array([["a", "b"]]))
    for name in ("text.npy", "cut.npy", "short.npy", "zip.npz", "huge.safetensors", "list.safetensors", "beyond.safetensors"):
        with pytest.raises(tensorcache.FileError, match=name):
            tensorcache.open(tmp_path / name, "1MB", device="host")
    with pytest.raises(tensorcache.FileError, match="strings.npy: dtype .\"<U1\". must be one of"):
        tensorcache.open(tmp_path / "strings.npy", "1MB", device="host")
    with pytest.raises(FileNotFoundError, match=r"none\.npy"):
        tensorcache.open(tmp_path / "none.npy", "1MB", device="host")
    (tmp_path / "a.csv").write_text("1,2,3,4")
    with pytest.raises(tensorcache.FileError, match="a.csv: first bytes"):
        tensorcache.open(tmp_path / "a.csv", "1MB", device="host")


def test_name_that_is_not_utf8(rows: Array, tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"f\xff.npy")
    with open(path, "wb") as f:
        np.save(f, rows)
    with tensorcache.open(os.fsdecode(path), "25%", device="host") as x:
        np.testing.assert_array_equal(x.gather([5]), rows[[5]])


@pytest.mark.parametrize(
    "header",
    [
        '{"a": 5}',
        '{"a": {"dtype": "F32", "shape": 5, "data_offsets": [0, 64]}}',
        '{"a": {"dtype": ["F32"], "shape": [4, 4], "data_offsets": [0, 64]}}',
        '{"a": {"dtype": "F32", "shape": [4, "4"], "data_offsets": [0, 64]}}',
        '{"a": {"dtype": "F32", "shape": [-2, -2, 4], "data_offsets": [0, 64]}}',
        '{"a": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0.0, "x"]}}',
        '{"a": {"dtype": "F32", "shape": [4, 4]}}',
        "[" * 100_000,
    ],
)
def test_damaged_header_of_safetensors(header: str, tmp_path: Path) -> None:
    path = tmp_path / "f.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(64))
    with pytest.raises(tensorcache.FileError, match="f.safetensors"):
        tensorcache.open(path, "1MB", device="host")


def test_damaged_files_of_three_axes(rows: Array, tmp_path: Path) -> None:
    short, damaged = tmp_path / "short.npy", tmp_path / "damaged.npz"
    np.save(short, rows.reshape(5000, 4, 8))
    os.truncate(short, 5000)
    np.savez_compressed(damaged, a=rows.reshape(5000, 4, 8))
    content = bytearray(damaged.read_bytes())
    content[60:4000] = b"\x55" * 3940
    damaged.write_bytes(content)
    for path in (short, damaged):
        with pytest.raises(tensorcache.FileError, match=path.name):
            tensorcache.open(path, "1MB", device="host")
