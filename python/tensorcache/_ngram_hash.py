"""Row numbers of n-grams: the hash of docs/ngram.md, with NumPy or torch, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import torch

from ._tensors import watched
from .errors import ArgumentError

_GAMMA = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_MAX_ORDER = 8

Tokens = Union["np.ndarray[Any, Any]", torch.Tensor]


class NgramHash:
    """Maps the n-grams that end at each token to row numbers.

    orders
        Lengths of the n-grams, each 1 to 8, none twice.
    heads
        Rows of an n-gram in each layer, 1 to 256.
    layers
        Layers of the model that have n-gram tables, 1 to 1,024.
    rows
        An upper bound on the rows of all tables together, shared evenly. Each layer, order and head has a table of its own, whose length is a
        prime.
    seed
        Selects the multipliers: 0 to 2^64 - 1.

    ``cachebench --workload ngram`` has the same hash. A model with another one gives its own row numbers to ``NgramTable``.
    """

    def __init__(self, orders: Sequence[int] = (2, 3), heads: int = 8, layers: int = 1, rows: int = 2_000_000, seed: int = 1) -> None:
        for name, value, least, most in (
            ("heads", heads, 1, 256), ("layers", layers, 1, 1024), ("rows", rows, 1, 2**50), ("seed", seed, 0, _MASK), *(("orders", n, 1, _MAX_ORDER) for n in orders),
        ):  # fmt: skip
            if not least <= value <= most:
                raise ArgumentError(f"tensorcache: {name} ({value}) must be {least} to {most}")
        if not orders or len(set(orders)) < len(orders):
            raise ArgumentError(f"tensorcache: orders ({list(orders)}) must be at least one, and none twice")
        self.orders, self.heads, self.layers = tuple(orders), heads, layers
        tables = layers * len(self.orders) * heads
        self.lengths = _primes(rows // tables, tables)
        self.offsets = [sum(self.lengths[:g]) for g in range(tables)]
        numbers = [[_splitmix(seed, _MAX_ORDER * g + k) | 1 for k in range(_MAX_ORDER)] for g in range(tables)]
        of = [self.orders[g // heads % len(self.orders)] for g in range(tables)]
        # A multiplier beyond a table's order is 0, so that all tables take one sum over the longest order.
        self._multipliers = np.array([[m if k < n else 0 for k, m in enumerate(row)] for row, n in zip(numbers, of)], np.uint64)
        self._on: dict[torch.device, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    @property
    def rows(self) -> int:
        """The rows of all tables together."""
        return sum(self.lengths)

    @property
    def tables(self) -> int:
        """How many rows a token looks up: layers × orders × heads."""
        return len(self.lengths)

    def __call__(self, tokens: Tokens, last: Optional[int] = None, layer: Optional[int] = None) -> Any:
        """Returns the row numbers of the n-grams that end at each token.

        tokens
            Integers of shape [..., T]: T tokens of a text, or of each of several. -1 stands for no token: before the first one, or padding on the
            left. N-grams reach back within the given tokens only.
        last
            Returns the row numbers of the last so many tokens only: 1 for decoding, with the longest order of tokens or more given.
        layer
            Returns those of one layer only.

        The result is int64 of shape [..., T or ``last``, ``tables``, or a layer's share of them], an array or tensor as ``tokens``, on their device.
        Tensors on a GPU are not waited for.
        """
        if layer is not None and not 0 <= layer < self.layers:
            raise ArgumentError(f"tensorcache: layer ({layer}) must be 0 to {self.layers - 1}")
        share = self.tables // self.layers
        part = slice(None) if layer is None else slice(layer * share, (layer + 1) * share)
        if isinstance(tokens, torch.Tensor):
            if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
                raise TypeError(f"tensorcache: tokens ({tokens.dtype}) must be integers")
        elif not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu":
            raise TypeError(f"tensorcache: tokens ({getattr(tokens, 'dtype', type(tokens).__name__)}) must be an array or tensor of integers")
        if tokens.ndim == 0:
            raise ArgumentError("tensorcache: tokens (one number) must have at least one axis")
        length = tokens.shape[-1]
        if last is not None and not 0 <= last <= length:
            raise ArgumentError(f"tensorcache: last ({last}) must be 0 to the tokens' {length}")
        last = length if last is None else last
        reach = max(self.orders) - 1
        tokens = tokens[..., max(0, length - last - reach) :]
        if isinstance(tokens, torch.Tensor):
            return self._rows_of(tokens, last, part)
        return self._rows_of(torch.from_numpy(tokens.astype(np.int64)), last, part).numpy()

    def _rows_of(self, tokens: torch.Tensor, last: int, part: slice) -> torch.Tensor:
        # torch has no arithmetic of unsigned 64-bit integers. That of signed ones has the same bits, but for shifts to the right.
        reach = max(self.orders) - 1
        numbers = torch.nn.functional.pad(tokens.long() + 1, (reach, 0))
        multipliers, lengths, offsets = self._constants(tokens.device)
        total = torch.zeros((*tokens.shape[:-1], last, len(lengths[part])), dtype=torch.int64, device=tokens.device)
        for k in range(reach + 1):
            end = numbers.shape[-1] - k
            total += numbers[..., end - last : end, None] * multipliers[part, k]
        total = (total ^ ((total >> 32) & 0xFFFFFFFF)) * (_GAMMA - 2**64)
        return offsets[part] + ((total >> 1) & 0x7FFFFFFFFFFFFFFF) % lengths[part]

    def _constants(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The multipliers, lengths and offsets on a device, copied at its first use, which must not be in a captured graph."""
        found = self._on.get(device)
        if found is None:
            found = (
                torch.from_numpy(self._multipliers.view(np.int64)).to(device), torch.tensor(self.lengths, device=device), torch.tensor(self.offsets, device=device),
            )  # fmt: skip
            if torch.compiler.is_compiling() or not watched():  # modes and transforms make tensors of their own, for as long as they last
                self._on[device] = found
        return found


def _splitmix(seed: int, index: int) -> int:
    """Output ``index`` of SplitMix64 that starts from ``seed``."""
    x = (seed + (index + 1) * _GAMMA) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _primes(most: int, count: int) -> list[int]:
    """The ``count`` largest primes up to ``most``, the largest first."""
    found: list[int] = []
    number = most
    while len(found) < count:
        if number < 2:
            raise ArgumentError(f"tensorcache: rows must be more: {count} tables of {most} rows at most need as many different primes")
        if _is_prime(number):
            found.append(number)
        number -= 1
    return found


def _is_prime(n: int) -> bool:
    """Miller and Rabin's test, which is exact below 2^64 with the first twelve primes as bases."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    for p in bases:
        if n % p == 0:
            return n == p
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    for base in bases:
        x = pow(base, (n - 1) >> twos, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return n > 1
