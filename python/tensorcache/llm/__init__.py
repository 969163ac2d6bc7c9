"""Language models whose weights and KV caches do not fit GPU memory.

::

    import tensorcache.llm

    model = tensorcache.llm.offload(model.eval(), gpu_memory="20GB")          # weights: compressed, bit-identical results
    cache = tensorcache.llm.KVCache(model.config)                             # keys and values: compressed in host memory
    tokens = model.generate(**inputs, past_key_values=cache)
"""

from __future__ import annotations

from typing import Any

from ._offload import Offloading, offload

__all__ = ["KVCache", "Offloading", "offload"]


def __getattr__(name: str) -> Any:
    # KVCache is a subclass of transformers' Cache, which takes seconds to import.
    if name == "KVCache":
        from ._kv import KVCache

        return KVCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
