"""What the reports of benchmarks have in common: where and of which commit they are, and how they are written."""

from __future__ import annotations

import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch


def machine(device: torch.device) -> tuple[str, str]:
    """Returns the names of the device and of its driver."""
    if device.type != "cuda":
        return f"host, {platform.machine()}, {torch.get_num_threads()} threads", "none"
    try:
        asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError):
        driver = "unknown"
    return torch.cuda.get_device_name(device), f"{driver}, CUDA {torch.version.cuda}"


def commit() -> str:
    """Returns the commit of the source, "" outside a repository or without git."""
    try:
        found = subprocess.run(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    except OSError:
        return ""
    return found.stdout.strip()


def lines(report: dict[str, Any]) -> str:
    """Returns the report as JSON with a line for each result, so that changes of the committed file can be read."""
    fields = []
    for name, value in report.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            fields.append(f' {json.dumps(name)}: [\n' + ",\n".join("  " + json.dumps(one) for one in value) + "\n ]")
        else:
            fields.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(fields) + "\n}\n"
