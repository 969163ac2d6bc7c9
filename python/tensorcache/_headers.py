"""Shape and element type of the tables in files, read from their headers only.

The library reads the data itself. It takes the last axis of an array as the row; Python's arrays are indexed by their first axis, so what
has not exactly two axes is read or mapped here.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np

from ._elements import Element, element, of_code
from ._parts import fields
from .errors import ArgumentError, FileError

if TYPE_CHECKING:
    from typing_extensions import TypeGuard  # typing has it from Python 3.10 on

_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip
_MAX_HEADER = 100 << 20
Result = TypeVar("Result")


@dataclass(frozen=True)
class Header:
    """What a file says of one array.

    ``offset`` is where its data begins in the file, or -1 if it is compressed, or not in C order, or not little-endian. ``inner`` is the
    name in an archive, ``""`` in an .npy file.
    """

    path: str
    inner: str
    shape: tuple[int, ...]
    element: Element
    offset: int
    as_file: bool = False  # of rows of parts, which the library takes from the file

    @property
    def library_path(self) -> str:
        """The name that the library opens."""
        return f"{self.path}:{self.inner}" if self.inner else self.path

    def read(self) -> np.ndarray[Any, Any]:
        """Maps the array, or reads it if it cannot be mapped."""
        if os.path.isdir(self.path):
            raise ArgumentError(f"tensorcache: dtype must not be given for a directory of pages ({self.path})")
        if self.offset >= 0:
            return reading(self.path, lambda: np.memmap(self.path, dtype=self.element.bits, mode="r", offset=self.offset, shape=self.shape))

        def load() -> np.ndarray[Any, Any]:
            loaded = np.load(self.path, mmap_mode=None, allow_pickle=False)
            return loaded[self.inner] if self.inner else loaded  # type: ignore[no-any-return]

        return reading(self.path, load)


def read_header(path: str) -> Header:
    """Reads the header of ``file.npy``, ``file.npz``, ``file.npz:array``, ``file.safetensors`` or ``file.safetensors:tensor``, or the manifest of a
    directory of pages."""
    if os.path.isdir(path):
        if not os.path.exists(os.path.join(path, "manifest")):
            raise FileError(f"tensorcache: source ({path}) must be a directory of pages, as cachebench pack makes: it has no manifest")
        return reading(path, lambda: _pages(path))
    file, inner = _split(path)
    kind = os.path.splitext(file)[1].lower()
    read = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors}.get(kind)
    if read is None:
        raise ArgumentError(f"tensorcache: source ({path}) must be a .npy, .npz or .safetensors file, or a directory of pages")
    return reading(file, lambda: read(file, inner))


def reading(file: str, read: Callable[[], Result]) -> Result:
    """Returns what a function reads from a file. What NumPy, zipfile and json raise for damaged files becomes ``FileError``."""
    try:
        return read()
    except (ArgumentError, FileError):
        raise
    except FileNotFoundError:
        raise FileNotFoundError(f"tensorcache: source ({file}) does not exist") from None
    except (ValueError, KeyError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as e:
        raise FileError(f"tensorcache: source ({file}) cannot be read: {e}") from e


def _split(path: str) -> tuple[str, str]:
    if not os.path.exists(path):
        file, colon, inner = path.rpartition(":")
        if colon and inner and os.path.splitext(file)[1].lower() in (".npz", ".safetensors"):
            return file, inner
    return path, ""


_PAGES_OF_PARTS = 255  # the element type in a manifest of rows of parts: docs/format/pages.md


def _pages(path: str) -> Header:
    """Reads a manifest. The library checks all of it."""
    with open(os.path.join(path, "manifest"), "rb") as f:
        b = f.read(24)
    parts = len(b) == 24 and b[8] == _PAGES_OF_PARTS
    of = element("uint8") if parts else of_code(b[8]) if len(b) == 24 else None
    if of is None or b[:7] != b"TCPAGES":
        raise FileError(f"tensorcache: source ({path}) must be a directory of pages")
    row_bytes, rows = int.from_bytes(b[12:16], "little"), int.from_bytes(b[16:24], "little")
    return Header(path, "", (rows, row_bytes // of.size), of, -1, as_file=parts)


def _npy(path: str, inner: str) -> Header:
    with open(path, "rb") as f:
        return _array(path, inner, f, mapped=True)


def _array(path: str, inner: str, f: IO[bytes], mapped: bool) -> Header:
    version = np.lib.format.read_magic(f)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(f)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(f)
    plain = mapped and not fortran and dtype.newbyteorder("<") == dtype
    if dtype.fields:  # the library opens rows of parts
        _, of, columns = fields(dtype)
        return Header(path, inner, (math.prod(shape), columns), of, f.tell() if plain else -1, as_file=True)
    if dtype == np.dtype("V1"):  # as ml_dtypes saves float8_e4m3fn and float8_e8m0fnu
        dtype = np.dtype("uint8")
    return Header(path, inner, shape, element(dtype.newbyteorder("=")), f.tell() if plain else -1)


def _npz(path: str, inner: str) -> Header:
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as f:
                    try:
                        headers[name[:-4]] = _array(path, name[:-4], f, mapped=False)
                    except TypeError:
                        continue  # an array of elements that no table has
    return _choose(path, inner, headers)


@dataclass(frozen=True)
class Entry:
    """What a .safetensors file says of one tensor: its dtype there, its shape, and where its data lie in the file, of so many bytes."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int
    header: int
    file: int

    def check(self, path: str, name: str, size: int, kind: str = "") -> None:
        """Raises ``FileError`` unless the data are those of elements of so many bytes, and lie in the file."""
        nbytes, count, begin = self.end - self.begin, math.prod(self.shape), self.begin - self.header
        if nbytes != count * size:
            raise FileError(
                f"tensorcache: source ({path}) has tensor {name!r} with {nbytes} bytes, which must be {count * size} for shape {self.shape} of {kind or self.kind}"
            )
        if not 0 <= begin <= begin + nbytes <= self.file - self.header:
            raise FileError(
                f"tensorcache: source ({path}) has tensor {name!r} at bytes {begin} to {begin + nbytes} of its data, which must be 0 to {self.file - self.header}: truncated"
            )


def safetensors_entries(path: str) -> dict[str, Entry]:
    """Reads the header of a .safetensors file. The entries are not checked against the length of the file."""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if size < 10:
            raise FileError(f"tensorcache: source ({path}) has {size} bytes, which must be at least 10: truncated")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise FileError(f"tensorcache: source ({path}) has a header of {length} bytes, which must be 2 to {min(_MAX_HEADER, size - 8)}")
        entries = json.loads(f.read(length))
    if not isinstance(entries, dict):
        raise FileError(f"tensorcache: source ({path}) has a header that is not a JSON object")
    found = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
        kind, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
        if not (isinstance(kind, str) and _counts(shape) and _counts(offsets) and len(offsets) == 2):
            raise FileError(f"tensorcache: source ({path}) has tensor {name!r} without a dtype, a shape and two data_offsets")
        begin, end = offsets
        found[name] = Entry(kind, tuple(shape), 8 + length + begin, 8 + length + end, 8 + length, size)
    return found


def _safetensors(path: str, inner: str) -> Header:
    headers: dict[str, Header] = {}
    for name, entry in safetensors_entries(path).items():
        if entry.kind in _SAFETENSORS:
            of = element(_SAFETENSORS[entry.kind])
            entry.check(path, name, of.size, of.name)
            headers[name] = Header(path, name, entry.shape, of, entry.begin)
    names = inner.split("+")
    if len(names) == 1 or inner in headers:
        return _choose(path, inner, headers)
    joined = [_choose(path, name, headers) for name in names]
    kinds = {each.element for each in joined}
    of = kinds.pop() if len(kinds) == 1 else element("uint8")
    row_bytes = sum(each.element.size * (each.shape[-1] if len(each.shape) > 1 else 1) for each in joined)
    rows = math.prod(joined[0].shape[:-1]) if len(joined[0].shape) > 1 else joined[0].shape[0]
    return Header(path, inner, (rows, row_bytes // of.size), of, -1, as_file=True)


def _counts(value: Any) -> TypeGuard[list[int]]:
    """Says whether a value of JSON is a list of integers of at least 0."""
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _choose(path: str, inner: str, headers: dict[str, Header]) -> Header:
    if inner:
        if inner not in headers:
            raise ArgumentError(f"tensorcache: source ({path}) has no array {inner!r}: it has {_listed(headers)}")
        return headers[inner]
    wide = [h for h in headers.values() if len(h.shape) >= 2]
    named = [h for h in wide if h.inner == "features"]
    if len(named) == 1:
        return named[0]
    if len(wide) != 1:
        raise ArgumentError(f"tensorcache: source ({path}) has {_listed(headers)}: name one as '{path}:NAME'")
    return wide[0]


def _listed(headers: dict[str, Header]) -> str:
    if not headers:
        return "no arrays"
    return ", ".join(f"{h.inner} {h.element.name}{list(h.shape)}" for h in list(headers.values())[:20])
