"""N-gram tables whose rows lie in pages, in a packed host tier, or in another process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages_writer import write_pages

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from conftest import REQUIRED  # noqa: E402
from ngram_stand_in import Model, StandIn  # noqa: E402
from tensorcache.ngram import NgramEmbedding, NgramTable, RowFormat  # noqa: E402
from test_attach import OWNER, Owner  # noqa: E402

Array = np.ndarray[Any, Any]
FORMAT = RowFormat(64, block=32)


@pytest.fixture
def packed() -> Array:
    """5,000 rows of 64 float8 values and 2 scales, none of them NaN."""
    generator = np.random.default_rng(5)
    rows = generator.integers(0, 0x77, (5000, 66), np.uint8)
    rows[:, 64:] = generator.integers(120, 130, (5000, 2))
    return rows


def reads_all(table: NgramTable, packed: Array, ids: Array) -> None:
    """Bytes and values of rows of all tiers, now and ahead, are those of the source."""
    for part in np.split(ids[:2400], 5):
        numbers = part.reshape(30, 16)
        on = torch.from_numpy(numbers)
        wanted = FORMAT.dequantise(torch.from_numpy(packed[numbers]))
        ahead, values = table.prefetch(on), table.prefetch_values(on)
        np.testing.assert_array_equal(ahead.wait().cpu(), packed[numbers])
        assert torch.equal(values.wait().cpu(), wanted) and torch.equal(table.values(on).cpu(), wanted)
        np.testing.assert_array_equal(table[numbers], packed[numbers])


def test_pages(device: str, tmp_path: Path, packed: Array, ids: Array) -> None:
    with tensorcache.open(write_pages(tmp_path / "t.tc", packed), "60KB", host_memory="160KB", device=device, train=ids[:500]) as x:
        table = NgramTable(x, FORMAT)
        assert table.converts(torch.bfloat16)
        reads_all(table, packed, ids)
        found = x.stats()["tiers"]
        assert found["cold"]["absent_rows"] > 0 and found["host"]["rows"] < len(packed)
        assert (found["prefetch"]["rows"] > 0) == (device == "cuda" and x.is_cuda)  # on the host they are read at once


def test_pages_in_the_place_of_an_embedding(device: str, tmp_path: Path, packed: Array) -> None:
    with tensorcache.open(write_pages(tmp_path / "t.tc", packed), "60KB", host_memory="160KB", device=device) as x:
        on = "cuda" if device == "cuda" and torch.cuda.is_available() else "cpu"
        ours = Model(NgramEmbedding(NgramTable(x, FORMAT), max_tokens=64, heads=8), 512).to(on)
        theirs = Model(StandIn(torch.from_numpy(packed).to(on), FORMAT, 64, 8), 512).to(on)
        text = torch.from_numpy(np.random.default_rng(9).integers(0, 50, 400)).to(on)
        for step, tokens in enumerate((64, 1, 17, 64)):
            windows = text[step * 80 : step * 80 + tokens + 2].unfold(0, 3, 1)
            assert torch.equal(ours(windows), theirs(windows))


def test_packed_tier(device: str, packed: Array, ids: Array) -> None:
    with tensorcache.open(packed, "10%", device=device, train=ids, host_tier="packed", dtype=FORMAT.dtype) as x:
        reads_all(NgramTable(x, FORMAT), packed, ids)


def test_another_process(tmp_path: Path, device: str, packed: Array, ids: Array) -> None:
    if not os.path.exists(OWNER):
        (pytest.fail if REQUIRED and "TENSORCACHED" in os.environ else pytest.skip)(f"no tensorcached at {OWNER}: make service")
    owner = Owner(tmp_path, packed, device)
    try:
        x = tensorcache.open(owner.address)
        reads_all(NgramTable(x, FORMAT), packed, ids)
        x.cache.close()
    finally:
        owner.kill()
