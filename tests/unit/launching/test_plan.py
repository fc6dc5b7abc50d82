"""Which tasks a job has, and their environment."""

import json

import pytest

from tfdist.cluster import ClusterConfig
from tfdist.cluster.job_environment import JobEnvironment
from tfdist.launching.plan import TaskPlan, build_task_env, count_ports, plan_tasks, threads_per_task
from tfdist.launching.ports import choose_free_ports

JOB = JobEnvironment("id", "reports", "worker 0", "secret", 2)


@pytest.mark.parametrize(
    ("workers", "parameter_servers", "evaluator", "names"),
    [
        (2, 0, False, ["worker 0", "worker 1"]),
        (2, 0, True, ["worker 0", "worker 1", "evaluator"]),
        (1, 0, True, ["worker 0", "evaluator"]),
        (2, 1, False, ["chief", "worker 0", "worker 1", "ps 0"]),
        (1, 2, True, ["chief", "worker 0", "ps 0", "ps 1", "evaluator"]),
    ],
)
def test_every_task_gets_its_own_place_in_one_valid_cluster(workers, parameter_servers, evaluator, names):
    ports = range(1000, 1000 + count_ports(workers, parameter_servers))
    plans = plan_tasks(workers, parameter_servers, evaluator, ports)
    configs = [ClusterConfig.from_tf_config(plan.tf_config) for plan in plans]
    assert [plan.name for plan in plans] == [config.task_name for config in configs] == names
    assert len({tuple(config.cluster.items()) for config in configs}) == 1
    assert sum(len(addresses) for addresses in configs[0].cluster.values()) == len(ports)
    assert configs[0].num_workers == workers


def test_a_worker_alone_trains_locally():
    assert plan_tasks(1, 0, False, [1000]) == (TaskPlan("worker 0", "worker", None),)


def test_the_environment_of_a_task():
    plan = TaskPlan("worker 0", "worker", "{...}")
    env = build_task_env(plan, JOB, {"PATH": "p"}, 3)
    assert env == {
        "PATH": "p",
        "TF_CONFIG": "{...}",
        "TFDIST_JOB_ID": "id",
        "TFDIST_REPORT_DIR": "reports",
        "TFDIST_TASK": "worker 0",
        "TFDIST_JOB_SECRET": "secret",
        "TFDIST_ATTEMPT": "2",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_NUM_INTRAOP_THREADS": "3",
        "TF_NUM_INTEROP_THREADS": "3",
        "OMP_NUM_THREADS": "3",
    }


def test_what_the_user_has_set_counts():
    user = {"OMP_NUM_THREADS": "7", "TF_CPP_MIN_LOG_LEVEL": "0"}
    env = build_task_env(TaskPlan("worker 0", "worker", None), JOB, user, 1)
    assert {name: env[name] for name in user} == user
    assert env["TF_NUM_INTRAOP_THREADS"] == "1"
    assert env["TF_NUM_INTEROP_THREADS"] == "2"  # one for an operation that waits, one for the work
    assert "TF_CONFIG" not in env


@pytest.mark.parametrize(
    ("cores", "workers", "tasks", "expected"), [(8, 2, 2, 4), (2, 2, 2, 1), (2, 4, 4, 1), (8, 1, 1, None), (8, 3, 5, 2)]
)
def test_cores_are_divided_between_workers(cores, workers, tasks, expected):
    assert threads_per_task(cores, workers, tasks) == expected


def test_free_ports_differ():
    ports = choose_free_ports(50)
    assert len(set(ports)) == 50
    assert json.loads(json.dumps(ports)) == list(ports)
