"""Tables from ml_dtypes, files of several parts, Parquet, Arrow, DLPack and memory maps."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache
from test_files import safetensors

Array = np.ndarray[Any, Any]
OPTIONS: dict[str, Any] = dict(gpu_memory="25%", device="host")


def served(source: Any, want: Array, **options: Any) -> tensorcache.Table:
    """Opens a table, whose rows must be those of an array, to the bit."""
    x: tensorcache.Table = tensorcache.open(source, **OPTIONS, **options)
    got = np.asarray(x)
    assert got.shape == want.shape and got.dtype.itemsize == want.dtype.itemsize
    np.testing.assert_array_equal(got.view(np.uint8), np.ascontiguousarray(want).view(np.uint8))
    return x


# ---- types of ml_dtypes

# What each is in a file's header, None if it is a byte that dtype= must name; and what tensors of it are.
TYPES = {
    "bfloat16": ("bfloat16", "bfloat16"), "float8_e5m2": ("float8_e5m2", "float8_e5m2"), "float8_e4m3fn": (None, "float8_e4m3fn"), "float8_e4m3fnuz": (None, "uint8"),
    "float8_e5m2fnuz": (None, "uint8"), "float8_e8m0fnu": (None, "float8_e8m0fnu"), "float8_e3m4": (None, "uint8"), "int4": (None, "uint8"), "uint4": (None, "uint8"),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_ml_dtypes(rows: Array, tmp_path: Path, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    header, torchs = TYPES[name]
    array = np.abs(rows[:500]).astype(getattr(ml_dtypes, name))
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    for source in (tmp_path / "a.npy", tmp_path / "a.npz"):
        assert str(served(source, array).dtype).endswith(header or "uint8")
    for source, dtype in ((tmp_path / "a.npy", name), (f"{tmp_path}/a.npz:x", array.dtype), (array, None), (array.view(f"uint{8 * array.itemsize}"), name)):
        x = served(source, array, dtype=dtype)
        assert x.gather(np.arange(9)).dtype == array.dtype and str(x.dtype).endswith((torchs, name))


def test_tensors_that_are_bytes(rows: Array) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for of in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        table = torch.from_numpy(rows).to(of)
        with tensorcache.open(table, **OPTIONS) as x:
            assert x.dtype == torch.uint8 and torch.equal(x[torch.arange(100)].view(of).float(), table[:100].float())


# ---- several files, and names


def test_shards(rows: Array, tmp_path: Path) -> None:
    """A list of files, or a pattern, whose rows follow each other."""
    for i, part in enumerate(np.array_split(rows, 11)):
        np.save(tmp_path / f"part-{i}.npy", part)
    paths = [tmp_path / f"part-{i}.npy" for i in range(11)]
    for source in (paths, [str(path) for path in paths], f"{tmp_path}/part-*.npy"):
        assert served(source, rows).name == "part-0"
    served([f"{tmp_path}/part-3.npy", f"{tmp_path}/part-2.npy"], np.concatenate([np.load(paths[3]), np.load(paths[2])]))
    served(tuple(paths[:2]), np.concatenate([np.load(path).reshape(-1, 4, 8) for path in paths[:2]]).reshape(-1, 32))
    shards = [safetensors(tmp_path / f"{i}.safetensors", emb=part) + ":emb" for i, part in enumerate((rows[:50], rows[50:]))]
    x = served(shards, rows)
    assert x.name == "emb" and x.plan(np.arange(5000) % 700, target_hit=0.5, policy="static-freq")["plans"]
    with pytest.raises(FileNotFoundError, match="none.npy"):
        tensorcache.open([*paths, tmp_path / "none.npy"], **OPTIONS)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        tensorcache.open(f"{tmp_path}/none-*.npy", **OPTIONS)
    np.save(tmp_path / "wide.npy", rows[:, :8])
    with pytest.raises(tensorcache.FileError, match=r"wide.npy: rows \[8\] of float32 must be like those of .*part-0.npy, \[32\] of float32"):
        tensorcache.open([paths[0], tmp_path / "wide.npy"], **OPTIONS)
    with pytest.raises(TypeError, match="a list of paths"):
        tensorcache.open([rows, rows], **OPTIONS)  # type: ignore[call-overload]


def test_index_and_names_with_colons(rows: Array, tmp_path: Path) -> None:
    one = safetensors(tmp_path / "a.safetensors", **{"model:emb:0": rows[:90], "other": rows[:5]})
    two = safetensors(tmp_path / "b.safetensors", **{"model:emb:1": rows[90:200]})
    weight_map = {"model:emb:0": Path(one).name, "other": Path(one).name, "model:emb:1": Path(two).name}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    for source in (f"{one}:model:emb:0", f"{index}:model:emb:0", f"{tmp_path}:model:emb:0"):
        served(source, rows[:90])
    for source in (f"{index}:model:emb:*", f"{tmp_path}:model:emb:0,model:emb:1", [f"{one}:model:emb:0", f"{two}:model:emb:1"]):
        served(source, rows[:200])


# ---- Parquet and Arrow


def test_parquet(rows: Array, tmp_path: Path, monkeypatch: Any) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet as pq

    from tensorcache import _arrow

    monkeypatch.setattr(_arrow, "_BATCH", 999)
    path = tmp_path / "f.parquet"
    lists, columns = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 32), {name: pa.array(rows[:, i]) for i, name in enumerate("abc")}
    pq.write_table(pa.table({"x": lists, "id": pa.array(np.arange(5000)), "lists": pa.array(list(rows)), "text": pa.array(["a"] * 5000), **columns}), path)
    assert served(f"{path}:x", rows).name == "x" and served(f"{path}:lists", rows).name == "lists"
    served(f"{path}:id", np.arange(5000))
    x = served(f"{path}:b,a", rows[:, [1, 0]])
    assert x.name == "f"
    served(f"{path}:a", rows[:, 0].view(np.uint32), dtype="uint32")
    pq.write_table(pa.table(columns), path)
    served(path, rows[:, :3])
    pq.write_table(pa.table({"x": pa.array([[1.0, 2.0], [3.0]]), "y": pa.array([1, None]), "z": pa.array([1, 2]), "s": pa.array(["a", "b"])}), path)
    for name, error in {
        "x": "column 'x' must have lists of one length: that of row 1 has 1 elements, those before 2", "y": r"column 'y' \(1 nulls from row 0 on\) must have none",
        "q": "column 'q' must be one of 'x', 'y', 'z', 's'", "s": r"column 's' \(string\) must have numbers", "z,x": "one length",
    }.items():  # fmt: skip
        with pytest.raises(tensorcache.ArgumentError, match=error):
            tensorcache.open(f"{path}:{name}", **OPTIONS)
    with pytest.raises(FileNotFoundError, match="no such file"):
        tensorcache.open(tmp_path / "none.parquet", **OPTIONS)
    path.write_bytes(b"PAR1")
    with pytest.raises(tensorcache.FileError, match="f.parquet"):
        tensorcache.open(path, **OPTIONS)


def test_arrow(rows: Array) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 32)

    class Capsule:  # as polars and others give their tables
        def __init__(self, of: Any) -> None:
            self.__arrow_c_stream__ = of.__arrow_c_stream__

    table = pa.table({"x": lists})
    for source in (lists, table, table.to_batches()[0], pa.chunked_array([lists[:700], lists[700:]]), pa.array(list(rows)), Capsule(table), pa.table({str(i): rows[:, i] for i in range(32)})):
        served(source, rows)
    served(lists.slice(10, 50), rows[10:60])
    served(pa.FixedShapeTensorArray.from_numpy_ndarray(rows.reshape(5000, 4, 8)), rows.reshape(5000, 4, 8))
    served(pa.array(rows[:, 0] > 0), rows[:, 0] > 0)
    assert _address(lists) == lists.flatten().buffers()[1].address  # not copied
    with pytest.raises(tensorcache.ArgumentError, match="columns .float32, int64. must have one type"):
        tensorcache.open(pa.table({"x": lists, "y": pa.array(np.arange(5000))}), **OPTIONS)


def _address(source: Any) -> int:
    from tensorcache._sources import describe

    return describe(source).address


def test_without_pyarrow(python: Callable[..., Any]) -> None:
    done = python("""
import sys
sys.modules["pyarrow"] = None
import tensorcache
try: tensorcache.open("f.parquet", "1MB", device="host")
except tensorcache.Error as e: print(e)
""")
    assert done.stdout == "tensorcache: source (Parquet or Arrow) needs pyarrow: pip install tensorcache[arrow]\n", done.stderr


# ---- other memory


class Exported:
    """What has DLPack's methods and nothing else."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __dlpack__(self, **options: Any) -> Any:
        return self.of.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.of.__dlpack_device__()


def test_dlpack(rows: Array, python: Callable[..., Any]) -> None:
    served(Exported(rows), rows)
    with tensorcache.open(rows, **OPTIONS) as x, pytest.raises(TypeError, match=re.escape("is no tensor: read rows by x[ids]")):
        tensorcache.open(x, **OPTIONS)  # type: ignore[call-overload]
    done = python("""
import numpy as np, sys, tensorcache
class Exported:
    def __init__(self, of): self.__class__.of = of
    def __dlpack__(self, **options):
        if self.device[0] == 2: raise BufferError("memory of a GPU")
        return self.of.__dlpack__(**options)
    def __dlpack_device__(self): return self.device
Exported.device = (1, 0)
rows = np.arange(12, dtype="f4").reshape(3, 4)
print((np.asarray(tensorcache.open(Exported(rows), "1MB", device="host")) == rows).all(), "torch" in sys.modules)
Exported.device = (2, 0)
try: tensorcache.open(Exported(rows), "1MB", device="host")
except tensorcache.ArgumentError as e: print("import torch first" in str(e))
""")
    assert done.stdout == "True False\nTrue\n", done.stderr


def test_tensors_of_other_devices(rows: Array, caplog: Any) -> None:
    """They are copied to the host. No such device is here: a tensor says that it is on one."""
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Elsewhere(torch.Tensor):  # type: ignore[misc, name-defined]
        device = torch.device("xpu", 0)

        def cpu(self) -> Any:
            return self.as_subclass(torch.Tensor)

    table = torch.from_numpy(rows)
    served(table.as_subclass(Elsewhere), rows)
    assert "is copied once more, from device xpu:0 to the host" in caplog.text


MAPPED = """
import re, sys, numpy as np, tensorcache
def kilobytes(what): return int(re.search(what + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
rows = np.load(sys.argv[1], mmap_mode=sys.argv[2])
if sys.argv[2] == "c": rows[0] = 7  # a private page
tensorcache.open(rows[:9], "1MB", device="host").close()  # loads the library
before = kilobytes("RssFile")
x = tensorcache.open({"x": rows[1:], "y": rows}["y" if sys.argv[2] == "c" else "x"], "1MB", device="host", codec="none")
print(kilobytes("RssFile") - before, x[np.arange(3)].sum(), rows[0, 0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_pages_of_a_mapping(python: Callable[..., Any], tmp_path: Path, mode: str) -> None:
    """A table of 64 MB from a memory map: its pages are no memory of the process any more when the table is open. Private changes are kept."""
    np.save(tmp_path / "m.npy", np.ones((500_000, 32), np.float32))
    done = python(MAPPED, str(tmp_path / "m.npy"), mode)
    assert done.returncode == 0, done.stderr
    grown, total, first = map(float, done.stdout.split())
    assert (total, first) == ((64 + 7 * 32, 7) if mode == "c" else (96, 1))
    assert mode == "c" or grown < 16_000, f"{grown:,} kB of the file's pages"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_adopted_mapping(rows: Array) -> None:
    """The cache's own memory from now on, whose pages stay."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        mapped = np.memmap(file.name, np.float32, "w+", shape=rows.shape)
        mapped[:] = rows
        with tensorcache.open(mapped, **OPTIONS, adopt=True, codec="none") as x:
            np.testing.assert_array_equal(x.gather(np.arange(5000)), rows)
