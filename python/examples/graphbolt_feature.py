"""GraphBolt: a table as a Feature. With dgl installed it goes into a feature store; the calls are those that GraphBolt's fetcher makes.

    python graphbolt_feature.py
"""

import torch

import tensorcache
import tensorcache.graphbolt

torch.manual_seed(1)
table = torch.randn(50_000, 64)
feature = tensorcache.graphbolt.Feature(tensorcache.open(table, gpu_memory="10%"))
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

try:
    from dgl import graphbolt as gb
except (ImportError, OSError):
    print("dgl is not installed: the feature is read as a fetcher would")
else:
    store = gb.BasicFeatureStore({("node", None, "feat"): feature})
    print("in a store:", store.read("node", None, "feat", torch.tensor([1, 2])).shape)

for _ in range(3):
    ids = torch.randint(0, 50_000, (1000,), device=device)
    stages = feature.read_async(ids)
    for _ in range(feature.read_async_num_stages(ids.device)):
        future = next(stages)
    rows = future.wait()
    assert torch.equal(rows.cpu(), table[ids.cpu()])
print(feature)
