"""What the doctor makes of the nodes' reports: a table of sound nodes, each with one thing changed."""

import dataclasses
import json
from dataclasses import replace

import pytest

from tfdist.diagnosis.comparison import compare_nodes, merge_reports
from tfdist.diagnosis.conditions import CLOCK_LIMIT_S, needed_open_files
from tfdist.diagnosis.facts import Link, NodeFacts, NodeReport, Observations, PortState, Status, read_report
from tfdist.diagnosis.report import describe_diagnosis, to_json

CLUSTER = {"worker": ("a:1", "b:1", "c:1")}
VERSIONS = {"python": "3.11.7", "tensorflow": "2.21.0", "keras": "3.15.0", "tfdist": "0.1"}


def link(task, token, *, address, offset_s=0.0, latency_s=0.001):
    return Link(task, address, Status.REACHED, "", token, latency_s, offset_s, 1e8)


def sound(index, cluster=CLUSTER):
    host = "abc"[index]
    facts = NodeFacts(
        token=f"token-{index}",
        task=f"worker {index}",
        host=host,
        host_id=host,
        cluster=cluster,
        versions=VERSIONS,
        script="train.py",
        script_digest="0" * 64,
        checkpoint_dir="/shared",
        open_files=4096,
        open_files_hard=4096,
        cpus=(0, 1),
    )
    count = len(cluster["worker"])
    links = tuple(link(f"worker {n}", f"token-{n}", address=cluster["worker"][n]) for n in range(count))
    seen = tuple(f"token-{n}" for n in range(count) if n != index)
    return NodeReport(facts, Observations(links, seen_in_checkpoint_dir=seen))


def nodes(count=3):
    return [sound(n, {"worker": CLUSTER["worker"][:count]}) for n in range(count)]


def changed(index=1, count=3, **facts):
    found = nodes(count)
    found[index] = replace(found[index], facts=replace(found[index].facts, **facts))
    return found


def observed(index=1, count=3, **observations):
    found = nodes(count)
    found[index] = replace(found[index], observations=replace(found[index].observations, **observations))
    return found


def seen_as(status, detail="said", to=1, by=(0, 2), gone=False):
    """What `by` see of worker `to`."""
    found = nodes()
    for index in by:
        links = list(found[index].observations.links)
        links[to] = Link(f"worker {to}", CLUSTER["worker"][to], status, detail)
        found[index] = replace(found[index], observations=replace(found[index].observations, links=tuple(links)))
    return [report for n, report in enumerate(found) if not (gone and n == to)]


def without_file_of(index):
    """Worker 1 sees all files but that of this one."""
    return observed(seen_in_checkpoint_dir=tuple(f"token-{n}" for n in (0, 2) if n != index))


def clocks(*ahead_s, latency_s=0.001):
    """Nodes whose clocks are ahead by this much."""
    found = nodes(len(ahead_s))
    return [
        replace(
            report,
            observations=replace(
                report.observations,
                links=tuple(
                    replace(known, offset_s=ahead_s[n] - ahead_s[own], latency_s=latency_s)
                    for n, known in enumerate(report.observations.links)
                ),
            ),
        )
        for own, report in enumerate(found)
    ]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sound_nodes(count):
    assert compare_nodes(nodes(count)) == []


ONE = [
    # facts: what differs is the deviating node's
    (changed(versions={**VERSIONS, "tensorflow": "2.18.0"}), "versions", "worker 1 (b)", "tensorflow=2.18.0"),
    (
        changed(0, versions={**VERSIONS, "keras": "3.8.0"}),
        "versions",
        "worker 0 (a)",
        "keras==3.15.0",
    ),  # two against one
    (changed(1, 2, versions={**VERSIONS, "keras": "3.8.0"}), "versions", "worker 1 (b)", "as on worker 0 (a)"),  # a tie
    (changed(versions={**VERSIONS, "python": "3.10.1"}), "versions", "worker 1 (b)", "install Python 3.11 there"),
    (changed(versions={**VERSIONS, "keras": None}), "versions", "worker 1 (b)", "Keras is not installed"),
    (changed(script_digest="1" * 64), "script", "worker 1 (b)", "SHA-256 111111111111"),
    (changed(script=None, script_digest=""), "script", "worker 1 (b)", "was not told the script"),
    (changed(script_digest="", script_problem="gone"), "script", "worker 1 (b)", "cannot be read: gone"),
    (changed(cluster={"worker": ("a:1", "b:1", "c:2")}), "cluster description", "worker 1 (b)", "worker 2=c:2"),
    (changed(cluster={"worker": ("a:1", "b:1")}), "cluster description", "worker 1 (b)", "worker 2=(not listed)"),
    (changed(open_files=256), "open files", "worker 1 (b)", "ulimit -n 1024"),
    (changed(open_files=256, open_files_hard=512), "open files", "worker 1 (b)", "limits.conf"),
    (changed(cpus=(0,)), "devices", "worker 1 (b)", "it may use 1 cores"),
    (changed(cpu_quota=1.5), "devices", "worker 1 (b)", "it may use 1.5 cores"),
    (changed(gpus=("A100",)), "devices", "worker 1 (b)", "1 x A100"),
    (changed(port_state=PortState.TAKEN, port_detail="held by x"), "port", "worker 1 (b)", "held by x"),
    (changed(port_state=PortState.DENIED), "port", "worker 1 (b)", "from 1024 up"),
    (changed(task="worker 0"), "task", "worker 0 (b)", "2 nodes say that they are worker 0"),
    (changed(checkpoint_dir=None), "checkpoint directory", "worker 1 (b)", "was not told the checkpoint directory"),
    # observations
    (
        observed(checkpoint_problem="read-only"),
        "checkpoint directory",
        "worker 1 (b)",
        "cannot be written to: read-only",
    ),
    (without_file_of(2), "checkpoint directory", "worker 1 (b)", "not shared with worker 2 (c)"),
    (observed(devices={"GPU": 2}, devices_problem=""), None, None, None),  # nobody else was asked
    (observed(devices_problem="crashed"), "devices", "worker 1 (b)", "crashed"),
    # links: the node that is not reached is named, once, with who has seen it
    (seen_as(Status.UNRESOLVED, by=(0,)), "name", "worker 0 (a)", "the name b of worker 1"),
    (seen_as(Status.RESOLVING, by=(0,)), "name", "worker 0 (a)", "/etc/hosts"),
    (seen_as(Status.REFUSED, gone=True), "connection", "worker 1 at b:1", "seen by worker 0 (a), worker 2 (c)"),
    (seen_as(Status.REFUSED), "connection", "worker 1 (b)", "it runs, but refuses"),
    (seen_as(Status.CONNECTING, gone=True), "connection", "worker 1 at b:1", "or the machine is down"),
    (seen_as(Status.CONNECTING), "connection", "worker 1 (b)", "it runs, but connections to its port 1 get no answer"),
    (seen_as(Status.UNREACHABLE, gone=True), "connection", "worker 1 at b:1", "no way to it"),
    (seen_as(Status.SECRET, gone=True), "connection", "worker 1 at b:1", "TFDIST_JOB_SECRET"),
    (seen_as(Status.SILENT, gone=True), "connection", "worker 1 at b:1", "or one that hangs"),
    (seen_as(Status.STRANGER, gone=True), "connection", "worker 1 at b:1", "another program"),
    (seen_as(Status.WRONG_TASK, gone=True), "connection", "worker 1 at b:1", "another task answers"),
    (seen_as(Status.LOST), "connection", "worker 1 (b)", "broke off"),
    # clocks: two against the first, more against the middle one; half the round trip is in doubt
    (clocks(0, 5), "clock", "worker 1 (b)", "5.0 s ahead"),
    (clocks(0, -5), "clock", "worker 1 (b)", "5.0 s behind"),
    (clocks(5, 0, 0), "clock", "worker 0 (a)", "5.0 s ahead"),
    (clocks(0, 0, -3), "clock", "worker 2 (c)", "3.0 s behind"),
    (clocks(0, CLOCK_LIMIT_S * 0.9), None, None, None),
    (clocks(0, CLOCK_LIMIT_S * 1.1, latency_s=1.0), None, None, None),
]


@pytest.mark.parametrize(("reports", "check", "node", "words"), ONE)
def test_one_change_is_one_finding(reports, check, node, words):
    findings = compare_nodes(reports)
    if check is None:
        assert findings == []
        return
    own = [finding for finding in findings if finding.check == check]
    assert [finding.node for finding in own] == [node]
    assert words in str(own[0])
    assert str(own[0]).count("\n  ") == 3  # Received, Expected, Fix
    consequences = {"task": {"address"}}
    assert {finding.check for finding in findings} - {check} <= consequences.get(check, set())


def test_everything_at_once_is_all_named():
    found = changed(1, 2, versions={**VERSIONS, "keras": "1"}, script_digest="2" * 64, open_files=1, cpus=(0,))
    assert [finding.check for finding in compare_nodes(found)] == ["versions", "script", "devices", "open files"]


def test_a_taken_port_explains_what_others_see_there():
    found = seen_as(Status.SILENT)
    found[1] = replace(found[1], facts=replace(found[1].facts, port_state=PortState.TAKEN))
    assert [finding.check for finding in compare_nodes(found)] == ["port"]


def test_another_address_explains_what_others_see_there():
    found = seen_as(Status.REFUSED)
    found[1] = replace(found[1], facts=replace(found[1].facts, cluster={"worker": ("a:1", "b:2", "c:1")}))
    assert [finding.check for finding in compare_nodes(found)] == ["cluster description"]


def test_an_unusable_directory_is_not_called_unshared_too():
    found = [replace(r, observations=replace(r.observations, seen_in_checkpoint_dir=())) for r in nodes(2)]
    found[1] = replace(found[1], observations=replace(found[1].observations, checkpoint_problem="full"))
    assert [(f.node, f.check) for f in compare_nodes(found)] == [("worker 1 (b)", "checkpoint directory")]


@pytest.mark.parametrize(
    ("own", "is_named"),
    [
        (Link("worker 1", "b:1", Status.REFUSED), True),
        (Link("worker 1", "b:1", Status.REACHED, peer="token-0"), True),
        (Link("worker 1", "b:1", Status.REACHED, peer="token-1"), False),  # as behind a NAT
        (Link("worker 1", "b:1", Status.UNRESOLVED), False),  # the name is the finding
    ],
)
def test_an_address_of_another_machine(own, is_named):
    links = list(nodes()[1].observations.links)
    links[1] = own
    findings = compare_nodes(observed(links=tuple(links), address_is_local=False))
    assert (("address", "worker 1 (b)") in [(f.check, f.node) for f in findings]) == is_named


def test_cores_are_counted_by_machine():
    found = [replace(r, facts=replace(r.facts, host_id="same", cpus=(0,))) for r in nodes(2)]
    assert [f.check for f in compare_nodes(found)] == ["cores"]
    found[1] = replace(found[1], facts=replace(found[1].facts, cpus=(1,)))
    assert compare_nodes(found) == []  # each is bound to a core of its own


def test_cores_of_parameter_servers_are_not_compared():
    cluster = {"chief": ("a:1",), "worker": ("b:1",), "ps": ("c:1",)}
    found = [
        NodeReport(NodeFacts(t, task=t, host=t, host_id=t, cluster=cluster, cpus=c), Observations())
        for t, c in (("chief", (0,)), ("worker 0", (0, 1)), ("ps 0", (0, 1, 2)))
    ]
    assert compare_nodes(found) == []


def test_needed_open_files():
    assert needed_open_files(2) == needed_open_files(96) == 1024
    assert needed_open_files(1000) > 8000


def test_reports_travel_as_json():
    for report in (*nodes(), NodeReport(NodeFacts("x"))):
        sent = json.loads(json.dumps(dataclasses.asdict(report)))
        assert read_report(sent) == report
        sent["facts"]["of a later version"] = 1
        del sent["facts"]["gpus"]
        assert read_report(sent) == report


@pytest.mark.parametrize("value", [{}, {"facts": {}}, {"facts": {"token": "x", "cpus": ["y"]}}, {"facts": None}])
def test_reports_that_are_none(value):
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        read_report(value)


def test_merging_keeps_what_was_observed():
    first, second = nodes(2)
    bare = NodeReport(first.facts)
    assert merge_reports([second, bare, first, bare]) == [first, second]


def test_words():
    findings = compare_nodes(changed(open_files=256))
    text = describe_diagnosis(findings, nodes(2), 1.26)
    assert text.startswith("tfdist doctor: 1 finding; 2 nodes answered, 1.3 s.\n1. worker 1 (b): a process may open")
    assert "worker 0 (a)  3.11.7  2.21.0      3.15.0  2      0     4096" in text
    assert "worker 0  worker 1  1.00 ms     +0.0 ms  100 MB/s" in text
    assert describe_diagnosis([], nodes(1), 1.0).startswith("tfdist doctor: nothing found; 1 node answered, 1.0 s.")


def test_words_on_many_nodes_show_the_slowest_links():
    links = tuple(link(f"worker {n}", f"token-{n}", address="a:1", latency_s=n / 1000) for n in range(100))
    text = describe_diagnosis([], [NodeReport(sound(0).facts, Observations(links))], 1.0)
    assert "Of 99 links, the 30 slowest ones" in text
    assert "worker 0  worker 99  99.00 ms" in text
    assert "worker 69 " not in text


def test_json():
    told = json.loads(to_json(compare_nodes(changed(open_files=256)), nodes(2), 1.25, 10.0))
    assert [finding["check"] for finding in told["findings"]] == ["open files"]
    assert (told["seconds"], told["time_limit_s"], len(told["nodes"])) == (1.25, 10.0, 2)
