"""``python -m tensorcache``, and the plan of a table."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorcache

Array = np.ndarray[Any, Any]


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tensorcache", *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.fixture
def files(rows: Array, tmp_path: Path) -> tuple[Path, Path, Path]:
    rng = np.random.default_rng(2)
    features, graph, ids = tmp_path / "features.npy", tmp_path / "graph.npz", tmp_path / "ids.txt"
    np.save(features, rows)
    degrees = rng.integers(1, 9, len(rows))
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    np.savez(graph, indptr=indptr, indices=(len(rows) * rng.random(indptr[-1]) ** 3).astype(np.int64))
    ids.write_text("\n".join(map(str, (len(rows) * rng.random(20000) ** 3).astype(int))))
    return features, graph, ids


def test_plan(files: tuple[Path, Path, Path]) -> None:
    features, graph, _ = files
    options = ("--graph", graph, "--batch-size", 32, "--batches=20", "--train-batches", 10, "--codec", "none,ibp4", "--policy", "freq")
    done = command("plan", features, *options, "--target-hit", "50%", "--device-memory", "1GiB")
    assert done.returncode == 0, done.stderr
    assert "in all" in done.stdout and "ibp4" in done.stdout and "fits" in done.stdout and " gives 5" in done.stdout.splitlines()[0] and "resident" in done.stdout, done.stdout
    tiers = ("--host-memory", "8MiB,16MiB", "--page", "4KiB", "--cold-reads-per-second", 80000, "--cold-latency", "100us")
    found = json.loads(command("plan", features, *options, "--target-hit", "50%", "--device-memory", "1GiB", *tiers, "--json").stdout)
    assert [place["choice"] for place in found["placements"]] == ["resident", "resident"] and len(found["plans"][0]["tiers"]) == 2
    done = command("plan", features, *options, "--target-hit", "50%", "--json")
    found = json.loads(done.stdout)
    assert {plan["codec"] for plan in found["plans"]} == {"none", "ibp4"} and all(plan["budget_bytes"] > 0 for plan in found["plans"])


def test_earlier_names_of_flags(files: tuple[Path, Path, Path]) -> None:
    features, _, ids = files
    done = command("bench", features, "--ids", ids, "--warmup-batches", 2, "--layout", "buddy", "--target", 96, "--codec", "none", "--budget", "64MiB", "--json")
    found = json.loads(done.stdout)
    assert found["workload"]["training_batches"] == 2 and found["resident"]["target_bytes"] == 96, found
    for old, now in ("warmup_batches", "train_batches"), ("budget", "gpu_memory"), ("layout", "resident"), ("target", "resident"):
        assert f"{old} is {now} now; the old name goes with the next release" in done.stderr, done.stderr


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_plan_of_tables_in_any_order(order: str, rows: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are looked up together, so the longest lists say how long a batch is."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("tensorcache._plan.run", lambda command, config: given.update(config) or {"plans": []})
    ids = {"a": [np.arange(5)] * 10, "b": [np.arange(50)] * 10}
    with tensorcache.open({name: rows for name in order}, "10%", device="host") as cache:
        cache.plan({name: ids[name] for name in order}, target_hit=0.5)
    assert given["batch_size"] == 50


def test_plan_by_earlier_names(rows: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """They go before how the table was opened, as today's names do."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("tensorcache._plan.run", lambda command, config: given.update(config) or {"plans": []})
    with tensorcache.open(rows, "200%", device="host", resident=True) as table:
        for options, resident in [({"layout": "buddy", "target": 64}, 64), ({"layout": "cached"}, None), ({"target": 64, "overflow": 0.9}, 64), ({}, "auto")]:
            given.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                table.plan(np.arange(50), target_hit=0.5, **options)
            assert given["resident"] == resident and not {"layout", "target", "overflow"} & given.keys(), (options, given)
            assert sum(issubclass(w.category, FutureWarning) for w in caught) == len(options)


def test_bench(files: tuple[Path, Path, Path]) -> None:
    features, _, ids = files
    done = command("bench", features, "--ids", ids, "--gpu-memory", "10%", "--codec", "ibp4", "--device", "host", "--verify")
    assert done.returncode == 0, done.stderr
    assert "hit rate" in done.stdout and "0 differ" in done.stdout
    found = json.loads(command("bench", features, "--ids", ids, "--gpu-memory", "10%", "--device", "host", "--json").stdout)
    assert 0 < found["results"]["hit_ratio"] < 1


def test_bad_arguments(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    for arguments, text in [
        (("plan", tmp_path / "none.npy"), "none.npy"),
        (("plan", files[0], "--target-hit", "200%"), r"error: --target-hit \(200 %\) must be above 0 % and at most 100 %$"),
        (("bench", files[0], "--no-such-flag", "3"), "no.such.flag"),
        (("bench", files[0], "-x"), "-x"),
        (("simulate",), "simulate"),
    ]:
        done = command(*arguments)
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
        import re

        assert re.search(text, done.stderr, re.MULTILINE), done.stderr


def test_help_and_version() -> None:
    assert command("--version").stdout.strip() == tensorcache.__version__
    assert "--graph" in command("plan", "--help").stdout


def test_plan_of_a_table(files: tuple[Path, Path, Path], rows: Array) -> None:
    ids = (len(rows) * np.random.default_rng(3).random(20000) ** 3).astype(np.int64)
    answers = []
    for source in (files[0], rows):
        with tensorcache.open(source, "10%", device="host") as x:
            found = x.plan(ids, target_hit=0.6, device_memory="1GiB", codec="ibp4", policy="freq", device="host")
            answers.append((found["plans"][0]["budget_bytes"], found["plans"][0]["predicted_hit_ratio"]))
            assert found["plans"][0]["gpu"]["fits"]
    assert answers[0] == answers[1]
    with tensorcache.open(rows, "10%", device="host") as x, pytest.raises(tensorcache.ArgumentError, match="target"):
        x.plan(ids, target_hit="much")
    with tensorcache.open(rows, "10%", device="host") as x, pytest.raises(
        tensorcache.ArgumentError, match=r"^tensorcache: target_hit \(110 %\) must be above 0 % and at most 100 %$"
    ):
        x.plan(ids, target_hit="110%")


@pytest.mark.parametrize("sparse", [True, False])
def test_plan_comes_true(sparse: bool) -> None:
    """A cache of the planned memory, opened with the arguments of the one that was asked, hits what was planned of rows that it did not learn from."""
    rng = np.random.default_rng(1)
    table = ((rng.random((4000, 200)) < 0.02) if sparse else rng.standard_normal((20000, 32)) * np.exp(rng.standard_normal(32))).astype(np.float32)
    ids = [(len(table) * rng.random(2000) ** 3).astype(np.int64) for _ in range(60)]
    with tensorcache.open(table, "10%", device="host", train=ids[:30]) as x:
        found = x.plan(ids, target_hit=["50%", 0.8])
    assert "gives 5" in found["verdict"] and found["workload"]["training_lookups"] == 60000 and len(found["answers"]) == 2
    for answer in found["answers"]:
        with tensorcache.open(table, answer["budget_bytes"], device="host", train=ids[:30]) as y:
            for batch in ids[30:]:
                y[batch]
            stats = y.stats()
        assert stats["codec"] == answer["codec"] and abs(stats["hit_ratio"] - answer["hit_ratio"]) < 0.001
        assert answer["reached"] and answer["hit_low"] <= answer["hit_ratio"] <= answer["hit_high"]


def test_plan_of_several_tables(rows: Array) -> None:
    ids = {name: (len(rows) * np.random.default_rng(seed).random(20000) ** 3).astype(np.int64) for seed, name in enumerate(("a", "b"))}
    with tensorcache.open({"a": rows, "b": rows * 2}, "10%", device="host") as x:
        found = x.plan(ids, target_hit=0.6, check=True)
        answer = found["answers"][0]
        assert len(found["tables"]) == 2 and answer["reached"] and answer["seen_hit"] == answer["hit_ratio"]
        with pytest.raises(tensorcache.ArgumentError, match=r"ids \(a\) must be of the tables a, b"):
            x.plan({"a": ids["a"]})


def test_plan_of_a_resident_table(rows: Array) -> None:
    ids = (len(rows) * np.random.default_rng(3).random(20000) ** 3).astype(np.int64)
    with tensorcache.open(rows, "200%", device="host", resident=True) as x:
        answer = x.plan(ids, target_hit="70%")["answers"][0]
        assert answer["reached"] and answer["hit_ratio"] >= 0.7
    with tensorcache.open(rows, answer["budget_bytes"], device="host", resident=True) as x:
        assert x.stats()["rows_cached"] >= 0


def test_plan_after_chdir(files: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table knows its file, though the program has another working directory by now."""
    monkeypatch.chdir(files[0].parent)
    archive = tmp_path / "both.npz"
    np.savez(archive, x=np.load(files[0]))
    for source in (files[0].name, "both.npz:x"):
        monkeypatch.chdir(files[0].parent)
        with tensorcache.open(source, "10%", device="host") as x:
            monkeypatch.chdir("/")
            assert x.plan(files[2], codec="none", policy="freq", device="host")["plans"][0]["budget_bytes"] > 0
