"""GPU memory into which compressed weights are decoded, in a ring, ahead of their use.

A *piece* is what is decoded together: the weights of a module, or one expert. Pieces lie in the ring in the order in which they were loaded. Which piece follows
two others is learnt from the accesses: the first pass through a model has no predictions, the following ones load the next pieces while a module computes.
Where the order changes, the piece asked for is loaded at once, and the new order is learnt.

On a GPU pieces are decoded on a stream of their own. The stream that computes waits for the event behind the decoding, and what is decoded into the same memory
later waits for the event behind the module's work. So the host waits for neither. On the processors pieces are decoded at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Optional, Protocol

import torch

_ALIGN = 512  # bytes: torch's own allocator aligns to this


class Streams(Protocol):
    """How decoding and computing are ordered. Events are opaque; None stands for one that has passed."""

    def load(self, decode: Callable[[], None], after: list[Any]) -> Any:
        """Runs ``decode`` after the events ``after``, beside the current stream, and returns the event behind it."""

    def ready(self, event: Any) -> None:
        """Orders the current stream after an event."""

    def used(self) -> tuple[Any, Any]:
        """Returns the current stream, and the event behind what it has to do."""


class HostStreams:
    """The processors': everything is done when it is asked for."""

    def load(self, decode: Callable[[], None], after: list[Any]) -> Any:
        decode()
        return None

    def ready(self, event: Any) -> None:
        pass

    def used(self) -> tuple[Any, Any]:
        return None, None


class CudaStreams:
    """A stream beside the current one of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._side = torch.cuda.Stream(device)
        self._begun = False

    def load(self, decode: Callable[[], None], after: list[Any]) -> Any:
        if not self._begun:  # what the current stream has allocated and written so far
            self._side.wait_stream(torch.cuda.current_stream(self._side.device))
            self._begun = True
        for event in after:
            if event is not None:
                self._side.wait_event(event)
        with torch.cuda.stream(self._side):
            decode()
        return self._side.record_event()

    def ready(self, event: Any) -> None:
        torch.cuda.current_stream(self._side.device).wait_event(event)

    def used(self) -> tuple[Any, Any]:
        stream = torch.cuda.current_stream(self._side.device)
        return stream, stream.record_event()


class Piece:
    """Decoded weights in the ring, ``users`` modules being at work with them."""

    def __init__(self, key: Hashable, begin: int, end: int) -> None:
        self.key, self.begin, self.end = key, begin, end
        self.ready: Any = None  # the event behind its decoding
        self.used: dict[Any, Any] = {}  # by stream, the event behind the work with it
        self.users = 0
        self.asked = False  # whether a module has asked for it since it was loaded


class Ring:
    """``capacity`` bytes of a device for decoded pieces.

    ``length`` gives the bytes of a piece, and ``decode`` writes it to a uint8 tensor of so many bytes. It is safe for use by several threads.
    """

    def __init__(self, capacity: int, device: torch.device, streams: Streams, length: Callable[[Any], int], decode: Callable[[Any, torch.Tensor], None], ahead: int = 2) -> None:
        self._memory = torch.empty(capacity, dtype=torch.uint8, device=device)
        self._streams, self._length, self._decode, self._ahead = streams, length, decode, ahead
        self._pieces: list[Piece] = []  # the oldest first
        self._freed: list[tuple[int, int, list[Any]]] = []  # memory that pieces had, and the events behind the work with them
        self._after: dict[tuple[Any, Any], Any] = {}  # the piece that followed two others
        self._last: tuple[Any, Any] = (None, None)
        self._lock = threading.Lock()
        self.counts = dict.fromkeys(("loaded_ahead", "loaded_on_demand", "held", "unused", "without_room"), 0)

    @property
    def capacity(self) -> int:
        """The bytes of the ring."""
        return int(self._memory.numel())

    @property
    def device(self) -> torch.device:
        """Where the ring's memory is."""
        found: torch.device = self._memory.device
        return found

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is memory of the ring."""
        return bool(tensor.device == self.device and tensor.untyped_storage().data_ptr() == self._memory.data_ptr())

    def acquire(self, key: Hashable) -> Optional[Piece]:
        """Returns a piece for use in the order of the current stream, and loads those that are expected behind it. None if there is no room: others use the ring,
        or the piece is longer. ``release`` gives it up."""
        with self._lock:
            piece = self._find(key)
            if piece is None:
                piece = self._load(key, evict=True)
                self.counts["without_room" if piece is None else "loaded_on_demand"] += 1
            else:
                self.counts["held" if piece.asked else "loaded_ahead"] += 1
            if piece is not None:
                piece.asked = True
                piece.users += 1
                if piece.ready is not None:
                    self._streams.ready(piece.ready)
            self._learn(key)
            self._load_ahead()
            return piece

    def release(self, piece: Piece) -> None:
        """Gives up a piece, whose memory is used again after the work that the current stream has to do."""
        stream, event = self._streams.used()
        with self._lock:
            piece.users -= 1
            piece.used[stream] = event
            self._load_ahead()  # which may have room now

    def expect(self, keys: Iterable[Hashable]) -> None:
        """Loads pieces that are likely to be asked for soon, as far as there is room."""
        with self._lock:
            for key in keys:
                if self._find(key) is None and self._load(key, evict=False) is None:
                    return

    def take(self, key: Hashable) -> Optional[Piece]:
        """``acquire`` of a piece that was expected, None if it was not loaded. It is no part of the order that is learnt."""
        with self._lock:
            piece = self._find(key)
            if piece is not None:
                self.counts["held" if piece.asked else "loaded_ahead"] += 1
                piece.asked = True
                piece.users += 1
                if piece.ready is not None:
                    self._streams.ready(piece.ready)
            return piece

    def forget(self, keys: Iterable[Hashable]) -> None:
        """Lets the memory of pieces be used again that were expected and not asked for."""
        with self._lock:
            for piece in map(self._find, keys):
                if piece is not None and not piece.asked:
                    self.counts["unused"] += 1
                    piece.asked = True

    def bytes(self, piece: Piece) -> torch.Tensor:
        """The piece's memory, while it is acquired."""
        return self._memory[piece.begin : piece.begin + self._length(piece.key)]

    def holder(self, address: int) -> Optional[tuple[Piece, int]]:
        """The piece in use that has an address, and the distance from the piece's beginning."""
        at = address - self._memory.data_ptr()
        with self._lock:
            return next(((piece, at - piece.begin) for piece in self._pieces if piece.users and piece.begin <= at < piece.end), None)

    def _find(self, key: Hashable) -> Optional[Piece]:
        return next((piece for piece in self._pieces if piece.key == key), None)

    def _learn(self, key: Hashable) -> None:
        if key != self._last[1]:
            self._after[self._last] = key
            self._last = (self._last[1], key)

    def _load_ahead(self) -> None:
        """Loads what followed last time, as far as there is room without taking that of pieces that were loaded ahead themselves."""
        last = self._last
        for _ in range(self._ahead):
            key = self._after.get(last)
            if key is None or self._find(key) is None and self._load(key, evict=False) is None:
                return
            last = (last[1], key)

    def _load(self, key: Hashable, evict: bool) -> Optional[Piece]:
        length = -(-self._length(key) // _ALIGN) * _ALIGN
        begin = self._room(length, evict)
        if begin is None:
            return None
        piece = Piece(key, begin, begin + length)
        after = [event for b, e, events in self._freed if b < piece.end and piece.begin < e for event in events]
        left = [part for b, e, events in self._freed for part in ((b, min(e, piece.begin), events), (max(b, piece.end), e, events))]
        self._freed = [(b, e, events) for b, e, events in left if b < e]
        target = self.bytes(piece)
        piece.ready = self._streams.load(lambda: self._decode(key, target), after)
        self._pieces.append(piece)
        return piece

    def _room(self, length: int, evict: bool) -> Optional[int]:
        """Where ``length`` bytes are free behind the newest piece, or at the beginning, once pieces that lie there are given up."""
        if length > self.capacity:
            return None
        begin = self._pieces[-1].end if self._pieces else 0
        if begin + length > self.capacity:
            begin = 0
        there = [piece for piece in self._pieces if piece.begin < begin + length and begin < piece.end]
        if any(piece.users or not (piece.asked or evict) for piece in there):
            return None
        for piece in there:
            self.counts["unused"] += not piece.asked
            self._pieces.remove(piece)
            # One that was never used has no such event: decoding is in the order of the one side stream.
            self._freed.append((piece.begin, piece.end, list(piece.used.values())))
        return begin
