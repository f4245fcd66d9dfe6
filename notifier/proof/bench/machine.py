"""On what and with what a run was made."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil


def describe() -> Mapping[str, Any]:
    """The machine: processor, cores, memory in bytes, system."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def revision(source: Path) -> str:
    """Which commit is measured, as git says it; empty where this is no checkout."""
    asked = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603 - ours
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def new_run(seed: int) -> dict[str, Any]:
    """What a run is known by."""
    return {
        "run": secrets.token_hex(8),
        "seed": seed,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": dict(describe()),
    }
