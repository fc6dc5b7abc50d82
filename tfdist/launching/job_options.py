"""What the user asked for: the options of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfdist.cluster.job_environment import parse_regroup_timeout_s
from tfdist.launching.hangs import HangRules
from tfdist.launching.lifecycle import LifecycleRules
from tfdist.launching.meeting import Meeting
from tfdist.launching.restarts import RestartPolicy
from tfdist.rendezvous.membership import Rules


@dataclass(frozen=True)
class JobOptions:
    """What to run.

    Attributes:
        command: The command of every task.
        workers: How many workers, at least 1; of an elastic job the most.
        fewest_workers: How few the workers of an elastic job may become; None where it is not elastic.
        meeting: Where the nodes of an elastic job meet; None on one machine. Each node starts `workers`, then.
        parameter_servers: How many parameter servers; above 0 there is a chief, too.
        evaluator: Whether there is an evaluator.
        log_dir: Where each task's log file goes; None for no files.
        num_threads: The size of each task's thread pools; None divides the cores between the workers.
        rules: The time limits.
        hangs: When a task that makes no progress hangs.
        restarts: When to start it again.
    """

    command: tuple[str, ...]
    workers: int
    fewest_workers: int | None
    meeting: Meeting | None
    parameter_servers: int
    evaluator: bool
    log_dir: Path | None
    num_threads: int | None
    rules: LifecycleRules
    hangs: HangRules
    restarts: RestartPolicy

    def membership_rules(self, env: Mapping[str, str]) -> Rules:
        """The numbers of an elastic job, those of all its nodes together."""
        fewest, most = self.fewest_workers or 1, self.workers
        if self.meeting is not None:
            fewest, most = self.meeting.fewest_nodes * most, self.meeting.most_nodes * most
        return Rules(
            fewest,
            most,
            latecomer_limit_s=self.rules.start_timeout_s,
            regroup_limit_s=parse_regroup_timeout_s(env),
        )
