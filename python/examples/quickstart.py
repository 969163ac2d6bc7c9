"""A table in a file, read through a cache of a tenth of it. NumPy only.

    python quickstart.py
"""

import tempfile
from pathlib import Path

import numpy as np

import tensorcache

rng = np.random.default_rng(1)
features = (rng.standard_normal((200_000, 64)) * np.exp(rng.standard_normal(64))).astype(np.float32)
batches = [(len(features) * rng.random(4_000) ** 3).astype(np.int64) for _ in range(60)]  # some rows are read more than others

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "features.npy"
    np.save(path, features)

    with tensorcache.open(path, gpu_memory="10%", train=batches[:20]) as x:
        for ids in batches[20:]:
            rows = x[ids]
            assert np.array_equal(rows, features[ids])  # bit-identical
        print(x)
        stats = x.stats()
        print(f"{stats['hits']:,} hits, misses by reason: {stats['misses_by_reason']}")
        print("row", batches[0][0], x.explain([batches[0][0]])[0])
