"""tensorcache.llm.offload: models whose weights are compressed tables."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llm_models import llama, logits, mixtral, one_thread, same, tokens  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402
from safetensors.torch import save, save_file  # noqa: E402
from tensorcache.llm import offload  # noqa: E402
from tensorcache.llm._scratch import Ring  # noqa: E402


class Unlike(torch.nn.Module):
    """Layers of several kinds: scaled float8, a convolution, a recurrent layer, and one that is used from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(300, 64)
        self.conv = torch.nn.Conv1d(64, 64, 3, padding=1)
        self.scaled = Scaled()
        self.lstm = torch.nn.LSTM(64, 64, batch_first=True)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, ids: Any) -> Any:
        x = self.norm(self.scaled(self.conv(self.embed(ids).transpose(1, 2)).transpose(1, 2)))
        return torch.nn.functional.linear(self.lstm(x)[0], self.embed.weight)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64).to(torch.float8_e4m3fn), requires_grad=False)
        self.weight_scale = torch.nn.Parameter(torch.rand(64, 1))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight.float() * self.weight_scale)


@pytest.mark.parametrize("memory", ["1kB", "60%", "1GB"])
def test_llama_gives_the_same_bits(memory: str) -> None:
    model = llama()
    ids, held = tokens(), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    want = logits(model, ids)
    assert offload(model, gpu_memory=memory, device="host") is model
    for _ in range(3):
        assert same(logits(model, ids), want)
    stats = model.tensorcache.stats()
    assert stats["weights"] == 23 and stats["raw_bytes"] == sum(t.nbytes for t in held.values() if t.nbytes >= 4096)
    assert stats["resident"] == {"1kB": 0, "1GB": 23}.get(memory, stats["resident"]) and (memory != "60%" or 3 < stats["resident"] < 20)
    assert stats["resident_bytes"] + stats["scratch_bytes"] + stats["plain_bytes"] <= stats["gpu_memory"] or memory == "1kB"
    assert stats["compression_ratio"] > 1.15 and stats["loads"]["loaded_ahead"] > 20
    assert "23 weights" in repr(model.tensorcache) and "offloaded=['weight']" in repr(model)
    found = model.state_dict()
    assert list(found) == list(held) and all(same(found[name], held[name]) for name in held)


@pytest.mark.parametrize("of", [torch.bfloat16, torch.float16])
def test_tied_weights_are_held_once(of: Any) -> None:
    model = llama(tie_word_embeddings=True, attention_bias=True).to(of)
    want = logits(model, tokens())
    offload(model, gpu_memory="50%", device="host")
    assert same(logits(model, tokens()), want)
    assert model.tensorcache.stats()["weights"] == 22
    state = model.state_dict()
    assert state["lm_head.weight"] is state["model.embed_tokens.weight"]
    assert isinstance(model.lm_head, torch.nn.Linear) and model.lm_head.weight.shape == (300, 64)


def test_modules_of_other_kinds() -> None:
    torch.manual_seed(4)
    model = Unlike().eval().requires_grad_(False)
    want = model(tokens())
    offload(model, gpu_memory="10%", device="host")
    names = {weight.name for weight in model.tensorcache._weights}
    assert names == {"embed.weight", "conv.weight", "scaled.weight"}
    assert {weight.codec for weight in model.tensorcache._weights} == {"rank", "zipnn"}
    for _ in range(2):
        assert same(model(tokens()), want)


@pytest.mark.parametrize("experts", ["eager", "grouped_mm", "batched_mm"])
def test_mixtral_gives_the_same_bits(experts: str) -> None:
    model = mixtral(experts)
    batch, one = tokens(), tokens(1, 1)
    want = logits(model, batch), logits(model, one)
    with torch.no_grad():
        generated = model.generate(one, max_new_tokens=8, do_sample=False)
    offload(model, gpu_memory="50%", device="host", refresh=None)
    assert same(logits(model, batch), want[0]) and same(logits(model, one), want[1])
    with torch.no_grad():
        assert torch.equal(model.generate(one, max_new_tokens=8, do_sample=False), generated)
    layers = model.tensorcache.stats()["experts"]
    assert list(layers) == [f"model.layers.{i}.mlp.experts" for i in range(3)]
    # One pass of 26 tokens, one of 1, and 8 of generate, the first of which has the prompt's one token.
    assert all(sum(layer["chosen"]) == 2 * (26 + 1 + 8) for layer in layers.values())
    assert model.model.layers[0].mlp.experts.num_experts == 8


def test_experts_in_use_come_to_be_held() -> None:
    model = mixtral()
    offload(model, gpu_memory="45%", device="host", refresh=None)
    few = tokens(1, 2)
    for _ in range(12):
        logits(model, few)
    before = model.tensorcache.stats()["experts"]
    for _ in range(3):
        model.tensorcache.refresh()
    for _ in range(3):
        logits(model, few)
    after = model.tensorcache.stats()["experts"]
    hits, misses = (sum(after[layer][key] - before[layer][key] for layer in after) for key in ("hits", "misses"))
    rate = sum(layer["hits"] for layer in before.values()) / sum(layer["hits"] + layer["misses"] for layer in before.values())
    assert hits / (hits + misses) > rate + 0.2


def test_experts_of_the_next_layer_are_expected() -> None:
    model = mixtral(num_hidden_layers=4)
    # Routers that agree, and layers that change little: the prediction is right.
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.gate.weight.copy_(model.model.layers[0].mlp.gate.weight)
            layer.self_attn.o_proj.weight.mul_(1e-3)
            layer.mlp.experts.down_proj.mul_(1e-3)
    one = tokens(1, 1)
    want = logits(model, one)
    offload(model, gpu_memory="1kB", device="host", refresh=None)
    before = model.tensorcache.stats()["loads"]["loaded_ahead"]
    assert same(logits(model, one), want)
    assert model.tensorcache.stats()["loads"]["loaded_ahead"] >= before + 4


class Stacked(torch.nn.Module):
    """Stacked experts, and something else that is indexed by the expert's number."""

    def __init__(self, beside: str, width: int) -> None:
        super().__init__()
        if beside != "class attribute":
            self.num_experts = 8
        self.up = torch.nn.Parameter(torch.randn(8, width, width) / 8)
        scale: Any = torch.rand(8, 1, 1) + 0.5
        if beside == "scale":
            self.scale = torch.nn.Parameter(scale.view(8))
        elif beside == "integers":
            self.scale = torch.nn.Parameter((scale * 9).to(torch.int8), requires_grad=False)
        elif beside == "buffer":
            self.register_buffer("scale", scale)
        else:
            self.scale = 1.0

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        out = torch.zeros_like(hidden_states)
        for e in top_k_index.unique().tolist():
            token, k = torch.where(top_k_index == e)
            scale = self.scale[e].view(1) if isinstance(self.scale, torch.Tensor) else self.scale
            out.index_add_(0, token, hidden_states[token] @ self.up[e].T * scale * top_k_weights[token, k, None])
        return out


class ByClass(Stacked):
    num_experts = 8


class Routed(torch.nn.Module):
    def __init__(self, beside: str, width: int = 64) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(width, 8, bias=False)
        self.experts = (ByClass if beside == "class attribute" else Stacked)(beside, width)

    def forward(self, x: Any) -> Any:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        return x + self.experts(x, chosen, weights)


def same_after_offload(model: Any, x: Any) -> Any:
    """Offloads a model, and compares its outputs with those before. Returns the names of its offloaded weights."""
    model.eval().requires_grad_(False)
    want = model(x)
    offload(model, gpu_memory="1kB", device="host")
    for _ in range(2):
        got = model(x)
        assert same(got, want) and got.stride() == want.stride()
    return {weight.name for weight in model.tensorcache._weights}


@pytest.mark.parametrize("beside", ["nothing", "scale", "integers", "buffer", "class attribute"])
def test_experts_with_more_than_stacks_of_floats(beside: str) -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(Routed(beside), Routed(beside))
    assert same_after_offload(model, torch.randn(1, 64)) == {"0.experts.up", "1.experts.up"}
    assert bool(model.tensorcache.stats()["experts"]) == (beside == "nothing")


def test_tied_stacks_of_experts_stay() -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(Routed("nothing"), Routed("nothing"), torch.nn.Linear(64, 64))
    model[1].experts.up = model[0].experts.up
    assert same_after_offload(model, torch.randn(1, 64)) == {"2.weight"}


def test_experts_of_several_widths() -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(Routed("nothing"), torch.nn.Linear(64, 32), Routed("nothing", 32))
    assert len(same_after_offload(model, torch.randn(1, 64))) == 3


def test_convolutions_in_channels_last_stay() -> None:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.Conv2d(32, 16, 3), torch.nn.Linear(16, 128)).to(memory_format=torch.channels_last)
    assert same_after_offload(model, torch.randn(2, 16, 20, 20)) == {"2.weight"}


def test_weights_that_require_gradients() -> None:
    model = llama().train()
    with pytest.raises(tensorcache.GradientError, match=r"weight model.embed_tokens.weight \(of a model in training mode\) must not require a gradient .*requires_grad_\(False\)"):
        offload(model, gpu_memory="50%", device="host")
    assert logits(model, tokens()).shape == (2, 13, 300)
    offload(model.requires_grad_(False), gpu_memory="50%", device="host")


class Adapter(torch.nn.Module):
    """LoRA as PEFT has it: the layer below, and two matrices beside it."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.base_layer = base
        self.a, self.b = torch.nn.Linear(base.in_features, 4, bias=False), torch.nn.Linear(4, base.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.base_layer(x) + self.b(self.a(x))


def adapt(model: Any) -> Any:
    torch.manual_seed(6)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.mlp.down_proj = Adapter(layer.self_attn.q_proj), Adapter(layer.mlp.down_proj)
    return model


def gradients(model: Any) -> list[Any]:
    ids = tokens()
    model(ids, labels=ids).loss.backward()
    return [p.grad for p in model.parameters() if p.requires_grad]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_on_top_are_trained(checkpointing: bool) -> None:
    """The backward pass reads weights whose scratch memory has others by then."""
    plain, model = adapt(llama().requires_grad_(False)), llama().requires_grad_(False)
    adapt(offload(model, gpu_memory="1kB", device="host"))
    if checkpointing:
        for each in (plain, model):
            each.gradient_checkpointing_enable()
            each.train()
    want, got = gradients(plain), gradients(model)
    assert len(want) == 12 and all(same(a, b) for a, b in zip(want, got)) and any(grad.abs().max() > 0 for grad in want)


def test_reads_from_outside_are_constant_copies() -> None:
    model = llama()
    held = model.model.layers[0].mlp.up_proj.weight.detach().clone()
    offload(model, gpu_memory="1kB", device="host")
    layer = model.model.layers[0].mlp.up_proj
    weight = layer.weight
    logits(model, tokens())
    assert same(weight, held) and weight.shape == (160, 64) and layer.in_features == 64 and not weight.requires_grad
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            for change in (lambda w: w.add_(1), lambda w: w.__setitem__(0, 1), lambda w: w.__imul__(2), lambda w: setattr(w, "data", held)):
                with pytest.raises(tensorcache.errors.UnsupportedError, match="merge adapters"):
                    change(layer.weight)
    with torch.no_grad(), pytest.raises(RuntimeError, match="inference tensor"):
        layer.weight[0].add_(1)
    with pytest.raises(tensorcache.errors.UnsupportedError, match="merge adapters"):
        layer.weight.data += 1
    with pytest.raises((AttributeError, KeyError)):
        layer.weight = torch.nn.Parameter(held)
    with pytest.raises(RuntimeError, match="up_proj.weight is offloaded and constant"):
        model.load_state_dict(llama().state_dict())
    with pytest.raises(tensorcache.ArgumentError, match="offloaded already"):
        offload(model, gpu_memory="50%")


@pytest.mark.parametrize("kind", ["attention", "parent", "list", "encoder"])
def test_reads_from_outside_with_autograd(kind: str) -> None:
    """Weights that a module's parent reads, in a forward pass that autograd records."""

    class Reads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.linear = torch.nn.Parameter(torch.ones(64)), torch.nn.Linear(64, 64)
            if kind == "attention":
                self.inner = torch.nn.MultiheadAttention(64, 4, batch_first=True)
            elif kind == "list":
                self.inner = torch.nn.ParameterList([torch.randn(64, 64) for _ in range(2)])
            elif kind == "encoder":
                self.inner = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)

        def forward(self, x: Any) -> Any:
            x = self.linear(x * self.scale)
            if kind == "attention":
                return self.inner(x, x, x, need_weights=False)[0]
            if kind == "list":
                return x @ self.inner[0] @ self.inner[1]
            return self.inner(x) if kind == "encoder" else torch.nn.functional.linear(x, self.linear.weight)

    torch.manual_seed(8)
    plain = Reads().eval().requires_grad_(False)
    plain.scale.requires_grad_(True)
    model, x = copy.deepcopy(plain), torch.randn(2, 5, 64)
    offload(model, gpu_memory="1kB", device="host")
    outputs = [each(x) for each in (plain, model)]
    for output in outputs:
        output.sum().backward()
    assert same(*outputs) and same(plain.scale.grad, model.scale.grad) and plain.scale.grad.abs().max() > 0


@pytest.mark.parametrize("put,taken", [(lambda x, w: (x, w), lambda out: out[1]), (lambda x, w: {"x": [x, {"w": w}]}, lambda out: out["x"][1]["w"])])
def test_a_module_that_returns_its_weight(put: Any, taken: Any) -> None:
    class Returns(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return put(x, self.weight)

    model = torch.nn.Sequential(*(Returns(64, 64) for _ in range(5))).eval()
    want = [of.weight.detach().clone() for of in model]
    offload(model, gpu_memory="1kB", device="host")
    with torch.no_grad():
        got = [taken(of(torch.ones(64))) for of in model]
    assert all(map(same, got, want))


def test_copies_and_pickles() -> None:
    model = offload(llama(), gpu_memory="50%", device="host")
    want = logits(model, tokens())
    other = copy.deepcopy(model)
    assert same(logits(other, tokens()), want) and other.tensorcache is model.tensorcache
    with pytest.raises(tensorcache.errors.UnsupportedError, match="save its state_dict"):
        pickle.dumps(model)


def test_threads_share_a_model() -> None:
    model = offload(llama(), gpu_memory="1kB", device="host")
    inputs = [tokens(1, n) for n in (3, 5, 7, 9)]
    plain = llama()
    found: list[Any] = [None] * 4

    def run(i: int) -> None:
        for _ in range(3):
            found[i] = logits(model, inputs[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(got, logits(plain, ids)) for got, ids in zip(found, inputs))


def test_compiled_layers() -> None:
    """A compiler sees the operator that reads tables: no break in the graph, and no scratch memory."""
    model = llama(num_hidden_layers=1)
    want = logits(model, tokens())
    offload(model, gpu_memory="50%", device="host")
    for i, layer in enumerate(model.model.layers):
        model.model.layers[i] = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert same(logits(model, tokens()), want)


@pytest.mark.parametrize("shards", [1, 3])
def test_from_a_checkpoint(tmp_path: Path, shards: int) -> None:
    model = llama(tie_word_embeddings=shards == 3)
    want = logits(model, tokens())
    model.save_pretrained(tmp_path, max_shard_size="250kB" if shards > 1 else "1GB")
    assert len(list(tmp_path.glob("*.safetensors"))) == shards
    with torch.device("meta"):
        empty = type(model)(model.config).eval()
    offload(empty, gpu_memory="50%", device="host", checkpoint=tmp_path)
    assert not any(p.is_meta for p in (*empty.parameters(), *empty.buffers()))
    assert same(logits(empty, tokens()), want)


def test_a_weight_that_a_container_has_too(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm, self.linear = torch.nn.Embedding(100, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)
            self.head = self.embed.weight

        def forward(self, ids: Any) -> Any:
            return torch.nn.functional.linear(self.norm(self.linear(self.embed(ids))), self.head)

    torch.manual_seed(7)
    model, ids = Tied().eval(), torch.arange(10)[None]
    save_file({name: p.detach() for name, p in model.named_parameters() if name != "embed.weight"}, tmp_path / "model.safetensors")
    with torch.device("meta"):
        empty = Tied().eval()
    empty.head = empty.embed.weight
    offload(empty, gpu_memory="50%", device="host", checkpoint=tmp_path)
    assert empty.embed.weight is empty.head and {weight.name for weight in empty.tensorcache._weights} == {"linear.weight"}
    with torch.no_grad():
        assert same(empty(ids), model(ids))


def test_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    model = llama()
    with pytest.raises(FileNotFoundError, match="must be a directory with safetensors files"):
        offload(model, gpu_memory="50%", checkpoint=tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(tensorcache.FileError, match="must be a safetensors file"):
        offload(model, gpu_memory="50%", checkpoint=tmp_path)
    for offsets, wrong in (((-16, 0), "has shape"), ((4, 20), "must begin at 0"), ((0, 16), "must begin at 16")):
        second = (16, 32) if wrong == "has shape" else (0, 16) if offsets == (0, 16) else (20, 36)
        header = json.dumps({name: {"dtype": "F32", "shape": [4], "data_offsets": of} for name, of in (("a", offsets), ("b", second))}).encode()
        (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(40))
        with pytest.raises(tensorcache.FileError, match=f"must be a safetensors file: tensor [ab] .*{wrong}"):
            offload(model, gpu_memory="50%", checkpoint=tmp_path)
    (tmp_path / "model.safetensors").write_bytes(save({"a": torch.zeros(4)}) + b"more")
    with pytest.raises(tensorcache.FileError, match="its tensors need 16 bytes, and its data has 20"):
        offload(model, gpu_memory="50%", checkpoint=tmp_path)
    llama(vocab_size=200).save_pretrained(tmp_path)
    with torch.device("meta"):
        empty = type(model)(model.config).eval()
    with pytest.raises(tensorcache.ArgumentError, match=r"embed_tokens.weight of the checkpoint \(shape \(200, 64\)\) must have shape \(300, 64\)"):
        offload(empty, gpu_memory="50%", device="host", checkpoint=tmp_path)
    with pytest.raises(tensorcache.ArgumentError, match="on the meta device"):
        offload(empty, gpu_memory="50%", device="host")


def test_wrong_arguments(caplog: Any) -> None:
    with pytest.raises(TypeError, match="must be a torch.nn.Module"):
        offload({}, gpu_memory="50%")
    with pytest.raises(tensorcache.ArgumentError, match="weights of at least 4096 bytes"):
        offload(torch.nn.Linear(4, 4), gpu_memory="50%")
    with pytest.raises(tensorcache.ArgumentError, match=r"device \('mps'\) must be"):
        offload(llama(), gpu_memory="50%", device="mps")
    with caplog.at_level(logging.WARNING, "tensorcache"):
        offload(llama(), gpu_memory="1kB", device="host")
    assert "gpu_memory (1 kB) should be" in caplog.text


# ---- the ring, with streams that note what they are asked


class Noted:
    """Streams whose events are numbers: notes loads with the events that they wait for."""

    def __init__(self) -> None:
        self.loads: list[tuple[Any, list[Any]]] = []
        self.waited: list[Any] = []
        self.events = 0
        self.loading: Any = None

    def load(self, decode: Callable[[], None], after: list[Any]) -> Any:
        decode()
        self.loads.append((self.loading, sorted(after)))
        return f"loaded {self.loading}"

    def ready(self, event: Any) -> None:
        self.waited.append(event)

    def used(self) -> tuple[Any, Any]:
        self.events += 1
        return "stream", self.events


def noted_ring(capacity: int, lengths: dict[str, int], ahead: int = 2) -> tuple[Ring, Noted]:
    streams = Noted()

    def decode(key: str, out: Any) -> None:
        streams.loading = key
        out.fill_(ord(key))

    return Ring(capacity, torch.device("cpu"), streams, lambda key: lengths[key], decode, ahead), streams


def one_pass(ring: Ring, keys: str, lengths: dict[str, int]) -> None:
    for key in keys:
        piece = ring.acquire(key)
        assert piece is not None and ring.bytes(piece).tolist() == [ord(key)] * lengths[key]
        ring.release(piece)


def test_ring_learns_the_order_and_waits_for_work() -> None:
    lengths = dict.fromkeys("abcdef", 512)
    ring, streams = noted_ring(3 * 512, lengths)
    one_pass(ring, "abcdef", lengths)
    assert ring.counts["loaded_on_demand"] == 6 and ring.counts["loaded_ahead"] == 0
    one_pass(ring, "abcdef", lengths)
    assert ring.counts["loaded_on_demand"] <= 8 and ring.counts["loaded_ahead"] >= 4
    demanded = ring.counts["loaded_on_demand"]
    one_pass(ring, "abcdefabcdef", lengths)
    assert ring.counts["loaded_on_demand"] == demanded and ring.counts["unused"] == 0
    # Each waits for the work with the piece that had its memory, the third before it.
    order = [key for key, _ in streams.loads]
    assert all(len(after) == 1 for _, after in streams.loads[3:]) and order[:6] == list("abcdef")
    assert streams.waited.count("loaded a") == 4


def test_ring_follows_another_order() -> None:
    lengths = {"a": 512, "b": 1024, "c": 100, "d": 700, "e": 1536}
    ring, _ = noted_ring(3584, lengths)
    for keys in ("abcde", "abcde", "aecdb", "edcba", "edcba", "abab", "eeee", "cadeb"):
        one_pass(ring, keys, lengths)
    assert ring.counts["unused"] > 0 and len(ring._freed) < 10


def test_ring_keeps_what_is_in_use() -> None:
    lengths = dict.fromkeys("abcd", 512) | {"x": 5000}
    ring, _ = noted_ring(1024, lengths)
    a, b = ring.acquire("a"), ring.acquire("b")
    assert ring.acquire("c") is None and ring.acquire("x") is None and ring.counts["without_room"] == 2
    assert a is not None and b is not None and ring.acquire("a") is a
    ring.release(a)
    assert ring.acquire("c") is None
    ring.release(a)
    c = ring.acquire("c")
    assert c is not None and ring.bytes(b).tolist() == [ord("b")] * 512 and ring.bytes(c).tolist() == [ord("c")] * 512
    assert ring.holder(ring.bytes(b).data_ptr() + 7) == (b, 7)
