"""Tensors of models: ``load_file``, ``load_model`` and ``save_file`` as safetensors.torch has them, and ``compress`` and ``decompress`` of one tensor."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import secrets
import stat
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Optional, Union

import numpy as np

from . import _abi
from ._elements import _BYTES, Element, element
from ._library import check, library, take_json
from .errors import ArgumentError, FileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
else:
    Tensor = Any

_Path = Union[str, "os.PathLike[str]"]

# The names that .safetensors files have for torch's types.
_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32",
    "U16": "uint16", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "C64": "complex64", "F4": "float4_e2m1fn_x2",
}  # fmt: skip

# torch's float4: an element of it is a byte, which is two elements to a .safetensors file.
_PAIRS = "float4_e2m1fn_x2"

# Bytes that an engine of the cache reads at once, and its memory for rows on the GPU and on the host.
_CHUNK = 64 << 20
_ENGINE = 16 << 20


class _Model:
    """An open model: what the library says of it, and reads of its tensors."""

    def __init__(self, path: _Path) -> None:
        self._handle = ctypes.c_void_p()
        check(library().tc_model_open(os.fsencode(path), ctypes.byref(self._handle)))
        try:
            self.info = take_json(library().tc_model_json, self._handle)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        library().tc_model_close(self._handle)

    def __enter__(self) -> _Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, tensors: list[tuple[int, Tensor]]) -> None:
        """Reads tensors, by their numbers, to tensors in host memory."""
        parts = (_abi.ModelPart * len(tensors))()
        for part, (number, into) in zip(parts, tensors):
            part.tensor, part.bytes, part.memory = number, into.nbytes, into.data_ptr()
        check(library().tc_model_read(self._handle, parts, len(parts)))


def load_file(filename: _Path, device: Any = "cpu") -> dict[str, Tensor]:
    """Loads tensors as ``safetensors.torch.load_file`` does, bit for bit.

    filename
        A directory that ``cachebench pack`` or ``save_file`` made, a ``.safetensors`` file, or a folder with such files.
    device
        Where the tensors are to be, as torch names devices. To a GPU packed rows go compressed, and the GPU decodes them, unless the model is the difference from another one:
        such ones, and files that are not packed, are read to host memory first, a tensor at a time.

    Returns a dict of all tensors by name, each with memory of its own. Raises ``FileError`` for what cannot be read or is damaged, also a base that is missing or has other
    contents, and ``FileNotFoundError`` if there is no such file.
    """
    import torch

    if not os.path.exists(filename):
        raise FileNotFoundError(f"tensorcache: filename ({os.fspath(filename)!r}) must be a file or a directory")
    on = torch.device(f"cuda:{device}" if isinstance(device, int) else device)
    with _Model(filename) as model:
        wanted = sorted(model.info["named"].items(), key=lambda pair: pair[1])
        if on.type == "cuda" and model.info.get("places"):
            return _load_tables(model.info, wanted, on)
        if on.type == "cpu":
            found = {name: _empty(model.info["tensors"][number], on) for name, number in wanted}
            model.read([(number, found[name]) for name, number in wanted])
            return found
        found = {}
        for name, number in wanted:
            one = _empty(model.info["tensors"][number], torch.device("cpu"))
            model.read([(number, one)])
            found[name] = one.to(on)
        return found


def _empty(info: dict[str, Any], device: Any) -> Tensor:
    """Returns memory for a tensor."""
    import torch

    of, shape = getattr(torch, _TYPES.get(info["dtype"], ""), None), info["shape"]
    if not isinstance(of, torch.dtype):
        raise ArgumentError(f"tensorcache: tensor {info['name']!r}: dtype ({info['dtype']}) is not in torch {torch.__version__}")
    bad = f"tensorcache: tensor {info['name']!r}: shape {info['shape']} of {info['dtype']} must have {info['bytes']} bytes"
    if info["dtype"] == "F4":
        if not shape or shape[-1] % 2:
            raise FileError(f"{bad}, and a last axis of pairs")
        shape = [*shape[:-1], shape[-1] // 2]
    # The library does not know the sizes of all types. Before memory is taken, as a header may claim any shape.
    if math.prod(shape) * of.itemsize != info["bytes"]:
        raise FileError(bad)
    try:
        return torch.empty(shape, dtype=of, device=device)
    except RuntimeError as e:
        if info["bytes"]:
            raise
        raise FileError(f"tensorcache: tensor {info['name']!r}: shape {info['shape']} must be one that tensors can have: {e}") from e


def _load_tables(info: dict[str, Any], wanted: list[tuple[str, int]], on: Any) -> dict[str, Tensor]:
    """Reads the tables of a packed model by the engine of the cache: a part of the rows at a time crosses the link compressed, and is decoded where the tensors are. Tests call it for the CPU, too."""
    import torch

    from ._open import open

    found = {name: _empty(info["tensors"][number], on) for name, number in wanted}
    for table, folder in enumerate(info["folders"]):
        here = sorted(
            (info["places"][number]["at"], name) for name, number in wanted if info["places"][number]["table"] == table and info["tensors"][number]["bytes"]
        )
        if not here:
            continue
        device = "host" if on.type == "cpu" else on
        with open(folder, _ENGINE, host_memory=_ENGINE, device=device, cold=True) as rows:
            row_bytes = next(place["row_bytes"] for place in info["places"] if place["table"] == table)
            step = max(1, _CHUNK // row_bytes)
            last = max(at + found[name].nbytes for at, name in here)
            for first in range(0, math.ceil(last / row_bytes), step):
                begin, end = first * row_bytes, min((first + step) * row_bytes, len(rows) * row_bytes)
                wants = [(at, name) for at, name in here if at < end and at + found[name].nbytes > begin]
                if not wants:
                    continue
                ids = torch.arange(first, end // row_bytes, device=on)
                part = torch.as_tensor(rows[ids], device=on).reshape(-1).view(torch.uint8)
                for at, name in wants:
                    low, high = max(at, begin), min(at + found[name].nbytes, end)
                    found[name].reshape(-1).view(torch.uint8)[low - at : high - at] = part[low - begin : high - begin]
    return found


def load_model(model: Any, filename: _Path, strict: bool = True, device: Any = "cpu") -> tuple[set[str], list[str]]:
    """Loads the tensors of a file into a ``torch.nn.Module`` as ``safetensors.torch.load_model`` does: ``filename`` and ``device`` are those of ``load_file``.

    Returns the names in the module that the file lacks, and those in the file that the module lacks. With ``strict`` there must be none: else ``RuntimeError``. A tensor that
    the module has under several names needs to be in the file under one.
    """
    state = load_file(filename, device)
    missing, unexpected = model.load_state_dict(state, strict=False)
    own = model.state_dict()
    loaded = {_memory_of(own[name]) for name in own if name in state}
    missing = {name for name in missing if name not in own or _memory_of(own[name]) not in loaded}
    if strict and (missing or unexpected):
        raise RuntimeError(f"tensorcache: loading {os.fspath(filename)} into {type(model).__name__}: missing: {sorted(missing)}, unexpected: {sorted(unexpected)}")
    return missing, list(unexpected)


def _memory_of(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()


def save_file(tensors: Mapping[str, Tensor], filename: _Path, metadata: Optional[Mapping[str, str]] = None) -> None:
    """Saves tensors, as ``safetensors.torch.save_file`` does: to a ``.safetensors`` file if ``filename`` ends so, and else compressed to a directory, as ``cachebench pack`` makes of
    such a file. ``load_file`` reads both. Tensors of equal bytes are stored once in a directory. The directory is made, is empty, or has a packed model, which is replaced."""
    import torch

    metadata = dict(metadata or {})
    if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise TypeError("tensorcache: metadata must have texts under texts")
    names = {of: name for name, of in _TYPES.items()}
    held: list[tuple[str, Tensor]] = []
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise TypeError(f"tensorcache: tensors must have a torch tensor under each name, not {type(tensor).__name__} under {name!r}")
        if name == "__metadata__":
            raise ArgumentError(f"tensorcache: tensors must not have the name {name!r}")
        if tensor.layout != torch.strided or str(tensor.dtype).removeprefix("torch.") not in names:
            raise ArgumentError(f"tensorcache: tensor {name!r} ({tensor.dtype}, layout {tensor.layout}) must be dense, of a type that .safetensors files have")
        held.append((name, _plain(tensor)))
    held.sort(key=lambda pair: (-pair[1].element_size(), pair[0]))
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, tensor in held:
        of, shape = names[str(tensor.dtype).removeprefix("torch.")], list(tensor.shape)
        if of == "F4":
            if not shape:
                raise ArgumentError(f"tensorcache: tensor {name!r} ({tensor.dtype}) must have an axis")
            shape[-1] *= 2
        header[name] = {"dtype": of, "shape": shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = os.fspath(filename)
    if path.lower().endswith(".safetensors"):
        _write(path, text, held)
        return
    parts = (_abi.ModelPart * len(held))()
    for part, (_, tensor) in zip(parts, held):
        part.bytes, part.memory = tensor.nbytes, tensor.data_ptr()
    check(library().tc_model_save(os.fsencode(path), text, parts, len(held), None))


def _plain(tensor: Tensor) -> Tensor:
    """Returns a tensor's elements in host memory, in C order."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def _write(path: str, header: bytes, tensors: list[tuple[str, Tensor]]) -> None:
    """Writes a .safetensors file, which is there as a whole or not at all, also after a crash. A file that exists keeps its mode, and a symbolic link stays."""
    import torch

    def contents(f: BinaryIO) -> None:
        f.write(len(header).to_bytes(8, "little") + header)
        for _, tensor in tensors:
            f.write(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))

    path = os.path.realpath(path)
    mode = os.stat(path).st_mode if os.path.exists(path) else None
    if mode is not None and not stat.S_ISREG(mode):  # a pipe, or a device
        with open(path, "wb") as f:
            contents(f)
        return
    # A new file has the mode that open gives it. The new contents of an old one are not to be seen by others meanwhile.
    created = 0o666 if mode is None else 0o600
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, created)) as f:
            if mode is not None:
                os.fchmod(f.fileno(), stat.S_IMODE(mode))
            contents(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    names = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system syncs folders
            os.fsync(names)
    finally:
        os.close(names)


# What the note of a compressed tensor says: whether it was torch's, whether it was complex, and which of ml_dtypes' further types it had, from 1, or that it had torch's float4.
_OF_TORCH, _COMPLEX, _FURTHER = 1, 2, 4
_PAIRS_NOTE = 63


def compress(t: Any, codec: str = "rank") -> bytes:
    """Compresses a tensor into bytes that describe themselves: type, shape, codec and checksums go with it, and ``decompress`` needs nothing else.

    t
        A torch tensor on any device, or a NumPy array, of any shape.
    codec
        A name of docs/codecs.md, ``"auto"``, ``"none"``, or ``"smallest"``, which tries all. Elements of a type that the codec does not serve are compressed by zstd or lz4. All lose
        nothing, except those with a bound in their name.
    """
    torch = sys.modules.get("torch")
    note = 0
    if torch is not None and isinstance(t, torch.Tensor):
        if t.layout != torch.strided or t.is_quantized or t.device.type == "meta":
            raise TypeError(f"tensorcache: t (layout {t.layout}, device {t.device}) must be a dense tensor with memory")
        note, t = _OF_TORCH, _plain(t)
        shape = list(t.shape)
        if t.is_complex():
            note, t = note | _COMPLEX, torch.view_as_real(t)
            shape.append(2)
        elif t.dtype == getattr(torch, _PAIRS, None):
            note, t = note | _FURTHER * _PAIRS_NOTE, t.view(torch.uint8)
        of, address, nbytes = element(t.dtype), t.data_ptr(), t.nbytes
    elif isinstance(t, (np.ndarray, np.generic)):
        t = np.asarray(t)
        shape = list(t.shape)
        t = np.asarray(t.astype(t.dtype.newbyteorder("<"), copy=False), order="C")
        if t.dtype.kind == "c":
            shape.append(2)
            note, t = _COMPLEX, t.reshape(-1).view(f"<f{t.dtype.itemsize // 2}")
        of, address, nbytes = element(t.dtype), t.ctypes.data, t.nbytes
    else:
        raise TypeError(f"tensorcache: t ({type(t).__name__}) must be a torch tensor or a NumPy array")
    if of.name in _BYTES:
        note |= _FURTHER * (1 + _BYTES.index(of.name))
    if len(shape) > _AXES:
        raise ArgumentError(f"tensorcache: t ({len(shape)} axes) must have at most {_AXES}")
    given = _abi.Tensor(data=address if nbytes else None, bytes=nbytes, dtype=of.code, axes=len(shape), note=note)
    given.shape[: len(shape)] = shape
    blob, length = ctypes.c_void_p(), ctypes.c_int64()
    check(library().tc_compress(ctypes.byref(given), codec.encode(), ctypes.byref(blob), ctypes.addressof(length)))
    try:
        # Not string_at, whose length is a C int: blobs may have 2 GiB and more.
        return bytes((ctypes.c_char * length.value).from_address(blob.value or 0)) if length.value else b""
    finally:
        library().tc_free(blob)


_AXES = 64


def decompress(b: Any, device: Any = None) -> Any:
    """Returns what ``compress`` was given, bit for bit: a NumPy array, or a torch tensor, which is in host memory unless ``device`` names another place.

    b is ``bytes``, or what has a buffer of them. Anything that ``compress`` has not made, cut short or changed in a single bit is an ``ArgumentError``.
    """
    data = np.frombuffer(b, np.uint8)
    found = _abi.Tensor()
    check(library().tc_decompress(data.ctypes.data, len(data), ctypes.byref(found)))
    of, shape = _element_of(found), list(found.shape[: found.axes])
    of_torch, is_complex = bool(found.note & _OF_TORCH) or device is not None, bool(found.note & _COMPLEX)
    if is_complex and (of.name not in (["float16"] if of_torch else []) + ["float32", "float64"] or shape[-1:] != [2]):
        raise ArgumentError(f"tensorcache: b (shape {shape} of {of.name}, note {found.note}) must have floats in pairs on its last axis, as complex numbers have")
    result: Any
    try:
        if of_torch:
            import torch

            known = getattr(torch, of.name, None)
            result = torch.empty(shape, dtype=known if isinstance(known, torch.dtype) else of.torch())
            found.data = result.data_ptr() or None
        else:
            result = np.empty(shape, of.numpy)
            found.data = result.ctypes.data
    except (TypeError, ValueError, RuntimeError) as e:
        if isinstance(e, RuntimeError) and found.bytes:  # torch has no memory
            raise
        raise ArgumentError(f"tensorcache: b (shape {shape} of {of.name}) must be a shape that arrays can have: {e}") from e
    if result.nbytes != found.bytes:
        raise ArgumentError(f"tensorcache: b (shape {shape} of {of.name}) must have {result.nbytes} bytes, not {found.bytes}")
    if found.bytes:
        check(library().tc_decompress(data.ctypes.data, len(data), ctypes.byref(found)))
    if is_complex:
        result = torch.view_as_complex(result) if of_torch else result.view(f"<c{2 * of.size}")[..., 0]
    return result if device is None else result.to(device)


def _element_of(found: _abi.Tensor) -> Element:
    """Returns the element type of a compressed tensor."""
    further = found.note // _FURTHER
    if further and (found.dtype != _abi.DTYPE["uint8"] or further > len(_BYTES) and further != _PAIRS_NOTE):
        raise ArgumentError(f"tensorcache: b (note {found.note}) must be what compress of this version makes")
    if further or found.dtype in _NEED_ML_DTYPES:
        with contextlib.suppress(ImportError):
            import ml_dtypes  # noqa: F401  # Element.numpy looks whether it is there
    if further == _PAIRS_NOTE:
        return Element(_PAIRS if found.note & _OF_TORCH else "uint8", 1)
    if further:
        return element(_BYTES[further - 1])
    return element(next(name for name, code in _abi.DTYPE.items() if code == found.dtype))


_NEED_ML_DTYPES = [_abi.DTYPE[name] for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")]
