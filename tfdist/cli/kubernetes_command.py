"""`tfdist kubernetes`: prints the manifests of a job, and runs nothing."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from tfdist.cli.options import add_program, program_words, read_option_number

_EPILOG = """example:
  kubectl create secret generic train-secret --from-literal=secret="$(openssl rand -hex 32)"
  tfdist kubernetes --name train --workers 4 --image IMAGE train.py > train.yaml
  kubectl apply -f train.yaml
"""


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds the command to those of `tfdist`."""
    parser = commands.add_parser(
        "kubernetes",
        help="print manifests for Kubernetes",
        description="Prints the manifests of a job: an Indexed Job for each kind of task, a headless service, a config "
        "map, and a claim of a volume for checkpoints. It runs nothing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--workers", metavar="N", required=True, help="how many workers, a pod each")
    option("--ps", metavar="N", default="0", help="how many parameter servers, a pod each (0)")
    option("--image", required=True, help="the image, which has Python, tfdist and the program in it")
    option("--name", default="tfdist", help="name of the job (tfdist)")
    option("--format", choices=("job", "jobset", "tfjob"), default="job", help="what runs the pods (job)")
    option("--gpus-per-worker", metavar="N", default="0", help="GPUs of each worker (none)")
    option("--cpus", metavar="QUANTITY", help="cores that each pod asks for, such as 4 or 500m")
    option("--memory", metavar="QUANTITY", help="memory of each pod, such as 8Gi")
    option("--volume-claim", metavar="NAME", help="an existing claim of a volume that all nodes can write (a new one)")
    option("--volume-size", metavar="QUANTITY", default="10Gi", help="size of the new claim (10Gi)")
    option("--mount-path", metavar="PATH", default="/checkpoints", help="where the volume is (/checkpoints)")
    option("--max-restarts", metavar="N", default="3", help="starts again after a failure (3)")
    option("--python", default="python", help="the Python of the image (python)")
    add_program(parser)


def execute(options: argparse.Namespace) -> int:
    """Carries the command out.

    Raises:
        ArgumentError: An option cannot be used.
    """
    from tfdist.launching.kubernetes_manifests import KubernetesJob, Resources, secret_name, write_manifests
    from tfdist.launching.yaml_text import format_yaml

    number = functools.partial(read_option_number, options)
    job = KubernetesJob(
        name=options.name,
        image=options.image,
        command=[options.python, "-u", *program_words(options.module, options.program, "tfdist kubernetes")],
        workers=number("workers", minimum=1),
        parameter_servers=number("ps", minimum=0),
        resources=Resources(options.cpus, options.memory, number("gpus-per-worker", minimum=0)),
        volume_claim=options.volume_claim,
        volume_size=options.volume_size,
        mount_path=options.mount_path,
        max_restarts=number("max-restarts", minimum=0),
        kind=options.format,
    )
    print(f"# Once before, so that the tasks know each other:\n# kubectl create secret generic {secret_name(job)} \\")
    print('#   --from-literal=secret="$(openssl rand -hex 32)"')
    print(format_yaml(write_manifests(job)), end="")
    return 0
