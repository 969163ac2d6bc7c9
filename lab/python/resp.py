"""How fast tensorcached and redis-server deliver the same rows to the same client, redis-benchmark, over loopback.

    python3 lab/python/resp.py --tensorcached build/tensorcached

Rounds alternate, so that what else the machine does meets both. It needs redis-server, redis-cli and redis-benchmark, and only Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROWS, COLUMNS = 100_000, 128  # of float32: 512 bytes
ROW = 4 * COLUMNS
MGET = ["MGET"] + ["users:__rand_int__"] * 100
# Name, arguments of redis-benchmark, rows of a request, requests.
WORKLOADS = [
    ("MGET of 100, 1 client", ["-c", "1", *MGET], 100, 5000),
    ("MGET of 100, 4 clients", ["-c", "4", *MGET], 100, 20_000),
    ("GET, 50 clients", ["-c", "50", "GET", MGET[1]], 1, 100_000),
    ("GET, 50 clients, pipelines of 16", ["-c", "50", "-P", "16", "GET", MGET[1]], 1, 400_000),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensorcached", default="build/tensorcached", help="the program")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server for each workload")
    parser.add_argument("--gpu-memory", default="5%", help="of the cache, as by default")
    parser.add_argument("--codec", default="auto", help="of the cache, as by default")
    args = parser.parse_args()
    data = values()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        file = Path(folder, "users.npy")
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {COLUMNS}), }}"
        file.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117).encode() + b"\n" + data)
        options = ["--features", str(file), "--gpu-memory", args.gpu_memory, "--codec", args.codec, "--device", "host", "--resp", "127.0.0.1:@", "--log-level", "warn"]
        ours = stack.enter_context(serving([args.tensorcached, *options]))
        theirs = stack.enter_context(serving(["redis-server", "--port", "@", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning"]))
        sets = b"".join(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key(r)), key(r), ROW, data[r * ROW : (r + 1) * ROW]) for r in range(ROWS))
        subprocess.run(["redis-cli", "-p", str(theirs), "--pipe"], input=sets, check=True, stdout=subprocess.DEVNULL)
        for port in (ours, theirs):
            check(port, data)
        print(f"rows of {ROW} bytes, {os.cpu_count()} processors shared by server and client, medians of {args.rounds} rounds, "
              f"cache of {args.gpu_memory}, codec {args.codec}")
        print(f"{'workload':34}{'tensorcached rows/s':>20}{'redis-server rows/s':>20}{'ratio':>7}{'least':>7}{'most':>7}{'p99 ms':>8}{'p99 ms':>8}{'ratio':>7}")
        for name, arguments, rows, requests in WORKLOADS:
            rounds = []
            for i in range(args.rounds):
                measured = {port: speed(port, arguments, requests) for port in ((ours, theirs) if i % 2 == 0 else (theirs, ours))}
                rounds.append((measured[ours], measured[theirs]))
            ratios = [mine.requests / other.requests for mine, other in rounds]
            rates = [statistics.median(rows * of.requests for of in server) for server in zip(*rounds)]
            p99s = [statistics.median(of.p99 for of in server) for server in zip(*rounds)]
            late = statistics.median(mine.p99 / other.p99 for mine, other in rounds)
            print(f"{name:34}{rates[0]:20.0f}{rates[1]:20.0f}{statistics.median(ratios):7.2f}{min(ratios):7.2f}{max(ratios):7.2f}{p99s[0]:8.2f}{p99s[1]:8.2f}{late:7.2f}", flush=True)


def values() -> bytearray:
    """The rows: numbers from 0.5 to 0.53."""
    data = bytearray(random.Random(1).randbytes(ROWS * ROW))
    data[3::4] = b"\x3f" * (ROWS * COLUMNS)
    data[2::4] = data[2::4].translate(bytes(b & 15 for b in range(256)))
    return data


def key(row: int) -> bytes:
    """The key of a row as redis-benchmark writes it."""
    return b"users:%012d" % row


@contextlib.contextmanager
def serving(command: list[str]) -> Iterator[int]:
    """Starts a server on a free port, which replaces @ in its arguments, and waits until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    server = subprocess.Popen([a.replace("@", str(port)) for a in command])
    try:
        for _ in range(3000):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield port
    finally:
        server.terminate()
        server.wait()


def check(port: int, data: bytearray) -> None:
    """Compares rows that a server returns with the data."""
    with socket.create_connection(("127.0.0.1", port)) as s, s.makefile("rb") as answers:
        for row in (i * 97 % ROWS for i in range(1000)):
            s.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key(row)), key(row)))
            if answers.readline() != b"$%d\r\n" % ROW or answers.read(ROW + 2)[:ROW] != data[row * ROW : (row + 1) * ROW]:
                raise SystemExit(f"port {port} returns other bytes for row {row}")


class Speed(NamedTuple):
    """What redis-benchmark measures: requests a second, and the milliseconds that 99 % of them do not exceed."""

    requests: float
    p99: float


def speed(port: int, arguments: list[str], requests: int) -> Speed:
    command = ["redis-benchmark", "-p", str(port), "--csv", "-e", "-r", str(ROWS), "-n", str(requests), *arguments]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # test, requests a second, mean, least, p50, p95, p99, most
    line = next(line for line in csv.reader(out.splitlines()) if len(line) > 6 and line[0] != "test")
    return Speed(float(line[1]), float(line[6]))


if __name__ == "__main__":
    main()
