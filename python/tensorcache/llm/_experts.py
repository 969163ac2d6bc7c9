"""Stacked experts, of which a forward pass decodes those that the router has chosen.

The tables of experts are cached ones: each read of an expert's rows is an access, so the admission policy of the cache learns which experts are used most, and holds those, compressed, in GPU
memory. The others come over the link, compressed.

The module's forward is that of transformers, whichever implementation of experts is set: it sees a stack of the chosen experts only, in their order, and their numbers in it. Each expert multiplies the same
tokens as before, and their outputs are added up in the same order.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Optional

import torch

from ._modules import Frame, Offloaded, Part, _is_seen, pushed
from ._weights import Weight, can_be_table


class Experts(Part):
    """The weights of a module of ``count`` stacked experts, whose forward has that ``signature``."""

    def __init__(self, weights: dict[str, Weight], order: list[str], count: int, signature: inspect.Signature) -> None:
        super().__init__(weights, order)
        self.count, self.signature = count, signature
        self.following: Optional[Experts] = None  # the experts of the layer behind
        self.router: Any = None  # the module that chooses among these experts
        self.chosen = torch.zeros(count, dtype=torch.int64)  # how often each expert was chosen for a token
        self.predicted: list[int] = []  # those expected for the next pass

    def stacks(self, chosen: torch.Tensor) -> Frame:
        """Stacks of the chosen experts, in ascending order."""
        ring, taken = self.ring, {}
        if ring is not None and self.predicted:
            numbers = chosen.tolist()
            for at, expert in enumerate(numbers):
                piece = ring.take((self, expert)) if expert in self.predicted else None
                if piece is not None:
                    taken[at] = piece
            ring.forget((self, expert) for expert in self.predicted)
            self.predicted = []
        if ring is None or not taken:
            return {name: weight.parts(chosen) for name, weight in self.weights.items()}
        absent = torch.tensor([at for at in range(len(chosen)) if at not in taken], dtype=torch.int64, device=chosen.device)
        frame = {}
        for name, weight in self.weights.items():
            frame[name] = stack = torch.empty(len(chosen), *weight.shape[1:], dtype=weight.dtype, device=chosen.device)
            if len(absent):
                stack[absent] = weight.parts(chosen[absent])
        for at, piece in taken.items():
            for name, tensor in self.tensors(ring.bytes(piece)).items():
                frame[name][at] = tensor
            ring.release(piece)
        return frame

    def predict(self, hidden: torch.Tensor, k: int) -> None:
        """Has the experts of the layer behind loaded that its router would choose for the input of these: hidden states change little from layer to layer
        (Eliseev and Mazur, 2023, "Fast inference of mixture-of-experts language models with offloading")."""
        behind = self.following
        if behind is None or behind.router is None or self.ring is None or hidden.numel() // hidden.shape[-1] * k > behind.count // 2:
            return
        if behind.router.weight.shape != (behind.count, hidden.shape[-1]):
            return  # the layer behind has another width, or its router chooses among more than these experts
        with torch.no_grad():
            logits = torch.nn.functional.linear(hidden.reshape(-1, hidden.shape[-1]).float(), behind.router.weight.float())
            behind.predicted = torch.unique(logits.topk(k).indices).tolist()
        self.ring.expect([(behind, expert) for expert in behind.predicted])


class OffloadedExperts(Offloaded):
    """A module of stacked experts, whose forward takes ``hidden_states`` and ``top_k_index``."""

    _tensorcache: Experts

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        plain = super(Offloaded, self).forward
        if _is_seen():
            return plain(*args, **kwargs)
        part, bound = self._tensorcache, self._tensorcache.signature.bind(*args, **kwargs)
        index = bound.arguments["top_k_index"]
        part.chosen += torch.bincount(index.reshape(-1).cpu(), minlength=part.count)[: part.count]
        chosen = torch.unique(index)  # ascending
        chosen = chosen[chosen < part.count]  # numbers beyond are of tokens without an expert here
        if not len(chosen):
            chosen = chosen.new_zeros(1)
        # Numbers that are not among the chosen ones become len(chosen), which is beyond again.
        bound.arguments["top_k_index"] = torch.searchsorted(chosen, index.contiguous()).to(index.dtype)
        frame = part.stacks(chosen)
        part.predict(bound.arguments["hidden_states"], index.shape[-1])
        with pushed(part, {**frame, "num_experts": len(chosen)}):
            return plain(*bound.args, **bound.kwargs)

    @property
    def num_experts(self) -> int:
        """The number of experts: in a forward pass, of those in the stacks."""
        frame = self._tensorcache.frame()
        return self._tensorcache.count if frame is None else int(frame["num_experts"])

    @num_experts.setter
    def num_experts(self, value: int) -> None:
        raise AttributeError("tensorcache: num_experts of offloaded experts cannot be changed")


def count_of(module: torch.nn.Module) -> int:
    """The number of experts of a module of stacked experts as transformers has them, 0 for any other module.

    A forward pass sees the chosen experts under other numbers. So it is 0, too, for a module that has anything by expert that would not be offloaded: scales of one axis, quantized stacks, buffers.
    """
    count = module.__dict__.get("num_experts")
    if not isinstance(count, int) or count < 2 or getattr(module, "_is_expert_parallel", False):
        return 0
    others = [*module.buffers(), *(value for value in module.__dict__.values() if isinstance(value, torch.Tensor))]
    if any(tensor.shape[:1] == (count,) for tensor in others):
        return 0
    own = [p for p in module._parameters.values() if p is not None and p.shape[:1] == (count,)]
    if not any(p.dim() == 3 for p in own) or not all(can_be_table(p, False) for p in own):
        return 0
    with contextlib.suppress(ValueError, TypeError):
        if {"hidden_states", "top_k_index"} <= inspect.signature(module.forward).parameters.keys():
            return count
    return 0
