"""GraphBolt: a table as a Feature, read by a stand-in of its feature fetcher."""

from __future__ import annotations

import contextlib
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import graphbolt_stand_in  # noqa: E402
from pages_writer import write_pages  # noqa: E402

import tensorcache  # noqa: E402

Array = np.ndarray[Any, Any]
KEY = ("node", None, "feat")


@pytest.fixture
def gb(monkeypatch: Any) -> Iterator[Any]:
    """tensorcache.graphbolt with the stand-in below it."""
    dgl = types.ModuleType("dgl")
    dgl.graphbolt = graphbolt_stand_in.module()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dgl", dgl)
    monkeypatch.setitem(sys.modules, "dgl.graphbolt", dgl.graphbolt)
    monkeypatch.delitem(sys.modules, "tensorcache.graphbolt", raising=False)
    import importlib

    yield importlib.import_module("tensorcache.graphbolt")
    sys.modules.pop("tensorcache.graphbolt", None)


@pytest.mark.parametrize("overlap", [False, True])
def test_fetcher(gb: Any, device: str, rows: Array, overlap: bool) -> None:
    table = torch.from_numpy(rows)
    on = "cuda" if device == "cuda" and torch.cuda.is_available() else "cpu"
    with tensorcache.open(table, "25%", device=device) as x:
        feature = gb.Feature(x, metadata={"unit": "m"})
        assert isinstance(feature, graphbolt_stand_in.Feature)
        store = graphbolt_stand_in.BasicFeatureStore({KEY: feature})
        batches = [{KEY: torch.randint(0, 5000, (n,), device=each)} for n in (5, 0, 900) for each in {"cpu", on}]
        fetched = list(graphbolt_stand_in.FeatureFetcher(batches, store, overlap))
        assert len(fetched) == len(batches)
        for batch, values in zip(batches, fetched):
            assert torch.equal(values[KEY].cpu(), table[batch[KEY].cpu()]) and values[KEY].device == x.device
        assert store.size(*KEY) == torch.Size([32]) and store.count(*KEY) == 5000 and store.metadata(*KEY) == {"unit": "m"}
        assert torch.equal(store.read(*KEY).cpu(), table)
        store.update(*KEY, torch.zeros(2, 32), torch.tensor([4, 5]))
        assert not store.read(*KEY, torch.tensor([4, 5])).any()
        store.update(*KEY, table)
        assert torch.equal(feature.read(torch.tensor([4, 5])).cpu(), table[[4, 5]])
        assert "5000, 32" in repr(feature)


def test_stages(gb: Any, rows: Array) -> None:
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        feature, ids = gb.Feature(x), torch.tensor([3, 1])
        futures = list(feature.read_async(ids))
        assert len(futures) == feature.read_async_num_stages(ids.device)
        assert torch.equal(futures[-1].wait(), torch.from_numpy(rows)[ids])


def test_stages_of_pages(gb: Any, device: str, rows: Array, tmp_path: Path) -> None:
    """The first stage prefetches."""
    with tensorcache.open(write_pages(tmp_path / "features.tc", rows), "60KB", host_memory="400KB", device=device) as x:
        feature = gb.Feature(x)
        absent = [entry["row"] for entry in x.explain(np.arange(len(rows))) if entry["tier"] == "pages"]
        batches = [{KEY: torch.tensor(absent[i : i + 20])} for i in range(0, 100, 20)]
        store = graphbolt_stand_in.BasicFeatureStore({KEY: feature})
        for batch, values in zip(batches, graphbolt_stand_in.FeatureFetcher(batches, store, True)):
            np.testing.assert_array_equal(values[KEY].cpu(), rows[batch[KEY]])
        for _ in range(6000):
            if x.stats()["tiers"]["prefetch"]["rows"] >= 20:
                break
            time.sleep(0.01)
        assert x.stats()["tiers"]["prefetch"]["rows"] >= 20
        assert feature.read_async_num_stages(torch.device("cpu")) == len(list(feature.read_async(batches[0][KEY]))) == 2


def test_without_graphbolt(rows: Array) -> None:
    if "dgl" in sys.modules:
        pytest.skip("dgl is installed")
    from tensorcache import graphbolt

    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        assert graphbolt.Feature(x).count() == 5000


def test_one_stream_for_each_gpu(gb: Any, monkeypatch: Any) -> None:
    """A stream belongs to one GPU: on a stream of another one rows would be in no order with their readers."""

    class Stream:
        def __init__(self, device: Any) -> None:
            self.device = device

        def wait_stream(self, other: Any) -> None: ...

    class Ids:
        is_cuda = True

        def __init__(self, gpu: int) -> None:
            self.device = torch.device("cuda", gpu)

        def record_stream(self, stream: Any) -> None:
            used.append((self.device, stream.device))

    used: list[Any] = []
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", lambda: types.SimpleNamespace(record=lambda stream: None))
    feature = gb.Feature(types.SimpleNamespace(gather=lambda ids: None))
    for gpu in (0, 1, 0):
        next(feature.read_async(Ids(gpu)))
    assert [a for a, _ in used] == [b for _, b in used]
