"""Every way to read beside torch's own, through what a program does to its model: each equals torch, or raises one named error that says what to do."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.distributed as dist  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import tensorcache  # noqa: E402
from tensorcache import nn  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
F = torch.nn.functional
Array = np.ndarray[Any, Any]
IDS = torch.tensor([[3, 4999, 7, 3], [0, 1, 2, 3]])


def _bfloat16(t: Any, i: Any) -> Any:
    return t.gather(i, dtype=torch.bfloat16).float() if isinstance(t, tensorcache.Table) else t[i].bfloat16().float()


# Ways to read IDS from ``of``: a table, or a module of one, beside a tensor, or a module of torch.
READS: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda of, i: of[i],
    "embedding": lambda of, i: F.embedding(i, of),
    "embedding_bag": lambda of, i: F.embedding_bag(i, of, mode="mean"),
    "index_select": lambda of, i: torch.index_select(of, 0, i.flatten()),
    "gather": _bfloat16,
    "CachedEmbedding": lambda of, i: of(i),
    "CachedEmbeddingBagCollection": lambda of, i: of({"a": i})["a"] if isinstance(of, nn.CachedEmbeddingBagCollection) else of(i),
}


class Model(torch.nn.Module):  # type: ignore[misc]
    """Rows, and a layer that is trained."""

    def __init__(self, read: str, of: Any) -> None:
        super().__init__()
        self.read, self.of = read, of
        self.layer = torch.nn.Linear(32, 4)
        with torch.no_grad():
            self.layer.weight.copy_(torch.linspace(-1, 1, 128).view(4, 32))
            self.layer.bias.zero_()

    def forward(self, ids: Any) -> Any:
        rows = READS[self.read](self.of, ids)
        return self.layer(rows.to(self.layer.weight.dtype))


def ours(read: str, x: tensorcache.Table) -> Model:
    modules = {"CachedEmbedding": nn.CachedEmbedding, "CachedEmbeddingBagCollection": lambda x: nn.CachedEmbeddingBagCollection({"a": x})}
    return Model(read, modules.get(read, lambda x: x)(x))  # type: ignore[no-untyped-call, operator]


def theirs(read: str, table: Any) -> Model:
    modules = {"CachedEmbedding": torch.nn.Embedding.from_pretrained, "CachedEmbeddingBagCollection": lambda t: torch.nn.EmbeddingBag.from_pretrained(t, mode="sum")}
    return Model(read, modules.get(read, lambda t: t)(table.clone()))


@pytest.fixture(scope="module")
def table() -> Any:
    rng = np.random.default_rng(7)
    return torch.from_numpy((rng.standard_normal((5000, 32)) * np.exp(rng.standard_normal(32))).astype(np.float32))


@pytest.fixture(scope="module")
def x(table: Any, tmp_path_factory: Any) -> Iterator[tensorcache.Table]:
    """A table that other processes can attach to."""
    with tensorcache.open(table, "25%", device="host", listen=f"unix:{tmp_path_factory.mktemp('listen')}/s") as x:
        yield x


@pytest.fixture(scope="module")
def group(tmp_path_factory: Any) -> Iterator[None]:
    """A process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def saved(model: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def gradients(model: Any) -> list[Any]:
    """Those of a step of training."""
    loss = model(IDS).square().sum()
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


def of_each_sample(model: Any) -> list[Any]:
    weights = {name: value.detach() for name, value in model.layer.named_parameters()}

    def loss(weights: Any, ids: Any) -> Any:
        rows = READS[model.read](model.of, ids)
        return torch.func.functional_call(model.layer, weights, (rows,)).square().sum()

    found = torch.vmap(torch.func.grad(loss), (None, 0))(weights, IDS[:, None])
    return list(found.values())


def within(context: Callable[[], Any]) -> Callable[[Any], Any]:
    def call(model: Any) -> Any:
        with context():
            return model(IDS)

    return call


def rows_only(model: Any, context: Any) -> Any:
    """Without the layer, whose weights are no concern of a default device."""
    with context:
        return READS[model.read](model.of, IDS)


def ddp(model: Any) -> Any:
    return gradients(torch.nn.parallel.DistributedDataParallel(model))


def fsdp(model: Any) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard = pytest.importorskip("torch.distributed.fsdp").fully_shard
    mesh = init_device_mesh("cpu", (1,))
    model.of.requires_grad_(False) if isinstance(model.of, torch.nn.Module) else None
    fully_shard(model.layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return [part.full_tensor() if hasattr(part, "full_tensor") else part for part in gradients(model)]


def compiled(model: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=True, backend="aot_eager")(IDS)


def exported(model: Any) -> Any:
    return torch.export.export(model, (IDS,), strict=False).module()(IDS)


# What programs do to a model, and what it then returns.
SETTINGS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda model: model(IDS),
    "int32": lambda model: model(IDS.int()),
    "no_grad": within(torch.no_grad),
    "inference_mode": within(torch.inference_mode),
    "autocast": within(lambda: torch.autocast("cpu", torch.bfloat16)),
    "default device": lambda model: rows_only(model, torch.device("meta")),
    "deepcopy": lambda model: copy.deepcopy(model)(IDS),
    "pickle": lambda model: pickle.loads(pickle.dumps(model))(IDS),
    "torch.save": lambda model: saved(model)(IDS),
    "state_dict": lambda model: (model.load_state_dict(model.state_dict()), model(IDS))[1],
    "half": lambda model: model.half()(IDS),
    "bfloat16": lambda model: model.bfloat16()(IDS),
    "to float64": lambda model: model.to(torch.float64)(IDS),
    "to and back": lambda model: model.double().to("cpu").float().eval()(IDS),
    "share_memory": lambda model: model.share_memory()(IDS),
    "apply": lambda model: model.apply(lambda _: None)(IDS),
    "training": gradients,
    "gradients of each sample": of_each_sample,
    "functional_call": lambda model: torch.func.functional_call(model, dict(model.layer.named_parameters(prefix="layer")), (IDS,)),
    "DDP": ddp,
    "FSDP2": fsdp,
    "compile": compiled,
    "export": exported,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_equals_torch(setting: str, read: str, x: tensorcache.Table, table: Any, group: None) -> None:
    got, want = SETTINGS[setting](ours(read, x)), SETTINGS[setting](theirs(read, table))
    for one, other in zip(got, want, strict=True) if isinstance(got, list) else [(got, want)]:
        assert one.dtype == other.dtype and one.device == other.device and one.shape == other.shape
        # Sums of bags are added up in another order, and rounded once.
        torch.testing.assert_close(one, other, **({"rtol": 2e-2, "atol": 2e-1} if one.dtype.itemsize == 2 else {}))


TRACED: dict[str, Callable[[Any], Any]] = {
    "compile": compiled,
    "export": exported,
    "jit.trace": lambda model: torch.jit.trace(lambda i: model.of[i - 2] * 1, IDS)(IDS),
    "make_fx": lambda model: make_fx(lambda i: model.of[i - 2] * 1)(IDS)(IDS),
}


@pytest.mark.parametrize("setting", {**SETTINGS, **TRACED})
def test_negative_numbers(setting: str, x: tensorcache.Table, table: Any, group: None, monkeypatch: Any) -> None:
    """They count from the end, as torch has it, but not in programs that are compiled or traced, which say so."""
    monkeypatch.setitem(READS, "index", lambda of, i: of[i - 2])
    if setting in TRACED:
        with pytest.raises(IndexError, match="-2"):
            TRACED[setting](ours("index", x))
    else:
        torch.testing.assert_close(SETTINGS[setting](ours("index", x)), SETTINGS[setting](theirs("index", table)))


# What is refused, by which error, and what that says.
REFUSED: dict[str, tuple[Callable[[tensorcache.Table], Any], type[Exception], str]] = {
    "training of the table": (lambda x: nn.CachedEmbedding.from_pretrained(np.zeros((9, 4), "f4"), gpu_memory="1MB", freeze=False), tensorcache.GradientError, "freeze .False. must be True"),
    "requires_grad_": (lambda x: nn.CachedEmbedding(x).requires_grad_(), tensorcache.GradientError, "requires_grad .True. must be False"),
    "jit.script": (lambda x: torch.jit.script(torch.nn.Sequential(nn.CachedEmbedding(x))), tensorcache.errors.UnsupportedError, "take torch.export, torch.compile or torch.jit.trace"),
    "negative": (lambda x: F.embedding(torch.tensor([-1]), x), IndexError, "-1"),
    "negative, module": (lambda x: nn.CachedEmbedding(x)(torch.tensor([-1])), IndexError, "-1"),
    "max_norm": (lambda x: F.embedding(IDS, x, max_norm=1.0), tensorcache.ArgumentError, "max_norm .1.0. must be None"),
    "sparse": (lambda x: F.embedding_bag(IDS, x, sparse=True), tensorcache.GradientError, "sparse must be False"),
    "Parameter": (lambda x: torch.nn.Parameter(x), AttributeError, "detach"),
    "arithmetic": (lambda x: torch.add(x, 1), TypeError, r"torch.add must be given rows, x\[ids\]"),
    "as_tensor": (lambda x: torch.as_tensor(x), TypeError, r"read rows by x\[ids\], or all of them by x\[:\]"),
    "two tensors": (lambda x: x[IDS, IDS], TypeError, r"as in x\[ids\]\[:, columns\]"),
    "shape of a checkpoint": (lambda x: nn.CachedEmbedding(x).load_state_dict({"weight": torch.zeros(3, 32)}), RuntimeError, r"weight \(shape \(3, 32\)\) must have shape \(5000, 32\)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, x: tensorcache.Table) -> None:
    call, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        call(x)


def test_checkpoint_of_a_model(table: Any) -> None:
    """The checkpoint of a model whose embeddings are torch's goes into one whose embedding is cached. Its own has no table: that is opened from its file."""
    with tensorcache.open(table * 0, "25%", device="host") as x:
        mine, other = ours("CachedEmbedding", x), theirs("CachedEmbedding", table)
        assert list(mine.state_dict()) == ["layer.weight", "layer.bias"]
        mine.load_state_dict(other.state_dict())
        assert torch.equal(mine(IDS), other(IDS))
        mine.load_state_dict(mine.state_dict())
        assert torch.equal(mine(IDS), other(IDS))
        with pytest.raises(RuntimeError, match="Missing key.*of.weight"):
            other.load_state_dict(mine.state_dict())


class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    """A sample for each way to read, made in a worker."""

    def __init__(self, models: list[Any]) -> None:
        self.models = models

    def __len__(self) -> int:
        return len(self.models)

    def __getitem__(self, i: int) -> Any:
        return self.models[i](IDS).detach()


def loaded(models: list[Any], context: str) -> list[Any]:
    return list(torch.utils.data.DataLoader(Rows(models), batch_size=None, num_workers=1, multiprocessing_context=context))


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_of_a_loader(context: str, x: tensorcache.Table, table: Any) -> None:
    """A table whose cache listens is read in workers that are started anew."""
    got = loaded([ours(read, x) for read in READS], context)
    for read, rows in zip(READS, got, strict=True):
        torch.testing.assert_close(rows, theirs(read, table)(IDS).detach())


def test_workers_that_cannot_read(table: Any, tmp_path: Path) -> None:
    with tensorcache.open(table, "25%", device="host") as x:
        with pytest.raises(tensorcache.ForkedError, match="start workers by spawn"):
            loaded([ours("index", x)], "fork")
        with pytest.raises(tensorcache.Error, match='open it there with listen="unix:PATH"'):
            loaded([ours("index", x)], "spawn")


SENT = """
import pickle, sys, torch
from torch.fx.experimental.proxy_tensor import make_fx
models = pickle.load(sys.stdin.buffer)
ids = torch.tensor([[1, 2]])
for model in reversed(models):  # the second attaches first
    read = lambda i: model({"a": i})["a"]
    print(*(float(of.flatten()[0]) for of in (read(ids), torch.vmap(read)(ids[None]), make_fx(read)(ids)(ids), torch.compile(model, backend="aot_eager", fullgraph=True)({"a": ids})["a"])))
"""


def test_modules_of_tables_of_one_name_sent_to_another_process(tmp_path: Path) -> None:
    """Each reads its own table, under the name that operators have for it there."""
    with (
        tensorcache.open({"users": torch.full((50, 8), 1.0)}, "1MB", device="host", listen=f"unix:{tmp_path}/1") as one,
        tensorcache.open({"users": torch.full((50, 8), 2.0)}, "1MB", device="host", listen=f"unix:{tmp_path}/2") as two,
    ):
        sent = pickle.dumps([nn.CachedEmbeddingBagCollection({"a": of["users"]}) for of in (one, two)])
        done = subprocess.run([sys.executable, "-c", SENT], input=sent, capture_output=True, timeout=300)
    assert done.stdout.decode().splitlines() == ["4.0 4.0 4.0 4.0", "2.0 2.0 2.0 2.0"], done.stderr.decode()
