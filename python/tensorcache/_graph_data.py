"""Keeps tables out of PyTorch Geometric's ``Data`` and ``HeteroData``.

PyG's loaders give each batch the rows of its nodes of tensors and arrays, and the whole of everything else. Of a table they would give the whole, whose rows
``batch.x[batch.edge_index[0]]`` are other nodes' without an error. PyG asks nothing of the values that it stores, so their store is what refuses a table.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

from .errors import ArgumentError

_STORAGE = "torch_geometric.data.storage"


@functools.cache
def refuse_tables() -> None:
    """Has PyG refuse tables from now on, or from its import on."""
    storage = sys.modules.get(_STORAGE)
    if hasattr(storage, "BaseStorage"):
        _guard(storage)
    else:
        sys.meta_path.insert(0, _AtImport())


class _AtImport(MetaPathFinder):
    """Guards PyG's storage when it is imported. It passes every other module by."""

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
        if name != _STORAGE:
            return None
        finders = sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else []
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)
        loader: Any = spec and spec.loader
        if hasattr(loader, "exec_module"):
            load = loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                # The loader may load further modules: a zipimporter is that of a folder.
                if module.__name__ == _STORAGE and hasattr(module, "BaseStorage"):
                    _guard(module)
                    if self in sys.meta_path:
                        sys.meta_path.remove(self)

            loader.exec_module = exec_module
        return spec


def _guard(storage: Any) -> None:
    set_item = storage.BaseStorage.__setitem__

    @functools.wraps(set_item)
    def checked(self: Any, key: str, value: Any) -> None:
        from .cache import Cache
        from .table import Table

        if isinstance(value, (Table, Cache)):
            raise ArgumentError(
                f"tensorcache: {key} (a {type(value).__name__}) must not be in the data of a graph, whose loaders would give the whole table to each batch: "
                f"make the data without it, and its loader by tensorcache.pyg.attach(loader, table, attr={key!r})"
            )
        set_item(self, key, value)

    storage.BaseStorage.__setitem__ = checked
