"""Plain torch: the features of the next batch are read on a stream of their own while this batch is computed.

    python torch_loop.py
"""

from collections.abc import Iterable, Iterator

import torch

import tensorcache

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
table = torch.randn(100_000, 128)
batches = [(100_000 * torch.rand(5_000, device=device) ** 3).long() for _ in range(30)]
x = tensorcache.open(table, gpu_memory="10%", train=batches[:10])


def read_ahead(x: tensorcache.Table, batches: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yields the rows of each batch, read while the program computes with those before."""
    if x.device.type != "cuda":
        yield from (x[ids] for ids in batches)
        return
    side = torch.cuda.Stream()
    ready = None
    for ids in batches:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            rows = x[ids]
            done = side.record_event()
        ids.record_stream(side)  # ids are of the main stream, and read on this one
        if ready is not None:
            yield take(*ready)
        ready = rows, done
    if ready is not None:
        yield take(*ready)


def take(rows: torch.Tensor, done: torch.cuda.Event) -> torch.Tensor:
    main = torch.cuda.current_stream()
    main.wait_event(done)
    rows.record_stream(main)  # rows are of the side stream, and used on this one
    return rows


model = torch.nn.Sequential(torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for ids, rows in zip(batches[10:], read_ahead(x, batches[10:])):
    assert torch.equal(rows.cpu(), table[ids.cpu()])
    loss = model(rows).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
x.cache.check()  # raises if row numbers on the GPU were out of range
print(f"loss {loss.item():.4f}")
print(x)
