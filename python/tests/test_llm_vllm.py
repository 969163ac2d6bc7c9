"""How vLLM would hold its weights as tables: a stand-in of the interface of its quantization methods, which docs/llm.md describes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tensorcache  # noqa: E402


class Layer(torch.nn.Module):
    """vLLM's LinearBase: its method makes the weight, prepares it once loaded, and applies it."""

    def __init__(self, columns: int, rows: int, dtype: Any, method: Any) -> None:
        super().__init__()
        self.method = method
        method.create_weights(self, columns, [rows], columns, rows, dtype)

    def forward(self, x: Any) -> Any:
        return self.method.apply(self, x, None)


class CompressedMethod:
    """vLLM's LinearMethodBase."""

    def create_weights(self, layer: Any, columns: int, partitions: list[int], input_size: int, output_size: int, dtype: Any) -> None:
        layer.register_parameter("weight", torch.nn.Parameter(torch.empty(sum(partitions), columns, dtype=dtype), requires_grad=False))

    def process_weights_after_loading(self, layer: Any) -> None:
        weight = layer.weight.detach().view(-1, 512)
        layer.table = tensorcache.open(weight, "1MB", codec="rank", host_tier="packed", device="host", equal_rows=False)
        layer.shape, layer.numbers = layer.weight.shape, torch.arange(len(weight))
        layer.weight = None

    def apply(self, layer: Any, x: Any, bias: Any = None) -> Any:
        return torch.nn.functional.linear(x, layer.table[layer.numbers].view(layer.shape), bias)


def test_a_method_of_linear_layers() -> None:
    torch.manual_seed(1)
    method = CompressedMethod()
    layers = torch.nn.Sequential(*(Layer(128, 128, torch.bfloat16, method) for _ in range(2)))
    for layer in layers:
        layer.weight.copy_(torch.randn(128, 128))
    x = torch.randn(3, 128).to(torch.bfloat16)
    want = x
    for layer in layers:
        want = torch.nn.functional.linear(want, layer.weight)
    for layer in layers:
        method.process_weights_after_loading(layer)
    assert list(layers.parameters()) == [] and torch.equal(layers(x), want)
    assert torch.equal(torch.compile(layers, fullgraph=True, backend="aot_eager")(x), want)
    assert layers[0].table.stats()["compression_ratio"] > 1.3
