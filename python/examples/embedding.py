"""Inference with an embedding table that does not fit on the GPU, in a compiled model.

    python embedding.py
"""

import torch

from tensorcache.nn import CachedEmbedding

torch.manual_seed(1)
weight = torch.randn(100_000, 32).to(torch.bfloat16)
device = "cuda" if torch.cuda.is_available() else "cpu"
embedding = CachedEmbedding.from_pretrained(weight, gpu_memory="10%")
model = torch.nn.Sequential(embedding, torch.nn.Linear(32, 4, dtype=torch.bfloat16, device=device)).eval()
compiled = torch.compile(model, fullgraph=True, backend="inductor" if device == "cuda" else "eager")

with torch.inference_mode():
    for _ in range(5):
        tokens = torch.randint(0, 100_000, (16, 20), device=device)
        assert torch.equal(embedding(tokens).cpu(), weight[tokens.cpu()])
        scores = compiled(tokens)
print("scores", tuple(scores.shape))
print(embedding)
