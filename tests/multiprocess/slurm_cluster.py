"""A real Slurm of two nodes on this machine, from Debian's packages slurm-wlm and munge: for the time of a test."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

import pytest

_LIMIT_S = 60
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "unshare")
_SETTINGS = """
ClusterName=tfdist
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=6
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
MpiDefault=none
JobRequeue=1
KillWait=10
MinJobAge=600
SchedulerParameters=batch_sched_delay=1,sched_min_interval=100000
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=1000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10 State=UP OverSubscribe=YES
"""


class Slurm:
    """Starts the daemons, and ends all that they have started. Skips the test where they cannot be.

    Attributes:
        directory: Where all of its files are.
    """

    def __init__(self, directory):
        self.directory = directory
        self._stack = contextlib.ExitStack()
        self._env = {**os.environ, "SLURM_CONF": str(directory / "slurm.conf")}

    def __enter__(self):
        missing = [name for name in _PROGRAMS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
        if os.geteuid() != 0 or missing:
            pytest.skip(f"a real Slurm needs root and {', '.join(missing) or 'nothing else'}")
        host = socket.gethostname()
        ports = dict(zip(("controller", "first", "second"), _free_ports(3), strict=True))
        (self.directory / "state").mkdir()
        text = _SETTINGS.format(host=host, directory=self.directory, **ports)
        (self.directory / "slurm.conf").write_text(text)
        # Nodes have names, which only this Slurm and its jobs know: in a mount namespace with a file of hosts.
        hosts = f"127.0.0.1 localhost n1 n2 {host}\n"
        (self.directory / "hosts").write_text(hosts)
        (self.directory / "munge.key").write_bytes(os.urandom(128))
        (self.directory / "munge.key").chmod(0o600)
        with self._stack as stack:
            files = {
                "socket": "munge.socket",
                "key-file": "munge.key",
                "pid-file": "munge.pid",
                "log-file": "munge.log",
            }
            options = [f"--{option}={self.directory / name}" for option, name in files.items()]
            self._start("munged", "--foreground", "--force", *options, f"--seed-file={self.directory / 'munge.seed'}")
            self._wait((self.directory / "munge.socket").exists, "munged")
            self._start("slurmctld", "-D")
            for node in ("n1", "n2"):
                (self.directory / f"spool-{node}").mkdir()
                self._start("slurmd", "-D", "-N", node)
            self._wait(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "two idle nodes")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.SubprocessError):
            self.run("scancel", "--user=root", "--signal=KILL", "--full")
            self.run("scancel", "--user=root")
            time.sleep(1)
        self._stack.close()

    def run(self, *command):
        """Runs one of Slurm's programs; returns what it says."""
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=_LIMIT_S)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.logs()}"
        return done.stdout

    def submit(self, script, *options, **env):
        """Submits a batch script; returns the number of the job."""
        names = ",".join(["ALL", *(f"{name}={value}" for name, value in env.items())])
        return self.run("sbatch", "--parsable", f"--export={names}", *options, str(script)).strip()

    def state(self, job):
        """Such as RUNNING or COMPLETED."""
        fields = dict(part.split("=", 1) for part in self.run("scontrol", "show", "job", job).split() if "=" in part)
        return fields["JobState"]

    def wait(self, job, state="COMPLETED", limit_s=150):
        """Waits until a job is in a state."""
        until = time.monotonic() + limit_s
        while (now := self.state(job)) != state:
            ended = ("FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "COMPLETED")
            assert time.monotonic() < until and now not in ended, f"{job} is {now}\n{self.logs()}"  # noqa: PT018
            time.sleep(0.2)

    def logs(self):
        """The ends of the daemons' logs."""
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.directory.glob("*.log")))

    def _start(self, *command):
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
        isolated = ["unshare", "--mount", "sh", "-c", script, str(self.directory / "hosts"), program, *command[1:]]
        process = subprocess.Popen(isolated, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait, _LIMIT_S)
        self._stack.callback(process.terminate)

    def _wait(self, condition, what):
        until = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < until, f"{what} did not come\n{self.logs()}"
            time.sleep(0.1)


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
