"""The class of the machine and the versions, for the head of a report. No names of hosts or people."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["describe_machine", "heading"]

_PACKAGES = ("tfdist", "tensorflow", "keras", "tf_keras", "torch", "numpy", "mpi4py", "mpich")


def describe_machine() -> dict[str, Any]:
    """Cores that this process may use, the processor's model, memory, load, versions."""
    model, memory_gb = platform.machine(), 0.0
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal"):
            memory_gb = round(int(line.split()[1]) / 2**20, 1)
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    described = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": model,
        "memory_gb": memory_gb,
        "load_before": round(os.getloadavg()[0], 1),
        "system": platform.system(),
        "versions": versions,
        "commit": described.stdout.strip(),
    }


def heading(machine: dict[str, Any], date: str, rounds: int, command: str) -> list[str]:
    """The lines of a report's head."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return [
        f"- {date}, `{command}`, {rounds} round{'s' if rounds > 1 else ''}, interleaved, commit {machine['commit']}",
        f"- {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB; load before the start: "
        f"{machine['load_before']}",
        f"- {versions}",
        f"- Every worker has one core to itself as far as there are cores: more than {machine['cores']} workers share.",
        "- Adam, synthetic arrays in memory, one thread to compute. `processor ms`: of the first worker's process.",
    ]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
