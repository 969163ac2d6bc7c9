"""``tensorcache.llm.offload``."""

from __future__ import annotations

import collections
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Optional, TypeVar, Union

import torch

from .._checks import Size, format_size, parse_size
from .._library import log
from ..errors import ArgumentError, GradientError, UnsupportedError
from ._checkpoint import Checkpoint
from ._experts import Experts, OffloadedExperts, count_of
from ._modules import Offloaded, OffloadedEmbedding, Part, kind_of
from ._scratch import CudaStreams, HostStreams, Ring
from ._weights import MIN_BYTES, Weight, can_be_table, choose_resident, estimate, open_all, row_elements

Model = TypeVar("Model", bound=torch.nn.Module)


class Offloading:
    """The offloaded weights of a model, as ``model.tensorcache``."""

    def __init__(self, name: str, gpu_memory: int, device: torch.device) -> None:
        self._name, self._gpu_memory, self.device = name, gpu_memory, device
        self._weights: list[Weight] = []
        self._parts: dict[str, Part] = {}  # by the module's name
        self._caches: list[Any] = []
        self._ring: Optional[Ring] = None
        self._plain = 0  # bytes of what is not offloaded

    def stats(self) -> dict[str, Any]:
        """Returns what lies where, in bytes, and how often weights were decoded in time.

        ``raw_bytes``, ``stored_bytes`` and ``compression_ratio`` are of all offloaded weights, ``resident_bytes`` and ``streamed_bytes`` the compressed bytes in GPU memory and those that a
        pass moves over the link, ``cached_memory`` the GPU memory for experts, ``scratch_bytes`` that into which weights are decoded, ``plain_bytes`` that of small tensors.
        ``loads`` counts decoded weights: ``loaded_ahead`` of their use, ``loaded_on_demand``, still ``held`` from the last use, ``unused``, and ``without_room`` in the scratch memory. ``experts`` has for each
        layer of experts ``hits`` and ``misses`` (rows), ``hit_rate``, and ``chosen``, how often each expert was chosen.
        """
        tables = {weight.name: weight.opened().stats() for weight in self._weights}
        stored = {name: int(stats["stored_bytes"]) for name, stats in tables.items()}
        raw = sum(weight.nbytes for weight in self._weights)
        experts = {}
        for name, part in self._parts.items():
            if isinstance(part, Experts):
                hits, misses = (sum(int(tables[weight.name][key]) for weight in part.weights.values()) for key in ("hits", "misses"))
                experts[name] = {"hits": hits, "misses": misses, "hit_rate": hits / max(1, hits + misses), "chosen": part.chosen.tolist()}
        kinds = {weight.name: weight.kind for weight in self._weights}
        return {
            "weights": len(self._weights),
            "resident": sum(kind == "resident" for kind in kinds.values()),
            "raw_bytes": raw,
            "stored_bytes": sum(stored.values()),
            "compression_ratio": raw / max(1, sum(stored.values())),
            "resident_bytes": sum(int(stats["resident"]["device_bytes"]) for stats in tables.values() if "resident" in stats),
            "streamed_bytes": sum(size for name, size in stored.items() if kinds[name] == "streamed"),
            "cached_bytes": sum(size for name, size in stored.items() if kinds[name] == "cached"),
            "scratch_bytes": self._ring.capacity if self._ring is not None else 0,
            "plain_bytes": self._plain,
            "gpu_memory": self._gpu_memory,
            "loads": dict(self._ring.counts) if self._ring is not None else {},
            "experts": experts,
        }

    def refresh(self) -> None:
        """Has the caches hold the experts that are used most now. They do so by themselves every ``refresh`` seconds."""
        for cache in self._caches:
            cache.refresh()

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"<tensorcache.llm.Offloading of {self._name} on {self.device}: {stats['weights']} weights, {format_size(stats['raw_bytes'])} as {format_size(stats['stored_bytes'])} "
            f"({stats['compression_ratio']:.2f}×), {stats['resident']} resident ({format_size(stats['resident_bytes'])}), {format_size(stats['scratch_bytes'])} of scratch memory>"
        )

    def __deepcopy__(self, memo: Any) -> Offloading:
        return self

    def __reduce__(self) -> NoReturn:
        raise UnsupportedError("tensorcache: an offloaded model cannot be pickled: save its state_dict()")


def offload(
    model: Model, gpu_memory: Size, *, device: Any = "auto", checkpoint: Union[None, str, os.PathLike[str]] = None, refresh: Optional[float] = 1.0
) -> Model:
    """Holds the weights of a model compressed: as many as fit in GPU memory, the others in page-locked host memory. Returns the model, which is changed in place.

    Results are bit-identical to those of the model as it was. Weights are the parameters of at least two axes and 4 KiB of modules that have no others below them: Linear, Embedding,
    convolutions, stacked experts. They are decoded into scratch memory when their module runs, the next ones meanwhile. An Embedding reads the rows that it looks up.
    Of stacked experts as transformers has them, those are decoded that the router chose; those used most are held in GPU memory.

    model
        Any ``torch.nn.Module``. Its weights become constants, so a model in training mode whose weights require gradients is a ``GradientError``. Adapters may be added
        afterwards, and trained.
    gpu_memory
        GPU memory for all of it: bytes, ``"20GB"``, or ``"50%"`` of the weights' bytes. Small tensors, and scratch memory as long as the three longest weights together, come first. If
        that is more, it is taken all the same, and a warning is logged.
    device
        ``"auto"`` takes a GPU if there is one; ``"cuda"``, ``"cuda:1"``, ``"host"``, or a ``torch.device``. What is not offloaded is moved there.
    checkpoint
        The directory of a checkpoint in safetensors files, or one such file, that weights are read from. The model is on the meta device; tensors that the files lack must be
        elsewhere already.
    refresh
        Seconds between the moments when other experts take the place of those used less. None: only ``model.tensorcache.refresh()`` does it.

    ``model.tensorcache`` is an ``Offloading``: ``stats()``, ``refresh()``. ``state_dict()`` has the original tensors, in host memory. A weight that is read outside of its module's
    forward is a constant copy. Raises ``ArgumentError`` and ``TypeError`` for bad arguments, a model without weights, and one that is offloaded already; what ``tensorcache.open`` raises;
    and ``FileError`` for a checkpoint that cannot be read. After an error the model may lack weights.

    >>> model = tensorcache.llm.offload(model.eval(), gpu_memory="20GB")  # doctest: +SKIP
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"tensorcache: model ({type(model).__name__}) must be a torch.nn.Module")
    if any(isinstance(module, Offloaded) for module in model.modules()):
        raise ArgumentError(f"tensorcache: model ({type(model).__name__}) must not be offloaded already")
    where = torch_device(device)
    source = None if checkpoint is None else Checkpoint(checkpoint)
    places = _uses(model)
    if not places:
        raise ArgumentError(f"tensorcache: model ({type(model).__name__}) must have contiguous weights of at least {MIN_BYTES} bytes")
    weights = [_weight(uses, source) for uses in places]
    whole = sum(weight.nbytes for weight in weights)
    state = Offloading(type(model).__name__, parse_size(gpu_memory, whole), where)
    parts = _parts(model, places, weights)
    state._plain = _move(model, where, {id(use.parameter) for uses in places for use in uses}, source)
    decoded = [part.nbytes for module, _, part in parts if not isinstance(module, torch.nn.Embedding)]
    capacity = sum(sorted(decoded, reverse=True)[:3])
    left = state._gpu_memory - capacity - state._plain
    if left < 0:
        log.warning("tensorcache: gpu_memory (%s) should be %s for the scratch memory and the small tensors of this model, which are taken", format_size(state._gpu_memory), format_size(capacity + state._plain))
    estimate(weights)
    stacks = [weight for weight in weights if weight.unit > 1]
    left = choose_resident([weight for weight in weights if weight.unit == 1], max(0, left))
    if sum(weight.resident_bytes for weight in stacks) <= left:
        left = choose_resident(stacks, left)
    for weight in stacks:
        weight.kind = "resident" if weight.kind == "resident" else "cached"
    owners = {weight.name: [(use.module, use.attribute) for use in uses] for weight, uses in zip(weights, places)}
    places.clear()

    def opened(weight: Weight) -> None:
        """Frees the original."""
        weight.read = _gone
        for module, name in owners[weight.name]:
            del module._parameters[name]
        if source is not None:
            source.release()

    state._weights = weights
    state._caches = open_all(weights, "host" if where.type == "cpu" else where, left, refresh, opened)
    numbers = torch.arange(max(weight.rows for weight in weights), device=where)
    for weight in weights:
        weight.all_numbers = numbers
    if capacity:
        streams = CudaStreams(where) if where.type == "cuda" else HostStreams()
        state._ring = Ring(capacity, where, streams, lambda key: key[0].nbytes, lambda key, out: key[0].decode(out, key[1]))
    wrapped = [path for module, path, _ in parts if "forward" in module.__dict__]
    if wrapped:
        log.warning("tensorcache: %d modules (%s) have a forward of their own, as accelerate's hooks give them: their weights are decoded at each use, not ahead. Remove the hooks before offload", len(wrapped), wrapped[0])
    for module, path, part in parts:
        part.ring = state._ring
        state._parts[path] = part
        module.__dict__["_tensorcache"] = part
        methods = OffloadedExperts if isinstance(part, Experts) else OffloadedEmbedding if isinstance(module, torch.nn.Embedding) else Offloaded
        base: Any = type(module)
        module.__class__ = kind_of(base, tuple(part.weights), methods)
        if isinstance(part, Experts):
            del module.__dict__["num_experts"]
    model.tensorcache = state
    log.info("tensorcache: %r", state)
    return model


@dataclass(frozen=True)
class _Use:
    """A parameter of a module."""

    module: torch.nn.Module
    module_name: str
    attribute: str
    parameter: torch.nn.Parameter

    @property
    def name(self) -> str:
        return f"{self.module_name}.{self.attribute}" if self.module_name else self.attribute


_ROUTERS = ("gate", "router")
# Recurrent modules have lists of their parameters besides, and lists of parameters have no forward.
_UNLIKE = (torch.nn.RNNBase, torch.nn.ParameterList, torch.nn.ParameterDict)


def _uses(model: torch.nn.Module) -> list[list[_Use]]:
    """Where each weight is used. A tied weight has several places. If one of these needs the parameter itself, the weight is not offloaded at all."""
    found: dict[int, list[_Use]] = {}
    left: set[int] = set()
    routers = {id(router) for router in _routers(model).values()}
    holders = collections.Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    for path, module in model.named_modules():
        own = {name: p for name, p in module._parameters.items() if p is not None}
        experts = count_of(module)
        # A module with others below it would hold its own weights during all of their work. Stacks of experts that are tied may be needed whole elsewhere.
        nested = len(own) != sum(1 for _ in module.parameters())
        tied_experts = experts and any(holders[id(p)] > 1 for p in own.values())
        skipped = nested or tied_experts or isinstance(module, _UNLIKE) or id(module) in routers
        for name, p in own.items():
            large = p.numel() * p.element_size() >= MIN_BYTES or bool(experts) and p.shape[:1] == (experts,)
            if not skipped and large and can_be_table(p, isinstance(module, torch.nn.Embedding)):
                found.setdefault(id(p), []).append(_Use(module, path, name, p))
            else:
                left.add(id(p))
    return [uses for p, uses in found.items() if p not in left]


def _routers(model: torch.nn.Module) -> dict[int, torch.nn.Module]:
    """The modules that choose among stacked experts, by the identity of the module of the experts. They are needed before it, and small."""
    found = {}
    for module in model.modules():
        children = dict(module.named_children())
        router = next((children[name] for name in _ROUTERS if name in children), None)
        for child in children.values():
            if router is not None and count_of(child) and getattr(router, "weight", torch.empty(0)).dim() == 2:
                found[id(child)] = router
    return found


def _weight(uses: list[_Use], source: Optional[Checkpoint]) -> Weight:
    first = uses[0]
    for use in uses:
        if use.parameter.requires_grad and use.module.training:
            raise GradientError(
                f"tensorcache: weight {use.name} (of a model in training mode) must not require a gradient to be offloaded: call model.eval(), or model.requires_grad_(False) and train "
                "adapters added afterwards"
            )
    p = first.parameter.detach()
    unit = count_of(first.module) or 1
    row = row_elements(tuple(p.shape), p.element_size(), unit, any(isinstance(use.module, torch.nn.Embedding) for use in uses))
    return Weight(first.name, tuple(p.shape), p.dtype, _reader([use.name for use in uses], p, source), row, unit)


def _reader(names: list[str], p: torch.Tensor, source: Optional[Checkpoint]) -> Callable[[], torch.Tensor]:
    """What reads a tensor: from the checkpoint if it is on the meta device."""
    if p.device.type != "meta":
        return lambda: p
    if source is None:
        raise ArgumentError(f"tensorcache: weight {names[0]} (on the meta device) must have memory, or be in a checkpoint: offload(..., checkpoint=DIR)")
    name = next((name for name in names if name in source), None)
    if name is None:
        raise ArgumentError(f"tensorcache: checkpoint ({source.path}) must have the tensor {names[0]}: of files with other names, load the model by its own library, then offload it")
    if source.shape(name) != tuple(p.shape):
        raise ArgumentError(f"tensorcache: tensor {name} of the checkpoint (shape {source.shape(name)}) must have shape {tuple(p.shape)}")
    return lambda: source.tensor(name).to(p.dtype)


def _gone() -> NoReturn:
    raise AssertionError("the original is freed")


def _parts(model: torch.nn.Module, places: list[list[_Use]], weights: list[Weight]) -> list[tuple[torch.nn.Module, str, Part]]:
    """The modules with weights, in the model's order."""
    of_module: dict[int, dict[str, Weight]] = {}
    for uses, weight in zip(places, weights):
        for use in uses:
            of_module.setdefault(id(use.module), {})[use.attribute] = weight
    found: list[tuple[torch.nn.Module, str, Part]] = []
    routers, last = _routers(model), None
    for path, module in model.named_modules():
        if id(module) in of_module:
            own, order, experts = of_module[id(module)], list(module._parameters), count_of(module)
            part: Part = Experts(own, order, experts, inspect.signature(module.forward)) if experts else Part(own, order)
            if isinstance(part, Experts):
                part.router = routers.get(id(module))
                if last is not None:
                    last.following = part
                last = part
            found.append((module, path, part))
    return found


def _move(model: torch.nn.Module, where: torch.device, weights: set[int], source: Optional[Checkpoint]) -> int:
    """Moves everything but the weights to the device, from the checkpoint if it is on the meta device. Returns its bytes."""
    moved: dict[int, torch.Tensor] = {}
    computed = []
    size = 0
    for path, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is None or id(tensor) in weights:
                    continue
                if id(tensor) not in moved:
                    full = f"{path}.{name}" if path else name
                    if tensor.is_meta and name in module._non_persistent_buffers_set and hasattr(model, "_init_weights"):
                        computed.append(module)
                        data = torch.empty_like(tensor, device=where)
                    else:
                        data = _reader([full], tensor.detach(), source)()
                        # In the order in which the model has its elements, be it channels_last.
                        data = torch.empty_like(tensor.detach(), device=where).copy_(data) if tensor.is_meta else data.to(where)
                    moved[id(tensor)] = torch.nn.Parameter(data, tensor.requires_grad) if tensors is module._parameters else data
                    size += data.numel() * data.element_size()
                tensors[name] = moved[id(tensor)]
    for module in computed:  # buffers that no checkpoint has, such as the frequencies of rotary embeddings: models of transformers compute them
        model._init_weights(module)
    return size


def torch_device(device: Any) -> torch.device:
    """The torch.device that a ``device`` argument means."""
    if device == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    if isinstance(device, int) and not isinstance(device, bool):
        return torch.device("cuda", device)
    try:
        found = torch.device("cpu" if device == "host" else device)
    except (RuntimeError, TypeError):
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda"):
        raise ArgumentError(f"tensorcache: device ({device!r}) must be 'auto', 'host', 'cuda', 'cuda:1', or a torch.device of these")
    return torch.device("cuda", torch.cuda.current_device()) if found.type == "cuda" and found.index is None else found
