"""The programs in examples/ run as they are."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
NEEDS = {"pyg_training": ("torch", "torch_geometric"), "torch_loop": ("torch",), "embedding": ("torch",), "graphbolt_feature": ("torch",), "aoti": ("torch",), "llm_offload": ("torch", "transformers")}
CAPI = Path(__file__).parents[2] / "capi"

Done = subprocess.CompletedProcess[str]


def lacks(example: Path) -> list[str]:
    missing = [needed for needed in NEEDS.get(example.stem, ()) if importlib.util.find_spec(needed) is None]
    if example.stem == "aoti" and not missing:
        if tuple(int(part) for part in importlib.metadata.version("torch").split(".")[:2]) < (2, 10):
            missing.append("torch 2.10")
        if shutil.which("g++") is None:  # which AOTInductor calls
            missing.append("g++")
    return missing


def run(example: Path, folder: Path) -> Done:
    return subprocess.run([sys.executable, str(example)], cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[Done]]]:
    """The examples that are to be tested, side by side where there are processors for it: most of their time is imports and compilation."""
    wanted = {item.callspec.params["example"] for item in request.session.items if getattr(item, "module", None) is request.module}
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        yield {example: pool.submit(run, example, tmp_path_factory.mktemp(example.stem)) for example in wanted if not lacks(example)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_runs(example: Path, runs: dict[Path, Future[Done]]) -> None:
    if lacks(example):
        pytest.skip(f"{', '.join(lacks(example))} is not installed")
    done = runs[example].result()
    assert done.returncode == 0, done.stderr
    assert ("weights are resident" if example.stem == "llm_offload" else "rows cached") in done.stdout


@pytest.mark.parametrize("example", [path for path in EXAMPLES if path.stem == "aoti"], ids=lambda path: path.stem)
def test_exported_model_runs_without_python(example: Path, runs: dict[Path, Future[Done]], tmp_path: Path) -> None:
    """The program that examples/aoti.py compiles runs in C++, on a table that the C++ program opens. capi/example/aoti.cpp is that program."""
    if lacks(example):
        pytest.skip(f"{', '.join(lacks(example))} is not installed")
    if not (CAPI / "example/aoti.cpp").exists():
        pytest.skip("the source of the C++ program is not here")
    import torch

    import tensorcache

    done = runs[example].result()
    assert done.returncode == 0, done.stderr
    model, expected = Path(done.stdout.splitlines()[0]), done.stdout.splitlines()[1:3]
    library, root = Path(tensorcache._library.library_path()).parent, Path(torch.__path__[0])
    program = tmp_path / "program"
    subprocess.run(
        ["g++", "-std=c++20", "-O0", str(CAPI / "example/aoti.cpp"), f"-I{CAPI}", f"-I{CAPI}/torch", f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include",
         f"-L{library}", "-ltensorcache_torch", "-ltensorcache", f"-L{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{root}/lib", "-o", str(program)],
        check=True, timeout=600,
    )  # fmt: skip
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{library}:{os.environ.get('LD_LIBRARY_PATH', '')}"}

    def started(*ids: int) -> Done:
        return subprocess.run([program, model, model.parent / "features.npy", "host", *map(str, ids)], env=environment, capture_output=True, text=True, timeout=300)

    ran = started(3, 1, 4, 1, 5)
    assert ran.returncode == 0, ran.stderr
    numbers = [float(word) for word in ran.stdout.replace("\n", " ").split() if word.lstrip("-").replace(".", "", 1).isdigit()]
    assert numbers == pytest.approx([float(word) for line in expected for word in line.strip("[]").split(",")], abs=1e-3)
    wrong = started(3, 10_000)
    assert wrong.returncode == 1 and "row number (10000) at position 1 must be 0 to 9999" in wrong.stderr
