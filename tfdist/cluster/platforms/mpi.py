"""Processes that mpirun or mpiexec has started: Open MPI, MPICH and what has its launcher (Hydra). Pure.

Open MPI sets `OMPI_COMM_WORLD_*` (docs.open-mpi.org, "Environment variables"), Hydra `PMI_*` and `MPI_LOCAL*`. Neither
tells the hosts of the other processes, so several hosts need the mpi4py of `tfdist[mpi]`, or `TFDIST_HOSTS`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdist.cluster.platforms.reading import Found, base_port, need, read_number, workers_found
from tfdist.errors import ClusterConfigError, describe_problem

__all__ = ["HOSTS", "detect_mpi"]

#: The hosts of the processes, in the order of ranks, with commas. Set by users, where MPI does not tell.
HOSTS = "TFDIST_HOSTS"
_OPEN_MPI = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
_HYDRA = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
#: What tells one job from another on the same host, as far as a launcher says.
_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "HYDRA_CONTROL_PORT", "PMI_PORT")


def detect_mpi(env: Mapping[str, str]) -> Found | None:
    """Finds the processes of this one's MPI job, one worker each.

    Returns:
        None where no MPI launcher has started this process, and in a job of one process.

    Raises:
        ClusterConfigError: A variable is missing or cannot be read, or the hosts are not known.
    """
    names = next((names for names in (_OPEN_MPI, _HYDRA) if names[0] in env), None)
    if names is None or (names is _HYDRA and "SLURM_STEP_ID" in env and "MPI_LOCALNRANKS" not in env):
        return None  # Slurm sets PMI_RANK, too, if asked for its PMI
    kind = "Open MPI" if names is _OPEN_MPI else "MPICH (Hydra)"
    missing = [name for name in names if not env.get(name)]
    if missing:
        raise need(kind, missing, env)
    rank, size, _, num_local = (read_number(env, name, kind) for name in names)
    if size == 1:
        return None
    if rank >= size or num_local > size:
        raise _contradiction(kind, names, env)
    job = next((env[name] for name in _JOBS if env.get(name)), "")
    if HOSTS in env:
        hosts = [host.strip() for host in env[HOSTS].split(",")]
    elif num_local == size:
        hosts = ["127.0.0.1"] * size
    else:
        raise _unknown_hosts(kind, rank, size, num_local)
    if len(hosts) != size or not all(hosts):
        raise ClusterConfigError(
            describe_problem(
                f"{HOSTS} does not name a host for each process",
                received=f"{HOSTS}={env[HOSTS]!r} (from the environment) for {size} processes",
                expected=f"{size} names with commas between them, in the order of ranks",
                fix="Name a host for each process, several times where several run.",
            )
        )
    seen: dict[str, int] = {}
    addresses = []
    port = base_port(env, job, max(hosts.count(host) for host in set(hosts)))
    for host in hosts:
        addresses.append(f"{host}:{port + seen.setdefault(host, 0)}")
        seen[host] += 1
    return workers_found(", ".join(names[:2]), rank, addresses)


def _contradiction(kind: str, names: tuple[str, ...], env: Mapping[str, str]) -> ClusterConfigError:
    return ClusterConfigError(
        describe_problem(
            f"The variables of {kind} contradict each other",
            received=", ".join(f"{name}={env[name]!r}" for name in names) + " (from the environment)",
            expected="a rank below the size, and not more processes on this host than in all",
            fix="Start all processes with one mpirun, or set TF_CONFIG, which goes first.",
        )
    )


def _unknown_hosts(kind: str, rank: int, size: int, num_local: int) -> ClusterConfigError:
    return ClusterConfigError(
        describe_problem(
            f"{kind} has started processes on several hosts, and does not say on which",
            received=f"process {rank} of {size}, {num_local} of them on this host (from the environment)",
            expected=f"the host of each process, in {HOSTS}",
            fix=f"Pass it on: mpirun -x {HOSTS}=a,a,b,b (Open MPI) or mpiexec -genv {HOSTS} a,a,b,b (MPICH).",
        )
    )
