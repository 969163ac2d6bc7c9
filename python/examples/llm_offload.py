"""A language model whose weights and keys and values lie compressed: the same logits and the same tokens, in less GPU memory.

    python llm_offload.py

The model is small, made from a configuration, and has random weights. With one of yours, `AutoModelForCausalLM.from_pretrained(NAME, dtype="auto").eval()`.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tensorcache.llm

torch.manual_seed(1)
config = LlamaConfig(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, vocab_size=2000, eos_token_id=None)
model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
device = "cuda" if torch.cuda.is_available() else "cpu"
prompt = torch.randint(0, 2000, (2, 200), device=device)

with torch.inference_mode():
    model.to(device)
    logits = model(prompt).logits
    tokens = model.generate(prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)

    model = tensorcache.llm.offload(model, gpu_memory="50%")
    assert torch.equal(model(prompt).logits, logits)

    cache = tensorcache.llm.KVCache(model.config)
    assert torch.equal(model.generate(prompt, past_key_values=cache, max_new_tokens=20, do_sample=False, pad_token_id=0), tokens)

print(model.tensorcache)
print(cache)
stats = model.tensorcache.stats()
print(f"{stats['resident']} of {stats['weights']} weights are resident; a pass moves {stats['streamed_bytes'] / 1e6:.2f} MB instead of {stats['raw_bytes'] / 1e6:.2f}")
