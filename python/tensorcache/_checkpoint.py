"""Tensors of a .safetensors checkpoint of one or several files: what they are, and the text by which the library reads them."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

from ._headers import Entry, reading, safetensors_entries
from .errors import ArgumentError, FileError

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


@dataclass(frozen=True)
class Stored:
    """A tensor of two axes of a checkpoint, with elements of one byte."""

    name: str
    path: str
    entry: Entry

    @property
    def rows(self) -> int:
        return self.entry.shape[0]

    @property
    def columns(self) -> int:
        return self.entry.shape[1]


class Checkpoint:
    """Which tensor lies in which file: of ``*.index.json``, of a folder that has one, or of one .safetensors file."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self.path = os.fspath(path)
        index = self.path
        if os.path.isdir(self.path):
            index = os.path.join(self.path, _INDEX)
            if not os.path.exists(index):
                index = os.path.join(self.path, _SINGLE)
            if not os.path.exists(index):
                raise FileNotFoundError(f"tensorcache: checkpoint ({self.path}) has neither {_INDEX} nor {_SINGLE}")
        elif not os.path.exists(self.path):
            raise FileNotFoundError(f"tensorcache: checkpoint ({self.path}) does not exist")
        self._entries: dict[str, dict[str, Entry]] = {}
        self._index = index
        if index.endswith(".json"):
            self._files = _weight_map(index)
        elif index.endswith(".safetensors"):
            self._files = dict.fromkeys(self._of(index), index)
        else:
            raise ArgumentError(f"tensorcache: checkpoint ({self.path}) must be a folder, an .index.json or a .safetensors file")

    def names(self, wanted: Union[str, Sequence[str]]) -> list[str]:
        """Returns names of tensors: those given, or those that match a pattern with ``*``, numbers in them in the order of numbers."""
        if isinstance(wanted, str) and "*" not in wanted:
            wanted = [wanted]
        if not isinstance(wanted, str):
            return list(wanted)
        found = sorted((name for name in self._files if fnmatch.fnmatchcase(name, wanted)), key=_natural)
        if not found:
            raise ArgumentError(f"tensorcache: checkpoint ({self.path}) has no tensor that matches {wanted!r}: {self._listed()}")
        return found

    def tensor(self, name: str, dtypes: Sequence[str]) -> Stored:
        """Returns where a tensor lies, which must have two axes and one of the given dtypes, of one byte."""
        path = self._files.get(name)
        if path is None:
            raise ArgumentError(f"tensorcache: checkpoint ({self.path}) has no tensor {name!r}: {self._listed()}")
        if not os.path.exists(path):
            raise FileNotFoundError(f"tensorcache: checkpoint ({self.path}) lacks the file {os.path.basename(path)}, where its index has tensor {name!r}")
        entry = self._of(path).get(name)
        if entry is None:
            raise FileError(f"tensorcache: checkpoint ({self.path}) has no tensor {name!r} in {os.path.basename(path)}, where its index has it")
        if entry.kind not in dtypes:
            raise ArgumentError(f"tensorcache: tensor {name!r} (dtype {entry.kind}) must have dtype {' or '.join(dtypes)}")
        if len(entry.shape) != 2 or 0 in entry.shape:
            raise ArgumentError(f"tensorcache: tensor {name!r} (shape {list(entry.shape)}) must have two axes, rows and their elements")
        entry.check(path, name, 1)
        return Stored(name, path, entry)

    def library_path(self, lists: Sequence[Sequence[Stored]]) -> str:
        """Returns the path by which the library opens lists of tensors: the rows of a list follow each other, and row n is row n of each list."""
        for tensor in (tensor for tensors in lists for tensor in tensors):
            if set(tensor.name) & set("*,+"):
                raise ArgumentError(f"tensorcache: tensor {tensor.name!r} must have a name without *, + and commas")
        return f"{self._index}:" + "+".join(",".join(tensor.name for tensor in tensors) for tensors in lists)

    def _of(self, path: str) -> dict[str, Entry]:
        if path not in self._entries:
            self._entries[path] = reading(path, lambda: safetensors_entries(path))
        return self._entries[path]

    def _listed(self) -> str:
        some = sorted(self._files, key=_natural)[:10]
        return f"it has {len(self._files)} tensors, such as {', '.join(some)}" if some else "it has none"


def _weight_map(index: str) -> dict[str, str]:
    """The file of each tensor, of an index."""

    def load() -> Any:
        with open(index, encoding="utf-8") as f:
            return json.load(f)

    found = reading(index, load)
    files = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
        raise FileError(f"tensorcache: checkpoint ({index}) must be an object with a weight_map from names of tensors to files")
    for name, file in files.items():
        if os.path.basename(file) != file or file in ("", ".", ".."):
            raise FileError(f"tensorcache: checkpoint ({index}) has tensor {name!r} in {file!r}, which must be the name of a file beside it")
    return {name: os.path.join(os.path.dirname(index), file) for name, file in files.items()}


def _natural(name: str) -> list[Any]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
