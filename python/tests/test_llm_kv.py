"""tensorcache.llm.KVCache in model.generate."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from llm_models import llama, mixtral, one_thread, same, tokens  # noqa: F401

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import tensorcache  # noqa: E402
from tensorcache.llm import KVCache, offload  # noqa: E402
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM  # noqa: E402


def generate(model: Any, ids: Any, cache: Any, count: int = 12, **options: Any) -> Any:
    torch.manual_seed(9)
    with torch.no_grad():
        return model.generate(ids, past_key_values=cache, max_new_tokens=count, pad_token_id=0, **options)


@pytest.mark.parametrize(
    "options",
    [{"do_sample": False}, {"do_sample": True, "temperature": 2.0}, {"num_beams": 3, "do_sample": False}, {"num_return_sequences": 2, "do_sample": True}],
    ids=["greedy", "sampled", "beams", "several"],
)
def test_gives_the_same_tokens(options: dict[str, Any]) -> None:
    of = torch.bfloat16 if "num_beams" in options else torch.float32
    model, ids = llama(num_hidden_layers=2).to(of), tokens(2, 90)
    cache = KVCache(model.config, recent=4, device="host")
    want, got = generate(model, ids, None, **options), generate(model, ids, cache, **options)
    assert torch.equal(want, got)
    stats = cache.stats()
    assert stats["rows"] >= 2 * 80 and stats["waiting_bytes"] == 0 and stats["compression_ratio"] > (1.1 if of is torch.float32 else 1.2)
    assert "tokens" in repr(cache) and cache.get_seq_length() == got.shape[1] - 1


def test_layers_return_the_same_bits() -> None:
    """Through several segments, of a prompt of several lengths and of single tokens."""
    config = llama().config
    ours, theirs = KVCache(config, recent=2), DynamicCache(config=config)
    generator = torch.Generator().manual_seed(4)
    for count in (700, 1, 1, 300, 1, 65, 900, 1, 1):
        for layer in range(3):
            new = [torch.randn(2, 2, count, 16, generator=generator).to(torch.bfloat16) for _ in range(2)]
            for got, want in zip(ours.update(*new, layer), theirs.update(*new, layer)):
                assert same(got, want)
    assert ours.stats()["segments"] >= 2 and ours.get_seq_length() == theirs.get_seq_length()
    ours.crop(-950), theirs.crop(-950)
    ours.reorder_cache(torch.tensor([1, 1])), theirs.reorder_cache(torch.tensor([1, 1]))
    ours.batch_repeat_interleave(2), theirs.batch_repeat_interleave(2)
    ours.batch_select_indices(torch.tensor([3, 0, 1])), theirs.batch_select_indices(torch.tensor([3, 0, 1]))
    for count in (1, 200, 1):
        for layer in range(3):
            new = [torch.randn(3, 2, count, 16, generator=generator).to(torch.bfloat16) for _ in range(2)]
            assert all(map(same, ours.update(*new, layer), theirs.update(*new, layer)))
    ours.reset()
    assert ours.get_seq_length() == 0 and ours.stats()["rows"] == 0
    new = torch.randn(1, 2, 5, 16, generator=generator)
    assert same(ours.update(new, new, 0)[0], new)


@pytest.mark.parametrize("closed", [0, 1])
def test_copies_are_closed_each_for_itself(closed: int) -> None:
    model, ids = llama(), tokens(1, 240)
    caches: list[Any] = [KVCache(model.config, recent=1), DynamicCache(config=model.config)]
    more = lambda begin, end, *of: [model(ids[:, begin:end], past_key_values=cache).logits for cache in of]  # noqa: E731
    with torch.no_grad():
        more(0, 120, *caches)
        copies = [caches[0], copy.deepcopy(caches[0])]
        copies[closed].close()
        assert copies[closed].stats()["rows"] == 0 and copies[closed].get_seq_length() == 0
        for begin in (120, 200):
            assert torch.equal(*more(begin, begin + 40, copies[1 - closed], caches[1]))
        held = [segment.cache for segment in copies[1 - closed]._rows._segments]
        copies[1 - closed].close()
    assert held and all(cache.closed for cache in held)


def test_a_conversation_goes_on() -> None:
    model, first = llama(), tokens(1, 100)
    ours, theirs = KVCache(model.config, recent=1), DynamicCache(config=model.config)
    for _ in range(2):
        first = generate(model, first, ours, 20, do_sample=False)
        again = generate(model, first[:, :-20], theirs, 20, do_sample=False)
        assert torch.equal(first, again)


@pytest.mark.parametrize("kind", ["sliding", "mixtral", "gpt2"])
def test_models_of_other_kinds(kind: str) -> None:
    torch.manual_seed(5)
    small = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=300, eos_token_id=None)
    if kind == "sliding":
        model = MistralForCausalLM(MistralConfig(**small, sliding_window=20)).eval()
    elif kind == "mixtral":
        model = mixtral()
    else:
        model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=300, eos_token_id=None)).eval()
    ids = tokens(2, 90)
    cache = KVCache(model.config, recent=4)
    assert torch.equal(generate(model, ids, None, 4, do_sample=False), generate(model, ids, cache, 4, do_sample=False))
    assert (cache.stats()["rows"] > 0) == (kind != "sliding")


def test_with_offloaded_weights() -> None:
    model, ids = llama(), tokens(1, 80)
    want = generate(model, ids, None, 8, do_sample=False)
    offload(model, gpu_memory="50%", device="host")
    assert torch.equal(generate(model, ids, KVCache(model.config, "1MB", "host", recent=1), 8, do_sample=False), want)


# ---- the sparse mode


def sparse(model: Any) -> Any:
    model.set_attn_implementation("tensorcache_sparse")
    return model


def test_all_pages_are_full_attention() -> None:
    model, ids = llama(), tokens(2, 120)
    mask = torch.ones_like(ids)
    mask[1, :9] = 0
    want = generate(model, ids, None, 12, do_sample=False, attention_mask=mask)
    got = generate(sparse(model), ids, KVCache(model.config, recent=2, top_pages=100), 12, do_sample=False, attention_mask=mask)
    assert torch.equal(want, got)


@pytest.mark.parametrize("remove", [70, 100, 104, 199])
def test_all_pages_after_a_crop(remove: int) -> None:
    """Into a page, and between two."""
    model, ids = llama(num_hidden_layers=1), tokens(2, 200 + 90)
    other = sparse(llama(num_hidden_layers=1))
    theirs, ours = DynamicCache(config=model.config), KVCache(other.config, recent=1, top_pages=1000)
    with torch.no_grad():
        for each, cache in ((model, theirs), (other, ours)):
            each(ids[:, :200], past_key_values=cache)
            cache.crop(-remove)
        assert ours.get_seq_length() == theirs.get_seq_length() == 200 - remove
        for at in range(200, ids.shape[1]):
            want, got = (each(ids[:, at : at + 1], past_key_values=cache).logits for each, cache in ((model, theirs), (other, ours)))
            assert torch.allclose(got, want, atol=1e-5)
    assert ours.get_seq_length() == theirs.get_seq_length()


def test_pages_are_chosen_by_their_bound() -> None:
    model = sparse(llama())
    cache = KVCache(model.config, "1MB", recent=2, top_pages=2)
    keys, values = torch.randn(1, 2, 203, 16, generator=torch.Generator().manual_seed(1)) * 0.1, torch.randn(1, 2, 203, 16)
    query = torch.randn(1, 4, 1, 16, generator=torch.Generator().manual_seed(2))
    # Tokens of pages 3 and 7 whose keys are along a query.
    keys[0, 0, 3 * 16 + 5], keys[0, 1, 7 * 16] = 3 * query[0, 1, 0], 3 * query[0, 2, 0]
    for layer in range(3):
        cache.update(keys, values, layer)
    new, value = torch.zeros(1, 2, 1, 16), torch.ones(1, 2, 1, 16)
    misses = cache.stats()["hits"] + cache.stats()["misses"]
    found = cache.update(new, value, 0)
    k, v, numbers = cache.layers[0].attend_to(query, *found)
    older = 192
    assert numbers.tolist() == [*range(48, 64), *range(112, 128), *range(older, 204)]
    assert same(k, torch.cat([keys, new], 2)[:, :, numbers]) and same(v, torch.cat([values, value], 2)[:, :, numbers])
    assert cache.stats()["hits"] + cache.stats()["misses"] - misses == 32


def test_sparse_needs_its_attention() -> None:
    model = llama()
    with pytest.raises(tensorcache.ArgumentError, match="set_attn_implementation"):
        KVCache(model.config, top_pages=4)
    cache = KVCache(sparse(llama()).config, recent=1, top_pages=4)
    with pytest.raises(tensorcache.Error, match="must be read by its attention"):
        for _ in range(3):
            for layer in range(3):
                cache.update(torch.zeros(1, 2, 80, 16), torch.zeros(1, 2, 80, 16), layer)
                cache.update(torch.zeros(1, 2, 1, 16), torch.zeros(1, 2, 1, 16), layer)


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="must be the configuration of a model"):
        KVCache({})
    with pytest.raises(tensorcache.ArgumentError, match="device"):
        KVCache(llama().config, device="mps")
    with pytest.raises(tensorcache.ArgumentError, match="recent"):
        KVCache(llama().config, recent=0)
    with pytest.raises(tensorcache.ArgumentError, match="must be of one type of floats"):
        KVCache(llama().config).update(torch.zeros(1, 2, 3, 16), torch.zeros(1, 2, 3, 16).half(), 0)
