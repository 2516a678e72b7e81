"""A healthy cluster's debts to its users, in virtual time: it is there.

*Healthy* is looked at every `LOOK_US`: every broker runs and is ready, nothing is cut, stalled, stuck or armed, and no
fault has struck since the look before. Nothing is owed before that has lasted for twice `replica.lag.time.max.ms`. A
fault that spoils a disk strikes twice: when it happens, and when somebody reads there, which may be long after.
`CHECKS` names the debts from then on; a violation begins with the name of its check.

Clients report their own findings (`on_refused`, `on_unanswered`, `on_stood_still`, `on_vanished`); the rest is looked
at. A replica that waits for an operator, as it must, is not counted on (`Run.damaged`); nor is one that failed twice
within a minute.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.raft.messages import GroupId
from sim.cluster.clients.client import Trouble
from sim.cluster.machines.machine import Machine
from sim.cluster.machines.network import Network
from sim.cluster.service import Service
from sim.cluster.swarm import SPOILS_DISKS, Fault
from sim.cluster.world import MS, SECOND, World

from .history import Partition

__all__ = ["CHECKS", "Availability"]

CHECKS: Final[Mapping[str, str]] = {
    "no refusal": "no produce is refused for want of replicas or time, and none stays without an answer",
    "in-sync replicas whole": "within replica.lag.time.max.ms and two round trips every replica is in sync",
    "every partition advances": "a fetch of many partitions passes over none for more than a turn of all of them",
    "fetch answered": "a fetch is answered",
    "leaders home": "within the check interval and 5 s the first replica of each partition leads it",
    "leaders known": "within 2 s every broker knows who leads a partition",
    "moves end": "a move ends within 10 s, and what its bytes take at the throttle",
    "the dead leave": "a member that vanished is out of its group within its session timeout and 2 s",
}
"""The names of the checks, and what each says."""

LOOK_US = 100 * MS
LOSS_RATE_MAX = 0.05
# Clocks run up to two percent fast or slow, and a look is late by up to its interval.
TOLERANCE = 1.05
HOME_INTERVAL_US = 5 * SECOND
HOME_SLACK_US = 5 * SECOND
KNOWN_US = 2 * SECOND
MOVE_SLACK_US = 10 * SECOND
GONE_SLACK_US = 2 * SECOND
FOUND_DAMAGED = ("replica failed", "segment damaged")
REFUSALS = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""The errors of a cluster that is not there; NOT_LEADER_OR_FOLLOWER counts while leaders stay where they are."""
FOR_WANT_OF_COPIES = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT}
)


class Availability:
    """One run's looks. `strikes` counts the faults that have struck; `damaged` says which replicas of a group wait.

    It changes nothing. It counts the looks at which something was owed.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        machines: Mapping[int, Machine],
        service: Service,
        faults: Sequence[Fault],
        damaged: Callable[[Any], set[int]],
    ) -> None:
        self._world = world
        self._network = network
        self._machines = machines
        self._service = service
        self._faults = faults
        self._damaged = damaged
        self._is_spoilt = any(fault.kind in SPOILS_DISKS for fault in faults)
        self.strikes = 0
        self._seen: Hashable = None
        self._ready = dict[int, int]()  # in which life a broker was ready
        self._healthy_since_us: int | None = None
        self._lacking_since_us = dict[str, int]()
        self._away_since_us = dict[str, tuple[int, int]]()  # the first replica, and since when it does not lead
        self._moving_since_us = dict[str, int]()
        self._unknown_since_us = dict[str, int]()
        self._led = dict[str, tuple[int, int]]()  # leader and term
        self._changed_us = 0
        self._vanished = dict[str, tuple[str, int, int]]()  # member id: its group, its session timeout, and when
        # If every third datagram is lost, ten in a row are, now and then: a fault that never ends.
        self._is_judged = service.is_judged and network.conditions.loss_rate <= LOSS_RATE_MAX
        self._is_over = False

    def begin(self) -> None:
        """Look from now on until `end`, in runs in which something can be owed."""
        if self._is_judged:
            self._look()

    def end(self) -> None:
        self._is_over = True

    def owes_since(self, us: int) -> bool:
        """Tell whether everything was owed the whole time from `us` until now."""
        since_us = self._healthy_since_us
        is_owed = since_us is not None and not self._is_over and us >= since_us + self._service.settled_us
        return is_owed and self._disturbance() == self._seen

    # Reports of clients.

    def on_refused(self, partition: Partition, acks: int, sent_us: int, code: ErrorCode, text: str) -> None:
        """A produce request was answered with an error."""
        if code not in REFUSALS or not self.owes_since(sent_us):
            return
        if code in FOR_WANT_OF_COPIES and self._lacks_copies(partition):
            return
        self._note_leaders()
        if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or self._changed_us + SECOND < sent_us:
            self._violate("no refusal", f"{partition} with acks={acks}, sent at {sent_us}: {code.name} {text}")

    def _lacks_copies(self, partition: Partition) -> bool:
        """Tell whether a leader of that partition can count on fewer copies than its topic asks for."""
        topic, index = partition
        return any(
            len(set(led.replicas) - self._out(led.group.group_id)) < led.min_insync
            for machine in self._machines.values()
            if machine.node is not None
            for led in machine.node.partitions
            if led.is_leader and (led.topic_name, led.index) == (topic, index)
        )

    def on_unanswered(self, check: str, partition: Partition, sent_us: int, trouble: Exception) -> None:
        """There is no answer to a request of `sent_us`, which matters to `check`."""
        if self.owes_since(sent_us) and not self._is_excused(sent_us, trouble):
            self._violate(check, f"{partition}, sent at {sent_us}: no answer: {trouble!r}")

    def _is_excused(self, sent_us: int, trouble: Exception) -> bool:
        """Tell whether there could be no answer.

        A broker that leads no more closes the connections on which nobody asks for an answer. A machine that lost its
        power knows nothing of the connections that it had.
        """
        self._note_leaders()
        if self._changed_us >= sent_us:
            return True
        if not isinstance(trouble, Trouble) or not trouble.node_id:
            return False
        return trouble.opened_us < self._machines[trouble.node_id].started_us

    def on_stood_still(self, partition: Partition, fetches: int, since_us: int) -> None:
        """So many fetches in a row, the first at `since_us`, brought nothing of a partition that had something."""
        if self.owes_since(since_us):
            self._violate("every partition advances", f"{partition} stood still for {fetches} fetches")

    def on_vanished(self, group: str, member_id: str, session_ms: int) -> None:
        """A member of a group will never say anything again."""
        self._vanished[member_id] = group, session_ms, self._world.now_us

    # Looks.

    def _look(self) -> None:
        if self._is_over:
            return
        now_us = self._world.now_us
        disturbance = self._disturbance()
        if disturbance != self._seen or self._ails():
            self._healthy_since_us = None
        elif self._healthy_since_us is None:
            self._healthy_since_us = now_us
        self._seen = disturbance
        self._note_leaders()
        if self._healthy_since_us is None:
            self._lacking_since_us.clear()
            self._away_since_us.clear()
            self._moving_since_us.clear()
            self._unknown_since_us.clear()
        else:
            self._judge(now_us)
        self._world.after(LOOK_US, self._look)

    def _disturbance(self) -> Hashable:
        """Return a value that changes when anything strikes."""
        found = sum(self._world.counts[f"event {kind}"] for kind in FOUND_DAMAGED) if self._is_spoilt else 0
        return self.strikes, found, tuple((machine.life, machine.is_up) for machine in self._machines.values())

    def _ails(self) -> bool:
        """Tell whether a fault is under way, or armed, or a broker does not serve yet."""
        network = self._network
        now_us = self._world.now_us
        # A disk that was freed early still keeps the calls that it held for as long as it would have been stuck.
        if any(fault.at_us <= now_us < fault.at_us + fault.duration_us for fault in self._faults):
            return True
        if network.tcp_cut or network.udp_cut or network.down:
            return True
        for machine in self._machines.values():
            node = machine.node
            disk = machine.disk
            loop = machine.loop
            if node is None or loop is None or machine.is_asked_to_stop or loop.is_stalled:
                return True
            if node.state != "running" or not self._has_been_ready(machine, node):
                return True
            if disk.ambush or disk.sync_errors or max(disk.stuck_until_us, disk.full_until_us) > now_us:
                return True
        return False

    def _has_been_ready(self, machine: Machine, node: Any) -> bool:
        """Tell whether a broker has come up; a topic that is made later does not take that back."""
        if self._ready.get(machine.node_id) != machine.life and node.is_ready:
            self._ready[machine.node_id] = machine.life
        return self._ready.get(machine.node_id) == machine.life

    def _note_leaders(self) -> None:
        led = self._leaders()
        if led != self._led:
            self._led = led
            self._changed_us = self._world.now_us

    def _leaders(self) -> dict[str, tuple[int, int]]:
        return {
            str(partition): (machine.node_id, partition.group.core.term)
            for machine in self._machines.values()
            if machine.node is not None
            for partition in machine.node.partitions
            if partition.group.is_leader
        }

    def _judge(self, now_us: int) -> None:
        assert self._healthy_since_us is not None
        owed_since_us = self._healthy_since_us + self._service.settled_us
        if now_us >= owed_since_us:
            self._world.counts["looks when all was owed"] += 1
        for machine in self._machines.values():
            assert machine.node is not None
            for partition in machine.node.partitions:
                if partition.can_serve:
                    name = str(partition)
                    self._judge_in_sync(name, partition, now_us, owed_since_us)
                    self._judge_home(name, partition, machine.node_id, now_us)
                    self._judge_known(name, partition, machine.node_id, now_us)
                    self._judge_move(name, partition, now_us)
        self._judge_vanished(now_us, self._healthy_since_us)

    def _judge_in_sync(self, name: str, partition: Any, now_us: int, owed_since_us: int) -> None:
        members = partition.group.configuration
        due = members.voter_ids.difference(members.witnesses) - self._out(partition.group.group_id)
        if due <= set(partition.isr):
            self._lacking_since_us.pop(name, None)
            return
        limit_us = (self._service.lag_ms * MS + 2 * self._network.conditions.round_trip_us_max) * TOLERANCE
        since_us = self._lacking_since_us.setdefault(name, now_us)
        if now_us >= owed_since_us and now_us - since_us > limit_us:
            text = f"{name} has {sorted(partition.isr)} of {sorted(due)}, since {since_us}"
            self._violate("in-sync replicas whole", text)

    def _out(self, group_id: GroupId) -> set[int]:
        """Return the nodes whose replica of a group nobody counts on: it waits for an operator, or for its time.

        One that fails again soon after it was made anew is made anew once in `AGAIN_MS`; one whose disk failed while it
        was sent files is sent them again after some seconds.
        """
        waiting = set[int]()
        for machine in self._machines.values():
            if machine.node is not None:
                failed, catch_up = machine.node.partitions.failed, machine.node.catch_up
                is_again = group_id in failed.status() and group_id in failed._made_ms
                transfer = catch_up._transfers.get(group_id)
                if is_again or (transfer is not None and catch_up._clock() < transfer.wait_until_ms):
                    waiting.add(machine.node_id)
        return self._damaged(group_id) | waiting

    def _judge_home(self, name: str, partition: Any, leader_id: int, now_us: int) -> None:
        first = partition.replicas[0]
        if leader_id == first or first in self._out(partition.group.group_id) or partition.placement.move:
            self._away_since_us.pop(name, None)
            return
        known, since_us = self._away_since_us.setdefault(name, (first, now_us))
        if known != first:
            self._away_since_us[name] = first, now_us
        elif now_us - since_us > (HOME_INTERVAL_US + HOME_SLACK_US) * TOLERANCE + self._service.lag_ms * MS:
            self._violate("leaders home", f"{name} is led by {leader_id}, not by {first}, since {since_us}")

    def _judge_known(self, name: str, partition: Any, leader_id: int, now_us: int) -> None:
        astray = list[tuple[str, int]]()
        for machine in self._machines.values():
            known = (
                machine.node.partitions.known_leaders.leadership(partition.topic_id, partition.index)
                if machine.node
                else None
            )
            if known is None or known.leader_id != leader_id:
                astray.append((machine.name, known.leader_id if known is not None else -1))
        if not astray:
            self._unknown_since_us.pop(name, None)
        elif now_us - self._unknown_since_us.setdefault(name, now_us) > KNOWN_US * TOLERANCE:
            self._violate("leaders known", f"{name} is led by {leader_id}; others believe {astray}")

    def _judge_move(self, name: str, partition: Any, now_us: int) -> None:
        move = partition.placement.move
        if move is None or self._out(partition.group.group_id):
            self._moving_since_us.pop(name, None)
            return
        since_us = self._moving_since_us.setdefault(name, now_us)
        if now_us - since_us > MOVE_SLACK_US * TOLERANCE:  # The bytes of a run are nothing at 64 MiB a second.
            self._violate("moves end", f"{name} moves since {since_us}: {move}")

    def _judge_vanished(self, now_us: int, healthy_since_us: int) -> None:
        for member_id, (group, session_ms, vanished_us) in list(self._vanished.items()):
            # A coordinator that has just begun gives every member a whole session.
            since_us = max(vanished_us, healthy_since_us, self._changed_us)
            if now_us - since_us <= (session_ms * MS + GONE_SLACK_US) * TOLERANCE:
                continue
            del self._vanished[member_id]
            self._world.counts["members that vanished"] += 1
            if member_id in self._members(group):
                self._violate("the dead leave", f"{member_id} vanished at {vanished_us} and is in {group} at {now_us}")

    def _members(self, group: str) -> set[str]:
        """Return the members of a group, as its coordinator knows them."""
        found = set[str]()
        for machine in self._machines.values():
            for shard in machine.node.broker.coordinator.active_shards() if machine.node is not None else ():
                if group in shard.groups:
                    found.update(shard.groups[group].group.members)
        return found

    def _violate(self, check: str, text: str) -> None:
        assert check in CHECKS
        self._world.violate(f"{check}: {text}")
