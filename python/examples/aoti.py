"""Compiles a model that reads rows of a table for programs in C++ without Python: capi/example/aoti.cpp runs it.

    python aoti.py [FOLDER [host|cuda]]

It writes FOLDER/model.pt2, by torch's AOTInductor (torch 2.10 or later and a C++ compiler), and FOLDER/features.npy, the table. The program has only the name of
the table, the type of its elements and the shape of its rows: who runs it opens the table and registers it under that name.
"""

import sys
from pathlib import Path

import numpy as np
import torch

import tensorcache


class Model(torch.nn.Module):
    def __init__(self, features: tensorcache.Table) -> None:
        super().__init__()
        self.features = features
        self.layer = torch.nn.Linear(features.shape[1], 8)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what a layer makes of the rows, and the mean of all rows."""
        return self.layer(self.features[ids]), self.features.embedding_bag(ids[None], mode="mean")


def main(folder: Path, device: str) -> None:
    torch.manual_seed(1)
    np.save(folder / "features.npy", np.random.default_rng(1).standard_normal((10_000, 64), np.float32))
    with tensorcache.open(folder / "features.npy", gpu_memory="1MB", device=device) as x, torch.no_grad():
        model = Model(x).to(x.device).eval()
        ids = torch.tensor([3, 1, 4, 1, 5], device=x.device)
        program = torch.export.export(model, (ids,), dynamic_shapes=({0: torch.export.Dim("n", min=1, max=65536)},))
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
        for compiled, eager in zip(torch._inductor.aoti_load_package(package)(ids), model(ids)):
            torch.testing.assert_close(compiled, eager)
        print(Path(package).resolve(), *(result.double().sum(-1).tolist() for result in model(ids)), x, sep="\n")


main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), sys.argv[2] if len(sys.argv) > 2 else "host")
