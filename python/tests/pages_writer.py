"""Writes a directory of pages as docs/format/pages.md describes it: rows as they are, without a second stage."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)

_DTYPES = {"float16": 1, "float32": 3, "float64": 4, "int8": 5, "int32": 7, "int64": 8, "uint8": 9}


def crc(data: bytes) -> int:
    """Returns the CRC-32C of data."""
    sum_ = 0xFFFFFFFF
    for byte in data:
        sum_ = _TABLE[(sum_ ^ byte) & 0xFF] ^ sum_ >> 8
    return sum_ ^ 0xFFFFFFFF


def write_pages(folder: Path, rows: np.ndarray[Any, Any], page_rows: int = 30, name: str = "features") -> Path:
    """Writes a table of one group, in pages of so many rows."""
    count, row_bytes = rows.shape[0], rows[0].nbytes
    generation = folder / "g1"
    generation.mkdir(parents=True)
    index, longest, total = struct.pack("<I", page_rows), 0, 0
    with open(generation / "pages-00000", "wb") as out:
        for first in range(0, count, page_rows):
            part = rows[first : first + page_rows]
            each = row_bytes + -row_bytes % 4
            ends = [i * each + row_bytes for i in range(len(part))]
            body = struct.pack(f"<{len(part)}I", *ends) + b"".join(row.tobytes().ljust(each, b"\0") for row in part)[: ends[-1] + -ends[-1] % 4]
            header = struct.pack("<4sBBHQIII", b"TCPG", 1, 0, 0, first, len(part), len(body), len(body))
            page = header + struct.pack("<I", crc(header + body)) + body
            out.write(page + bytes(-len(page) % 4096))
            index += struct.pack("<II", len(page), struct.unpack("<I", page[28:32])[0])
            longest, total = max(longest, len(page)), total + len(page)
    (generation / "index").write_bytes(index)
    pages = -(-count // page_rows)
    manifest = b"TCPAGES\1" + struct.pack(
        "<BBBBIQQIIIIQQQ", _DTYPES[rows.dtype.name], 0, 0, 0, row_bytes, count, 1, max(4096, longest), longest, pages, count, total, count, count * row_bytes
    )
    for part_bytes in (index, b"", b""):
        manifest += struct.pack("<Q", len(part_bytes)) + hashlib.sha256(part_bytes).digest()
    manifest += struct.pack("<II", len(name), 4) + name.encode() + b"none"
    (folder / "manifest").write_bytes(manifest + struct.pack("<I", crc(manifest)))
    return folder
