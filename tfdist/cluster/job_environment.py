"""The environment variables by which the launcher and a training process meet. There is no other contact.

The launcher sets them for each task; a process that has none of them was not started by the launcher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tfdist.errors import ArgumentError, describe_problem

JOB_ID = "TFDIST_JOB_ID"
REPORT_DIR = "TFDIST_REPORT_DIR"
TASK = "TFDIST_TASK"
ATTEMPT = "TFDIST_ATTEMPT"
#: With what the workers of a job prove to each other that they are of it. Users may set it themselves.
JOB_SECRET = "TFDIST_JOB_SECRET"
#: How workers exchange gradients, where the script does not say. Set by users.
TRANSPORT = "TFDIST_TRANSPORT"
#: Set to 0 by users, workers on one host exchange over sockets.
SHARED_MEMORY = "TFDIST_SHARED_MEMORY"
#: How long an exchange between workers may wait for another worker.
EXCHANGE_TIMEOUT_S = "TFDIST_EXCHANGE_TIMEOUT_S"
#: How long the machine of another worker, or the network to it, may give no answer before the worker counts as lost.
NETWORK_TIMEOUT_S = "TFDIST_NETWORK_TIMEOUT_S"
#: How long a process may wait for its peers to appear. Users may set it themselves where there is no launcher.
START_TIMEOUT_S = "TFDIST_START_TIMEOUT_S"
#: Where the processes of an elastic job meet, `host:port`, and how many there may be, `MIN:MAX`.
RENDEZVOUS = "TFDIST_RENDEZVOUS"
ELASTIC_WORKERS = "TFDIST_ELASTIC_WORKERS"
#: The name of a job of several nodes.
JOB_NAME = "TFDIST_JOB_NAME"
#: How long the members of an elastic job wait for each other when one is lost. Users may set it.
REGROUP_TIMEOUT_S = "TFDIST_REGROUP_TIMEOUT_S"
#: What `tfdist verify` tells the processes that it starts.
VERIFY_RUN = "TFDIST_VERIFY_RUN"
VERIFY_DIR = "TFDIST_VERIFY_DIR"
VERIFY_STEPS = "TFDIST_VERIFY_STEPS"
VERIFY_LOCAL_REPLICAS = "TFDIST_VERIFY_LOCAL_REPLICAS"

DEFAULT_START_TIMEOUT_S = 600.0
DEFAULT_EXCHANGE_TIMEOUT_S = 1800.0
DEFAULT_NETWORK_TIMEOUT_S = 60.0
DEFAULT_REGROUP_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class JobEnvironment:
    """What the launcher tells a task.

    Attributes:
        job_id: Unique for this start of the job.
        report_dir: The directory in which the task leaves its reports (see `job_reports`).
        task_name: The task in words, such as `worker 1`.
        secret: Random, the same for all tasks of this start of the job.
        attempt: Which start of the job this is, from 0.
    """

    job_id: str
    report_dir: str
    task_name: str
    secret: str
    attempt: int = 0

    def to_env(self) -> dict[str, str]:
        """The variables to set for the task."""
        return {
            JOB_ID: self.job_id,
            REPORT_DIR: self.report_dir,
            TASK: self.task_name,
            JOB_SECRET: self.secret,
            ATTEMPT: str(self.attempt),
        }


def parse_job_environment(env: Mapping[str, str]) -> JobEnvironment | None:
    """Reads what the launcher told this task; None if there is no launcher, or it told only a part."""
    values = [env.get(name, "") for name in (JOB_ID, REPORT_DIR, TASK, JOB_SECRET)]
    if not all(values):
        return None
    job_id, report_dir, task_name, secret = values
    attempt = env.get(ATTEMPT, "")
    return JobEnvironment(
        job_id, report_dir, task_name, secret, int(attempt) if attempt.isascii() and attempt.isdigit() else 0
    )


@dataclass(frozen=True)
class VerifyEnvironment:
    """Which of the runs of a verification a process makes.

    Attributes:
        run: `replicas`, then `single` (the same on one device), then `again` (the same once more).
        directory: Where the runs leave their records, and find those of the runs before.
        steps: How many steps of `fit` to record.
        local_replicas: Logical CPU devices that the process makes for itself in the run `replicas`.
    """

    run: str
    directory: str
    steps: int
    local_replicas: int = 1

    def to_env(self) -> dict[str, str]:
        """The variables to set for the process."""
        return {
            VERIFY_RUN: self.run,
            VERIFY_DIR: self.directory,
            VERIFY_STEPS: str(self.steps),
            VERIFY_LOCAL_REPLICAS: str(self.local_replicas),
        }


def parse_verify_environment(env: Mapping[str, str]) -> VerifyEnvironment | None:
    """Reads which run of a verification this process is to make; None if there is none."""
    run, directory = env.get(VERIFY_RUN, ""), env.get(VERIFY_DIR, "")
    if not (run and directory):
        return None
    return VerifyEnvironment(run, directory, int(env.get(VERIFY_STEPS, "5")), int(env.get(VERIFY_LOCAL_REPLICAS, "1")))


def parse_start_timeout_s(env: Mapping[str, str]) -> float:
    """Reads how long to wait for peers to appear, in seconds.

    Raises:
        ArgumentError: The variable is set to something other than a positive number.
    """
    return _parse_seconds(env, START_TIMEOUT_S, DEFAULT_START_TIMEOUT_S)


def parse_exchange_timeout_s(env: Mapping[str, str]) -> float:
    """Reads how long an exchange may wait for another worker, in seconds.

    Raises:
        ArgumentError: The variable is set to something other than a positive number.
    """
    return _parse_seconds(env, EXCHANGE_TIMEOUT_S, DEFAULT_EXCHANGE_TIMEOUT_S)


def parse_network_timeout_s(env: Mapping[str, str]) -> float:
    """Reads how long another worker's machine may give no answer, in seconds.

    Raises:
        ArgumentError: The variable is set to something other than a positive number.
    """
    return _parse_seconds(env, NETWORK_TIMEOUT_S, DEFAULT_NETWORK_TIMEOUT_S)


def parse_regroup_timeout_s(env: Mapping[str, str]) -> float:
    """Reads how long the members of an elastic job wait for each other when one is lost, in seconds.

    Raises:
        ArgumentError: The variable is set to something other than a positive number.
    """
    return _parse_seconds(env, REGROUP_TIMEOUT_S, DEFAULT_REGROUP_TIMEOUT_S)


@dataclass(frozen=True)
class ElasticEnvironment:
    """What the launcher tells a worker of an elastic job.

    Attributes:
        rendezvous: `host:port` of the rendezvous service.
        fewest: With fewer workers the job does not go on.
        most: How many there are at most; what `strategy.num_replicas_in_sync` says throughout.
        job: The job's name, where several nodes take part.
    """

    rendezvous: str
    fewest: int
    most: int
    job: str = ""

    def to_env(self) -> dict[str, str]:
        """The variables to set for the task."""
        workers = f"{self.fewest}:{self.most}"
        return {RENDEZVOUS: self.rendezvous, ELASTIC_WORKERS: workers, JOB_NAME: self.job}


def parse_elastic_environment(env: Mapping[str, str]) -> ElasticEnvironment | None:
    """Reads what the launcher told this worker; None where the job is not elastic."""
    rendezvous = env.get(RENDEZVOUS, "")
    fewest, _, most = env.get(ELASTIC_WORKERS, "").partition(":")
    if not (rendezvous and fewest.isdecimal() and most.isdecimal()):
        return None
    return ElasticEnvironment(rendezvous, int(fewest), int(most), env.get(JOB_NAME, ""))


def _parse_seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise ArgumentError(
            describe_problem(
                f"{name} is not a usable time limit",
                received=f"{name}={text!r} (from the environment)",
                expected="a number of seconds above 0",
                fix=f"set it to a number such as {default:g}, or unset it for that default",
            )
        )
    return value
