"""A process of an elastic job that only adds up numbers: `elastic_member.py RENDEZVOUS NAME OPERATIONS SECONDS`.

Operation k adds up the rows k * 12 ... k * 12 + 11, of which each member takes a share, in two exchanges. Every result
is printed. A newcomer is told by the members where they are.
"""

import json
import os
import random
import sys
import time

import numpy as np

from tfdist.communication.elastic import MembershipChangedError, enter_job
from tfdist.communication.transports import TimeLimit

ROWS = 12


def say(**what):
    print(json.dumps(what), flush=True)


def main(rendezvous, name, num_operations, seconds):
    transport = enter_job(
        rendezvous,
        "secret",
        name,
        exchange_limit=TimeLimit(20, "a test's"),
        network_limit=TimeLimit(60, "a test's"),
        start_limit_s=30,
        regroup_limit_s=20,
        shares_memory=os.environ.get("SHARES_MEMORY", "1") == "1",
    )
    operation, asks = 0, True
    if transport.is_newcomer:
        operation = json.loads(transport.join())["operation"]
        say(joined=operation, members=transport.members)
        asks = False  # the others have
    else:
        transport.start()
        say(started=transport.members)
    while operation < num_operations:
        if asks:
            transport.begin_operation()
        if asks and perform(transport, lambda: ask(transport)):
            transport.admit(json.dumps({"operation": operation}).encode())
            say(admitted=transport.members)
        asks = True
        transport.begin_operation()
        total = perform(transport, lambda k=operation: add_up(transport, k, seconds))
        say(operation=operation, total=total, members=transport.num_members)
        operation += 1


def perform(transport, act):
    while True:
        try:
            return act()
        except MembershipChangedError:
            say(lost=transport.members, rank=transport.rank)


def ask(transport):
    count = transport.client.count_newcomers() if transport.rank == 0 else 0
    return int(transport.all_reduce_sum([np.array([count])])[0][0])


def add_up(transport, operation, seconds):
    time.sleep(random.random() * seconds)
    rows = np.arange(operation * ROWS, (operation + 1) * ROWS)[transport.rank :: transport.num_members]
    count = int(transport.all_reduce_sum([np.array([rows.size])])[0][0])
    total = int(transport.all_reduce_sum([np.array([rows.sum()])])[0][0])
    assert count == ROWS, count
    return total


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
