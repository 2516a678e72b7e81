"""Risk: an idle leader's connections swallow bytes, and its followers trust it for ever.

Its datagrams flow meanwhile.
"""

import pytest

from barnabas_raftlog.links.byte_counts import ByteWatch
from sim.cluster.judges.observer import observing

from .scenario import Run, quiet
from .swarm import at_ease
from .world import MS, SECOND


def led_by_another(run: Run, within_us: int) -> bool:
    """Let the leader's bytes vanish while its group is idle; tell whether somebody else leads in time.

    Only the leader notices, by a client that writes now and then.
    """
    world = run.world
    leader = 0
    for machine in run.machines.values():
        machine.boot()
    run._prepare()
    run._begin_work()

    def leads(node_id: int) -> bool:
        node = run.machines[node_id].node
        hosted = None if node is None else node.partitions.topics.get(run.partitions[0][0])
        return hosted is not None and any(p.group.is_leader for p in hosted.partitions.values())

    assert world.run_until(world.now_us + 20 * SECOND, lambda: any(map(leads, run.machines)))
    world.run_until(world.now_us + 5 * SECOND)
    leader = next(node_id for node_id in run.machines if leads(node_id))
    others = [node_id for node_id in run.machines if node_id != leader]
    for other in others:
        run.network.cut(f"n{leader}", f"n{other}", udp=False)
    return world.run_until(world.now_us + within_us, lambda: any(map(leads, others)))


def idle_cluster() -> Run:
    return Run(
        at_ease()._replace(
            nodes=3,
            replication_factor=3,
            partitions=1,
            members=0,
            flush_mode="fsync",
            drift=(1.0,) * 3,
            idempotent_producers=1,
            plain_producers=0,
            pause_ms=1_000,
            deletes=False,
            topics_come_and_go=False,
            moves=False,
            kinds=(),
            faults=(),
        )
    )


@pytest.mark.parametrize("counts_bytes", [True, False], ids=["with byte counts", "the control"])
def test_followers_elect_another_leader_though_its_node_is_live(
    counts_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counts_bytes:
        monkeypatch.setattr(ByteWatch, "is_broken", lambda *_: False)
    with quiet():
        run = idle_cluster()
        try:
            with observing(run.observer):
                assert led_by_another(run, 4 * SECOND + 500 * MS) == counts_bytes
        finally:
            run.close()
