"""One run: safety under the seed's faults, then liveness without them. Raft paper, figure 3 and section 5.6."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from barnabas_raftlog.raft.messages import Campaign, TransferLeadership

from .membership import change_somehow, cut_power, forget_lost, replace_disk
from .simulator import Node, Simulator

SAFETY_MS = 6_000
# Healing takes at worst a liveness timeout, two failed elections with their back-off and one that succeeds.
HEALING_MS = 12_000
LASTING_MS = 4_000
REMOVAL_MS = 3_000
ROUND_TRIP_MS = 60  # Two messages of at most 20 ms and a sync of at most 20 ms, once faults are over.


class SimulationError(AssertionError):
    """An invariant broke; the message says which, with the seed and the events that led there."""


def run_seed(seed: int, *, digest: bool = False) -> Simulator:
    """Run one seed to its end.

    Raises:
        SimulationError: something that must never happen has happened.
    """
    sim = Simulator(seed, digest=digest)
    try:
        _safety_phase(sim)
        _liveness_phase(sim)
    except AssertionError as error:
        raise SimulationError(describe(sim, error)) from error
    return sim


def describe(sim: Simulator, error: AssertionError) -> str:
    """Describe the run for the search of a failure."""
    events = "\n".join(f"  {at_ms:>6} ms  node {node}  {event}" for at_ms, node, event in sim.trace)
    cores = "\n".join(
        f"  node {n}: {node.core.role.name} term={node.core.term} leader={node.core.leader_id}"
        f" voters={sorted(node.core.voters)} learners={sorted(node.core.learners)} outside={node.core.is_outside}"
        f" disk={int.from_bytes(node.member.directory_id, 'big')}"
        f" commit={node.core.commit_index} last={node.disk.log.last_index} durable={node.disk.log.durable_index}"
        f" deadline={node.core.deadline_ms} up={node.is_up}"
        for n, node in sim.nodes.items()
    )
    return (
        f"{error}\nseed {sim.seed} at {sim.now_ms} ms; {sim.swarm}\n{cores}\nlast events:\n{events}\n"
        f"repeat with: scripts/sim --cores --seed {sim.seed}"
    )


def _safety_phase(sim: Simulator) -> None:
    swarm = sim.swarm
    rng = sim.rng
    members = sim.members
    busy_rng = sim.busy_rng

    def every(interval_ms: int, action: Callable[[], object], rng: Random = rng) -> None:
        if interval_ms:
            delay_ms = rng.randrange(1, 2 * interval_ms)
            if sim.now_ms + delay_ms < SAFETY_MS:
                sim.after(delay_ms, action)
                sim.after(delay_ms, partial(every, interval_ms, action, rng))

    def step_any(event: Callable[[], Campaign | TransferLeadership]) -> None:
        sim.deliver(sim.nodes[rng.choice(members)], event())

    every(swarm.propose_interval_ms, lambda: _use(sim))
    every(swarm.crash_interval_ms, lambda: _crash(sim))
    every(swarm.power_interval_ms, lambda: cut_power(sim, rng.choice(members), rng.choice([0, 30, 700])))
    every(swarm.cut_interval_ms, lambda: _cut(sim))
    every(swarm.stall_interval_ms, lambda: sim.stall(rng.choice(members), rng.choice([50, 600, 1200, 2500])))
    every(
        swarm.mistake_interval_ms,
        lambda: sim.report_silent_by_mistake(rng.choice(members), rng.choice(members)),
    )
    every(swarm.campaign_interval_ms, lambda: step_any(Campaign))
    every(swarm.transfer_interval_ms, lambda: step_any(lambda: TransferLeadership(rng.choice(members))))
    every(swarm.compact_interval_ms, lambda: sim.compact(rng.choice(members)))
    every(swarm.change_interval_ms, lambda: change_somehow(sim))
    every(swarm.replace_interval_ms, lambda: replace_disk(sim, rng.choice(members)))
    every(
        swarm.busy_interval_ms,
        lambda: sim.hold_back(busy_rng.choice(members), busy_rng.choice(members), busy_rng.choice([50, 600, 2500])),
        busy_rng,
    )
    sim.run(SAFETY_MS)


def _use(sim: Simulator) -> None:
    """Be a client who does not know who leads."""
    node_id = sim.rng.choice(sim.members)
    if sim.nodes[node_id].core.role.name == "LEADER" and sim.rng.random() < sim.swarm.ambush_rate / 4:
        sim.cut |= {link for peer in sim.members for link in ((node_id, peer), (peer, node_id))}
        sim.links_changed()
        sim.after(sim.rng.randrange(1_000, 3_000), partial(_mend, sim))
    for _ in range(sim.rng.randrange(1, sim.swarm.burst_max + 1)):
        sim.propose(node_id)
    if sim.rng.random() < 0.3:
        for node_id in sim.members:
            sim.start_read(node_id)  # Also of a leader that is none any more.


def _crash(sim: Simulator) -> None:
    sim.crash_for(sim.rng.choice(sim.members), sim.rng.choice([0, 30, 700, 2500]))


def _mend(sim: Simulator) -> None:
    sim.cut.clear()
    sim.links_changed()


def _cut(sim: Simulator) -> None:
    """Heal everything, cut one way between two, or cut one node or some part off both ways."""
    sim.counts["cuts"] += 1
    rng = sim.rng
    members = sim.members
    kind = rng.randrange(0, 4)
    if kind == 0:
        sim.cut.clear()
    elif kind == 1:
        sim.cut.add((rng.choice(members), rng.choice(members)))
    else:
        side = {rng.choice(members)} if kind == 2 else {n for n in members if rng.random() < 0.5}
        sim.cut |= {(a, b) for a in members for b in members if (a in side) != (b in side)}
    sim.links_changed()


def _liveness_phase(sim: Simulator) -> None:
    sim.heal()
    # With a window of one append, a member that lacks everything needs a round trip and a sync for each entry.
    entry_count = max(node.disk.log.last_index for node in sim.nodes.values())
    sim.run(HEALING_MS + entry_count * ROUND_TRIP_MS)
    _retire_forgotten(sim)
    check_converged(sim)
    while forget_lost(sim, _leader_id(sim)):
        sim.run(REMOVAL_MS)
        check_converged(sim)
    before = _leaders(sim)
    sent_count = sim.counts["messages"]
    sim.run(LASTING_MS)
    assert _leaders(sim) == before, "a healthy group changed its leader"
    assert sim.counts["messages"] == sent_count, "a quiescent group sent messages"
    # It must still work, and quickly: a quiescent group that cannot wake is dead.
    leader_id = _leader_id(sim)
    asked_count = len(sim.acknowledged)
    assert sim.propose(leader_id)
    sim.run(1_500)
    assert len(sim.acknowledged) == asked_count + 1, "a quiet group does not acknowledge"
    check_converged(sim)


def _members(sim: Simulator) -> list[Node]:
    """Return the nodes that belong to the group, with the disks that they were added with."""
    leading = [node for node in sim.nodes.values() if node.core.role.name == "LEADER"]
    assert len(leading) == 1, f"{len(leading)} leaders"
    return [node for node in sim.nodes.values() if node.member in leading[0].core.configuration.members]


def _retire_forgotten(sim: Simulator) -> None:
    """Stop the removed nodes that know no voter but other removed ones: nobody that they ask can tell them."""
    member_ids = {node.node_id for node in _members(sim)}
    for node in sim.nodes.values():
        if node.node_id not in member_ids and not node.core.voters & member_ids and not node.core.is_outside:
            sim.crash(node.node_id)


def _leader_id(sim: Simulator) -> int:
    return next(node.node_id for node in sim.nodes.values() if node.core.role.name == "LEADER")


def _leaders(sim: Simulator) -> set[tuple[int, int | None]]:
    return {(node.core.term, node.core.leader_id) for node in _members(sim)}


def _check_witnesses(sim: Simulator, members: list[Node]) -> None:
    """No witness leads; it keeps nothing unless a full voter's disk is lost; nobody else lacks what it forgot."""
    configuration = members[0].core.configuration
    is_whole = not any(voter in sim.lost for voter in configuration.voters)
    for node in members:
        if node.node_id not in configuration.witnesses:
            assert node.disk.log.partial_since is None, f"node {node.node_id} lacks the beginning of the log"
            continue
        assert node.core.role.name != "LEADER", f"witness {node.node_id} keeps the leadership"
        assert not is_whole or not node.disk.log.held, f"witness {node.node_id} keeps what everybody has"


def check_converged(sim: Simulator) -> None:
    """One leader that all know, equal logs, all of it committed, silence; and every promise to a client kept."""
    members = _members(sim)
    cores = [node.core for node in members]
    assert len(_leaders(sim)) == 1, f"no agreement on a leader: {_leaders(sim)}"
    ends = {(core.log.last_index, core.log.last_term, core.commit_index) for core in cores}
    assert len(ends) == 1, f"logs differ: (last index, last term, commit index) {sorted(ends)}"
    ((last_index, _, commit_index),) = ends
    assert last_index == commit_index == sim.history.commit_index
    assert len({core.configuration for core in cores}) == 1, "they disagree about who belongs to the group"
    waiting = [node.node_id for node in sim.nodes.values() if node.is_up and node.core.deadline_ms is not None]
    assert not waiting, f"a healthy group with nothing to do is not quiescent: nodes {waiting} wait"
    _check_witnesses(sim, members)
    places = Counter[bytes]()
    for node in members:
        for entry in node.disk.log.held:
            assert sim.history.committed[entry.index][0] == entry.term
    for index, (term, _) in sim.history.committed.items():
        places[sim.history.places[index, term][1]] += 1
    for value, index in sim.acknowledged.items():
        term = sim.history.committed[index][0]
        assert sim.history.places[index, term][1] == value, f"{value!r} was acknowledged at {index}, and changed"
        assert places[value] == 1, f"{value!r} is there {places[value]} times"
