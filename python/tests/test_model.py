"""``load_file``, ``load_model``, ``save_file``, ``compress`` and ``decompress``."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache
from tensorcache import _model

ml_dtypes = pytest.importorskip("ml_dtypes")

CODECS = ["auto", "none", "smallest", "ibp", "rank", "zipnn", "sleek", "ndzip", "sparse", "parts"]
SHAPES = [(), (0,), (3, 0, 2), (1,), (7,), (5, 300), (3, 5, 7), (2100,)]


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """An array of each type."""
    rng = np.random.default_rng(1)
    found = {}
    for i, name in enumerate([*_model._TYPES.values(), *_model._BYTES, "complex128"]):
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
    for view in (array[::2, ::-3], array.T, array.astype(">f8"), np.float32(3)):
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
