"""N-gram tables from .safetensors checkpoints of several files."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache.ngram import NgramTable, RowFormat  # noqa: E402

Array = np.ndarray[Any, Any]


def shard(path: pathlib.Path, tensors: dict[str, tuple[str, Array]]) -> None:
    """Writes a .safetensors file of tensors of bytes, whose data begin at odd offsets."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}, "odd": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}}
    data = b"odd"
    for name, (kind, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.fixture
def parts() -> list[Array]:
    """12 parts of a table, of 900 rows each but the last, of 256 values and 8 scales."""
    generator = np.random.default_rng(4)
    return [generator.integers(0, 256, (900 if i < 11 else 137, 264), np.uint8) for i in range(12)]


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path, parts: list[Array]) -> pathlib.Path:
    """A checkpoint of 3 files: each has 4 parts' values, and scales of another file's."""
    weight_map = {}
    for f in range(3):
        name = f"model-{f + 1:05}-of-00003.safetensors"
        tensors: dict[str, tuple[str, Array]] = {}
        for i in range(4 * f, 4 * f + 4):
            j = (i + 4) % 12
            tensors[f"model.ngram.shard_{i}.weight"] = "F8_E4M3", parts[i][:, :256]
            tensors[f"model.ngram.shard_{j}.scale"] = "F8_E8M0", parts[j][:, 256:]
        tensors["model.norm.weight"] = "BF16", np.zeros((2, 2), np.uint16)
        shard(tmp_path / name, tensors)
        weight_map.update(dict.fromkeys(tensors, name))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return tmp_path


WEIGHT, SCALE = "model.ngram.shard_*.weight", "model.ngram.shard_*.scale"


@pytest.mark.parametrize("host_tier", ["inplace", "packed"])
def test_shards(device: str, host_tier: str, checkpoint: pathlib.Path, parts: list[Array], ids: Array) -> None:
    table = NgramTable.from_checkpoint(checkpoint, WEIGHT, SCALE, rows=10_037, gpu_memory="10%", device=device, host_tier=host_tier)
    whole = np.concatenate(parts)
    assert table.format == RowFormat(256, "float8_e4m3fn", 32) and tuple(table.table.shape) == (10_037, 264)
    np.testing.assert_array_equal(table[ids * 2], whole[ids * 2])
    np.testing.assert_array_equal(table[np.arange(10_037)], whole)
    table.table.close()


def test_plan(checkpoint: pathlib.Path, ids: Array) -> None:
    """The shards are what a plan reads."""
    table = NgramTable.from_checkpoint(checkpoint, WEIGHT, SCALE, gpu_memory="10%", device="host", codec="none").table
    found = table.plan(ids, target_hit=0.5, codec="none", policy="static-freq")
    assert found["table"]["rows"] == 10_037 and found["table"]["dtype"] == "float8_e4m3fn*256,float8_e8m0fnu*8" and found["plans"][0]["reached"]


def test_some_tensors(checkpoint: pathlib.Path, parts: list[Array]) -> None:
    """Names in an order of their own, without scales, with one for all, and from the index or one file."""
    index = checkpoint / "model.safetensors.index.json"
    names = [f"model.ngram.shard_{i}.weight" for i in (7, 2)]
    table = NgramTable.from_checkpoint(str(index), names, row_format=RowFormat(256, scale=0.5), gpu_memory="10%", device="host")
    np.testing.assert_array_equal(table[np.arange(1800)], np.concatenate([parts[7], parts[2]])[:, :256])
    assert table.format.scale == 0.5
    one = checkpoint / "model.safetensors"
    index.unlink()
    shard(one, {"t": ("U8", parts[0])})
    for path in (checkpoint, one):
        table = NgramTable.from_checkpoint(path, "t", row_format=RowFormat(256, block=32), gpu_memory="10%", device="host")
        np.testing.assert_array_equal(table[np.arange(900)], parts[0])


def test_odd_rows(tmp_path: pathlib.Path, parts: list[Array]) -> None:
    """Rows that are no multiple of 4 bytes."""
    shard(tmp_path / "model.safetensors", {"w": ("F8_E5M2", parts[0][:, :27]), "s": ("U8", parts[0][:, 27:28] // 2), "t": ("F8_E5M2", parts[1][:, :30])})
    table = NgramTable.from_checkpoint(tmp_path, "t", gpu_memory="10%", device="host")
    np.testing.assert_array_equal(table[np.arange(900)], parts[1][:, :30])
    table = NgramTable.from_checkpoint(tmp_path, "w", "s", gpu_memory="10%", device="host")
    assert table.format == RowFormat(27, "float8_e5m2", 27)


def test_room_for_more_rows(checkpoint: pathlib.Path, parts: list[Array]) -> None:
    table = NgramTable.from_checkpoint(checkpoint, WEIGHT, SCALE, gpu_memory="10%", device="host", capacity=11_000)
    table.table.update(np.arange(10_037, 10_039), parts[0][:2])
    np.testing.assert_array_equal(table[np.array([0, 10_036, 10_038])], np.stack([parts[0][0], parts[11][136], parts[0][1]]))


def test_errors(checkpoint: pathlib.Path, parts: list[Array]) -> None:
    index = checkpoint / "model.safetensors.index.json"
    third = checkpoint / "model-00003-of-00003.safetensors"
    argument, file, missing = tensorcache.ArgumentError, tensorcache.FileError, FileNotFoundError
    shard(checkpoint / "wrong.safetensors", {
        "u": ("U8", parts[0][:, :256]), "f": ("I8", parts[0][:, :256]), "one": ("F8_E4M3", parts[0][0]), "none": ("F8_E4M3", parts[0][:0]),
        "e": ("F8_E5M2", parts[0][:, :256]), "s": ("U8", parts[0][:, :8]), "short": ("U8", parts[0][:5, :8]), "seven": ("U8", parts[0][:, :7]),
    })  # fmt: skip
    wrong = checkpoint / "wrong.safetensors"

    def refused(kind: type[Exception], text: str, path: Any = checkpoint, weight: Any = WEIGHT, scale: Any = SCALE, **options: Any) -> None:
        with pytest.raises(kind, match=text):
            NgramTable.from_checkpoint(path, weight, scale, gpu_memory="10%", device="host", **options)

    refused(missing, "nowhere.*no such file", checkpoint / "nowhere")
    refused(missing, "has neither model.safetensors.index.json nor", checkpoint.parent)
    refused(missing, "no such file", pathlib.Path(__file__))
    refused(argument, r'tensor ."model.x". must be or match some of .*shard_0', weight="model.x")
    refused(argument, r'tensor ."x\*". must be or match some of', weight="x*")
    refused(argument, r"1 tensors. must be as many as the 12 before the plus", scale="model.ngram.shard_1.scale")
    refused(argument, "has 10037 rows, which must be at least 20000", rows=20_000)
    refused(argument, "has rows of 264 bytes with scales, which must be 160", row_format=RowFormat(160))
    refused(argument, "has values of float8_e4m3fn, which must be float8_e5m2", row_format=RowFormat(256, "float8_e5m2", 32))
    refused(argument, r"wrong.safetensors:u\) must have float8_e4m3fn or float8_e5m2.* not uint8\*256", wrong, "u", None)
    refused(argument, r"not int8\*256", wrong, "f", None)
    refused(argument, r"not float8_e4m3fn\*1|has rows of 1 bytes", wrong, "one", None, row_format=RowFormat(256))
    refused(file, "axes of at least 1", wrong, "none", None)
    refused(file, r'"s" .uint8, rows of 8 bytes. must be like "e"', wrong, ["e", "s"], None)
    refused(file, 'rows .5. of tensor "short" must be the 900 of "e"', wrong, "e", "short")
    refused(argument, r"and a divisor of as many scales .* not float8_e5m2\*256,uint8\*7", wrong, "e", "seven")
    refused(argument, "has rows of 1 bytes with scales, which must be 3", wrong, "odd", None, row_format=RowFormat(3))
    for name in ("adopt", "dtype"):
        refused(TypeError, name, **{name: True})

    # Damaged files.
    whole = third.read_bytes()
    third.write_bytes(whole[:-1000])
    refused(file, "truncated")
    third.write_bytes(whole[:5])
    refused(file, r"00003.safetensors: file \(5 bytes\)")
    shard(third, {"model.norm.weight": ("BF16", np.zeros((2, 2), np.uint16))})
    refused(file, r'file "model-00003-of-00003.safetensors" must have tensor "model.ngram.shard_\d+.\w+", as the index says')
    third.unlink()
    refused(missing, r'file "model-00003-of-00003.safetensors", where the index has tensor "model.ngram.shard_\d+.\w+".*no such file')
    for text in ("{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', '{"weight_map": {"a": "../b.safetensors"}}'):
        index.write_text(text)
        refused(file, "model.safetensors.index.json")


def test_names_that_are_no_list(tmp_path: pathlib.Path, parts: list[Array]) -> None:
    shard(tmp_path / "model.safetensors", {"a+b": ("U8", parts[0])})
    table = NgramTable.from_checkpoint(tmp_path, ["a+b"], row_format=RowFormat(256, block=32), gpu_memory="10%", device="host")
    np.testing.assert_array_equal(table[np.arange(900)], parts[0])


@pytest.mark.skipif(not pathlib.Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("options", [{}, {"host_tier": "packed"}, {"capacity": 95_000}], ids=str)
def test_memory_holds_the_table_once(tmp_path: pathlib.Path, python: Callable[..., Any], options: dict[str, Any]) -> None:
    """A table of 96 MB whose rows compress by half: the process takes its bytes once while it loads, and what the cache keeps of rows beside."""
    rows = np.random.default_rng(2).integers(0, 256, (31_250, 1024), np.uint8)
    rows[:, ::2] = 7
    for i in range(3):
        shard(tmp_path / f"{i}.safetensors", {f"w{i}": ("F8_E4M3", rows)})
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {f"w{i}": f"{i}.safetensors" for i in range(3)}}))
    done = python(
        """
import json, sys, numpy, tensorcache.ngram
tensorcache.open(numpy.zeros((8, 1024), numpy.uint8), "1MB", device="host", codec="none").close()  # loads the library
def kilobytes(what):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(what))
before = kilobytes("VmRSS")
t = tensorcache.ngram.NgramTable.from_checkpoint(sys.argv[1], "w*", gpu_memory="1MB", device="host", codec="ibp4", **json.loads(sys.argv[2]))
assert len(t.table) == 93_750
print(kilobytes("VmHWM") - before)
""",
        str(tmp_path),
        json.dumps(options),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 1.4 * 93_750 * 1024, f"{int(done.stdout):,} kB for a table of 96,000"
