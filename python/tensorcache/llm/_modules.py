"""Modules whose weights are tables: what stands in for the parameters.

The module gets a class of its own, a subclass of its class, in which each weight is a property. In the module's own ``forward`` the property is the tensor decoded
into the ring; elsewhere it is decoded into memory of its own. So ``isinstance(module, torch.nn.Linear)`` holds, and code that reads ``module.weight`` works, whoever calls it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
from collections.abc import Iterator
from typing import Any, NoReturn, Optional

import torch
from torch.utils._pytree import tree_map

from ..errors import UnsupportedError
from ._scratch import Ring
from ._weights import Weight

Frame = dict[str, Any]


class _Frames(threading.local):
    """What the thread's forward passes have decoded, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[tuple[Part, Frame]] = []


_frames = _Frames()


class Part:
    """A module's weights, by attribute. Copies of the module share it."""

    def __init__(self, weights: dict[str, Weight], order: list[str]) -> None:
        self.weights, self.order = weights, order
        self.ring: Optional[Ring] = None
        # The decoded weights lie behind each other.
        self.begins: dict[str, int] = {}
        self.nbytes = 0
        for name, weight in weights.items():
            self.begins[name] = self.nbytes
            self.nbytes += -(-weight.nbytes // weight.unit // 16) * 16

    def frame(self) -> Optional[Frame]:
        """What the thread's forward pass of the module has, None outside of it."""
        return next((frame for part, frame in reversed(_frames.stack) if part is self), None)

    def decode(self, out: torch.Tensor, expert: Optional[int] = None) -> None:
        """Decodes the weights, or those of one expert, into ``nbytes`` bytes."""
        for name, weight in self.weights.items():
            begin = self.begins[name]
            weight.decode(out[begin : begin + weight.nbytes // weight.unit], expert)

    def tensors(self, memory: torch.Tensor) -> Frame:
        """The weights decoded into that memory, of one expert if they are stacks."""
        views = {}
        for name, weight in self.weights.items():
            begin = self.begins[name]
            shape = weight.shape if weight.unit == 1 else weight.shape[1:]
            views[name] = memory[begin : begin + weight.nbytes // weight.unit].view(weight.dtype).view(shape)
        return views

    @contextlib.contextmanager
    def loaded(self) -> Iterator[Frame]:
        """Has the weights decoded for a forward pass."""
        piece = self.ring.acquire((self, None)) if self.ring is not None else None
        try:
            if piece is None or self.ring is None:
                with pushed(self, {name: weight.fresh() for name, weight in self.weights.items()}) as frame:
                    yield frame
            else:
                with pushed(self, self.tensors(self.ring.bytes(piece))) as frame, _saving(self.ring):
                    yield frame
        finally:
            if piece is not None and self.ring is not None:
                self.ring.release(piece)

    def kept(self, output: Any) -> Any:
        """The output of a forward pass, copied if it is memory of the ring: a module may return its weight."""
        ring = self.ring
        if ring is None:
            return output
        return tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) and ring.owns(leaf) else leaf, output)

    def __deepcopy__(self, memo: Any) -> Part:
        return self

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError("tensorcache: an offloaded model cannot be pickled: save its state_dict()")


@contextlib.contextmanager
def pushed(part: Part, frame: Frame) -> Iterator[Frame]:
    """Has the module's properties be those of a frame."""
    _frames.stack.append((part, frame))
    try:
        yield frame
    finally:
        _frames.stack.pop()


def _saving(ring: Ring) -> Any:
    """Has the backward pass decode weights again, as others are in their memory by then."""
    if not torch.is_grad_enabled():
        return contextlib.nullcontext()

    def pack(tensor: torch.Tensor) -> Any:
        held = ring.holder(tensor.data_ptr())
        if held is None:
            return tensor
        key: Any = held[0].key
        return key[0], held[1], tensor.dtype, tensor.size(), tensor.stride()

    def unpack(saved: Any) -> torch.Tensor:
        if isinstance(saved, torch.Tensor):
            return saved
        part, begin, dtype, size, stride = saved
        memory = torch.empty(part.nbytes, dtype=torch.uint8, device=ring.device)
        part.decode(memory)
        elements = 1 + sum((n - 1) * step for n, step in zip(size, stride))
        return memory[begin : begin + elements * dtype.itemsize].view(dtype).as_strided(size, stride)

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def _is_seen() -> bool:
    """Whether torch records what runs: a compiler, or a captured graph. Weights are then decoded into memory of their own, by the operator ``tensorcache::gather``."""
    return bool(torch.compiler.is_compiling() or torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


class Offloaded(torch.nn.Module):  # type: ignore[misc]
    """The methods of every module with offloaded weights, before those of its own class."""

    _tensorcache: Part

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if _is_seen():
            return super().forward(*args, **kwargs)
        with self._tensorcache.loaded():
            return self._tensorcache.kept(super().forward(*args, **kwargs))

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (super().extra_repr(), f"offloaded={list(self._tensorcache.weights)}")))

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        own: dict[str, Any] = {}
        super()._save_to_state_dict(own, prefix, keep_vars)
        for name in self._tensorcache.order:
            weight = self._tensorcache.weights.get(name)
            if weight is not None:
                destination[prefix + name] = weight.host()
            elif prefix + name in own:
                destination[prefix + name] = own.pop(prefix + name)
        destination.update(own)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any) -> None:
        given = dict(state_dict)
        for name in self._tensorcache.weights:
            if given.pop(prefix + name, None) is not None:
                errors.append(f"tensorcache: {prefix}{name} is offloaded and constant: load the state dict before tensorcache.llm.offload")
        super()._load_from_state_dict(given, prefix, metadata, strict, missing, unexpected, errors)

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._tensorcache.__reduce__()


class OffloadedEmbedding(Offloaded):
    """An embedding, which reads the rows that it looks up and no others."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        # The functions of embeddings take a table for the weight.
        with pushed(self._tensorcache, {name: weight.opened() for name, weight in self._tensorcache.weights.items()}):
            return super(Offloaded, self).forward(*args, **kwargs)


@functools.cache
def kind_of(base: type, names: tuple[str, ...], methods: type) -> type:
    """The class of modules of class ``base`` whose parameters ``names`` are offloaded."""
    attributes: dict[str, Any] = {name: property(functools.partial(_weight, name=name)) for name in names}
    attributes |= {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (methods, base), attributes)


def _weight(module: Any, name: str) -> Any:
    part: Part = module.__dict__["_tensorcache"]
    if torch.compiler.is_compiling():
        return part.weights[name].fresh()
    frame = part.frame()
    if frame is not None:
        return frame[name]
    # A change in place would be lost, and is an error: of an inference tensor by torch. Autograd, which saves no such tensors for the backward pass, has others, whose methods refuse it.
    with torch.inference_mode(not torch.is_grad_enabled()):
        return part.weights[name].fresh().as_subclass(Constant)


_CONSTANT = "tensorcache: the weight of an offloaded module is constant: merge adapters, and make other changes, before tensorcache.llm.offload"


class Constant(torch.Tensor):  # type: ignore[misc]
    """A copy of a weight. A change in place, or by way of ``data`` as that of adapters that are merged, would be lost and is an error."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history."""
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value: torch.Tensor) -> NoReturn:
        raise UnsupportedError(_CONSTANT)


def _changed(self: Constant, *args: Any, **kwargs: Any) -> NoReturn:
    raise UnsupportedError(_CONSTANT)


_IN_PLACE = ("add", "and", "div", "floordiv", "lshift", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor")
for _name in (*(f"__i{name}__" for name in _IN_PLACE), "__setitem__", *(name for name in dir(torch.Tensor) if name.endswith("_") and name[0] != "_")):
    if _name not in ("requires_grad_", "detach_"):
        setattr(Constant, _name, _changed)
