"""The extension for torch, ``libtensorcache_torch.so``: what it refuses, and what it gives back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from tensorcache import _extension  # noqa: E402

pytestmark = pytest.mark.skipif(_extension.extension is None, reason="there is no extension for this torch")
Array = np.ndarray[Any, Any]


def test_weights_have_the_shape_of_ids(rows: Array) -> None:
    ids, weights = torch.arange(6).view(2, 3), torch.ones(3, 2)
    with tensorcache.open(torch.from_numpy(rows), "25%", device="host") as x:
        with pytest.raises((ValueError, RuntimeError), match="must have the shape of ids"):
            torch.ops.tensorcache.embedding_bag(ids, None, x._reads().key, "sum", weights)
        with pytest.raises(tensorcache.ArgumentError, match=r"per_sample_weights \(shape \(3, 2\)\) must have the shape of ids"):
            x.embedding_bag(ids, mode="sum", per_sample_weights=weights)
