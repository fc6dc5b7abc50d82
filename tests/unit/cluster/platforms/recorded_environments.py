"""Environments of each platform, as far as they matter: by name, (environment, expected addresses, expected rank)."""

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "1",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_DISTRIBUTION": "block",
    "TFDIST_BASE_PORT": "5000",
}
SLURM_SEVERAL = SLURM | {
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "gpu[09-10],big",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
}
SLURM_CYCLIC = SLURM_SEVERAL | {"SLURM_DISTRIBUTION": "cyclic", "SLURM_NODEID": "0", "SLURM_LOCALID": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "TFDIST_BASE_PORT": "5000",
}
MPICH = {
    "PMI_RANK": "0",
    "PMI_SIZE": "3",
    "PMI_FD": "9",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "3",
    "TFDIST_BASE_PORT": "5000",
}
OPEN_MPI_HOSTS = OPEN_MPI | {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "TFDIST_HOSTS": "a, a,b",
}
KUBERNETES = {
    "JOB_COMPLETION_INDEX": "2",
    "TFDIST_NUM_WORKERS": "3",
    "TFDIST_HOSTS_PATTERN": "train-{}.train",
    "TFDIST_BASE_PORT": "5000",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}
KUBERNETES_PS = {
    "JOB_COMPLETION_INDEX": "1",
    "TFDIST_NUM_WORKERS": "2",
    "TFDIST_NUM_PS": "2",
    "TFDIST_TASK_TYPE": "ps",
    "TFDIST_HOSTS_PATTERN": "train-{type}-{}.train",
    "TFDIST_BASE_PORT": "5000",
}
SAGEMAKER = {"SM_HOSTS": '["algo-2", "algo-1"]', "SM_CURRENT_HOST": "algo-2", "TFDIST_BASE_PORT": "5000"}
VERTEX = {
    "CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1", "c:1"]},'
    ' "task": {"type": "workerpool1", "index": 1, "trial": ""}, "environment": "cloud"}'
}

RECORDED = {
    "Slurm": (SLURM, ["n1:5000", "n2:5001"], "worker 1"),
    "Slurm, several a node": (
        SLURM_SEVERAL,
        ["gpu09:5000", "gpu09:5001", "gpu10:5002", "gpu10:5003", "big:5004"],
        "worker 3",
    ),
    "Slurm, cyclic": (
        SLURM_CYCLIC,
        ["gpu09:5000", "gpu10:5002", "big:5004", "gpu09:5001", "gpu10:5003"],
        "worker 3",
    ),
    "Open MPI": (OPEN_MPI, ["127.0.0.1:5000", "127.0.0.1:5001"], "worker 1"),
    "MPICH": (MPICH, ["127.0.0.1:5000", "127.0.0.1:5001", "127.0.0.1:5002"], "worker 0"),
    "Open MPI, hosts": (OPEN_MPI_HOSTS, ["a:5000", "a:5001", "b:5000"], "worker 2"),
    "mpirun within Slurm": (
        SLURM | OPEN_MPI | {"SLURM_PROCID": "0", "SLURM_NODEID": "0"},  # those of mpirun's daemon
        ["127.0.0.1:5000", "127.0.0.1:5001"],
        "worker 1",
    ),
    "Kubernetes": (KUBERNETES, ["train-0.train:5000", "train-1.train:5000", "train-2.train:5000"], "worker 2"),
    "Kubernetes with parameter servers": (
        KUBERNETES_PS,
        ["train-worker-0.train:5000", "train-worker-1.train:5000"],
        "ps 1",
    ),
    "SageMaker": (SAGEMAKER, ["algo-1:5000", "algo-2:5000"], "worker 1"),
    "Vertex AI": (VERTEX, ["a:1", "b:1", "c:1"], "worker 1"),
}

#: Environments of a process that trains alone.
ALONE = {
    "nothing": {},
    "a batch script of Slurm's": {
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NODELIST": "n[1-2]",
    },
    "a shell of salloc": {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "n[1-2]"},
    "a step of one task": SLURM
    | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1"},
    "mpirun -n 1": OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    "an Indexed Job of somebody else's": {"JOB_COMPLETION_INDEX": "2", "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
    "SageMaker with one host": {"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"},
    "Vertex AI with one task": {
        "CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1"]}, "task": {"type": "workerpool0", "index": 0}}'
    },
    "a process of tfdist run within Slurm": SLURM
    | {"TFDIST_JOB_ID": "j", "TFDIST_REPORT_DIR": "d", "TFDIST_TASK": "worker 0", "TFDIST_JOB_SECRET": "s"},
}


def without(env, *names):
    return {name: value for name, value in env.items() if name not in names}


#: By name, an environment and what its error says.
HOSTILE = {
    "half of Slurm": (without(SLURM, "SLURM_STEP_NODELIST"), "without SLURM_STEP_NODELIST"),
    "an empty list": (SLURM | {"SLURM_STEP_NODELIST": ""}, "without SLURM_STEP_NODELIST"),
    "an open bracket": (SLURM | {"SLURM_STEP_NODELIST": "n[1-2"}, "SLURM_STEP_NODELIST='n\\[1-2'"),
    "a range that falls": (SLURM | {"SLURM_STEP_NODELIST": "n[2-1]"}, "cannot be read"),
    "a range without end": (SLURM | {"SLURM_STEP_NODELIST": "n[1-99999999999]"}, "at most a million"),
    "nested brackets": (SLURM | {"SLURM_STEP_NODELIST": "n[1-[2]]"}, "cannot be read"),
    "words for numbers": (SLURM | {"SLURM_PROCID": "one"}, "SLURM_PROCID='one'"),
    "a negative rank": (SLURM | {"SLURM_PROCID": "-1"}, "SLURM_PROCID='-1'"),
    "more nodes than counts": (SLURM | {"SLURM_STEP_NODELIST": "n[1-3]"}, "contradict each other"),
    "a rank beyond the size": (SLURM | {"SLURM_PROCID": "2"}, "contradict each other"),
    "tasks laid out by hand": (SLURM_SEVERAL | {"SLURM_LOCALID": "0"}, "srun --distribution=block"),
    "counts that are none": (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "1(x"}, "cannot be read"),
    "half of Open MPI": (without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"), "without OMPI_COMM_WORLD_SIZE"),
    "half of MPICH": (without(MPICH, "MPI_LOCALNRANKS"), "without MPI_LOCALNRANKS"),
    "MPI on unknown hosts": (without(OPEN_MPI_HOSTS, "TFDIST_HOSTS"), "mpirun -x TFDIST_HOSTS=a,a,b,b"),
    "too few hosts": (OPEN_MPI_HOSTS | {"TFDIST_HOSTS": "a,b"}, "3 names"),
    "an MPI rank beyond the size": (OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "5"}, "contradict each other"),
    "two platforms that disagree": (SLURM | KUBERNETES, "Slurm: process 1 of 2 .*; Kubernetes: process 2 of 3"),
    "half of Kubernetes": (without(KUBERNETES, "JOB_COMPLETION_INDEX"), "without JOB_COMPLETION_INDEX"),
    "a pod beyond the number": (KUBERNETES | {"JOB_COMPLETION_INDEX": "3"}, "no task like this pod: worker 3"),
    "a second coordinator": (KUBERNETES_PS | {"TFDIST_TASK_TYPE": "chief"}, "no task like this pod: chief 1"),
    "a server without servers": (KUBERNETES | {"TFDIST_TASK_TYPE": "ps"}, "Expected: worker 0 to 2"),
    "a number of servers that is none": (KUBERNETES_PS | {"TFDIST_NUM_PS": "many"}, "TFDIST_NUM_PS='many'"),
    "half of SageMaker": (without(SAGEMAKER, "SM_CURRENT_HOST"), "without SM_CURRENT_HOST"),
    "hosts that are no list": (SAGEMAKER | {"SM_HOSTS": "algo-1"}, "list of names as JSON"),
    "a host that is not in the list": (SAGEMAKER | {"SM_CURRENT_HOST": "algo-9"}, "with the current one in it"),
    "a spec that is no JSON": ({"CLUSTER_SPEC": "{"}, "CLUSTER_SPEC='{'"),
    "a spec without task": ({"CLUSTER_SPEC": '{"cluster": {"workerpool0": ["a:1", "b:1"]}}'}, "cannot be read"),
    "a task that is not in the spec": (
        {"CLUSTER_SPEC": VERTEX["CLUSTER_SPEC"].replace('"index": 1', '"index": 7')},
        "Vertex AI",
    ),
    "a port that is too large": (SLURM | {"TFDIST_BASE_PORT": "65536"}, "TFDIST_BASE_PORT=65536"),
    "a port that is none": (SLURM | {"TFDIST_BASE_PORT": "http"}, "TFDIST_BASE_PORT='http'"),
}
