"""The sources of the package alone, as a source distribution has them: they say that they need the library, and take one that is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tensorcache
from tensorcache import _library

pytest.importorskip("setuptools")
PYTHON = Path(__file__).parents[1]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("pyproject.toml", "setup.py", "README.md", "../LICENSE"):
        if not (PYTHON / name).exists():
            pytest.skip("the tests lie beside no sources")
        shutil.copy(PYTHON / name, tmp_path)
    shutil.copytree(PYTHON / "tensorcache", tmp_path / "tensorcache", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def build(sources: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Builds a wheel as pip does. Returns the process, which has ended."""
    names = {k: v for k, v in os.environ.items() if k != "TENSORCACHE_LIBRARY"}
    command = [sys.executable, "-c", "import setuptools.build_meta as b; b.build_wheel('wheels')"]
    return subprocess.run(command, cwd=sources, env={**names, **environment}, capture_output=True, text=True, timeout=300)


def test_without_library(sources: Path) -> None:
    done = build(sources)
    assert done.returncode != 0
    assert "Install a wheel: of a release, or of `make wheel`" in done.stderr


def test_library_named(sources: Path) -> None:
    library = _library.library_path()
    done = build(sources, TENSORCACHE_LIBRARY=library)
    assert done.returncode == 0, done.stderr
    (wheel,) = (sources / "wheels").glob(f"tensorcache-{tensorcache.__version__}-py3-none-*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert files.getinfo("tensorcache/libtensorcache.so").file_size == os.path.getsize(library)
        beside = Path(library).with_name("libtensorcache_torch.so")
        assert not beside.exists() or files.getinfo("tensorcache/libtensorcache_torch.so").file_size == beside.stat().st_size
