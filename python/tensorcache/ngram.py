"""N-gram tables of language models: float8 rows with scales that are looked up by hashes of the last few tokens.

::

    table = tensorcache.ngram.NgramTable.from_checkpoint("checkpoint/", "model.ngram.*.weight", "model.ngram.*.scale", gpu_memory="4GiB", train=ids)
    reading = table.prefetch_values(ngram_ids)  # as soon as tokens are known
    ...
    values = reading.wait()                     # [tokens, heads, elements], bfloat16

``NgramEmbedding`` takes the place of a serving engine's embedding. ``NgramHash`` is the hash of ``cachebench --workload ngram``. docs/ngram.md
has more. This module needs torch.
"""

from __future__ import annotations

from ._ngram_embedding import NgramEmbedding
from ._ngram_hash import NgramHash
from ._ngram_table import NgramTable, RowFormat
from ._tensors import Prefetch

__all__ = ["NgramEmbedding", "NgramHash", "NgramTable", "Prefetch", "RowFormat"]
