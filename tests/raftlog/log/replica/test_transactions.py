"""Transactions on a replicated log through failures: nobody reads what was aborted, or is not decided yet."""

from collections.abc import Callable

import pytest
from raftlog.log.replicas import Member, Waiter, World, batch

from barnabas_broker.partition.aborted_index import AbortedIndex, AbortedTransaction
from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import OutOfOrderSequenceError
from barnabas_broker.partition.replica_state import ReplicaState
from barnabas_broker.partition.saved_state import encode_replica_state
from barnabas_broker.partition.transactions import TransactionTable
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.records.header import CONTROL, CRC_POSITION, CRC_START, TRANSACTIONAL, parse_header
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.wire.crc32c import crc32c

STEPS = 120
PRODUCERS = (21, 22, 23)
Patch = Callable[[pytest.MonkeyPatch], None]


def transactional_batch(pid: int, epoch: int, sequence: int, count: int, body_bytes: int) -> bytearray:
    frame = batch(pid, sequence, count, body_bytes)
    frame[CRC_START : CRC_START + 2] = TRANSACTIONAL.to_bytes(2, "big")
    frame[51:53] = epoch.to_bytes(2, "big")
    frame[CRC_POSITION:CRC_START] = crc32c(memoryview(frame)[CRC_START:]).to_bytes(4, "big")
    return frame


class Client:
    """A transactional producer and its coordinator: each batch, and each marker, is sent until it is acknowledged.

    An outcome is decided before the first marker is sent; each transaction has an epoch of its own (KIP-890).
    """

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.outcome: bool | None = None
        self.outcomes: dict[int, bool] = {}
        self.kept: list[tuple[int, int]] = []  # epoch and base offset of what was acknowledged


class TransactionWorld(World):
    """A world in which some write transactions. `looked`: how many rows were read on all replicas."""

    def __init__(self, seed: int, mode: Mode) -> None:
        super().__init__(seed, mode)
        self.clients = [Client(producer_id) for producer_id in PRODUCERS]
        self.last_stable: dict[Partition, int] = {}
        self.looked = 0

    def produce(self) -> None:
        client = self.rng.choice(self.clients)
        what = self.rng.random()
        if what < 0.3:
            super().produce()
        elif client.outcome is not None:
            self.finish(client)
        elif what < 0.85 or not client.sequence:
            self.write(client)
        else:
            client.outcome = client.outcomes[client.epoch] = self.rng.random() < 0.5
            self.finish(client)

    def write(self, client: Client) -> None:
        leader = self.leader()
        if leader is None:
            return
        pid, epoch, sequence = client.producer_id, client.epoch, client.sequence
        count = 1 + (pid + sequence) % 3
        frame = transactional_batch(pid, epoch, sequence, count, (sequence * 37) % 300)
        try:
            guard = leader.partition.verification(pid, epoch, sequence, bumps_epoch=True)
            place, index = leader.partition.append(parse_header(frame), memoryview(frame), guard=guard)
        except (NotLeaderError, StorageFailedError):
            return
        except OutOfOrderSequenceError:
            assert leader.partition.term < self.term, "T20: the leader lacks what was acknowledged"
            return

        def acknowledge() -> None:
            if (client.epoch, client.sequence) == (epoch, sequence):
                client.sequence += count
                client.kept.append((epoch, place))
                self.end = max(self.end, place + count)

        self.wait(leader, index, acknowledge)

    def finish(self, client: Client) -> None:
        leader = self.leader()
        if leader is None:
            return
        epoch, outcome = client.epoch, client.outcome
        assert outcome is not None
        marker = EndMarker(client.producer_id, epoch + 1, outcome, 1)
        try:
            index = leader.partition.append_marker(marker, bumps_epoch=True)
        except (NotLeaderError, StorageFailedError, NotEnoughReplicasError):
            return

        def acknowledge() -> None:
            if client.epoch == epoch:
                client.epoch += 1
                client.sequence = 0
                client.outcome = None

        self.wait(leader, index, acknowledge)

    def wait(self, leader: Member, index: int, acknowledge: Callable[[], None]) -> None:
        if not leader.partition.wait_for(index, Waiter(self, acknowledge)):
            acknowledge()

    # Judgement.

    def check(self) -> None:
        super().check()
        for member in self.members.values():
            if not member.is_up:
                continue
            partition = member.partition
            stable = partition.last_stable_offset
            assert self.last_stable.get(partition, 0) <= stable <= partition.high_watermark
            self.last_stable[partition] = stable
        if not self.carried % 7:
            for member in self.members.values():
                if member.is_up:
                    self.read(member)

    def read(self, member: Member) -> set[int]:
        """Read committed records as clients do; return their base offsets."""
        log, partition = member.log, member.partition
        start, end = log.log_start_offset, partition.last_stable_offset
        waiting = partition.aborted_between(start, end)
        assert waiting == sorted(waiting, key=lambda one: one.first_offset), "T15"
        aborted = set[int]()
        read = set[int]()
        decided = {
            (client.producer_id, epoch): how for client in self.clients for epoch, how in client.outcomes.items()
        }
        # In the middle of a batch only where the log starts there, and then nothing is readable.
        index = log.first_index if start < end else log.last_index + 1
        while index <= log.last_index:
            run = log.entries(index, 1 << 20) or log.entries(index, 1 << 20)
            assert run, log.failed
            for entry in run:
                index = entry.index + 1
                header = parse_header(entry.frame)
                if not header.record_count or header.end_offset <= start or header.base_offset >= end:
                    continue
                self.looked += 1
                while waiting and waiting[0].first_offset < header.end_offset:
                    aborted.add(waiting.pop(0).producer_id)
                if header.attributes & CONTROL:
                    aborted.discard(header.producer_id)
                elif header.producer_id not in aborted or not header.attributes & TRANSACTIONAL:
                    read.add(header.base_offset)
                    if header.attributes & TRANSACTIONAL:
                        place = (header.producer_id, header.producer_epoch)
                        assert decided.get(place), f"node {member.node_id} shows {place}: {decided.get(place)}"
        return read

    def check_transactions(self, leader: Member) -> None:
        """Check that all replicas agree, and show everything that was committed."""
        seen = [self.read(member) for member in self.members.values()]
        assert seen[0] == seen[1] == seen[2]
        start, stable = leader.log.log_start_offset, leader.partition.last_stable_offset
        for client in self.clients:
            for epoch, offset in client.kept:
                if client.outcomes.get(epoch) and start <= offset < stable:
                    assert offset in seen[0], f"{client.producer_id} had committed {offset}"
        states = [member.partition.state for member in self.members.values()]
        assert len({repr([one[:4] for one in state.transactions.undecided()]) for state in states}) == 1
        assert len({member.partition.last_stable_offset for member in self.members.values()}) == 1
        for pid in PRODUCERS:
            last = {state.producers.batches(pid)[-1:] for state in states}
            assert len({(*one[:4], *one[6:]) for batches in last for one in batches or [()]}) == 1


async def live_through(seed: int, mode: Mode) -> TransactionWorld:
    """Let one world happen. A failing seed fails again."""
    world = TransactionWorld(seed, mode)
    for member in world.members.values():
        await member.boot()
    world.connect()
    for _ in range(STEPS):
        await world.step()
    leader = await world.recover()
    world.check_transactions(leader)
    for client in world.clients:
        for _ in range(20):
            if client.outcome is None:
                break
            world.finish(client)
            await world.recover()
        assert client.outcome is None, "the same marker is accepted in the end"
    world.check_transactions(await world.recover())
    return world


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", range(3))
async def test_nobody_reads_what_was_aborted_or_is_undecided_and_everybody_what_was_committed(
    seed: int, mode: Mode
) -> None:
    world = await live_through(seed, mode)
    outcomes = [outcome for client in world.clients for outcome in client.outcomes.values()]
    assert world.looked > 300
    assert min(outcomes.count(True), outcomes.count(False)) > 3


# The worlds must notice these. If they do not, it is the worlds that are broken.


def a_saved_state_forgets_the_transactions(patch: pytest.MonkeyPatch) -> None:
    nothing = TransactionTable().committed()
    patch.setattr(
        "barnabas_broker.partition.replica_state.encode_replica_state",
        lambda start, producers, _: encode_replica_state(start, producers, nothing),
    )


def a_snapshot_forgets_the_transactions(patch: pytest.MonkeyPatch) -> None:
    install = ReplicaState.install

    def forget(state: ReplicaState, index: int, data: bytes, size_bytes: int) -> None:
        install(state, index, data, size_bytes)
        state.transactions = TransactionTable()

    patch.setattr(ReplicaState, "install", forget)


def what_is_truncated_stays_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionTable, "truncate_from", lambda self, index: None)


def markers_count_before_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    commit = TransactionTable.commit
    patch.setattr(TransactionTable, "commit", lambda self, commit_index: commit(self, 1 << 60))


def what_began_before_the_range_is_not_listed(patch: pytest.MonkeyPatch) -> None:
    between = AbortedIndex.between

    def late(index: AbortedIndex, start: int, end: int) -> list[AbortedTransaction]:
        return [one for one in between(index, start, end) if one.first_offset >= start]

    patch.setattr(AbortedIndex, "between", late)


MUTANTS: list[tuple[Patch, int]] = [  # and the first world in which each shows
    (a_saved_state_forgets_the_transactions, 1),
    (a_snapshot_forgets_the_transactions, 2),
    (what_is_truncated_stays_open, 20),
    (markers_count_before_they_are_committed, 3),
    (what_began_before_the_range_is_not_listed, 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("mutate", "first_seed"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
async def test_the_worlds_notice(mutate: Patch, first_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    for seed in range(first_seed, first_seed + 30):
        try:
            await live_through(seed, "fsync")
        except BaseException:  # noqa: BLE001 - any way of noticing is good
            return
    pytest.fail("30 worlds went well")
