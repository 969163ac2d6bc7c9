"""PyTorch Geometric: loaders over a FeatureStore, and loaders whose batches get their features from a cache.

PyG's own neighbour samplers need compiled packages, so samplers in Python stand in for them: they sample with the loader's interface.
"""

from __future__ import annotations

import copy
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")

from torch_geometric.data import Data, HeteroData, TensorAttr  # noqa: E402
from torch_geometric.loader import NeighborLoader, NodeLoader  # noqa: E402
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput  # noqa: E402
from torch_geometric.testing import MyGraphStore  # noqa: E402
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE  # noqa: E402

import tensorcache  # noqa: E402
from tensorcache import pyg  # noqa: E402

Array = np.ndarray[Any, Any]
N = 500


class Sampler(BaseSampler):  # type: ignore[misc]
    """Samples three neighbours of each seed at random."""

    edge_permutation = None

    def sample_from_edges(self, index: Any, **_: Any) -> Any:
        raise NotImplementedError

    def sample_from_nodes(self, index: Any, **_: Any) -> Any:
        seeds = index.node
        found = torch.unique(torch.cat([seeds, torch.randint(0, N, (3 * len(seeds),))]))
        row, col = torch.randint(0, len(found), (2, 20))
        return SamplerOutput(found, row, col, None, None, metadata=(index.input_id, index.time))


class HeteroSampler(BaseSampler):  # type: ignore[misc]
    edge_permutation = None

    def sample_from_edges(self, index: Any, **_: Any) -> Any:
        raise NotImplementedError

    def sample_from_nodes(self, index: Any, **_: Any) -> Any:
        node = {"paper": index.node, "author": torch.randint(0, 40, (7,)), "venue": torch.arange(2)}
        kind = ("paper", "by", "author")
        row, col = {kind: torch.zeros(4, dtype=torch.long)}, {kind: torch.zeros(4, dtype=torch.long)}
        return HeteroSamplerOutput(node, row, col, {kind: None}, None, metadata=(index.input_id, index.time))


@pytest.fixture
def table(rows: Array) -> Any:
    return torch.from_numpy(rows[:N])


def graph() -> Any:
    data = Data(edge_index=torch.randint(0, N, (2, 2000)), num_nodes=N)
    data.y = torch.arange(N)
    return data


@pytest.mark.parametrize(("workers", "context"), [(0, None), (2, "fork"), (1, "spawn")])
def test_attach(device: str, table: Any, workers: int, context: Any) -> None:
    with tensorcache.open(table, "25%", device=device) as x:
        loader = NodeLoader(graph(), Sampler(), batch_size=64, num_workers=workers, transform=Mark(), multiprocessing_context=context)
        assert pyg.attach(loader, x) is loader
        seen = 0
        for batch in loader:
            assert torch.equal(batch.x.cpu(), table[batch.n_id]) and batch.x.device == x.device
            assert torch.equal(batch.y, batch.n_id) and batch.marked == tuple(batch.x.shape)
            seen += batch.batch_size
        assert seen == N


class Mark:
    """The loader's own transform, which sees the features."""

    def __call__(self, batch: Any) -> Any:
        batch.marked = tuple(batch.x.shape)
        return batch


def test_attach_types_of_nodes(device: str, table: Any) -> None:
    data = HeteroData()
    data["paper"].num_nodes, data["author"].num_nodes, data["venue"].num_nodes = N, 40, 2
    data["paper", "by", "author"].edge_index = torch.zeros(2, 10, dtype=torch.long)
    authors = torch.randn(40, 5)
    with tensorcache.open({"paper": table, "author": authors}, "50%", device=device) as cache:
        for tables in (cache, {"paper": cache["paper"], "author": cache["author"]}):
            loader = pyg.attach(NodeLoader(data, HeteroSampler(), input_nodes="paper", batch_size=100), tables)
            for batch in loader:
                assert torch.equal(batch["paper"].x.cpu(), table[batch["paper"].n_id])
                assert torch.equal(batch["author"].x.cpu(), authors[batch["author"].n_id])
                assert "x" not in batch["venue"]


@pytest.mark.parametrize("imported", ["before", "after"])
def test_tables_become_data_of_a_graph(python: Any, imported: str) -> None:
    """Whichever is imported first. A cache is refused: a loader would give the whole of it to each batch."""
    done = python(f"""
import sys, torch
if {imported!r} == "before": import torch_geometric
import tensorcache
rows = torch.randn(9, 4)
cache = tensorcache.open({{"paper": rows, "author": torch.ones(9, 4)}}, "1MB", device="host")
assert ("torch_geometric" in sys.modules) == ({imported!r} == "before")
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import filter_data
x, hetero = cache["paper"], HeteroData()
data = Data(x=x, edge_index=torch.tensor([[0, 5], [7, 0]]))
assert data.x is x and data.to("cpu").x is x and (data.num_nodes, data.num_features) == (9, 4) and "x=Table([9, 4])" in repr(data)
ids = torch.tensor([5, 7])
assert torch.equal(filter_data(data, ids, ids[:1], ids[1:], None).x, rows[ids])
for store in (lambda: Data(x=cache), lambda: setattr(data, "x", cache), lambda: HeteroData(paper=dict(x=cache))):
    try: store()
    except tensorcache.ArgumentError as e: assert "must not be in the data of a graph" in str(e) and "tensorcache.pyg.attach(loader, tables, attr=" in str(e), e
    else: raise AssertionError(store)
assert not [of for of in sys.meta_path if "tensorcache" in type(of).__module__]
print("ok")
""")
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.parametrize(("workers", "context"), [(0, None), (1, "fork"), (1, "spawn")])
def test_table_as_data_of_a_loader(table: Any, workers: int, context: Any) -> None:
    """Workers sample, and the rows are read where the table was opened."""
    authors = torch.randn(40, 5)
    with tensorcache.open({"x": table, "author": authors}, "50%", device="host") as cache:
        one, several = graph(), HeteroData()
        one.x, several["paper"].x, several["author"].x, several["venue"].num_nodes = cache["x"], cache["x"], cache["author"], 2
        several["paper", "by", "author"].edge_index = torch.zeros(2, 10, dtype=torch.long)
        options = dict(batch_size=250, num_workers=workers, multiprocessing_context=context)
        seen = 0
        for batch in NodeLoader(one, Sampler(), **options):
            assert type(batch.x) is torch.Tensor and torch.equal(batch.x, table[batch.n_id]) and torch.equal(batch.y, batch.n_id)
            seen += batch.batch_size
        assert seen == N
        if context in (None, "fork"):  # others take seconds to start
            for batch in NodeLoader(several, HeteroSampler(), input_nodes="paper", **options):
                assert torch.equal(batch["paper"].x, table[batch["paper"].n_id]) and torch.equal(batch["author"].x, authors[batch["author"].n_id])
            with pytest.raises(AssertionError) if workers == 0 else pytest.raises(tensorcache.Error, match="filter_per_worker=False"):
                next(iter(NodeLoader(one, Sampler(), transform=uses_x, **options)))
            assert next(iter(NodeLoader(one, Sampler(), transform=Mark(), filter_per_worker=False, **options))).marked[1] == 32


def uses_x(batch: Any) -> Any:
    assert not batch.x.numel()


def first_neighbours(colptr: Any, row: Any, seed: Any, num_neighbors: list[int], replace: bool, directed: bool) -> Any:
    """The operator that PyG's NeighborLoader calls, of torch-sparse: it samples neighbours, here the first ones."""
    nodes, at, edges = seed.tolist(), {node: i for i, node in enumerate(seed.tolist())}, []
    begin = 0
    for count in num_neighbors:
        end = len(nodes)
        for i in range(begin, end):
            for edge in range(int(colptr[nodes[i]]), min(int(colptr[nodes[i]]) + count, int(colptr[nodes[i] + 1]))):
                if at.setdefault(int(row[edge]), len(nodes)) == len(nodes):
                    nodes.append(int(row[edge]))
                edges.append((at[int(row[edge])], i, edge))
        begin = end
    found = torch.tensor(edges, dtype=torch.int64).view(-1, 3)
    return torch.tensor(nodes), found[:, 0].contiguous(), found[:, 1].contiguous(), found[:, 2].contiguous()


@pytest.fixture
def sampler(monkeypatch: Any) -> Iterator[None]:
    """pyg-lib or torch-sparse, which have the operator in C++; where neither is installed (no index has wheels of them for this torch), the one above."""
    with torch.library._scoped_library("torch_sparse", "FRAGMENT") as library:
        if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
            library.define("neighbor_sample(Tensor colptr, Tensor row, Tensor seed, int[] num_neighbors, bool replace, bool directed) -> (Tensor, Tensor, Tensor, Tensor)")
            library.impl("neighbor_sample", first_neighbours, "CPU")
            monkeypatch.setattr("torch_geometric.typing.WITH_TORCH_SPARSE", True)
        yield


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("sampler")
def test_neighbor_loader(table: Any, workers: int) -> None:
    """PyG's own, with features that are attached, and with a table as data."""
    data = graph()
    edges = set(map(tuple, data.edge_index.t().tolist()))
    with tensorcache.open(table, "25%", device="host", train=NeighborLoader(data, [5, 5], batch_size=64)) as x:
        attached = pyg.attach(NeighborLoader(data, [5, 5], batch_size=64, num_workers=workers), x)
        within = NeighborLoader(Data(x=x, edge_index=data.edge_index), [5, 5], batch_size=64, num_workers=workers)
        for loader in (attached, within):
            seen = 0
            for batch in loader:
                assert torch.equal(batch.x, table[batch.n_id]) and batch.edge_index.max() < len(batch.n_id)
                assert all(tuple(edge) in edges for edge in batch.n_id[batch.edge_index].t().tolist())
                seen += batch.batch_size
            assert seen == N


def test_only_the_storage_is_guarded(python: Any, tmp_path: Path) -> None:
    """Of a package in a zip file, whose modules share a loader. To look for the storage without importing it changes nothing."""
    with zipfile.ZipFile(tmp_path / "stand_in.zip", "w") as archive:
        for name, text in (("__init__", ""), ("data/__init__", ""), ("data/other", "A = 1"), ("data/storage", "class BaseStorage(dict): pass")):
            archive.writestr(f"torch_geometric/{name}.py", text)
    done = python(f"""
import importlib.util, sys
import numpy as np, tensorcache
sys.path.insert(0, {str(tmp_path / "stand_in.zip")!r})
x = tensorcache.open(np.ones((9, 4), np.float32), "1MB", device="host")
spec = importlib.util.find_spec("torch_geometric.data.storage")
assert "BaseStorage" in spec.loader.get_source(spec.name) and spec.name not in sys.modules
import torch_geometric.data.storage as storage
import torch_geometric.data.other as other
assert type(storage.__loader__).__name__ == type(storage.__spec__.loader).__name__ == "zipimporter", storage.__loader__
try: storage.BaseStorage()["x"] = x
except tensorcache.ArgumentError as e: print("refused")
assert other.A == 1 and not [of for of in sys.meta_path if "tensorcache" in type(of).__module__]
""")
    assert done.stdout == "refused\n", done.stderr


def test_attach_several_tables_to_spawned_workers(table: Any) -> None:
    data = HeteroData()
    data["paper"].num_nodes, data["author"].num_nodes, data["venue"].num_nodes = N, 40, 2
    data["paper", "by", "author"].edge_index = torch.zeros(2, 10, dtype=torch.long)
    with tensorcache.open({"paper": table, "author": table[:40] + 1}, "50%", device="host") as cache:
        loader = NodeLoader(data, HeteroSampler(), input_nodes="paper", batch_size=250, num_workers=1, multiprocessing_context="spawn")
        for batch in pyg.attach(loader, cache):
            assert torch.equal(batch["paper"].x, table[batch["paper"].n_id]) and torch.equal(batch["author"].x, table[batch["author"].n_id] + 1)


def test_attach_to_any_iterable(table: Any) -> None:
    batches = [Data(n_id=torch.randint(0, N, (9,))) for _ in range(3)]
    with tensorcache.open(table, "25%", device="host") as x:
        loader = pyg.attach(batches, x, attr="feat")
        assert len(loader) == 3
        assert all(torch.equal(batch.feat, table[batch.n_id]) for batch in loader)
        with pytest.raises(TypeError, match="int"):
            pyg.attach(batches, 3)
        with pytest.raises(tensorcache.ArgumentError, match=r"tables \(of paper\) must be one table for batches of one type of nodes"):
            next(iter(pyg.attach(batches, {"paper": x})))
        with pytest.raises(tensorcache.ArgumentError, match="at least one"):
            pyg.attach(batches, {})


@pytest.mark.parametrize("workers", [0, 2])
def test_feature_store_in_a_loader(device: str, table: Any, workers: int) -> None:
    with tensorcache.open(table, "25%", device=device) as x:
        store = pyg.FeatureStore(x)
        labels = torch.arange(N)
        store[TensorAttr(None, "y", None)] = labels
        graphs = MyGraphStore()
        loader = NodeLoader((store, graphs), Sampler(), input_nodes=torch.arange(N), batch_size=50, num_workers=workers, filter_per_worker=False)
        seen = 0
        for batch in loader:
            assert torch.equal(batch.x.cpu(), table[batch.n_id]) and torch.equal(batch.y, labels[batch.n_id])
            seen += batch.batch_size
        assert seen == N


def test_fetching_in_a_worker_is_an_error(table: Any) -> None:
    with tensorcache.open(table, "25%", device="host") as x:
        loader = NodeLoader((pyg.FeatureStore(x), MyGraphStore()), Sampler(), input_nodes=torch.arange(N), batch_size=50, num_workers=1)
        with pytest.raises(Exception, match="filter_per_worker=False"):
            next(iter(loader))


def test_store_of_several_types(device: str, table: Any) -> None:
    authors = torch.randn(40, 5)
    with tensorcache.open({"paper": table, "author": authors}, "50%", device=device) as cache:
        store = pyg.FeatureStore(cache)
        loader = NodeLoader((store, MyGraphStore()), HeteroSampler(), input_nodes=("paper", torch.arange(N)), batch_size=100, filter_per_worker=False)
        for batch in loader:
            assert torch.equal(batch["paper"].x.cpu(), table[batch["paper"].n_id])
            assert torch.equal(batch["author"].x.cpu(), authors[batch["author"].n_id])


def test_all_methods(table: Any) -> None:
    with tensorcache.open(table, "25%", device="host") as x:
        store = pyg.FeatureStore({("paper", "emb"): x})
        attr = TensorAttr("paper", "emb")
        first, second = store.get_all_tensor_attrs(), store.get_all_tensor_attrs()
        assert [(a.group_name, a.attr_name, a.is_set("index")) for a in first] == [("paper", "emb", False)]
        assert first[0] is not second[0]
        assert store.get_tensor_size(attr) == (N, 32)
        assert store.get_tensor_size("paper", "emb", torch.arange(3)) == (3, 32)
        assert store.get_tensor_size("paper", "emb", slice(10, 14)) == (4, 32)
        mask = torch.arange(N) % 5 == 0
        for of in (mask, mask.tolist()):  # longer arrays fail in PyG itself
            assert store.get_tensor_size("paper", "emb", of) == (N // 5, 32)
        assert store.get_tensor_size("paper", "emb", 7) == (32,)
        assert store.get_tensor_size("paper", "none") is None
        for index in (None, slice(3, 9), torch.tensor([5, 1]), np.array([2])):  # longer arrays fail in PyG itself
            wanted = table if index is None else table[index]
            assert torch.equal(torch.as_tensor(store.get_tensor("paper", "emb", index)), wanted)
        assert torch.equal(torch.as_tensor(store["paper", "emb", 4]), table[4])
        assert torch.equal(store["paper", "emb"][torch.tensor([1])], table[1:2])
        got = store.get_tensor("paper", "emb", np.array([1]), convert_type=True)
        assert isinstance(got, np.ndarray)
        assert store.put_tensor(torch.zeros(2, 32), group_name="paper", attr_name="emb", index=torch.tensor([7, 8]))
        assert not store["paper", "emb", torch.tensor([7, 8])].any()
        assert store.put_tensor(table, "paper", "emb", None)
        assert torch.equal(store["paper", "emb", None], table)
        assert store.put_tensor(torch.arange(N), "paper", "y", None) and not store.put_tensor(torch.zeros(1), "venue", "y", torch.tensor([0]))
        assert store.put_tensor(torch.tensor([-1]), "paper", "y", torch.tensor([3])) and store["paper", "y", torch.tensor([3])].item() == -1
        assert "paper.emb" in repr(store) and "paper.y" in repr(store)
        assert store.remove_tensor("paper", "emb", None) and not store.remove_tensor("paper", "emb", None)
        with pytest.raises(KeyError, match="emb"):
            store.get_tensor("paper", "emb", None)
        with pytest.raises(TypeError, match="Tensor"):
            pyg.FeatureStore(table)


def test_one_copy_of_an_index_for_all_attributes(table: Any) -> None:
    with tensorcache.open({"a": table, "b": table + 1}, "50%", device="host") as cache:
        store = pyg.FeatureStore({("n", "a"): cache["a"], ("n", "b"): cache["b"]})
        index = torch.randint(0, N, (30,))
        a, b = store.multi_get_tensor([TensorAttr("n", "a", index), TensorAttr("n", "b", index)])
        assert torch.equal(a, table[index]) and torch.equal(b, table[index] + 1)


def test_training_from_batches(table: Any) -> None:
    batches = [Data(n_id=torch.arange(40)), Data(n_id=torch.arange(20, 60))]
    with tensorcache.open(table, "20%", device="host", train=batches, codec="none") as x:
        assert all(entry["cached"] for entry in x.explain(np.arange(60)))
    assert pickle.loads(pickle.dumps(x)) is not None


def test_update_tensor_keeps_the_table(table: Any) -> None:
    """PyG's own update_tensor removes the attribute and puts it again: the store would no longer read from the table."""
    with tensorcache.open(table, "25%", device="host") as x:
        store = pyg.FeatureStore({("paper", "x"): x})
        assert store.update_tensor(torch.ones(2, 32), "paper", "x", torch.tensor([1, 2]))
        assert store.update_tensor(-table, "paper", "x", None)
        assert torch.equal(store["paper", "x", torch.arange(5)], -table[:5]) and torch.equal(x[torch.arange(5)], -table[:5])
        assert store.update_tensor(torch.arange(3), "paper", "y", None) and store.update_tensor(torch.arange(4), "paper", "y", None)
        assert torch.equal(store["paper", "y", None], torch.arange(4))


def test_attached_iterable_is_copied(table: Any) -> None:
    with tensorcache.open(table, "25%", device="host") as x:
        loader = copy.copy(pyg.attach([Data(n_id=torch.arange(3))], x))
        assert torch.equal(next(iter(loader)).x, table[:3]) and len(loader) == 1
