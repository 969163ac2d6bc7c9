"""Rows of several tables that grow together: the keys and values of tokens, one table a layer.

Rows are compressed when they are added, by codecs that are trained on the first rows of a segment, and are read by their numbers. A segment is one cache with a table for each layer. When it is full another
one follows, as large as all before together, whose codecs are trained on what rows are like by then. Everything that a table that grows without segments would replace is here.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any, Optional

import torch

from .._open import open as open_table
from .._tensors import Prefetch, ahead
from ..cache import Cache
from ..errors import ArgumentError
from ..table import Table
from ._weights import codec_of

_LEAST = 1024  # rows for which a segment has room, at least


class _Segment:
    """A cache with a table of each layer. Copies of the rows share it."""

    def __init__(self, cache: Cache, capacity: int) -> None:
        self.cache, self.capacity = cache, capacity
        self._tables = {int(name): cache[name] for name in cache}
        self.owners: weakref.WeakSet[GrowingRows] = weakref.WeakSet()

    def __deepcopy__(self, memo: Any) -> _Segment:
        return self

    def table(self, layer: int) -> Table:
        return self._tables[layer]


class Span:
    """Rows of one layer that were added together: of a segment, or not compressed yet."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.waiting: Optional[torch.Tensor] = rows
        self.segment: Optional[_Segment] = None
        self.first = 0

    def read(self, layer: int, numbers: torch.Tensor, out: torch.Tensor) -> None:
        """Writes rows, by their numbers in the span, to ``out`` on the device of ``numbers``."""
        if self.waiting is not None:
            out.copy_(self.waiting.to(out.device)[numbers])
        elif self.segment is not None:
            table = self.segment.table(layer)
            if out.device == table.device:
                table.gather(numbers + self.first, out=out)
            else:
                out.copy_(table[numbers + self.first])


class GrowingRows:
    """``layers`` tables that grow. Rows wait uncompressed until every layer has some to begin a segment with.

    ``gpu_memory`` bytes hold the rows that are read most. It is for use by one thread at a time.
    """

    def __init__(self, layers: int, device: Any, gpu_memory: int) -> None:
        self._layers, self._device, self._gpu_memory = layers, device, gpu_memory
        self._segments: list[_Segment] = []
        self._waiting: dict[int, list[Span]] = {}
        self._sides: dict[torch.device, Any] = {}

    def serve_from(self, device: Any) -> None:
        """Sets the device of the segments that begin from now on."""
        self._device = device

    def add(self, layer: int, rows: torch.Tensor) -> Span:
        """Adds rows of a layer, of shape ``(n, elements)``."""
        span = Span(rows)
        last = self._segments[-1] if self._segments else None
        if last is not None and layer not in self._waiting and len(last.table(layer)) + len(rows) <= last.capacity:
            self._place(layer, span, last)
        else:
            self._waiting.setdefault(layer, []).append(span)
            if len(self._waiting) == self._layers:
                self._begin()
        return span

    def read_ahead(self, numbers: torch.Tensor, read: Callable[[], torch.Tensor]) -> Prefetch:
        """Runs a function that reads the rows of those numbers beside the current stream."""
        return ahead(numbers.device, self._sides, numbers, read)

    def __deepcopy__(self, memo: Any) -> GrowingRows:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__ = {**copy.deepcopy({name: value for name, value in self.__dict__.items() if name != "_sides"}, memo), "_sides": {}}
        for segment in made._segments:
            segment.owners.add(made)
        return made

    def clear(self) -> None:
        """Frees all rows, but for those that copies have."""
        for segment in self._segments:
            segment.owners.discard(self)
            if not segment.owners:
                segment.cache.close()
        self._segments.clear()
        self._waiting.clear()

    def stats(self) -> dict[str, Any]:
        """Bytes and reads of all segments together."""
        tables = [stats for segment in self._segments for stats in segment.cache.stats()["tables"]]
        found = {key: sum(int(stats[key]) for stats in tables) for key in ("rows", "raw_bytes", "stored_bytes", "hits", "misses")}
        found["segments"] = len(self._segments)
        found["waiting_bytes"] = sum(span.waiting.nbytes for spans in self._waiting.values() for span in spans if span.waiting is not None)
        return {**found, "compression_ratio": found["raw_bytes"] / max(1, found["stored_bytes"])}

    def _place(self, layer: int, span: Span, segment: _Segment) -> None:
        rows, table = span.waiting, segment.table(layer)
        if rows is not None:
            span.first = len(table)
            table.update(torch.arange(span.first, span.first + len(rows), device="cpu"), rows)
            span.segment, span.waiting = segment, None

    def _begin(self) -> None:
        """Begins a segment with the rows that wait, and has room for as many as there are in the others."""
        before = sum(segment.capacity for segment in self._segments)
        most = max(sum(len(span.waiting) for span in spans if span.waiting is not None) for spans in self._waiting.values())
        # A long prompt lies packed, in a segment of its own.
        packed = not before and most >= _LEAST
        capacity = most if packed else max(_LEAST, 2 * most, before)
        sources = {}
        for layer, spans in self._waiting.items():
            rows = [span.waiting for span in spans if span.waiting is not None]
            sources[str(layer)] = rows[0] if len(rows) == 1 else torch.cat(rows)
        widest = max(rows.element_size() * rows.shape[1] for rows in sources.values())
        if widest >= 1 << 20:
            raise ArgumentError(f"tensorcache: keys and values of a token in one layer ({widest} bytes) must be shorter than 1 MiB")
        held = self._gpu_memory // (2 if before else 1)
        cache = open_table(
            sources,
            max(held, 4 * widest + (1 << 16)),
            device=self._device,
            codec=codec_of(next(iter(sources.values())).dtype),
            capacity=None if packed else capacity,
            host_tier="packed",
            equal_rows=False,
            cold=not self._gpu_memory,
            refresh={"interval": 1.0, "accesses": 0.125} if self._gpu_memory else None,
            progress=False,
        )
        if before:
            for segment in self._segments:  # the newest segment has half of the GPU memory, and the others the rest by their rows
                segment.cache.set_gpu_memory(max(held * segment.capacity // before, 4 * widest + (1 << 16)))
        segment = _Segment(cache, capacity)
        segment.owners.add(self)
        self._segments.append(segment)
        for spans in self._waiting.values():
            first = 0
            for span in spans:
                if span.waiting is not None:
                    span.segment, span.first = segment, first
                    first += len(span.waiting)
                    span.waiting = None
        self._waiting.clear()
