"""Tensors of a checkpoint in safetensors files, read where they lie in the mapped files."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
from pathlib import Path
from typing import Any, Union

import torch

from .._model import _TYPES
from ..errors import FileError

_DTYPES = {name: getattr(torch, of) for name, of in _TYPES.items() if name != "F4" and hasattr(torch, of)}


class Checkpoint:
    """The safetensors files of a directory, or one such file."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = Path(path)
        files = sorted(self.path.glob("*.safetensors")) if self.path.is_dir() else [self.path]
        if not files or not files[0].exists():
            raise FileNotFoundError(f"tensorcache: checkpoint ({self.path}) must be a directory with safetensors files, or such a file")
        self._maps: list[mmap.mmap] = []
        self._entries: dict[str, tuple[mmap.mmap, int, dict[str, Any]]] = {}
        for file in files:
            with open(file, "rb") as f:
                try:
                    length = int.from_bytes(f.read(8), "little")
                    header: dict[str, Any] = json.loads(f.read(length)) if length < 1 << 27 else {}
                    # Private pages: torch takes only memory that can be written, and nothing writes it.
                    mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
                    if not header:
                        raise ValueError("it has no header")
                    header.pop("__metadata__", None)
                    last = 0
                    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                        begin, end = entry["data_offsets"]
                        if any(type(n) is not int or n < 0 for n in (*entry["shape"], begin, end)):
                            raise ValueError(f"tensor {name} has shape {entry['shape']} and data_offsets {entry['data_offsets']}")
                        if end - begin != math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize:
                            raise ValueError(f"tensor {name} has {end - begin} bytes")
                        if begin != last:
                            raise ValueError(f"tensor {name} begins at {begin}, and must begin at {last}, where the one before ends")
                        if name in self._entries:
                            raise ValueError(f"tensor {name} is in another file, too")
                        self._entries[name] = mapped, 8 + length + begin, entry
                        last = end
                    if 8 + length + last != len(mapped):
                        raise ValueError(f"its tensors need {last} bytes, and its data has {len(mapped) - 8 - length}")
                except (ValueError, KeyError, TypeError, AttributeError) as e:
                    raise FileError(f"tensorcache: checkpoint file ({file}) must be a safetensors file: {e}") from e
            self._maps.append(mapped)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor, in the file's memory."""
        mapped, begin, entry = self._entries[name]
        dtype, count = _DTYPES[entry["dtype"]], math.prod(entry["shape"])
        found: torch.Tensor = torch.frombuffer(mapped, dtype=dtype, count=count, offset=begin) if count else torch.empty(0, dtype=dtype)
        return found.view(entry["shape"])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(self._entries[name][2]["shape"])

    def release(self) -> None:
        """Has the files' pages no longer count as memory of the process."""
        for mapped in self._maps:
            with contextlib.suppress(OSError):
                mapped.madvise(mmap.MADV_DONTNEED)
