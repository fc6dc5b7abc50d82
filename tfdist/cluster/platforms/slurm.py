"""Slurm: the tasks of a step that `srun` has started. Pure.

By the variables of srun(1), "OUTPUT ENVIRONMENT VARIABLES", and of sbatch(1). The batch script itself, and a shell of
`salloc`, belong to no such step and train alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdist.cluster.platforms.node_list import parse_node_list, parse_tasks_per_node
from tfdist.cluster.platforms.reading import Found, base_port, need, read_number, workers_found
from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["detect_slurm"]

_SLOTS = 16  # nodes in a row have ports of their own, since several may be one host, as where Slurm is tried out
_NEEDED = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID")


def detect_slurm(env: Mapping[str, str]) -> Found | None:
    """Finds the tasks of this process's step, one worker each.

    Returns:
        None outside of a step, and in one of a single task.

    Raises:
        ClusterConfigError: A variable is missing or cannot be read, or the tasks are laid out in another way than
            blocks or cycles.
    """
    if "SLURM_STEP_ID" not in env or "SLURM_PROCID" not in env:
        return None
    missing = [name for name in _NEEDED if not env.get(name)]
    if missing:
        raise need("Slurm", missing, env)
    size, rank = (read_number(env, name, "Slurm") for name in ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"))
    if size == 1:
        return None
    nodes = parse_node_list(env["SLURM_STEP_NODELIST"], "SLURM_STEP_NODELIST")
    counts = parse_tasks_per_node(env["SLURM_STEP_TASKS_PER_NODE"], "SLURM_STEP_TASKS_PER_NODE")
    if len(nodes) != len(counts) or sum(counts) != size or rank >= size:
        raise _contradiction(env, len(nodes), counts)
    is_cyclic = env.get("SLURM_DISTRIBUTION", "block").startswith("cyclic")
    places = _cyclic(counts) if is_cyclic else _blocks(counts)
    said = tuple(env.get(name) for name in ("SLURM_NODEID", "SLURM_LOCALID"))
    if None not in said and said != tuple(map(str, places[rank])):
        raise _unknown_layout(env, places[rank])
    num_local, num_slots = max(counts), min(len(nodes), _SLOTS)
    port = base_port(env, f"{env['SLURM_JOB_ID']}.{env['SLURM_STEP_ID']}", num_local * num_slots)
    addresses = [f"{nodes[node]}:{port + node % num_slots * num_local + local}" for node, local in places]
    return workers_found("SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NODELIST", rank, addresses)


def _blocks(counts: list[int]) -> list[tuple[int, int]]:
    return [(node, local) for node, count in enumerate(counts) for local in range(count)]


def _cyclic(counts: list[int]) -> list[tuple[int, int]]:
    return [(node, local) for local in range(max(counts)) for node, count in enumerate(counts) if local < count]


def _contradiction(env: Mapping[str, str], num_nodes: int, counts: list[int]) -> ClusterConfigError:
    shown = ", ".join(f"{name}={env[name]!r}"[:120] for name in _NEEDED)
    return ClusterConfigError(
        describe_problem(
            "Slurm's variables contradict each other",
            received=f"{shown}: {num_nodes} nodes, {len(counts)} counts of {sum(counts)} tasks (from the environment)",
            expected="a count for each node, whose sum is the number of tasks, and a lower number of this task",
            fix="Start the tasks with one srun, or set TF_CONFIG, which goes first.",
        )
    )


def _unknown_layout(env: Mapping[str, str], place: tuple[int, int]) -> ClusterConfigError:
    return ClusterConfigError(
        describe_problem(
            "Slurm has laid out the tasks over the nodes in a way that tfdist does not know",
            received=f"SLURM_PROCID={env['SLURM_PROCID']} on node {env['SLURM_NODEID']} as task {env['SLURM_LOCALID']} "
            f"of it, SLURM_DISTRIBUTION={env.get('SLURM_DISTRIBUTION')!r} (from the environment)",
            expected=f"node {place[0]}, task {place[1]} of it",
            fix="Use srun --distribution=block.",
        )
    )
