"""CachedEmbedding."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache.nn import CachedEmbedding  # noqa: E402

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
    twin = copy.deepcopy(torch.nn.Sequential(ours, torch.nn.Linear(32, 4)))
    assert twin[0].table is ours.table
    assert torch.equal(twin[0].eval().to("cpu")(numbers).cpu(), theirs(numbers))


def test_in_a_compiled_model(rows: Array) -> None:
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        model = torch.nn.Sequential(CachedEmbedding(x), torch.nn.Linear(32, 4))
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        numbers = torch.arange(100)
        torch.testing.assert_close(compiled(numbers), model(numbers))


def test_training_is_refused(rows: Array) -> None:
    table = torch.from_numpy(rows)
    with pytest.raises(tensorcache.GradientError, match="freeze"):
        CachedEmbedding.from_pretrained(table, freeze=False, gpu_memory="25%")
    with tensorcache.open(table, "25%", device="host") as x:
        with pytest.raises(tensorcache.GradientError):
            CachedEmbedding(x).requires_grad_()
        with pytest.raises(tensorcache.ArgumentError, match="padding_idx .5000."):
            CachedEmbedding(x, padding_idx=5000)
        with pytest.raises(TypeError, match="Tensor"):
            CachedEmbedding(table)
    with tensorcache.open(rows.reshape(5000, 4, 8), "25%", device="host") as x, pytest.raises(tensorcache.ArgumentError, match="two axes"):
        CachedEmbedding(x)
