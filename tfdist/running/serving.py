"""Serving as a worker or parameter server (`ps`) of a parameter-server cluster."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any, NoReturn

from tfdist.cluster import ClusterConfig
from tfdist.cluster.address import is_loopback, split_address
from tfdist.cluster.job_environment import START_TIMEOUT_S, parse_start_timeout_s
from tfdist.errors import ServerStartError, TimeLimitError, describe_problem
from tfdist.reporting import report_progress
from tfdist.running.coordinator_watch import CoordinatorWatch, Verdict

_log = logging.getLogger(__name__)

_PROBE_INTERVAL_S = 1.0
_PROBE_TIMEOUT_S = 5.0


def serve(config: ClusterConfig, *, coordinator_grace_s: float) -> NoReturn:
    """Serves until the coordinator has no more need of this task, then ends the process with status 0.

    That is so when the process gets SIGTERM (the launcher sends it when the coordinator has ended), or when the
    coordinator's address was reachable once and then refused connections for `coordinator_grace_s`.

    TensorFlow's gRPC server neither authenticates nor encrypts, and listens on every interface, even if the task's
    address is 127.0.0.1 (seen in TensorFlow 2.21): whoever reaches its port can run any graph in this process. Use it
    in a network that you trust. A warning says so when the cluster's addresses are not those of loopback.

    Args:
        config: The cluster; this process is one of its `worker` or `ps` tasks.
        coordinator_grace_s: How long the coordinator may be unreachable, in seconds.

    Raises:
        ArgumentError: The start limit in the environment is not a positive number.
        ServerStartError: TensorFlow's server cannot start, as when its port is taken.
        TimeLimitError: The coordinator did not appear within the start limit.
    """
    start_timeout_s = parse_start_timeout_s(os.environ)
    asked_to_end = threading.Event()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    server = _start_server(config)
    report_progress("connecting")
    coordinator = config.cluster["chief"][0]
    _log.info("tfdist: %s serves at %s for the coordinator at %s", config.task_name, _own_address(config), coordinator)
    watch = CoordinatorWatch(time.monotonic(), start_timeout_s, coordinator_grace_s)
    while not asked_to_end.wait(_PROBE_INTERVAL_S):
        was_reached = watch.last_reached is not None
        watch, verdict = watch.observe(_accepts_connections(coordinator), time.monotonic())
        if watch.last_reached is not None and not was_reached:
            report_progress("connected")
        if verdict is Verdict.COORDINATOR_NEVER_CAME:
            raise TimeLimitError(
                describe_problem(
                    f"{config.task_name} waited for the coordinator (chief), which did not appear",
                    received=f"chief={coordinator} unreachable for {start_timeout_s:g} s, the limit "
                    f"{START_TIMEOUT_S} (default or from the environment)",
                    expected="the chief task starts and reaches tfdist.parameter_server_strategy within the limit",
                    fix=f"look at why the chief did not come so far, or set {START_TIMEOUT_S} higher",
                )
            )
        if verdict is Verdict.COORDINATOR_GONE:
            _log.warning(
                "tfdist: %s ends: the coordinator at %s has accepted no connection for %g s (coordinator_grace_s)",
                config.task_name,
                coordinator,
                coordinator_grace_s,
            )
            break
    report_progress("ended")
    del server
    sys.exit(0)


def _start_server(config: ClusterConfig) -> Any:
    import tensorflow as tf

    address = _own_address(config)
    if not is_loopback(address):
        _log.warning(
            "tfdist: %s serves at %s: TensorFlow's server neither authenticates nor encrypts and listens on every "
            "interface, so only trusted machines should be able to reach this port",
            config.task_name,
            address,
        )
    try:
        return tf.distribute.Server(
            tf.train.ClusterSpec({name: list(tasks) for name, tasks in config.cluster.items()}),
            job_name=config.task_type,
            task_index=config.task_id,
            protocol="grpc",
        )
    except tf.errors.OpError as error:
        _, port = split_address(address)
        what = f"The port {port} of {config.task_name} is taken by another program" if _is_taken(port) else None
        raise ServerStartError(
            describe_problem(
                what or f"TensorFlow's server of {config.task_name} cannot start",
                received=f"{config.task_name}={address} (from {config.source}); TensorFlow says: {error.message}",
                expected="an address of this machine whose port is free",
                fix="end the other program, give the task another port, or start the job again",
            )
        ) from error


def _own_address(config: ClusterConfig) -> str:
    assert config.task_type is not None
    assert config.task_id is not None
    return config.cluster[config.task_type][config.task_id]


def _accepts_connections(address: str) -> bool:
    try:
        with socket.create_connection(split_address(address), timeout=_PROBE_TIMEOUT_S):
            return True
    except OSError:
        return False


def _is_taken(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
        return False
