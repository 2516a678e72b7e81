"""A member of a group of KIP-848 stands still for longer than its session, and goes on as if nothing had happened.

It learns that it is fenced, and begins anew where the group stands. The coordinator has refused what it committed until
then, so nothing is lost, and nobody reads again what was committed.
"""

import signal
import time
from collections import defaultdict
from collections.abc import Iterable

import pytest
from machines import cluster_handle
from trials.groups.watch import Line, Workers, check_whole
from trials.groups.worker import Job
from trials.kill_rounds import Load, create_topic

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC, GROUP = "frozen", "g"
PARTITIONS = 4
FROZEN, OTHER = (GROUP, "frozen"), (GROUP, "other")
SESSION_MS = 2_000
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}
LIMIT_S = 60.0  # far beyond what any of it takes


def read_again(lines: Iterable[Line]) -> list[str]:
    """Return where a member that took a partition over was handed what had been committed before."""
    wrong = []
    committed: dict[int, int] = defaultdict(int)
    floors: dict[tuple[str, int], int] = {}
    for line in sorted(lines, key=lambda line: float(line["at"])):
        member = line["member"]
        match line["what"]:
            case "committed":
                for partition, offset in line["committed"].items():
                    committed[int(partition)] = max(committed[int(partition)], offset)
            case "assigned":
                floors |= {(member, number): committed[number] for number in line["partitions"]}
            case "handed":
                for partition, (first, _) in line["handed"].items():
                    if first < floors[member, int(partition)]:
                        wrong.append(
                            f"{member}, partition {partition}: {first}, below {floors[member, int(partition)]}"
                        )
            case _:
                pass
    return wrong


def is_shared(workers: Workers) -> bool:
    shares = [workers.assignments.get(who, frozenset()) for who in (FROZEN, OTHER)]
    return all(shares) and sum(map(len, shares)) == PARTITIONS == len(frozenset().union(*shares))


def freeze_and_thaw(workers: Workers, bootstrap: str) -> tuple[float, float]:
    """Start both, and stop one until the other has everything; return when it went on, and heard of its loss."""
    processes = {
        who: workers.start(Job(bootstrap, TOPIC, [(who[1], GROUP)], ["uniform"], protocol="consumer"))
        for who in (FROZEN, OTHER)
    }
    shared_at = workers.wait_until(lambda: is_shared(workers), "both to have a share", LIMIT_S)
    workers.wait_until(lambda: workers.all_committed_since(shared_at, (FROZEN, OTHER)), "commits of both", LIMIT_S)
    count = len(workers.lines)
    processes[FROZEN].send_signal(signal.SIGSTOP)
    try:
        alone_at = workers.wait_until(
            lambda: len(workers.assignments[OTHER]) == PARTITIONS, "the other to have everything", LIMIT_S
        )
        workers.wait_until(lambda: workers.all_committed_since(alone_at, [OTHER]), "a commit of the other", LIMIT_S)
    finally:
        thawed_at = time.monotonic()
        processes[FROZEN].send_signal(signal.SIGCONT)

    def lost() -> Line | None:
        return next(
            (line for line in workers.lines[count:] if (line["what"], line["member"]) == ("lost", "frozen")), None
        )

    workers.wait_until(lambda: lost() is not None, "the loss to be told", LIMIT_S)
    shared_at = workers.wait_until(lambda: is_shared(workers), "both to have a share again", LIMIT_S)
    workers.wait_until(lambda: workers.all_committed_since(shared_at, (FROZEN, OTHER)), "commits of both", LIMIT_S)
    line = lost()
    assert line is not None
    return thawed_at, line["at"]


def test_a_member_that_stood_still_for_longer_than_its_session_begins_anew() -> None:
    with cluster_handle.cluster(1, SETTINGS) as brokers:
        create_topic(brokers, TOPIC, PARTITIONS, 1)
        load = Load(brokers.bootstrap, TOPIC, PARTITIONS, 500)
        with Workers() as workers:
            load.start()
            try:
                thawed_at, lost_at = freeze_and_thaw(workers, brokers.bootstrap)
            finally:
                load.finish()
            ends = dict(enumerate(load.acked))
            workers.wait_until(lambda: not check_whole(workers.lines, ends)[0], "the last records", LIMIT_S)
    assert load.failures == []
    assert all(ends.values())
    late = [
        line for line in workers.lines if line["member"] == "frozen" and thawed_at < line.get("began", 0.0) < lost_at
    ]
    assert [line for line in late if line["what"] == "committed"] == [], "it was fenced, and stored nothing"
    assert read_again(workers.lines) == []
