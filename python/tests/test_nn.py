"""CachedEmbedding."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache.nn import CachedEmbedding, CachedEmbeddingBagCollection  # noqa: E402

Array = np.ndarray[Any, Any]


def test_is_the_embedding(device: str, rows: Array, ids: Array) -> None:
    table, numbers = torch.from_numpy(rows), torch.from_numpy(ids).reshape(30, 100)
    ours = CachedEmbedding.from_pretrained(table, gpu_memory="25%", device=device, padding_idx=0)
    theirs = torch.nn.Embedding.from_pretrained(table, padding_idx=0)
    assert torch.equal(ours(numbers).cpu(), theirs(numbers))
    assert (ours.num_embeddings, ours.embedding_dim) == (theirs.num_embeddings, theirs.embedding_dim)
    assert ours.weight.shape == theirs.weight.shape and not ours.weight.requires_grad
    assert list(ours.parameters()) == [] and ours.state_dict() == {}
    assert "5000, 32" in repr(ours)
    assert copy.deepcopy(ours).table is ours.table


@pytest.mark.parametrize("of", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_output_takes_the_dtype_of_the_model(device: str, rows: Array, of: Any) -> None:
    """As of an nn.Embedding: half() and the like of the whole model, before layers that have its dtype."""
    table, numbers = torch.from_numpy(rows).to(of), torch.tensor([[3, 4], [4999, 0]])
    with tensorcache.open(table, "25%", device=device) as x:
        ours = torch.nn.Sequential(CachedEmbedding(x), torch.nn.Identity())
        for change, then in [
            (lambda m: m.half(), torch.float16), (lambda m: m.bfloat16(), torch.bfloat16), (lambda m: m.to("cpu"), torch.bfloat16), (lambda m: m.float(), torch.float32),
            (lambda m: m.to("cpu", torch.float16), torch.float16), (lambda m: m.double(), torch.float64), (lambda m: m.to(of), of),
        ]:  # fmt: skip
            got = change(ours)(numbers)
            assert got.dtype == then and torch.equal(got.cpu(), table[numbers].to(then)) and x.dtype == of
        assert copy.deepcopy(ours.half())(numbers).dtype == torch.float16
    with tensorcache.open(torch.arange(40).view(10, 4), "1MB", device=device) as x:
        assert torch.equal(CachedEmbedding(x).half()(torch.tensor([2])).cpu(), torch.tensor([[8, 9, 10, 11]]))


def test_collection_takes_the_dtype_of_the_model(rows: Array) -> None:
    with tensorcache.open({"a": rows, "b": torch.from_numpy(rows).bfloat16()}, "25%", device="host") as cache:
        bags, ids = CachedEmbeddingBagCollection(dict(cache)), torch.tensor([[1, 2], [3, 4]])
        given = {"a": ids, "b": ids}
        assert [of.dtype for of in bags(given).values()] == [torch.float32, torch.bfloat16]
        assert [of.dtype for of in bags.half().to("cpu")(given).values()] == [torch.float16, torch.float16]
        assert [of.dtype for of in bags.float()(given).values()] == [torch.float32, torch.float32]
        model = torch.nn.Sequential(torch.nn.Linear(32, 2), bags, torch.nn.Linear(32, 2)).double()  # whole, as float32 that is converted
        assert {of.dtype for of in model.parameters()} == {torch.float64}
        for read in (bags, torch.compile(bags, fullgraph=True, backend="aot_eager")):
            found = read(given)
            assert [of.dtype for of in found.values()] == [torch.float64, torch.float64]
            assert torch.equal(found["a"], CachedEmbeddingBagCollection({"a": cache["a"]}, dtype="float32")({"a": ids})["a"].double())
        with pytest.raises(TypeError, match="dtype .torch.int32. must be a type of floating-point numbers"):
            CachedEmbeddingBagCollection(dict(cache), dtype=torch.int32)


def test_loads_the_checkpoint_of_an_embedding(device: str, rows: Array) -> None:
    table, numbers = torch.from_numpy(rows), torch.arange(5000)

    def model(embedding: Any) -> Any:
        return torch.nn.Sequential(embedding, torch.nn.Linear(32, 4))

    with tensorcache.open(table, "25%", device=device) as x:
        ours, theirs = model(CachedEmbedding(x)), model(torch.nn.Embedding.from_pretrained(table.clone()))
        for change in (lambda w: None, lambda w: w[[7, 4999]].neg_(), lambda w: w.fill_(-0.0), lambda w: w.copy_(table)):
            change(theirs[0].weight)
            assert not any(ours.load_state_dict(theirs.state_dict()))
            assert torch.equal(x[numbers].cpu().view(torch.int32), theirs[0].weight.view(torch.int32))
            assert torch.equal(ours[1].weight, theirs[1].weight)
        before = x.stats()["updates"]["rows"]
        ours.load_state_dict(theirs.state_dict())  # the same rows: none is updated
        assert x.stats()["updates"]["rows"] == before > 0
        assert not any(ours.load_state_dict(ours.state_dict()))
        ours.load_state_dict(theirs.half().state_dict())  # converted, as torch does
        assert torch.equal(x[numbers].cpu(), table.half().float())
        with pytest.raises(RuntimeError, match=r"0.weight \(shape \(9, 32\)\) must have shape \(5000, 32\), as the table has"):
            ours.load_state_dict({**theirs.state_dict(), "0.weight": torch.zeros(9, 32)})
        with pytest.raises(RuntimeError, match="Unexpected.*0.other"):
            ours.load_state_dict({**theirs.state_dict(), "0.other": torch.zeros(1)})


def test_other_tables_are_refused(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with tensorcache.open(table, "25%", device="host") as x:
        with pytest.raises(tensorcache.ArgumentError, match="padding_idx .5000."):
            CachedEmbedding(x, padding_idx=5000)
        with pytest.raises(TypeError, match="Tensor"):
            CachedEmbedding(table)
    with tensorcache.open(rows.reshape(5000, 4, 8), "25%", device="host") as x, pytest.raises(tensorcache.ArgumentError, match="two axes"):
        CachedEmbedding(x)


def test_collection_in_a_mode_takes_arrays(rows: Array) -> None:
    """Under a mode, lists and NumPy arrays are read as they are without one."""
    from torch.utils.flop_counter import FlopCounterMode

    with tensorcache.open({"a": rows, "b": rows}, "1MB", device="host") as cache:
        model = CachedEmbeddingBagCollection({"a": cache["a"], "b": cache["b"]}, mode="sum")
        features = {"a": ([1, 2, 3], [0, 2, 3]), "b": (np.array([4, 5, 6]), np.array([0, 1, 3]), [0.5, 2.0, 1.0])}
        want = model(features)
        with FlopCounterMode(display=False):
            got = model(features)
        assert all(torch.equal(got[name], want[name]) for name in features)
