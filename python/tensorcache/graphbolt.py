"""DGL GraphBolt: a feature of a GraphBolt feature store that is a table of a cache.

::

    x = tensorcache.open("features.npy", gpu_memory="10GB")
    features = gb.BasicFeatureStore({("node", None, "feat"): tensorcache.graphbolt.Feature(x)})
    datapipe = datapipe.fetch_feature(features, node_feature_keys=["feat"])

With ``overlap_fetch=True``, GraphBolt's default, rows are fetched on a stream of their own while earlier batches are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

import torch

from ._tensors import ahead
from .table import Table

if TYPE_CHECKING:
    _Base = object
else:
    try:
        from dgl.graphbolt import Feature as _Base
    except (ImportError, OSError):  # OSError: a build of GraphBolt for another torch
        _Base = object

__all__ = ["Feature"]


class Feature(_Base):
    """A GraphBolt ``Feature`` over a table.

    Row numbers are int32 or int64 tensors on the CPU or on the cache's device. Values are on the cache's device.
    """

    def __init__(self, table: Table, metadata: Optional[dict[str, Any]] = None) -> None:
        super().__init__()
        self._table = table
        self._metadata = dict(metadata or {})
        self._streams: dict[torch.device, Any] = {}

    def read(self, ids: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Returns the rows ``ids``, or all rows. The shape is that of ``ids`` and of a row; values follow the current stream's order."""
        rows: torch.Tensor = self._table.gather(torch.arange(len(self._table), device="cpu") if ids is None else ids)
        return rows

    def read_async(self, ids: torch.Tensor) -> Iterator[Any]:
        """Begins to read rows, and yields an object whose ``wait()`` returns the values, in the order of the stream current then.

        Of a table of pages it yields once before: then the rows that lie in pages are being prefetched.

        With CUDA row numbers the rows are read on a stream of the feature's own, after the work of the current stream so far. ``wait()`` does not wait for the
        device.
        """
        if self._paged():
            self._table.prefetch(ids)
            yield None
        yield ahead(ids.device, self._streams, ids, lambda: self.read(ids))

    def read_async_num_stages(self, ids_device: torch.device) -> int:
        """Returns how often ``read_async`` yields, on any device: twice for a table of pages, else once."""
        return 2 if self._paged() else 1

    def _paged(self) -> bool:
        return bool(getattr(self._table, "paged", False))

    def size(self) -> torch.Size:
        """Returns the shape of one row."""
        return torch.Size(self._table.shape[1:])

    def count(self) -> int:
        """Returns the number of rows."""
        return len(self._table)

    def update(self, value: torch.Tensor, ids: Optional[torch.Tensor] = None) -> None:
        """Replaces the rows ``ids``, or all rows, by ``value``. Reads that begin afterwards see them."""
        self._table.update(slice(None) if ids is None else ids, value)

    def metadata(self) -> dict[str, Any]:
        """Returns the metadata given when the feature was made."""
        return self._metadata

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table!r})"
