"""``KVCache``: the keys and values of a model of transformers, compressed in host memory.

The newest tokens of a layer lie as they are on the device of the computation. Older ones are rows of a table, one row a token and sequence with the keys and values of all heads, so a token is one access. When a
layer computes, the rows of the next one are read already, on another stream.

The sparse mode reads the pages of tokens that matter for a query: by Quest's bound (Tang et al., ICML 2024) of the products of the query with the keys of a page, which has the least and the greatest of
each component of these keys.
"""

from __future__ import annotations

import itertools
from typing import Any, Optional

import torch
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, Cache, DynamicLayer, get_layer_types_and_kwargs
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .._checks import Size, format_size, integer, parse_size
from ..errors import ArgumentError, Error
from ._offload import torch_device
from ._rows import GrowingRows, Span

_BLOCK = 64  # tokens that are compressed at a time
_PAGE = 16  # tokens of a page of the sparse mode
_SPARSE = "tensorcache_sparse"


class CompressedLayer(DynamicLayer):  # type: ignore[misc]
    """One layer. ``keys`` and ``values`` are those of the newest tokens: shape ``(batch, heads, tokens, head_dim)``."""

    keys: torch.Tensor
    values: torch.Tensor
    device: torch.device

    def __init__(self, index: int, rows: GrowingRows, recent: int, top_pages: Optional[int]) -> None:
        super().__init__()
        self._index, self._rows, self._recent, self._top_pages = index, rows, recent, top_pages
        self.following: Optional[CompressedLayer] = None
        self._forget()

    def _forget(self) -> None:
        # Of the older tokens: the row number of each token and sequence in its span, and the spans with the number of tokens of each.
        self._numbers: Optional[torch.Tensor] = None
        self._spans: list[tuple[Span, int]] = []
        self._least: Optional[torch.Tensor] = None  # of the keys of each whole page: (pages, batch, heads, head_dim)
        self._greatest: Optional[torch.Tensor] = None
        self._ahead: Any = None  # rows that are being read, for these numbers
        self._unread = False

    # ---- what transformers calls

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        if key_states.dtype != value_states.dtype or not key_states.is_floating_point():
            raise ArgumentError(f"tensorcache: keys ({key_states.dtype}) and values ({value_states.dtype}) must be of one type of floats")

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds tokens, and returns the keys and values of all: in the sparse mode, for one token, those that the attention function ``tensorcache_sparse`` completes."""
        self._must_be_read()
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        if self._numbers is not None:
            if self._top_pages is not None and key_states.shape[-2] == 1:
                keys, values = keys[:], values[:]
                keys.tensorcache_layer, self._unread = self, True
                return keys, values  # the sparse attention compresses, once it has read
            older = self._ahead.wait() if self._ahead is not None else self._read()
            self._ahead = None
            keys, values = (torch.cat([old, new], dim=-2) for old, new in zip(self._split(older), (keys, values)))
        if self.following is not None and self._top_pages is None:
            self.following.begin_reading()
        self._compress()
        return keys, values

    def get_seq_length(self) -> int:
        """The number of tokens."""
        return self._older() + int(super().get_seq_length())

    def reset(self) -> None:
        """Forgets all tokens of this layer. ``KVCache.reset`` frees the rows."""
        super().reset()
        self._forget()

    def crop(self, tokens_to_remove: int) -> None:
        """Removes that many tokens, given as a negative number, from the end."""
        remove = -tokens_to_remove
        newest = int(super().get_seq_length())
        if remove <= newest or not self.is_initialized:
            super().crop(tokens_to_remove)
            return
        super().crop(-newest)
        self._ahead = None
        if self._numbers is not None:
            left = max(0, self._older() - (remove - newest))
            rest, left = left % _PAGE, left - left % _PAGE
            if rest:  # of a page of which others are removed: they are among the newest again
                self.keys, self.values = self._split(self._read(torch.arange(left, left + rest, device=self._numbers.device)))
            self._numbers = self._numbers[:left]
            self._least, self._greatest = (None if of is None else of[: left // _PAGE] for of in (self._least, self._greatest))
            spans, kept = [], 0
            for span, tokens in self._spans:
                tokens = min(tokens, left - kept)
                if tokens > 0:
                    spans.append((span, tokens))
                    kept += tokens
            self._spans = spans
            if not left:
                self._numbers = None

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Has sequence i continue sequence ``beam_idx[i]``: older tokens are referred to, not copied."""
        self.batch_select_indices(beam_idx.to(self.device) if self.is_initialized else beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Has each sequence ``repeats`` times, one behind the other."""
        if self.get_seq_length() > 0:
            batch = len(self.keys)
            self.batch_select_indices(torch.arange(batch, device=self.device).repeat_interleave(repeats))

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keeps some of the sequences."""
        if self.get_seq_length() > 0:
            self.keys, self.values = self.keys[indices], self.values[indices]
            if self._numbers is not None:
                self._numbers = self._numbers[:, indices]
                self._least, self._greatest = (None if of is None else of[:, indices] for of in (self._least, self._greatest))
            self._ahead = None

    # ---- older tokens

    def _older(self) -> int:
        return 0 if self._numbers is None else len(self._numbers)

    def begin_reading(self) -> None:
        """Begins to read the older tokens for the next ``update``."""
        if self._numbers is not None and self._ahead is None:
            self._ahead = self._rows.read_ahead(self._numbers, self._read)

    def _read(self, tokens: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The rows of the older tokens, or of some of them in ascending order: shape ``(tokens, batch, elements)``."""
        numbers = self._numbers
        if numbers is None:
            raise Error("tensorcache: this layer has no older tokens")
        ends = list(itertools.accumulate(count for _, count in self._spans))
        if tokens is not None:
            numbers = numbers[tokens]
            ends = torch.searchsorted(tokens, torch.tensor(ends, device=tokens.device)).tolist()
        out = torch.empty(*numbers.shape, self._elements()[-1], dtype=self.keys.dtype, device=self.device)
        begin = 0
        for (span, _), end in zip(self._spans, ends):
            if end > begin:
                span.read(self._index, numbers[begin:end], out[begin:end])
            begin = end
        return out

    def _elements(self) -> tuple[int, int]:
        """The elements of the keys of a token, and of keys and values."""
        keys, values = (of.shape[1] * of.shape[3] for of in (self.keys, self.values))
        return keys, keys + values

    def _split(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of shape ``(tokens, batch, elements)`` as keys and values."""
        keys = self._elements()[0]
        parts = ((rows[..., :keys], self.keys), (rows[..., keys:], self.values))
        split = [part.view(*part.shape[:2], like.shape[1], like.shape[3]).permute(1, 2, 0, 3) for part, like in parts]
        return split[0], split[1]

    def _compress(self) -> None:
        """Makes rows of the tokens that are no longer among the newest, if there are enough of them."""
        tokens = int(super().get_seq_length()) - self._recent
        if tokens < _BLOCK:
            return
        tokens -= tokens % _PAGE  # so that a page is never of both
        keys, values = (of[:, :, :tokens].detach() for of in (self.keys, self.values))
        rows = torch.cat([of.permute(2, 0, 1, 3).reshape(tokens, len(of), -1) for of in (keys, values)], dim=-1)
        if self._top_pages is not None:
            pages = keys.permute(2, 0, 1, 3).unflatten(0, (-1, _PAGE))
            self._least, self._greatest = (
                of if old is None else torch.cat([old, of]) for of, old in ((pages.amin(1), self._least), (pages.amax(1), self._greatest))
            )
        batch = rows.shape[1]
        span = self._rows.add(self._index, rows.flatten(0, 1).cpu())
        numbers = torch.arange(tokens * batch, device=self.device).view(tokens, batch)
        self._numbers = numbers if self._numbers is None else torch.cat([self._numbers, numbers])
        self._spans.append((span, tokens))
        self.keys, self.values = self.keys[:, :, tokens:].clone(), self.values[:, :, tokens:].clone()
        self._ahead = None

    # ---- the sparse mode

    def attend_to(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The keys and values that a query, of shape ``(batch, heads, 1, head_dim)``, attends to, and the numbers of these tokens.

        They are those of the newest tokens, and of the ``top_pages`` pages that have the greatest bound for any sequence and head.
        """
        if self._least is None or self._greatest is None or self._top_pages is None:
            raise Error("tensorcache: this layer has no pages")
        self._unread = False
        heads = self._least.shape[2]
        q = query.float().view(len(query), heads, -1, query.shape[-1])  # the queries of each head of keys
        bound = torch.einsum("bhqd,pbhd->pbhq", q.clamp(min=0), self._greatest.float()) + torch.einsum("bhqd,pbhd->pbhq", q.clamp(max=0), self._least.float())
        pages = bound.flatten(1).amax(1).topk(min(self._top_pages, len(bound))).indices.sort().values
        tokens = (pages[:, None] * _PAGE + torch.arange(_PAGE, device=pages.device)).view(-1)
        older = self._split(self._read(tokens))
        numbers = torch.cat([tokens, torch.arange(self._older(), self._older() + keys.shape[-2], device=tokens.device)])
        found = torch.cat([older[0], keys], dim=-2), torch.cat([older[1], values], dim=-2), numbers
        self._compress()
        return found

    def _must_be_read(self) -> None:
        if self._unread:
            raise Error(f"tensorcache: the sparse KVCache must be read by its attention: call model.set_attn_implementation({_SPARSE!r})")


class KVCache(Cache):  # type: ignore[misc]
    """Keys and values that are compressed in host memory: ``model.generate(**inputs, past_key_values=KVCache(model.config))`` gives the same tokens as without.

    config
        The model's configuration.
    gpu_memory
        GPU memory for the compressed rows that are read most, as of ``tensorcache.open``, in bytes. None: none but what a read takes. Whole layers read all rows alike, so it pays in the sparse mode.
    device
        Where rows are decoded: ``"auto"``, the device of the first keys; ``"host"``, ``"cuda"``, ``"cuda:1"``.
    recent
        The newest tokens, which stay uncompressed on the device: at least so many, and up to 63 more.
    top_pages
        Turns the sparse mode on: a new token attends to the newest tokens, and to so many pages of 16 older ones. The model's attention must be ``tensorcache_sparse``
        (``model.set_attn_implementation("tensorcache_sparse")``), and results are no longer those of full attention.

    Layers with a sliding window or with states of other kinds are transformers' own, uncompressed: they are short. Rows are constants: no gradient reaches older tokens. Host memory has the rows of
    a long prompt back to back, and those of generated tokens at fixed distances. ``close()``, ``reset()`` and the garbage collector free them. A deep copy shares rows, which are freed with the last
    of the copies. One thread uses a cache and its copies at a time.

    Raises ``ArgumentError`` and ``TypeError`` for bad arguments, and what ``tensorcache.open`` raises when the first tokens are compressed.
    """

    def __init__(self, config: Any, gpu_memory: Optional[Size] = None, device: Any = "auto", *, recent: int = 64, top_pages: Optional[int] = None) -> None:
        if not hasattr(config, "get_text_config"):
            raise TypeError(f"tensorcache: config ({type(config).__name__}) must be the configuration of a model of transformers")
        text = config.get_text_config(decoder=True)
        if top_pages is not None:
            integer(top_pages, "top_pages", 1, 1 << 31)
            if text._attn_implementation != _SPARSE:
                raise ArgumentError(f"tensorcache: top_pages ({top_pages}) must be None unless the model's attention is tensorcache's: call model.set_attn_implementation({_SPARSE!r}) before")
        kinds, options = get_layer_types_and_kwargs(text)
        own = [i for i, kind in enumerate(kinds) if DYNAMIC_LAYER_TYPE_MAPPING[kind] is DynamicLayer]
        self._where = device if device == "auto" else torch_device(device)
        memory = 0 if gpu_memory is None else parse_size(gpu_memory, 0)
        self._rows = GrowingRows(len(own), self._where if self._where == "auto" or self._where.type == "cuda" else "host", memory)
        recent = integer(recent, "recent", 1, 1 << 31)
        layers = [CompressedLayer(i, self._rows, recent, top_pages) if i in own else DYNAMIC_LAYER_TYPE_MAPPING[kinds[i]](**options[i]) for i in range(len(kinds))]
        for at, i in enumerate(own):
            layers[i].following = layers[own[(at + 1) % len(own)]] if len(own) > 1 else None
        super().__init__(layers=layers)

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds the keys and values of new tokens to a layer, and returns those of all."""
        if self._where == "auto":
            self._where = key_states.device
            self._rows.serve_from(key_states.device if key_states.is_cuda else "host")
        found: tuple[torch.Tensor, torch.Tensor] = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return found

    def reset(self) -> None:
        """Forgets all tokens, and frees their memory."""
        super().reset()
        self._rows.clear()

    def close(self) -> None:
        """``reset``."""
        self.reset()

    def stats(self) -> dict[str, Any]:
        """Returns the number of ``rows`` (tokens × sequences × layers) that are compressed, ``raw_bytes``, ``stored_bytes``, ``compression_ratio``, ``waiting_bytes`` (rows that wait to be compressed), reads as
        ``hits`` in GPU memory and ``misses``, and ``segments``, the caches that hold the rows."""
        return self._rows.stats()

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<tensorcache.llm.KVCache of {self.get_seq_length()} tokens: {format_size(stats['raw_bytes'])} as {format_size(stats['stored_bytes'])} ({stats['compression_ratio']:.2f}×)>"


def sparse_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Optional[torch.Tensor], **kwargs: Any
) -> tuple[torch.Tensor, Optional[torch.Tensor]]:
    """transformers' attention function ``tensorcache_sparse``: ``sdpa``, with the tokens that a ``KVCache`` in its sparse mode chooses for the query."""
    layer: Optional[CompressedLayer] = getattr(key, "tensorcache_layer", None)
    if layer is not None:
        key, value, numbers = layer.attend_to(query, key, value)
        if attention_mask is not None:
            attention_mask = attention_mask[..., numbers]
    found: tuple[torch.Tensor, Optional[torch.Tensor]] = ALL_ATTENTION_FUNCTIONS["sdpa"](module, query, key, value, attention_mask, **kwargs)
    return found


ALL_ATTENTION_FUNCTIONS.register(_SPARSE, sparse_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register(_SPARSE, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
