"""A stand-in for dgl.graphbolt, of which no release fits current torch: the classes that a feature meets, and the order of their calls.

Made from the documented behaviour: a ``FeatureFetcher`` asks each feature for its stages on the CPU and on CUDA; begins ``read_async`` for
those that have some; advances the generators stage by stage, one batch behind the other; and calls ``wait()`` of what the last stage
yielded.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch


class Feature:
    def __init__(self) -> None:
        pass

    def read(self, ids: Any = None) -> Any:
        raise NotImplementedError

    def metadata(self) -> dict[str, Any]:
        return {}


class BasicFeatureStore:
    def __init__(self, features: dict[tuple[str, Any, str], Feature]) -> None:
        self._features = features

    def __getitem__(self, key: Any) -> Any:
        return self._features[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._features

    def read(self, domain: str, kind: Any, name: str, ids: Any = None) -> Any:
        return self._features[domain, kind, name].read(ids)

    def size(self, domain: str, kind: Any, name: str) -> Any:
        return self._features[domain, kind, name].size()

    def count(self, domain: str, kind: Any, name: str) -> Any:
        return self._features[domain, kind, name].count()

    def metadata(self, domain: str, kind: Any, name: str) -> Any:
        return self._features[domain, kind, name].metadata()

    def update(self, domain: str, kind: Any, name: str, value: Any, ids: Any = None) -> None:
        self._features[domain, kind, name].update(value, ids)


class FeatureFetcher:
    """Iterates batches of row numbers as dicts of values by feature key."""

    def __init__(self, batches: Iterable[dict[Any, Any]], store: BasicFeatureStore, overlap_fetch: bool = True) -> None:
        self._batches, self._store, self._stages = list(batches), store, 0
        if overlap_fetch:
            for key in {key for batch in self._batches for key in batch}:
                for device in ("cpu", "cuda"):
                    try:
                        self._stages = max(self._stages, store[key].read_async_num_stages(torch.device(device)))
                    except AssertionError:
                        pass

    def __iter__(self) -> Iterator[dict[Any, Any]]:
        pipe: Iterator[dict[Any, Any]] = map(self._read, self._batches)
        for stage in range(self._stages, 0, -1):
            pipe = _buffered(map(_advance(stage), pipe))
        return map(_final, pipe) if self._stages else pipe

    def _read(self, batch: dict[Any, Any]) -> dict[Any, Any]:
        values = {}
        for key, ids in batch.items():
            feature = self._store[key]
            values[key] = (feature.read_async(ids), feature.read_async_num_stages(ids.device)) if self._stages else self._store.read(*key, ids)
        return values


def _advance(stage: int) -> Any:
    def advance(values: dict[Any, Any]) -> dict[Any, Any]:
        for key, (handle, left) in values.items():
            assert stage >= left
            if stage == left:
                value = next(handle)
                values[key] = (handle if left > 1 else value, left - 1)
        return values

    return advance


def _final(values: dict[Any, Any]) -> dict[Any, Any]:
    for key, (value, left) in values.items():
        assert left == 0
        values[key] = value.wait()
    return values


def _buffered(pipe: Iterator[Any]) -> Iterator[Any]:
    waiting: deque[Any] = deque()
    for item in pipe:
        waiting.append(item)
        if len(waiting) > 1:
            yield waiting.popleft()
    yield from waiting


def module() -> types.ModuleType:
    """Returns the stand-in as the module dgl.graphbolt."""
    made = types.ModuleType("dgl.graphbolt")
    made.Feature, made.BasicFeatureStore, made.FeatureFetcher = Feature, BasicFeatureStore, FeatureFetcher  # type: ignore[attr-defined]
    return made
