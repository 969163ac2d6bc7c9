"""``load_file``, ``load_model``, ``save_file``, ``compress`` and ``decompress``."""

from __future__ import annotations

import ctypes
import json
import os
import stat
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache
from tensorcache import _abi, _model
from tensorcache._library import check, library

ml_dtypes = pytest.importorskip("ml_dtypes")

CODECS = ["auto", "none", "smallest", "ibp", "rank", "zipnn", "sleek", "ndzip", "sparse", "parts"]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (5, 300), (3, 5, 7), (2100,)]


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """An array of each type."""
    rng = np.random.default_rng(1)
    found = {}
    for i, name in enumerate([*(name for name in _model._TYPES.values() if name != _model._PAIRS), *_model._BYTES, "complex128"]):
        of = np.dtype(getattr(ml_dtypes, name, name) if name not in np.sctypeDict else name)
        shape = SHAPES[i % len(SHAPES)]
        found[name] = (rng.standard_normal(shape) * 3).astype(np.float32).astype(of)
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_decompress_returns_what_was_compressed(codec: str) -> None:
    for name, array in arrays().items():
        back = tensorcache.decompress(tensorcache.compress(array, codec))
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes(), name
    for shape in SHAPES:
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert np.array_equal(tensorcache.decompress(tensorcache.compress(array, codec)), array)


def test_compress_takes_views() -> None:
    array = np.arange(6000, dtype=np.float64).reshape(60, 100)
    for view in (array[::2, ::-3], array.T, array.astype(">f8"), np.float32(3), np.complex64(1 + 2j), np.full((2, 3, 0), 1j)):
        back = tensorcache.decompress(tensorcache.compress(view))
        assert np.array_equal(back, view) and back.shape == np.shape(view)
    for wrong in ([1, 2], "x", None):
        with pytest.raises(TypeError):
            tensorcache.compress(wrong)
    with pytest.raises(tensorcache.ArgumentError, match="unknown codec"):
        tensorcache.compress(array, "nope")
    assert len(tensorcache.compress(np.zeros(1 << 20, np.float32))) < 4096


def test_decompress_refuses_other_bytes() -> None:
    blob = tensorcache.compress(np.arange(3000, dtype=np.float32))
    for i in range(0, len(blob), 97):
        changed = bytearray(blob)
        changed[i] ^= 4
        for wrong in (bytes(changed), blob[:i]):
            with pytest.raises(tensorcache.ArgumentError):
                tensorcache.decompress(wrong)
    huge = bytearray(blob)
    huge[24:32] = struct.pack("<q", 1 << 45)
    with pytest.raises(tensorcache.ArgumentError):
        tensorcache.decompress(huge)
    assert np.array_equal(tensorcache.decompress(memoryview(blob)), np.arange(3000, dtype=np.float32))


def forged(dtype: str, shape: list[int], note: int) -> bytes:
    """A compressed tensor whose checksums are right, of any note."""
    data = bytes(int(np.prod(shape)) * _abi.ELEMENT_BYTES[dtype] if 0 not in shape else 0)
    given = _abi.Tensor(data=ctypes.cast(data, ctypes.c_void_p).value, bytes=len(data), dtype=_abi.DTYPE[dtype], axes=len(shape), note=note)
    given.shape[: len(shape)] = shape
    blob, length = ctypes.c_void_p(), ctypes.c_int64()
    check(library().tc_compress(ctypes.byref(given), b"none", ctypes.byref(blob), ctypes.addressof(length)))
    try:
        return ctypes.string_at(blob.value or 0, length.value)
    finally:
        library().tc_free(blob)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_decompress_refuses_notes_that_lie() -> None:
    torch = pytest.importorskip("torch")
    further = _model._FURTHER
    for dtype, shape, note in (
        ("float64", [100_000], further), ("float64", [1000], further * len(_model._BYTES)), ("float32", [3], further * _model._PAIRS_NOTE), ("uint8", [3], further * 40),
        ("int8", [3, 2], _model._COMPLEX), ("float32", [3], _model._COMPLEX), ("float32", [], _model._COMPLEX), ("float16", [3, 2], _model._COMPLEX),
        ("uint8", [3, 2], further | _model._COMPLEX), ("float32", [0, 1 << 62], 0), ("float32", [0, 1 << 62, 1 << 62], 0),
    ):  # fmt: skip
        blob = forged(dtype, shape, note)
        with pytest.raises(tensorcache.ArgumentError):
            tensorcache.decompress(blob)
    for dtype, shape, note in (("bfloat16", [3, 2], _model._COMPLEX), ("float32", [4], _model._COMPLEX), ("float32", [0, 1 << 62, 1 << 62], 0)):
        blob = forged(dtype, shape, note | _model._OF_TORCH)
        with pytest.raises(tensorcache.ArgumentError):
            tensorcache.decompress(blob)
    assert tensorcache.decompress(forged("float16", [3, 2], _model._COMPLEX | _model._OF_TORCH)).dtype == torch.complex32
    for index, name in enumerate(_model._BYTES):  # what NumPy's arrays are made of, and what torch makes of them
        blob = forged("uint8", [5], further * (1 + index))
        assert tensorcache.decompress(blob).dtype == getattr(ml_dtypes, name)
        assert tensorcache.decompress(blob, "cpu").nbytes == 5


def tensors() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    g = torch.Generator().manual_seed(3)
    found = {
        "w": torch.randn(300, 500, generator=g), "b": torch.randn(7, generator=g).bfloat16(), "scalar": torch.tensor(3.5, dtype=torch.float64), "empty": torch.empty(0, 4),
        "ids": torch.arange(10), "mask": torch.tensor([True, False]), "h": torch.randn(3, 4, 5, generator=g).half(), "f8": torch.randn(9, generator=g).to(torch.float8_e4m3fn),
        "c": torch.randn(3, dtype=torch.complex64, generator=g), "u": torch.arange(5).to(torch.uint16), "big": torch.randn(200, 4096, generator=g).bfloat16(),
    }  # fmt: skip
    found["tied"] = found["big"].clone()
    return found


def same(got: dict[str, Any], want: dict[str, Any]) -> None:
    import torch

    assert got.keys() == want.keys()
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape, name
        if tensor.numel():
            assert torch.equal(got[name].reshape(-1).view(torch.uint8), tensor.contiguous().reshape(-1).view(torch.uint8)), name


def test_load_file_equals_safetensors(tmp_path: Path) -> None:
    want = tensors()
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    plain, packed = tmp_path / "m.safetensors", tmp_path / "m.tc"
    save_file(want, plain, metadata={"a": "é"})
    same(tensorcache.load_file(plain), load_file(plain))
    same(tensorcache.load_file(str(plain), torch.device("cpu")), load_file(plain))
    tensorcache.save_file(want, packed, metadata={"a": "é"})
    same(tensorcache.load_file(packed), want)
    tensorcache.save_file(want, tmp_path / "own.safetensors", {"a": "é"})
    same(load_file(tmp_path / "own.safetensors"), want)
    with safe_open(tmp_path / "own.safetensors", "pt") as f:
        assert f.metadata() == {"a": "é"}
    with _model._Model(packed) as model:  # the engine of the cache, by which a GPU reads
        wanted = sorted(model.info["named"].items(), key=lambda pair: pair[1])
        same(_model._load_tables(model.info, wanted, torch.device("cpu")), want)
        assert model.info["files"][0]["metadata"] == {"a": "é"}
    assert sum(f.stat().st_size for f in packed.rglob("*") if f.is_file()) < plain.stat().st_size * 0.6
    with pytest.raises(FileNotFoundError):
        tensorcache.load_file(tmp_path / "absent.tc")
    with pytest.raises(tensorcache.FileError):
        (tmp_path / "junk.safetensors").write_bytes(b"junk")
        tensorcache.load_file(tmp_path / "junk.safetensors")


def test_load_file_of_shards(tmp_path: Path) -> None:
    want = tensors()
    from safetensors.torch import save_file

    names = sorted(want)
    index = {}
    for i in range(2):
        part = {name: want[name] for name in names[i::2]}
        save_file(part, tmp_path / f"model-{i}.safetensors")
        index |= dict.fromkeys(part, f"model-{i}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    same(tensorcache.load_file(tmp_path), want)


def test_open_names_tensors_of_models(tmp_path: Path) -> None:
    want = tensors()
    from safetensors.torch import save_file

    save_file(want, tmp_path / "model.safetensors")
    tensorcache.save_file(want, tmp_path / "m.tc")
    for place in (tmp_path, tmp_path / "m.tc"):
        for name in ("w", "h", "ids", "u"):
            with tensorcache.open(f"{place}:{name}", "1MB", device="host") as x:
                assert tuple(x.shape) == tuple(want[name].shape) and np.array_equal(x[:], want[name].numpy())
        with tensorcache.open(f"{place}:big,ti*", "4MB", device="host") as x:
            assert tuple(x.shape) == (400, 4096)


def test_load_model_as_safetensors_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    from safetensors.torch import save_model

    def made() -> Any:
        torch.manual_seed(5)
        net = torch.nn.Sequential(torch.nn.Embedding(20, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 20, bias=False))
        net[2].weight = net[0].weight
        return net

    source = made()
    with torch.no_grad():
        for p in source.parameters():
            p.add_(1)
    save_model(source, str(tmp_path / "m.safetensors"))
    tensorcache.save_file(source.state_dict(), tmp_path / "m.tc")
    for path in (tmp_path / "m.safetensors", tmp_path / "m.tc"):
        net = made()
        assert tensorcache.load_model(net, path) == (set(), [])
        same(net.state_dict(), source.state_dict())
        assert net[2].weight is net[0].weight
    del source[1].bias
    tensorcache.save_file({**{k: v for k, v in source.state_dict().items()}, "more": torch.zeros(2)}, tmp_path / "n.tc")
    with pytest.raises(RuntimeError, match="1.bias.*more"):
        tensorcache.load_model(made(), tmp_path / "n.tc")
    assert tensorcache.load_model(made(), tmp_path / "n.tc", strict=False) == ({"1.bias"}, ["more"])


def test_compress_tensors() -> None:
    torch = pytest.importorskip("torch")
    for name, tensor in tensors().items():
        back = tensorcache.decompress(tensorcache.compress(tensor))
        assert isinstance(back, torch.Tensor)
        same({name: back}, {name: tensor})
    for view in (torch.randn(30, 40).T, torch.randn(9, dtype=torch.complex64).conj(), torch.randn(5, requires_grad=True), torch.randn(6)[::2]):
        assert torch.equal(tensorcache.decompress(tensorcache.compress(view)), view)
    with pytest.raises(TypeError):
        tensorcache.compress(torch.eye(3).to_sparse())


def test_save_file_refuses(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for wrong in ({"a": np.zeros(3)}, {3: torch.zeros(3)}):
        with pytest.raises(TypeError):
            tensorcache.save_file(wrong, tmp_path / "x.tc")
    with pytest.raises(tensorcache.ArgumentError):
        tensorcache.save_file({"a": torch.eye(3).to_sparse()}, tmp_path / "x.tc")
    with pytest.raises(TypeError):
        tensorcache.save_file({}, tmp_path / "x.tc", metadata={"a": 1})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(tensorcache.FileError, match="must be a new or empty directory"):
        tensorcache.save_file({"a": torch.zeros(3)}, tmp_path / "full")


def test_float4_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, _model._PAIRS):
        pytest.skip(f"torch {torch.__version__} has no {_model._PAIRS}")
    want = {"x": torch.arange(24, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(4, 6), "y": torch.zeros(0, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}
    for path in (tmp_path / "m.safetensors", tmp_path / "m.tc"):
        tensorcache.save_file(want, path)
        same(tensorcache.load_file(path), want)
        with _model._Model(path) as model:
            assert [t["shape"] for t in model.info["tensors"]] == [[4, 12], [0, 6]]
    same({"x": tensorcache.decompress(tensorcache.compress(want["x"]))}, {"x": want["x"]})
    with pytest.raises(tensorcache.ArgumentError, match="must have an axis"):
        tensorcache.save_file({"x": want["x"].reshape(-1)[0]}, tmp_path / "n.tc")


@pytest.mark.parametrize(("dtype", "shape"), [("C64", [1 << 43]), ("C64", [1 << 62, 4]), ("C64", [0, 1 << 62, 1 << 62]), ("F4", []), ("F4", [1, 3]), ("F8_E4M3FNUZ", [9])])
def test_load_file_of_false_shapes(tmp_path: Path, dtype: str, shape: list[int]) -> None:
    pytest.importorskip("torch")
    count = 0 if 0 in shape else 8
    header = json.dumps({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, count]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(count))
    with pytest.raises(tensorcache.FileError, match="tensor 'x'"):
        tensorcache.load_file(tmp_path / "x.safetensors")


def test_save_file_keeps_modes_and_links(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path, link = tmp_path / "m.safetensors", tmp_path / "link.safetensors"
    before = os.umask(0o027)
    try:
        tensorcache.save_file({"x": torch.ones(2)}, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    link.symlink_to(path.name)
    tensorcache.save_file({"x": torch.zeros(3)}, link)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and link.is_symlink()
    assert torch.equal(tensorcache.load_file(path)["x"], torch.zeros(3))
    assert sorted(os.listdir(tmp_path)) == ["link.safetensors", "m.safetensors"]
