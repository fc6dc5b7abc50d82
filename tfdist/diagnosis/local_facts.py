"""What this node knows about itself at once. Loads no TensorFlow: versions are read from the installed metadata."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tfdist.cluster import ClusterConfig
from tfdist.diagnosis.facts import NodeFacts

__all__ = ["ask_tensorflow", "gather_facts"]

#: Names under which a package is distributed; the first that is installed counts.
_PACKAGES = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"), "keras": ("keras",)}
_READ_LIMIT_S = 2.0
_LIST_DEVICES = (
    "import json, tensorflow; "
    "print('DEVICES' + json.dumps([d.device_type for d in tensorflow.config.list_physical_devices()]))"
)


def gather_facts(
    cluster: ClusterConfig, env: Mapping[str, str], *, token: str, script: str | None, checkpoint_dir: str | None
) -> NodeFacts:
    """Looks at this machine and this Python. Port and address are left to the caller."""
    digest, script_problem = _digest(script) if script is not None else ("", "")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NodeFacts(
        token=token,
        task=cluster.task_name,
        host=socket.gethostname(),
        host_id=_read("/proc/sys/kernel/random/boot_id"),
        cluster=dict(cluster.cluster),
        versions=_versions(),
        script=script,
        script_digest=digest,
        script_problem=script_problem,
        checkpoint_dir=checkpoint_dir,
        open_files=-1 if soft == resource.RLIM_INFINITY else soft,
        open_files_hard=-1 if hard == resource.RLIM_INFINITY else hard,
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        cpu_quota=_cpu_quota(),
        gpus=_gpus(env),
    )


def ask_tensorflow(limit_s: float) -> tuple[dict[str, int] | None, str]:
    """The devices that TensorFlow shows, from a process of its own, as its start takes seconds and may fail or hang.

    Returns:
        How many there are of each type, or None; and why it could not be asked.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LIST_DEVICES],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"it did not start within {limit_s:.1f} s"
    except OSError as error:
        return None, str(error)
    _, mark, listed = done.stdout.rpartition("DEVICES")
    if done.returncode != 0 or not mark:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        return None, f"it ended with status {done.returncode}: {last[0][:300]}"
    types = json.loads(listed)
    return {kind: types.count(kind) for kind in sorted(set(types))}, ""


def _versions() -> dict[str, str | None]:
    from tfdist import __version__

    found: dict[str, str | None] = {"python": platform.python_version(), "tfdist": __version__}
    for package, names in _PACKAGES.items():
        found[package] = None
        for name in names:
            try:
                found[package] = importlib.metadata.version(name)
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return found


def _digest(script: str) -> tuple[str, str]:
    answers = [("", "the file system does not answer")]

    def read() -> None:
        try:
            answers.append((hashlib.sha256(Path(script).read_bytes()).hexdigest(), ""))
        except OSError as error:
            answers.append(("", error.strerror or str(error)))

    reading = threading.Thread(target=read, daemon=True)  # a dead mount holds its readers for ever
    reading.start()
    reading.join(_READ_LIMIT_S)
    return answers[-1]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _cpu_quota() -> float | None:
    """How many cores the control group may use at a time (cgroup version 2, `cpu.max`: quota and period in µs)."""
    group = _read("/proc/self/cgroup").rpartition("::")[2]
    for place in dict.fromkeys((f"/sys/fs/cgroup{group}", "/sys/fs/cgroup")):
        quota, _, period = _read(f"{place}/cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            return int(quota) / int(period)
    return None


def _gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """The models of the NVIDIA GPUs, from the driver, as far as CUDA_VISIBLE_DEVICES shows them."""
    models = []
    for place in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        lines = [line.partition(":") for line in _read(str(place)).splitlines()]
        models.append(next((value.strip() for name, _, value in lines if name.strip() == "Model"), "unknown"))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(models)
    wanted = [text.strip() for text in visible.split(",")]
    numbers = [int(text) for text in wanted if text.isascii() and text.isdigit()]
    if len(numbers) < len(wanted) and any(text.startswith(("GPU-", "MIG-")) for text in wanted):
        return tuple(models[: len(wanted)])  # by UUID: how many, at least
    return tuple(models[number] for number in numbers if number < len(models))
