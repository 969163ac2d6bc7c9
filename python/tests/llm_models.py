"""Small language models of transformers, made from configurations with fixed seeds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM  # noqa: E402

SMALL = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=300, eos_token_id=None)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are computed faster by one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def llama(**changes: Any) -> Any:
    torch.manual_seed(1)
    return LlamaForCausalLM(LlamaConfig(**{**SMALL, **changes})).eval()


def mixtral(experts: str = "eager", **changes: Any) -> Any:
    torch.manual_seed(2)
    model = MixtralForCausalLM(MixtralConfig(**{**SMALL, "num_local_experts": 8, "num_experts_per_tok": 2, **changes})).eval()
    model.set_experts_implementation(experts)
    return model


def tokens(batch: int = 2, length: int = 13) -> Any:
    return torch.randint(0, 300, (batch, length), generator=torch.Generator().manual_seed(3))


def logits(model: Any, ids: Any) -> Any:
    with torch.no_grad():
        return model(ids).logits


def same(a: Any, b: Any) -> bool:
    """Whether two tensors have the same bits."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)))
