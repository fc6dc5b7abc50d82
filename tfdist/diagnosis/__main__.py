"""One node's part of the doctor: `python -m tfdist.diagnosis OPTIONS`, started by `tfdist doctor`.

OPTIONS is the JSON of `NodeOptions`. The job's secret comes in TFDIST_JOB_SECRET. Prints the reports of this node and
of those that it heard of as JSON, and ends by itself at `end_at`; whoever starts it has a limit of its own, too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from dataclasses import replace
from typing import NoReturn

from tfdist.cluster import ClusterConfig
from tfdist.cluster.job_environment import JOB_SECRET
from tfdist.diagnosis.facts import PortState
from tfdist.diagnosis.local_facts import ask_tensorflow, gather_facts
from tfdist.diagnosis.node_process import NodeOptions
from tfdist.diagnosis.port import open_port
from tfdist.diagnosis.session import Session, Times


def main(arguments: list[str]) -> int:
    """Gathers, talks, prints. Returns the status."""
    signal.signal(signal.SIGTERM, _end)
    options = NodeOptions(**json.loads(arguments[0]))
    cluster = ClusterConfig.from_tf_config(options.tf_config)
    facts = gather_facts(
        cluster, os.environ, token=options.token, script=options.script, checkpoint_dir=options.checkpoint_dir
    )
    listening, state, detail = None, PortState.NONE, ""
    if facts.address:
        listening, state, detail = open_port(facts.address)
    facts = replace(facts, port_state=state, port_detail=detail)
    secret = os.environ[JOB_SECRET].encode()
    times = Times(options.settle_at, options.end_at)
    reports = Session(facts, listening, secret, times, ask_tensorflow if options.devices else None).run()
    print(json.dumps([dataclasses.asdict(report) for report in reports]), flush=True)
    return 0


def _end(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
