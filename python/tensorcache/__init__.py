"""Tensors that do not fit on the GPU, with their most used rows cached there, compressed.

::

    import tensorcache

    x = tensorcache.open("features.npy", gpu_memory="10GB")   # or a NumPy array, a memmap, a torch tensor, a dict of several
    for batch in loader:
        batch.x = x[batch.n_id]                               # bit-identical rows, on the GPU, in the order of the current stream

``open`` returns a ``Table``, which behaves like the array it stands for: ``x[ids]``, ``x.shape``, ``x.dtype``, ``x.device``, ``len(x)``,
``x.index_select(0, ids)``, ``torch.nn.functional.embedding(ids, x)``. For ``ids`` of shape S the rows have shape ``S + x.shape[1:]`` and the table's dtype. ``x.stats()``
says how well the cache does, ``x.explain(ids)`` where rows lie and why, ``x.plan(ids)`` how much memory a hit rate takes.

Sizes are bytes, or texts: ``"10GB"`` (10¹⁰ bytes), ``"10GiB"`` (10 × 2³⁰), ``"10%"`` of the source's bytes. Times are seconds. Row numbers count from 0.

Without a GPU the same calls run on the processors. Without torch they take and return NumPy arrays.

``load_file``, ``load_model`` and ``save_file`` are those of safetensors.torch, for packed models, too; ``compress`` and ``decompress`` make bytes of one tensor and back.

Modules, imported when they are asked for:

tensorcache.pyg
    PyTorch Geometric: ``attach(loader, x)``, ``FeatureStore``.
tensorcache.graphbolt
    DGL GraphBolt: ``Feature``.
tensorcache.nn
    ``CachedEmbedding``, an ``nn.Embedding`` for inference, and ``CachedEmbeddingBagCollection``.
tensorcache.llm
    Language models of transformers: ``offload``, compressed weights, and ``KVCache``.
tensorcache.ngram
    N-gram tables of language models: ``NgramTable``, ``NgramEmbedding``.

``python -m tensorcache plan`` and ``bench`` plan and measure from the command line. The library's threads do not survive a fork: open a
cache in the process that reads it, or let others attach (``open(..., listen="unix:PATH")``).
"""

from __future__ import annotations

from typing import Any

from . import errors
from ._abi import VERSION as __version__
from ._model import compress, decompress, load_file, load_model, save_file
from ._open import open
from ._settings import Pages, Resident
from .cache import Cache
from .errors import (
    ArgumentError,
    ClosedError,
    DeviceError,
    Error,
    FileError,
    ForkedError,
    GradientError,
    LibraryError,
    OutOfMemoryError,
    OwnerError,
    RowError,
)
from .table import Table

__all__ = [
    "ArgumentError",
    "Cache",
    "ClosedError",
    "DeviceError",
    "Error",
    "FileError",
    "ForkedError",
    "GradientError",
    "LibraryError",
    "OutOfMemoryError",
    "OwnerError",
    "Pages",
    "Resident",
    "RowError",
    "Table",
    "__version__",
    "compress",
    "decompress",
    "errors",
    "load_file",
    "load_model",
    "open",
    "save_file",
]


def __getattr__(name: str) -> Any:
    # tensorcache.pyg and the like import torch, so they are imported when they are asked for.
    if name in ("graphbolt", "llm", "ngram", "nn", "pyg"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
