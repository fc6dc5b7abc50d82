"""The batch script for Slurm."""

import subprocess

from tfdist.launching.batch_script import BatchJob, format_batch_script

EXPECTED = """#!/bin/bash
#SBATCH --job-name=night
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=1
#SBATCH --time=01:00:00
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --partition=gpu

# Each task of srun is a worker, and finds the others by Slurm's variables.
# 60 s before the time limit, and by `scancel --signal=USR1 JOB`, the workers get SIGUSR1: a
# FaultTolerantCheckpoint saves, and they end with status 75. The job then goes to the queue again, and goes on.
for restart in $(seq 0 2); do
  srun --distribution=block --kill-on-bad-exit=1 python -u train.py 'a b'
  status=$?
  if [ "$status" -eq 0 ]; then exit 0; fi
  if [ "$status" -eq 75 ]; then scontrol requeue "$SLURM_JOB_ID"; sleep 60; exit 75; fi
  echo "The step has ended with status $status, start $((restart + 1)) of 3." >&2
done
exit "$status"
"""


def test_the_whole_script():
    job = BatchJob(
        2,
        4,
        ["python", "-u", "train.py", "a b"],
        name="night",
        time_limit="01:00:00",
        save_before_s=60,
        gpus_per_worker=1,
        cpus_per_worker=8,
        max_restarts=2,
        options=["--partition=gpu"],
    )
    assert format_batch_script(job) == EXPECTED


def test_what_is_not_asked_for_is_not_there():
    text = format_batch_script(BatchJob(1, 1, ["python", "train.py"]))
    assert "--time" not in text
    assert "--gpus" not in text
    assert "--cpus" not in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=20)
