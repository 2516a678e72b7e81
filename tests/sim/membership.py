"""Changes of members, and losses of disks: an operator's work, and bad luck."""

from functools import partial

from barnabas_raftlog.errors import ChangeInProgressError
from barnabas_raftlog.raft.membership import NOBODY, Configuration, Member
from barnabas_raftlog.raft.messages import Proposed

from .disk import CHANGE, Disk
from .simulator import Node, Simulator

CATCH_UP_MS = 1_000


def change(sim: Simulator, node_id: int, new: Configuration) -> bool:
    """Let a node that believes it leads change the members; return False if it does not, or may not now."""
    node = sim.nodes[node_id]
    core = node.core
    if not node.is_up or sim.now_ms < node.stalled_until_ms or core.role.name != "LEADER" or core.is_witness:
        return False
    if core.transfer_target is not None:
        return False
    try:
        core.check_change(new)
    except (ValueError, ChangeInProgressError):
        return False
    sim.history.on_changed(core, new)
    sim.counts["changes"] += 1
    sim.counts["promotions"] += bool(new.voter_ids & core.log.configuration.learner_ids)
    sim.counts["leaders removed"] += node_id not in new.voter_ids
    sim.append(node, CHANGE + new.encode())
    sim.step(node, Proposed())
    return True


def change_somehow(sim: Simulator) -> None:
    """Be an operator who asks the apparent leader for some change that makes sense, or half of it."""
    leaders = [node for node in sim.nodes.values() if node.is_up and node.core.role.name == "LEADER"]
    if leaders:
        node = sim.rng.choice(leaders)
        wanted = _wanted(sim, node)
        if wanted and can_decide(sim, new := sim.rng.choice(wanted)):
            change(sim, node.node_id, new)


def _wanted(sim: Simulator, node: Node) -> list[Configuration]:
    """Return the changes to choose from: half of the time those alone that get rid of a lost member."""
    core = node.core
    present = core.log.configuration
    voters = set(present.voters)
    learners = set(present.learners)
    witnesses = set(present.witnesses)
    lost = [member for member in present.members if member in sim.lost]
    of = partial(_of, witnesses=witnesses)
    if lost and sim.rng.random() < 0.5:
        return [of(voters - {member}, learners - {member}) for member in lost]
    # Never in the order of a set: members hash by their bytes, so a seed would differ from process to process.
    wanted = [of(voters - {member}, learners) for member in present.voters]
    wanted += [
        of(voters - {member}, learners | {member})
        for member in present.voters
        if sim.rng.random() < 0.5 and member.node_id not in witnesses
    ]
    wanted += [of(voters, learners - {member}) for member in present.learners]
    for other in sim.nodes.values():
        if other.node_id not in present.node_ids:
            wanted.append(of(voters, learners | {other.member}))
            if sim.rng.random() < 0.2 and other.disk.log.partial_since is None:
                wanted.append(of(voters | {other.member}, learners))
            if sim.swarm.witness_count and not witnesses:
                wanted.append(_of(voters | {other.member}, learners, {other.node_id}))
    for member in present.learners:
        progress = core.progress.get(member.node_id)
        caught_up = progress and progress.has_caught_up(sim.now_ms, CATCH_UP_MS)
        # Most operators wait for that. Promoting too early is allowed, and costs only time.
        if caught_up or (sim.rng.random() < 0.2 and sim.nodes[member.node_id].disk.log.partial_since is None):
            wanted += 2 * [of(voters | {member}, learners - {member})]
        if sim.swarm.witness_count and not witnesses:
            wanted.append(_of(voters | {member}, learners - {member}, {member.node_id}))
    return sorted((new for new in wanted if new.voters), key=Configuration.encode)


def _of(voters: set[Member], learners: set[Member], witnesses: set[int]) -> Configuration:
    """Return a configuration; `NOBODY` if no full voter is among them."""
    staying = witnesses & {member.node_id for member in voters}
    if len(staying) == len(voters):
        return NOBODY
    return Configuration(tuple(sorted(voters)), tuple(sorted(learners)), tuple(sorted(staying)))


def can_decide(
    sim: Simulator, configuration: Configuration, without: Member | None = None, forgetful: Member | None = None
) -> bool:
    """Tell whether the voters that have their disks, and their memory, are enough to live on: more no Raft survives.

    `without`, `forgetful`: a member that is about to lose its disk, or in page-cache mode the end of its log.
    """
    voters = configuration.voters
    lost = {voter for voter in voters if voter in sim.lost or voter == without}
    doubtful = {voter for voter in voters if voter == forgetful} - lost
    for node in sim.nodes.values():
        if node.disk.is_uncertain and node.member in voters and node.member not in lost:
            doubtful.add(node.member)
    needed = len(voters) // 2 + 1
    blank = sum(node.member in voters and node.disk.is_blank for node in sim.nodes.values())
    if len(voters) - blank < needed:
        return False  # None of these can be elected before a leader that has made them certain (`uncertainty`).
    if lost:
        left = [voter for voter in voters if voter not in lost]
        full = [voter for voter in left if voter.node_id not in configuration.witnesses]
        beginnings = [sim.disks[voter].base_index for voter in left if voter not in full]
        if not any(sim.disks[voter].last_index >= max(beginnings, default=0) for voter in full):
            return False  # The lost ones alone had the entries that the witness lacks.
        return len(voters) - len(lost) - len(doubtful) >= needed
    # All of them can still elect; and one of the others, which is no witness, has all acknowledged entries.
    certain = {voter.node_id for voter in voters} - {voter.node_id for voter in doubtful} - set(configuration.witnesses)
    return len(doubtful) < needed and (not configuration.witnesses or bool(certain))


def deciding(sim: Simulator) -> list[Configuration]:
    """Return the configurations by which anybody might still decide something."""
    found = list[Configuration]()
    for node in sim.nodes.values():
        log = node.disk.log
        found += [log.configuration, node.disk.image.configuration]
        found.append(log.configuration_at(min(node.core.commit_index, log.last_index)))
    return [configuration for configuration in found if configuration.voters]


def cut_power(sim: Simulator, node_id: int, down_ms: int) -> None:
    """Lose a part of a log in page-cache mode, and crash. One node at a time: more may lose committed entries."""
    node = sim.nodes[node_id]
    others = [other.disk for other in sim.nodes.values() if other is not node]
    if not node.is_up or any(disk.is_uncertain for disk in others):
        return
    if all(can_decide(sim, configuration, forgetful=node.member) for configuration in deciding(sim)):
        sim.counts["power cuts"] += 1
        sim.history.is_forgetful = True
        held_count = len(node.disk.image.held)
        rng = sim.power_rng
        node.disk.lose_power(max(rng.randrange(held_count + 1), held_count - rng.choice([2, 1000])))
        sim.crash_for(node_id, down_ms)


def replace_disk(sim: Simulator, node_id: int) -> None:
    """Let a node come back with nothing, as somebody else; nobody keeps the promises of the lost one.

    Only if a majority is left of every configuration that may still decide something: more no Raft survives.
    """
    lost = sim.nodes[node_id]
    if not all(can_decide(sim, configuration, without=lost.member) for configuration in deciding(sim)):
        return
    sim.counts["disks replaced"] += 1
    if lost.is_up:
        sim.crash(node_id)
    sim.lost.add(lost.member)
    lost.member = Member(node_id, sim.new_directory())
    lost.disk = Disk(page_cache=sim.swarm.page_cache)
    sim.disks[lost.member] = lost.disk.image
    sim.after(sim.rng.choice([0, 100, 1000]), lambda: sim.boot_if_down(node_id))


def forget_lost(sim: Simulator, leader_id: int) -> bool:
    """Let the leader remove one member whose disk is gone; return False if there is none."""
    present = sim.nodes[leader_id].core.configuration
    for member in present.members:
        if member in sim.lost:
            new = _of(set(present.voters) - {member}, set(present.learners) - {member}, set(present.witnesses))
            assert change(sim, leader_id, new), f"cannot remove {member}"
            return True
    return False
