"""Captured graphs of n-gram tables and embeddings, replayed with other tokens each time. Tensors stay on the GPU: the host waits at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages_writer import write_pages

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from ngram_stand_in import Model, StandIn  # noqa: E402
from tensorcache.ngram import NgramEmbedding, NgramTable, RowFormat  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no CUDA device")

REPLAYS = 10_000
FORMAT = RowFormat(64, block=32)
ROWS, TOKENS, HEADS = 5000, 64, 8


@pytest.fixture
def source() -> Any:
    """Rows of float8 values and scales, none of them NaN."""
    generator = np.random.default_rng(9)
    rows = generator.integers(0, 0x77, (ROWS, FORMAT.row_bytes), np.uint8)
    rows[:, FORMAT.elements :] = generator.integers(120, 130, (ROWS, 2))
    return rows


def captured(step: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> tuple[Any, Any]:
    """Captures a step and returns the graph and what the step returned. before runs before each run of the step, outside of the graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            before()
            step()
    torch.cuda.current_stream().wait_stream(side)
    before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = step()
    return graph, out


@pytest.fixture(params=["in place", "packed", "pages"])
def opened(request: Any, source: Any, tmp_path: Path) -> Any:
    """The rows in host memory, or two thirds of them on a drive only."""
    if request.param == "pages":
        x = tensorcache.open(write_pages(tmp_path / "t.tc", source), "60KB", host_memory="160KB", device="cuda")
    else:
        x = tensorcache.open(source, "20%", device="cuda", host_tier=request.param.replace(" ", ""), dtype=FORMAT.dtype)
    yield x
    x.close()


def test_reads_replayed(source: Any, opened: Any) -> None:
    """Bytes, and values that were prefetched on another stream, are those of the row numbers that a replay finds."""
    whole = torch.from_numpy(source).cuda()
    values_of = FORMAT.dequantise(whole)
    numbers = torch.randint(0, ROWS, (701, TOKENS, HEADS), device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    table = NgramTable(opened, FORMAT)
    ids = numbers[0].clone()

    def step() -> Any:
        ahead = table.prefetch_values(ids)
        return table[ids], ahead.wait()

    graph, (rows, values) = captured(step)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    replays = REPLAYS if "tiers" not in opened.stats() else REPLAYS // 10  # most wait for the drive
    for i in range(replays):
        ids.copy_(numbers[i % len(numbers)])
        graph.replay()
        wrong += (rows != whole[ids]).any() | (values != values_of[ids]).any()
    assert int(wrong) == 0 and (rows.cpu().numpy() == source[numbers[(replays - 1) % len(numbers)].cpu()]).all()
    opened.cache.check()
    torch.cuda.synchronize()
    del graph


@pytest.mark.parametrize("inside", ["both calls", "forward"])
def test_embedding_replayed(source: Any, inside: str, opened: Any) -> None:
    """A model's steps give the same bits with either embedding: with both calls of the module in the graph, and with the prefetch before each replay."""
    text = torch.randint(0, 50, (REPLAYS + TOKENS + 2,), device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    windows = text[: TOKENS + 2].unfold(0, 3, 1).clone()
    replays = REPLAYS if "tiers" not in opened.stats() else REPLAYS // 10
    with torch.no_grad():
        ours = Model(NgramEmbedding(NgramTable(opened, FORMAT), TOKENS, HEADS), HEADS * FORMAT.elements).cuda()
        theirs = Model(StandIn(torch.from_numpy(source).cuda(), FORMAT, TOKENS, HEADS), HEADS * FORMAT.elements).cuda()

        def ahead() -> None:
            if inside == "forward":
                ours.ngrams.start_prefetch(None, ours.hash(windows, last=1)[:, 0])
                ours.ngrams.wait()

        def rest() -> Any:
            hidden = torch.nn.functional.silu(ours.embed(windows[:, -1]))
            return hidden + ours.out(ours.ngrams(hidden))

        graph, got = captured(rest if inside == "forward" else lambda: ours(windows), ahead)
        reference, want = captured(lambda: theirs(windows))
        wrong, same = (torch.zeros((), dtype=torch.int64, device="cuda") for _ in range(2))
        last = got.clone()
        for i in range(replays):
            windows.copy_(text[i : i + TOKENS + 2].unfold(0, 3, 1))
            ahead()
            graph.replay()
            reference.replay()
            wrong += (got != want).any()
            same += (got == last).all()
            last.copy_(got)
        assert int(wrong) == 0 and int(same) <= 1  # the first replay may be of the tokens of the capture
        torch.cuda.synchronize()
        del graph, reference
