"""PyTorch Geometric: features of a cache in loaders.

The short way fills ``batch.x`` of the batches of a loader::

    x = tensorcache.open("features.npy", gpu_memory="10GB")
    loader = tensorcache.pyg.attach(NeighborLoader(data, ...), x)      # data without x

The other is a ``FeatureStore``, for loaders of a ``(FeatureStore, GraphStore)`` pair::

    store = tensorcache.pyg.FeatureStore({"paper": papers, "author": authors})
    loader = NeighborLoader((store, graph_store), ..., filter_per_worker=False)

A third is the table as data of the graph, ``Data(x=x)``, whose loaders need no change.

Every way rows are fetched in the process that opened the cache. Worker processes sample only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional, Union

import numpy as np
import torch
from torch_geometric.data import FeatureStore as _FeatureStore
from torch_geometric.data import TensorAttr

from .errors import ArgumentError, Error
from .table import Table

__all__ = ["FeatureStore", "aggregate", "attach"]

Tables = Union[Table, Mapping[str, Table]]  # a Cache is a mapping
Key = tuple[Any, Any]


class FeatureStore(_FeatureStore):  # type: ignore[misc]
    """A PyG feature store whose features are tables of a cache.

    ``tables`` is one table (of a graph with one type of nodes), or a dict, or a cache of several tables, from node type to table; or a dict
    whose keys are ``(node type, attribute name)``. ``attr_name`` is the name of the attribute for the keys that have none.

    ``get_tensor`` takes ``index`` as a CPU or CUDA tensor, a NumPy array, a slice, an int, or None for all rows, and returns what
    ``table[index]`` returns: a tensor on the cache's device, in the order of the current stream. ``put_tensor`` to the key of a table updates
    its rows: all of them, or those of ``index``. Tensors that are put under other keys, for example labels, are kept as they are.
    ``remove_tensor`` forgets a table and does not close its cache.

    Loaders that are given the store need ``filter_per_worker=False``, since a worker process cannot use the cache of its parent: a fetch in a
    worker is an ``Error``.
    """

    def __init__(self, tables: Union[Tables, Mapping[Key, Table]], attr_name: str = "x") -> None:
        super().__init__()
        self._tables: dict[Key, Table] = {}
        self._kept: dict[Key, Any] = {}
        if not isinstance(tables, (Table, Mapping)):
            raise TypeError(f"tensorcache: tables ({type(tables).__name__}) must be a table or a dict of tables")
        named: Mapping[Any, Table] = {None: tables} if isinstance(tables, Table) else tables
        for key, table in named.items():
            if not isinstance(table, Table):
                raise TypeError(f"tensorcache: tables[{key!r}] ({type(table).__name__}) must be a table of tensorcache.open")
            self._tables[key if isinstance(key, tuple) else (key, attr_name)] = table

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        key, index = _key(attr), attr.index
        table = self._tables.get(key)
        if table is not None:
            table.update(slice(None) if index is None else index, tensor)
        elif index is None or isinstance(index, slice) and index == slice(None):
            self._kept[key] = tensor
        elif key in self._kept:
            self._kept[key][index] = tensor
        else:
            return False
        return True

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """Is ``put_tensor``. PyG's own removes the attribute first, with the table behind it."""
        return bool(self.put_tensor(tensor, *args, **kwargs))

    def _get_tensor(self, attr: TensorAttr) -> Any:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Any]:
        moved: dict[tuple[int, str], Any] = {}  # each index goes to each device once
        found = []
        for attr in attrs:
            index = slice(None) if attr.index is None else attr.index
            table = self._tables.get(_key(attr))
            if table is None:
                found.append(self._of_kept(attr, index))
                continue
            if torch.utils.data.get_worker_info() is not None:
                raise Error(
                    f"tensorcache: table {table.name!r} cannot be read in a worker process of a loader: make the loader with "
                    "filter_per_worker=False, so that workers sample and the process that opened the cache fetches"
                )
            if isinstance(index, torch.Tensor) and index.device != table.device:
                index = moved.setdefault((id(attr.index), str(table.device)), index.to(table.device, non_blocking=True))
            found.append(table[index])
        return found

    def _of_kept(self, attr: TensorAttr, index: Any) -> Any:
        kept = self._kept.get(_key(attr))
        if kept is None:
            raise KeyError(f"tensorcache: the store has no {attr.attr_name!r} of {attr.group_name!r}")
        if isinstance(kept, torch.Tensor) and isinstance(index, (torch.Tensor, np.ndarray)):
            index = torch.as_tensor(index, device=kept.device)
        return kept[index]

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        key = _key(attr)
        return self._tables.pop(key, None) is not None or self._kept.pop(key, None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> Union[tuple[int, ...], None]:
        key, index = _key(attr), attr.index
        held = self._tables.get(key, self._kept.get(key))
        if held is None:
            return None
        shape = tuple(held.shape)
        if index is None:
            return shape
        if isinstance(index, slice):
            return (len(range(*index.indices(shape[0]))), *shape[1:])
        if not isinstance(index, torch.Tensor):
            index = np.asarray(index)
        if index.dtype in (torch.bool, np.bool_):  # they select rows
            return (int(index.sum()), *shape[1:])
        return (*index.shape, *shape[1:])

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Returns an attribute for each table and tensor, each time new ones: loaders write the index of a batch to them."""
        return [TensorAttr(group, name) for group, name in (*self._tables, *self._kept)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{group}.{name}' if group else str(name) for group, name in (*self._tables, *self._kept))})"


def _key(attr: TensorAttr) -> Key:
    def given(value: Any, field: str) -> Any:
        return value if attr.is_set(field) else None

    return given(attr.group_name, "group_name"), given(attr.attr_name, "attr_name")


class _Fill:
    """A transform that sets the features of a batch, then applies the loader's own transform."""

    def __init__(self, tables: Tables, attr: str, then: Union[Callable[[Any], Any], None]) -> None:
        self.tables, self.attr, self.then = tables, attr, then

    def __call__(self, batch: Any) -> Any:
        for store, table in self._stores(batch):
            setattr(store, self.attr, table[store.n_id])
        return batch if self.then is None else self.then(batch)

    def prefetch(self, batch: Any) -> None:
        """Begins to read the features of a batch."""
        for store, table in self._stores(batch):
            table.prefetch(store.n_id)

    def _stores(self, batch: Any) -> Iterator[tuple[Any, Table]]:
        """What has the row numbers of a table: the batch itself, or its part for a type of nodes."""
        if isinstance(self.tables, Table):
            yield batch, self.tables
        elif (kinds := getattr(batch, "node_types", None)) is None:
            raise ArgumentError(f"tensorcache: tables (of {', '.join(map(str, self.tables))}) must be one table for batches of one type of nodes")
        else:
            yield from ((batch[kind], self.tables[kind]) for kind in kinds if kind in self.tables)


class _Filled:
    """A loader whose batches get their features while they are iterated, and have them prefetched so many batches before."""

    def __init__(self, loader: Any, fill: _Fill, ahead: int) -> None:
        self._loader, self._fill, self._ahead = loader, fill, ahead

    def __iter__(self) -> Iterator[Any]:
        waiting: deque[Any] = deque()
        for batch in self._loader:
            if self._ahead > 0:
                self._fill.prefetch(batch)
            waiting.append(batch)
            if len(waiting) > self._ahead:
                yield self._fill(waiting.popleft())
        yield from map(self._fill, waiting)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader" or name.startswith("__"):  # asked for by copy and pickle, before there is a loader
            raise AttributeError(name)
        return getattr(self._loader, name)


AHEAD = 2  # batches


def attach(loader: Any, tables: Tables, attr: str = "x", ahead: Optional[int] = None) -> Any:
    """Makes a loader set ``batch.x`` from a cache, and returns the loader.

    ``tables`` is one table for batches of one type of nodes (``batch.x = table[batch.n_id]``), or a dict, or a cache of several tables, from
    node type to table (``batch["paper"].x = tables["paper"][batch["paper"].n_id]``). Types without a table are left alone. ``attr`` is the
    name of the attribute. The data of the loader should have no features of its own, which would be copied for nothing.

    PyG's loaders are changed in place: features are set before the loader's ``transform``, in this process (``filter_per_worker`` becomes
    False; worker processes sample). For any other iterable of batches a new one is returned. ``batch.x`` is on the cache's device, in the
    order of the stream that is current while the batch is made.

    ``ahead`` is how many batches before their use ``Table.prefetch`` is called for features: by default 2 if a table is one of pages, else 0. Unless it is 0, a new
    loader is returned for PyG's, too, to be used in place of the given one.
    """
    if not isinstance(tables, (Table, Mapping)):
        raise TypeError(f"tensorcache: tables ({type(tables).__name__}) must be a table or a dict of tables")
    if not isinstance(tables, Table) and len(tables) == 0:
        raise ArgumentError("tensorcache: tables (none) must have at least one table")
    if ahead is None:
        ahead = AHEAD if any(table.paged for table in ([tables] if isinstance(tables, Table) else tables.values())) else 0
    if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
        raise ArgumentError(f"tensorcache: ahead ({ahead!r}) must be a number of batches, or None")
    then = None
    if hasattr(loader, "filter_per_worker") and hasattr(loader, "transform"):
        loader.filter_per_worker = False
        if ahead == 0:
            loader.transform = _Fill(tables, attr, loader.transform)
            return loader
        then, loader.transform = loader.transform, None
    return _Filled(loader, _Fill(tables, attr, then), ahead)


def aggregate(
    x: Table, csr: Any, reduce: str = "mean", edge_weight: Optional[torch.Tensor] = None, n_id: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Aggregates the features of each node's neighbours straight from the cache: the first layer of a GNN, without the neighbours' rows being written.

    ``csr`` says who the neighbours are: a pair ``(rowptr, col)`` of integers, of shapes ``[nodes + 1]`` and ``[edges]``, a sparse CSR tensor of torch, or anything with a method ``csr()`` whose first two
    results are these (``torch_sparse.SparseTensor``). Row ``i`` of the result, ``[nodes, columns]``, is the "sum", "mean" or "max" (``reduce``) of the rows
    ``col[rowptr[i]:rowptr[i + 1]]`` of ``x``, and zeros for a node without neighbours. ``edge_weight`` has a float32 factor for each element of ``col``, with
    "sum". ``n_id``, of a batch of a loader, says which rows of ``x`` the batch's nodes are; ``col`` are nodes of the batch then.
    """
    if not isinstance(x, Table):
        raise TypeError(f"tensorcache: x ({type(x).__name__}) must be a table of tensorcache.open")
    if isinstance(csr, torch.Tensor):
        if csr.layout != torch.sparse_csr:
            raise TypeError(f"tensorcache: csr (a tensor with layout {csr.layout}) must be a sparse CSR tensor")
        rowptr, col = csr.crow_indices(), csr.col_indices()
    elif isinstance(csr, (tuple, list)):
        rowptr, col = csr[0], csr[1]
    elif hasattr(csr, "csr"):
        rowptr, col = csr.csr()[:2]
    else:
        raise TypeError(f"tensorcache: csr ({type(csr).__name__}) must be a pair (rowptr, col) or a sparse CSR tensor")
    if n_id is not None:
        col = n_id[col]
    result: torch.Tensor = x.embedding_bag(col, rowptr, reduce, edge_weight, include_last_offset=True)
    return result
