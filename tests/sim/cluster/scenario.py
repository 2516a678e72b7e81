"""One run: clients work under faults; then the faults stop, and all must come right.

*Safety phase*: no promise may be broken, whatever happens. *Liveness phase*: everything is mended and switched on;
within `HEALING_US` every broker must serve, every partition have a leader, every client go on, and every reader have
all acknowledged records. When leaderships have had time to go home, no leader may change any more.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from unittest.mock import patch

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.runtime import shard
from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC
from barnabas_broker.history.events import FaultBegun
from barnabas_broker.replicas.failed_replicas import AGAIN_MS
from barnabas_metadata_quorum import replica
from barnabas_metadata_quorum import service as metadata_service
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import NOBODY
from barnabas_raftlog.log import shared
from barnabas_raftlog.log.segments.tail_cache import TailCache
from barnabas_raftlog.raft.membership import Member, same_directory
from barnabas_raftlog.raft.messages import GroupId
from sim.cluster.clients.admin import (
    change_observers,
    come_and_go,
    create_topic,
    demand_copies_of_offsets,
    move_partitions,
)
from sim.cluster.clients.client import WireClient
from sim.cluster.clients.group_member import SESSION_MS, GroupMember
from sim.cluster.clients.lister import Lister
from sim.cluster.clients.load import keep_loading
from sim.cluster.clients.mixed_reader import MixedReader
from sim.cluster.clients.own_clients import OWN_GROUP, OwnAdmin, OwnConsumer, OwnProducer, seeded_chance
from sim.cluster.clients.own_clients import SETTLING_US as OWN_SETTLING_US
from sim.cluster.clients.workload import Producer, Producing, Reader, delete_records
from sim.cluster.groups.crowd import SESSION_MS as CROWD_SESSION_MS
from sim.cluster.groups.work import GroupWork
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition
from sim.cluster.judges.observer import Observer, observing
from sim.cluster.machines.faults import Faults
from sim.cluster.machines.loop import Clock
from sim.cluster.machines.machine import Machine
from sim.cluster.machines.network import Address, Network
from sim.cluster.transactions.inside import watching
from sim.cluster.transactions.work import Transactional

from .swarm import LOSES_POWER, SEGMENT_MS, Choice, choose
from .world import MS, SECOND, World

__all__ = ["Run", "SimulationError", "quiet", "run_choice", "run_seed"]

TOPIC = "t"
GROUP = "g"
# Damage that could not be mended is tried again after a minute (`log.scrub`).
HEALING_US = 100 * SECOND
# Leaderships go home when a broker has been live for five seconds, which is looked at every five seconds; one that is
# refused goes five seconds later. Machines' clocks differ by up to two percent.
SETTLING_US = 16 * SECOND
ENDING_US = SECOND  # an election or hand-over that has begun has ended
LASTING_US = 4 * SECOND
START_US = 20 * SECOND
HEARTBEAT_MS = 500  # of members of groups that have settled
ROLLING_MS = 700  # between looks for segments that are old enough to be sealed, or to be compacted
NOTES_SHOWN = 60
METADATA_SEGMENT_BYTES = 2_048


class SimulationError(AssertionError):
    """A run failed; the message says how, where, and how to see it again."""


class Run:
    """One run of a choice. Everything in it hangs on `world`."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.world = World(choice.seed)
        self.network = Network(self.world, choice.conditions)
        self.history = ClientHistory(self.world, compacts=choice.compacts)
        self.brokers: dict[int, Address] = {n: (f"n{n}", 9092) for n in range(1, choice.nodes + 1)}
        self.machines = {n: self._machine(n) for n in self.brokers}
        self.observer = Observer(
            self.world,
            lambda node_id: self.machines[node_id].node,
            is_forgetful=not LOSES_POWER.isdisjoint(choice.kinds),
            compacts=choice.compacts or choice.service.parts.compacts,
        )
        for machine in self.machines.values():
            machine.on_image = self.observer.on_image
        self.partitions: list[Partition] = [(TOPIC, index) for index in range(choice.partitions)]
        self.readers = list[Reader]()
        self.members = list[GroupMember]()
        self.own = list[OwnProducer | OwnConsumer]()
        self.availability = Availability(
            self.world, self.network, self.machines, choice.service, choice.faults, self._damaged
        )
        self.transactional: Transactional | None = None
        struck = self.partitions[:1]
        if choice.service.feeders:
            about = (self.history, self.availability)
            self.transactional = Transactional(self.world, self.machines, choice.service, self.client, about)
            struck = [*struck, (TRANSACTION_TOPIC, 0), *self.transactional.partitions[:1]]
        self.grouped: GroupWork | None = None
        if choice.service.groups.is_there:
            self.grouped = GroupWork(self.world, self.network, self.machines, choice.service.groups, self.client)
            struck = [*struck, (OFFSETS_TOPIC, 0), (OFFSETS_TOPIC, 1)]
        self.faults = Faults(self.world, self.network, self.machines, struck)
        self.faults.on_strike = self._on_strike
        self.is_working = True
        self._all_clients = list[WireClient]()

    def _on_strike(self, kind: str, target: str) -> None:
        self.history.judge.fault(kind, target)
        if self.transactional is not None:
            self.transactional.ledger.tell(FaultBegun(kind=kind, target=target))
        self.availability.strikes += 1

    def _machine(self, node_id: int) -> Machine:
        choice = self.choice
        config = BrokerConfig(
            node_id=node_id,
            cluster_id="simulated",
            cluster_nodes={n: f"n{n}:9000" for n in self.brokers},
            log_dir="/data",
            listeners=f"n{node_id}:9092",
            broker_rack=self._rack_of(node_id),
            log_journal_file_bytes=1 << 20,
            # On two nodes of three, all but small batches is written to segments only.
            log_journal_bypass_bytes=0 if (choice.seed + node_id) % 3 else 128 << 10,
            log_segment_bytes=64 << 10,
            log_tail_cache_bytes=1 << 20,
            replica_lag_time_max_ms=choice.service.lag_ms,
            log_retention_check_interval_ms=ROLLING_MS,
            log_cleaner_backoff_ms=ROLLING_MS,
            offsets_topic_num_partitions=2,
            offsets_topic_replication_factor=choice.replication_factor,
            group_min_session_timeout_ms=SESSION_MS,
            group_consumer_session_timeout_ms=CROWD_SESSION_MS,
            group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            auto_create_topics_enable=False,
            transaction_two_phase_commit_enable=choice.service.parts.preparers > 0,
            transaction_state_log_num_partitions=2,
            transaction_state_log_replication_factor=choice.replication_factor,
            transaction_state_log_min_isr=choice.service.offsets_min_insync,
            transaction_abort_timed_out_transaction_cleanup_interval_ms=500,
        )
        clock = Clock(self.world, 1_000.0 * node_id, choice.drift[node_id - 1])
        return Machine(
            self.world,
            self.network,
            config,
            clock,
            sync_us_max=choice.sync_us_max,
            is_excused=not {"failed_sync", "full_disk", "rot"}.isdisjoint(choice.kinds),
        )

    def _rack_of(self, node_id: int) -> str:
        return f"r{node_id % self.choice.racks}" if self.choice.racks > 1 else ""

    def client(self) -> WireClient:
        client = WireClient(self.world, self.network, f"c{len(self._all_clients) + 1}", self.brokers)
        self._all_clients.append(client)
        return client

    def run(self) -> None:
        """Go through both phases.

        Raises:
            AssertionError: an invariant was broken, or the cluster did not recover.
        """
        choice = self.choice
        world = self.world
        for machine in self.machines.values():
            machine.boot()
        self._prepare()
        self._begin_work()
        self.faults.schedule(choice.faults)
        world.run_until(choice.safety_us)
        self.faults.stop()
        self._converge()
        self._last()

    def _prepare(self) -> None:
        choice = self.choice
        is_made = list[bool]()
        client = self.client()
        service = choice.service
        configs = {
            "flush.mode": choice.flush_mode,
            "min.insync.replicas": str(service.min_insync),
            "max.message.bytes": str(service.message_bytes),
        }
        if choice.segment_ms or choice.compacts:
            configs["segment.ms"] = str(choice.segment_ms or SEGMENT_MS)  # Compaction needs sealed segments.
        if choice.compacts:
            policies = "compact,delete" if choice.deletes else "compact"
            configs |= {"cleanup.policy": policies, "retention.ms": "-1", "min.cleanable.dirty.ratio": "0.1"}

        async def create() -> None:
            await create_topic(client, TOPIC, choice.partitions, choice.replication_factor, configs)
            is_made.append(True)

        has_witnesses = choice.replication_factor == 2 < choice.nodes
        if has_witnesses:  # A broker that is not there yet cannot be one.
            assert self.world.run_until(START_US, self._has_all_brokers), "not all brokers have come"
        client.start(create())
        assert self.world.run_until(START_US, lambda: bool(is_made)), "the cluster did not start"
        topics = [topic for image in self._images() for topic in image.topics.values() if topic.name == TOPIC]
        witnesses = [partition.witness for topic in topics for partition in topic.partitions]
        assert topics, "nobody knows the topic that was created"
        assert all((witness != NOBODY) == has_witnesses for witness in witnesses), witnesses
        if self.transactional is not None:
            names = ("flush.mode", "min.insync.replicas", "segment.ms")
            kept = {name: value for name, value in configs.items() if name in names}
            self.transactional.prepare(choice.replication_factor, kept, START_US)
        if self.grouped is not None:
            self.grouped.prepare(choice.replication_factor, {}, START_US)

    def _images(self) -> list[Image]:
        return [machine.node.metadata.image for machine in self.machines.values() if machine.node is not None]

    def _has_all_brokers(self) -> bool:
        """Tell whether everybody knows that everybody is there."""
        able = [sum(known.is_available for known in image.brokers.values()) for image in self._images()]
        return len(able) == len(self.machines) and min(able) == len(self.machines)

    def _begin_work(self) -> None:
        self.availability.begin()
        choice = self.choice
        service = self.choice.service
        for number in range(choice.idempotent_producers + choice.plain_producers):
            producing = Producing(
                is_idempotent=number < choice.idempotent_producers,
                record_bytes=choice.record_bytes,
                pause_ms=choice.pause_ms,
                large_every=service.large_every,
                message_bytes=service.message_bytes,
            )
            partition = self.partitions[number % len(self.partitions)]
            producer = Producer(self.client(), self.history, self.availability, partition, producing)
            producer.client.start(producer.run(self._goes_on))
        for number, load in enumerate(service.loads):
            client = self.client()
            partition = self.partitions[-1 - number % len(self.partitions)]
            client.start(keep_loading(client, self.history, self.availability, partition, load, self._goes_on))
        for _ in range(choice.members):
            member = GroupMember(self.client(), self.history, GROUP, self.partitions, self._goes_on)
            self.members.append(member)
            member.client.start(member.run())
        if service.dies_us > self.world.now_us:
            self.world.at(service.dies_us, self._lose_a_member)
        self._read()
        for _ in range(service.mixed_readers):
            mixed = MixedReader(self.client(), self.history, self.availability, self.partitions)
            mixed.client.start(mixed.run())
        for _ in range(service.listers):
            lister = Lister(self.client(), self.history, self.partitions)
            lister.client.start(lister.run(self._goes_on))
        self._use_own_clients()
        if self.transactional is not None:
            self.transactional.begin()
        if self.grouped is not None:
            self.grouped.begin()
        self._administer()

    def _lose_a_member(self) -> None:
        """The process of a member of the group ends without a word."""
        if not self.members or not self.members[0].member_id or not self._goes_on():
            return
        member = self.members.pop(0)
        self.world.note(member.client.name, f"{member.member_id} dies")
        member.client.loop.kill()
        self.network.close_process(member.client.loop, silently=False)
        self.availability.on_vanished(GROUP, member.member_id, SESSION_MS)

    def _use_own_clients(self) -> None:
        service = self.choice.service
        history = self.history
        for _ in range(service.producers):
            pause_ms = self.choice.pause_ms
            producer = OwnProducer(self.client(), history, self.availability, self.partitions, pause_ms)
            producer.client.start(producer.run(self._goes_on))
            self.own.append(producer)
        for _ in range(service.consumers):
            consumer = OwnConsumer(self.client(), history, TOPIC)
            consumer.client.start(consumer.run(self._goes_on))
            self.own.append(consumer)
        for _ in range(service.admins):
            admin = OwnAdmin(self.client(), history, self.choice.replication_factor)
            admin.client.start(admin.run(self._goes_on))

    def _goes_on(self) -> bool:
        return self.is_working

    def _read(self) -> None:
        """Let everybody read everything, from the beginning; where there are racks, from one of them, too."""
        for number, partition in enumerate(self.partitions):
            racks = ["", self._rack_of(1 + number)] if self.choice.racks > 1 else [""]
            readers = [Reader(self.client(), self.history, self.availability, partition, rack) for rack in racks]
            for reader in readers:
                reader.client.start(reader.run())
            self.readers += readers

    def _administer(self) -> None:
        choice = self.choice
        if choice.topics_come_and_go:
            client = self.client()
            client.start(come_and_go(client, choice.replication_factor, self._goes_on))
        if choice.deletes:
            client = self.client()
            client.start(delete_records(client, self.history, list(self.readers), self._goes_on))
        if choice.moves:
            client = self.client()
            moved = [*self.partitions, *(self.transactional.partitions if self.transactional is not None else ())]
            client.start(move_partitions(client, moved, choice.replication_factor, lambda: not self.faults.is_over))
        if choice.service.offsets_min_insync > 1:
            client = self.client()
            copies = choice.service.offsets_min_insync
            client.start(demand_copies_of_offsets(client, copies, self._goes_on))
        if choice.observers:
            client = self.client()
            client.start(change_observers(client, TOPIC, lambda: not self.faults.is_over))

    def _converge(self) -> None:
        world = self.world
        world.note("world", "faults stop")
        acknowledged = world.counts["acknowledged"]
        assert world.run_until(world.now_us + HEALING_US, self._is_well), f"did not recover: {self.trouble()}"
        # It must work again, too.
        is_served = partial(self._has_more_than, acknowledged, [member.rounds for member in self.members])
        assert world.run_until(world.now_us + HEALING_US, is_served), "clients do not go on"
        world.run_until(world.now_us + self.choice.service.lasting_us)
        self.availability.end()
        if self.choice.service.consumers:
            ends = dict(self.history.ends)
            assert world.run_until(world.now_us + HEALING_US, partial(self._has_handed_out, ends)), "our consumers lag"
        self.is_working = False
        ended = world.run_until(world.now_us + OWN_SETTLING_US, lambda: all(client.is_done for client in self.own))
        assert ended or not self.own, "our clients do not end"
        if self.transactional is not None:
            self.transactional.end()
        if self.grouped is not None:
            self.grouped.end()
        # Once more from the beginning: all that was there before the last fault is there after it.
        self._read()
        assert world.run_until(world.now_us + HEALING_US, self._has_read_all), f"readers lack records: {self._ends()}"
        for reader in self.readers:
            self.history.check_complete(reader.client.name, reader.partition, reader.position)

    def _last(self) -> None:
        """A cluster that is well brings its leaderships home, and then changes nothing any more."""
        world = self.world
        for client in self._all_clients:
            client.loop.kill()
            self.network.close_process(client.loop, silently=False)
        # Ten datagrams lost in a row are a silence, and a reason for leaders to change: none is from here on.
        self.network.conditions = self.network.conditions._replace(loss_rate=0.0)
        # The calls that a stuck disk held when the faults were stopped come through when it would have been free again.
        faults_end_us = max((fault.at_us + fault.duration_us for fault in self.choice.faults), default=0)
        world.run_until(max(world.now_us, faults_end_us) + ENDING_US)
        while not self._lasts():
            pass  # As often as there are damaged replicas.

    def _lasts(self) -> bool:
        """Let leaderships go home, and then nothing happen; False: damage was found that nobody had met before."""
        world = self.world
        failed = world.counts["event replica failed"]
        world.run_until(
            world.now_us + self._settling_us(),
            lambda: self._is_well() and not self._away() and not self._waits_to_be_made_anew(),
        )
        if world.counts["event replica failed"] > failed:
            return False
        assert not (away := self._away()), f"leaderships do not go home: {away}"
        assert not self._waits_to_be_made_anew(), "a failed replica is not made anew"
        world.run_until(world.now_us + ENDING_US)  # The broker that handed the last one over knows it now, too.
        before = self._leaders()
        elections = world.counts["elections"]
        world.run_until(world.now_us + LASTING_US)
        if world.counts["event replica failed"] > failed:
            return False
        assert not (trouble := self.trouble()), f"well, and then not any more: {trouble}"
        assert before == self._leaders(), f"leaders changed for no reason: {before} to {self._leaders()}"
        assert world.counts["elections"] == elections, "elections for no reason"
        return True

    def _settling_us(self) -> int:
        """Return the time for going home: a replica that failed twice is made anew a minute after the first time."""
        return SETTLING_US + (AGAIN_MS * MS if self._waits_to_be_made_anew() else 0)

    def _waits_to_be_made_anew(self) -> bool:
        """Tell whether a failed replica will be made anew yet.

        Its leader may go on calling it in sync meanwhile, for as long as nothing that it lacks is old enough.
        """
        return any(
            machine.node_id not in self._damaged(group_id)
            for machine in self.machines.values()
            if machine.node is not None
            for group_id in machine.node.partitions.failed.status()
        )

    def _away(self) -> list[tuple[str, int]]:
        """Return the partitions that are not led by their first replica, or by nobody, though that one could."""
        led = set[str]()
        first = dict[str, int]()
        for machine in self.machines.values():
            for partition in machine.node.partitions if machine.node is not None else ():
                home = partition.replicas[0]
                if home not in self._damaged(partition.group.group_id):
                    first[str(partition)] = home
                    if machine.node_id == home and partition.can_serve:
                        led.add(str(partition))
        return sorted((name, home) for name, home in first.items() if name not in led)

    def _has_more_than(self, acknowledged: int, rounds: list[int]) -> bool:
        members_go_on = all(member.rounds > before for member, before in zip(self.members, rounds, strict=True))
        return self.world.counts["acknowledged"] > acknowledged and members_go_on

    def _has_handed_out(self, ends: dict[Partition, int]) -> bool:
        handed_out = self.history.handed_out
        return all(handed_out.get((OWN_GROUP, partition), 0) >= end for partition, end in ends.items())

    def _ends(self) -> list[tuple[Partition, int, int, int]]:
        owed = self.history.owed_end
        return [(r.partition, r.position, r.high_watermark, owed(r.partition)) for r in self.readers]

    def _has_read_all(self) -> bool:
        return all(reader.has_all_acknowledged for reader in self.readers)

    def _is_well(self) -> bool:
        return not self.trouble()

    def _leaders(self) -> list[tuple[str, int, int]]:
        return sorted(
            (str(partition), machine.node_id, partition.group.core.term)
            for machine in self.machines.values()
            if machine.node is not None
            for partition in machine.node.partitions
            if partition.group.is_leader
        )

    def trouble(self) -> str:
        """Name the trouble, or nothing."""
        for machine in self.machines.values():
            node = machine.node
            if node is None or machine.is_asked_to_stop:
                return f"{machine.name} is down, or on its way down"
            if node.state != "running" or not node.is_ready:
                return f"{machine.name} is {node.state}, ready: {node.is_ready}"
        versions = {image.version for image in self._images()}
        return f"images of versions {sorted(versions)}" if len(versions) > 1 else self._unfinished()

    def _unfinished(self) -> str:
        """Say which partition has not the members yet that it should have."""
        for machine in self.machines.values():
            assert machine.node is not None
            for partition in machine.node.partitions:
                if not partition.is_leader:
                    continue
                members = partition.group.configuration
                placement = partition.placement
                damaged = self._damaged(partition.group.group_id)
                # A move to a replica that waits for an operator waits, too.
                has_moved = placement.move is None and members.voter_ids == set(placement.hosts)
                if not has_moved and damaged.isdisjoint(members.node_ids - members.voter_ids):
                    return f"{partition} has {sorted(members.voter_ids)}, wanted is {placement}"
                lost = [member for member in members.members if not self._is_the_disk_of(member)]
                due = members.node_ids.difference(members.witnesses, damaged)
                if lost or not due <= set(partition.isr):
                    return f"{partition} of {sorted(members.node_ids)} has {partition.isr} in sync, and has lost {lost}"
        return ""

    def _damaged(self, group_id: GroupId) -> set[int]:
        """Return the nodes whose replica waits for an operator, as it must.

        It has a damaged segment of which nobody has a copy to mend it with.
        """
        nodes = set[int]()
        for machine in self.machines.values():
            if machine.node is None or not machine.is_excused:
                continue
            found = [damage for damage in machine.node.scrub.damaged.values() if damage.log.group == group_id]
            # A replica that was made anew has no such segment any more; the scrub notices when it tries again.
            if any(damage.log.begin_check(damage.segment) is not None for damage in found):
                nodes.add(machine.node_id)
        return nodes

    def _is_the_disk_of(self, member: Member) -> bool:
        node = self.machines[member.node_id].node
        return node is not None and same_directory(member.directory_id, node.storage.directory_id)

    def close(self) -> None:
        """Let go of every process, as if it were killed."""
        for client in self._all_clients:
            client.loop.kill()
        for machine in self.machines.values():
            if machine.loop is not None:
                machine.loop.kill()
        self.world.bury()

    def describe(self, error: BaseException) -> str:
        """Describe the run for the search of a failure."""
        lines = [f"{type(error).__name__}: {error}", f"seed {self.choice.seed} at {self.world.now_us} us"]
        lines += [f"  {name} = {value}" for name, value in self.choice._asdict().items() if name != "faults"]
        lines += [f"  {fault}" for fault in self.choice.faults]
        lines += [f"{at_us:>10} {who:>4} {what}" for at_us, who, what in list(self.world.notes)[-NOTES_SHOWN:]]
        how = "--transactions " if self.choice.is_transactional else "--groups " if self.choice.is_grouped else ""
        return "\n".join([*lines, f"repeat with: scripts/sim {how}--seed {self.choice.seed}"])

    @property
    def digest(self) -> str:
        counts = sorted(self.world.counts.items())
        return f"{self.world.digest:08x} {counts}"


@contextmanager
def _limits_of(choice: Choice) -> Iterator[None]:
    """Let limits be small that are for much longer runs.

    Images of metadata are saved after so many records; a log that is dropped so soon has small segments. The recent
    batches in memory are few. A coordinator writes its log anew when it has so many bytes.
    """
    service = choice.service
    with (
        patch.object(replica, "SNAPSHOT_RECORDS", choice.snapshot_records),
        patch.object(metadata_service, "SEGMENT_BYTES", METADATA_SEGMENT_BYTES),
        patch.object(shared, "TailCache", lambda _: TailCache(service.tail_bytes)),
        patch.object(shard, "REWRITE_BYTES", service.rewrite_bytes or shard.REWRITE_BYTES),
    ):
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing of a run is logged, and no garbage is collected in the middle of it, but that of the run before."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        logging.disable(before)


def run_seed(seed: int) -> Run:
    """Run one seed to its end. Raises `SimulationError`."""
    return run_choice(choose(seed))


def run_choice(choice: Choice) -> Run:
    """Run a choice. Raises `SimulationError`."""
    with quiet():
        run = Run(choice)
        try:
            watched = nullcontext() if run.transactional is None else watching(run.transactional.watcher)
            with observing(run.observer), watched, _limits_of(choice), seeded_chance(run.world):
                run.run()
        except Exception as error:  # the run is for anything that breaks a node
            raise SimulationError(run.describe(error)) from error
        finally:
            run.close()
        return run
