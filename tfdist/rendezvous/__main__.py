"""The rendezvous service as a process: what the launcher starts beside the workers of an elastic job.

Its arguments are the numbers of `Rules`, the address to listen on and the limit of the network, as JSON; the secret is
in its environment. It says on its standard output where it listens, then each round that it forms, a line of JSON each,
and serves until it is killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from tfdist.cluster.job_environment import JOB_SECRET
from tfdist.rendezvous.membership import Round, Rules
from tfdist.rendezvous.server import RendezvousServer


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def _say_round(formed: Round) -> None:
    _say(round=formed.number, members=list(formed.members))


def main() -> None:
    """Serves."""
    options = json.loads(sys.argv[1])
    server = RendezvousServer(
        Rules(**options["rules"]),
        os.environ[JOB_SECRET],
        host=options["host"],
        port=options["port"],
        job=options["job"],
        network_limit_s=options["network_limit_s"],
        on_round=_say_round,
    )
    _say(address=server.address)
    threading.Event().wait()


if __name__ == "__main__":
    main()
