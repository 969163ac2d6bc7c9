"""Tables in PyTorch Geometric's ``Data`` and ``HeteroData``: ``Data(x=table)``.

PyG's loaders give each batch the rows of its nodes of tensors, of arrays and of TensorFrames, which it asks for their rows by an index, and the whole of everything
else. So a table that becomes data of a graph becomes a TensorFrame besides. Its rows are read in the process that opened the cache: in a worker an index into it stands
for the rows, and becomes them when the batch arrives. PyG asks nothing of the values that it stores, so their store is what does this, and refuses caches.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Optional

from .errors import ArgumentError, Error

if TYPE_CHECKING:
    from .table import Table

_STORAGE = "torch_geometric.data.storage"


@functools.cache
def admit_tables() -> None:
    """Has PyG take tables as data of graphs from now on, or from its import on."""
    storage = sys.modules.get(_STORAGE)
    if hasattr(storage, "BaseStorage"):
        _guard(storage)
    else:
        sys.meta_path.insert(0, _AtImport())


def admitted(table: Table) -> None:
    """Makes a table, also one of another process, one that PyG takes as data of a graph."""
    from torch_geometric.data import storage

    if not table._in_graph:
        table._become(_in_graph(type(table), storage.TensorFrame))


_kinds: dict[Any, type[Table]] = {}  # the classes that _in_graph has made


def _in_graph(of: Any, frame: Any) -> type[Table]:
    """Returns a class of tables with what PyG asks of a TensorFrame."""
    if of in _kinds:
        return _kinds[of]

    class InGraph(of, frame):  # type: ignore[misc]
        _in_graph = True

        @property
        def num_rows(self) -> int:
            return len(self)

        @property
        def num_cols(self) -> int:
            return int(self.shape[-1]) if self.ndim > 1 else 1

        @property
        def device(self) -> Any:
            """Where PyG moves the row numbers: nowhere in a worker."""
            return sys.modules["torch"].device("cpu") if self._in_worker() else super().device

        def __getitem__(self, ids: Any) -> Any:
            return _Rows(self, ids) if self._in_worker() else super().__getitem__(ids)

        def _in_worker(self) -> bool:
            return os.getpid() != self._cache._key[0] and sys.modules["torch"].utils.data.get_worker_info() is not None

        def _become(self, kind: type[Table]) -> None:
            super()._become(_in_graph(kind, frame))

    InGraph.__name__ = InGraph.__qualname__ = "Table"
    _kinds[of] = InGraph
    return InGraph


class _Rows:
    """Rows of a batch that a worker has sampled. Pickled, they are the rows themselves, read where that is undone."""

    def __init__(self, table: Table, ids: Any) -> None:
        self._table, self._ids = table, ids

    def __reduce__(self) -> Any:
        return operator.getitem, (self._table, self._ids)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Error(
            f"tensorcache: rows of table {self._table.name!r} are read in the process that opened it, when the batch has arrived there: make the loader with filter_per_worker=False "
            "if its transform needs them"
        )


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

        if isinstance(value, Cache) or isinstance(value, Table) and not hasattr(storage, "TensorFrame"):
            raise ArgumentError(
                f"tensorcache: {key} (a {type(value).__name__}) must not be in the data of a graph, whose loaders would give the whole of it to each batch: "
                f"put tables there, or make the data without it, and its loader by tensorcache.pyg.attach(loader, tables, attr={key!r})"
            )
        if isinstance(value, Table):
            admitted(value)
        set_item(self, key, value)

    storage.BaseStorage.__setitem__ = checked
