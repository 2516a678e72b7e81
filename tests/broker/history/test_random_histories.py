"""Random honest histories are accepted; each of them, with one thing changed, is not."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.history import Checker, Rule, check
from barnabas_broker.history import events as e

PARTITIONS = ("t-0", "t-1")
PRODUCERS = ("p", "q")
CONSUMERS = ("c", "d")


class HonestCluster:
    """A log for each partition that keeps what it is given, clients that use it, and what they write down."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.history: list[e.Event] = []
        self.logs: dict[str, list[tuple[str, int]]] = {partition: [] for partition in PARTITIONS}
        self.next: dict[tuple[str, str], int] = {}
        self.waiting: dict[tuple[str, str], list[tuple[int, int | None]]] = {}
        self.positions: dict[tuple[str, str], int] = {}
        self.committed: dict[str, int] = {}
        self.generation = 0

    def digest(self, producer: str, sequence: int) -> str:
        return f"{ord(producer) * 1000 + sequence:016x}"

    def produce(self, partition: str) -> None:
        producer = self.chance.choice(PRODUCERS)
        key = producer, partition
        sequence = self.next.get(key, 0)
        self.next[key] = sequence + 1
        digest = self.digest(producer, sequence)
        self.history.append(e.Invoked(producer=producer, partition=partition, sequence=sequence, digest=digest))
        offset = None
        if self.chance.random() < 0.9:
            offset = len(self.logs[partition])
            self.logs[partition].append((producer, sequence))
        self.waiting.setdefault(key, []).append((sequence, offset))

    def settle(self, partition: str) -> None:
        producer = self.chance.choice(PRODUCERS)
        for sequence, offset in self.waiting.pop((producer, partition), []):
            if offset is None:
                fate = e.Failed if self.chance.random() < 0.5 else e.Unknown
                self.history.append(fate(producer=producer, partition=partition, sequence=sequence))
            elif self.chance.random() < 0.1:
                self.history.append(e.Unknown(producer=producer, partition=partition, sequence=sequence))
            else:
                told = None if self.chance.random() < 0.1 else offset
                self.history.append(
                    e.Acknowledged(producer=producer, partition=partition, sequence=sequence, offset=told)
                )

    def go_to(self, consumer: str, partition: str, offset: int) -> None:
        self.positions[consumer, partition] = offset
        self.history.append(e.Positioned(consumer=consumer, partition=partition, offset=offset))

    def consume(self, consumer: str, partition: str) -> None:
        log = self.logs[partition]
        if (consumer, partition) not in self.positions or self.chance.random() < 0.05:
            self.go_to(consumer, partition, self.chance.randint(0, len(log)))
        position = self.positions[consumer, partition]
        for offset in range(position, min(len(log), position + 5)):
            producer, sequence = log[offset]
            self.history.append(
                e.Consumed(
                    consumer=consumer,
                    partition=partition,
                    offset=offset,
                    producer=producer,
                    sequence=sequence,
                    digest=self.digest(producer, sequence),
                )
            )
            self.positions[consumer, partition] = offset + 1
        if self.positions[consumer, partition] == len(log):
            self.history.append(e.EndReached(consumer=consumer, partition=partition, offset=len(log)))

    def watch(self, partition: str) -> None:
        end = len(self.logs[partition])
        self.history.append(e.HighWatermarkSeen(observer="w", partition=partition, offset=end))

    def commit(self, partition: str) -> None:
        offset = self.chance.randint(self.committed.get(partition, 0), len(self.logs[partition]))
        self.committed[partition] = offset
        self.history.append(e.CommitInvoked(group="g", partition=partition, offset=offset))
        if self.chance.random() < 0.8:
            self.history.append(e.CommitAcknowledged(group="g", partition=partition, offset=offset))

    def fetch_committed(self, partition: str) -> None:
        self.history.append(e.CommittedAsked(reader="r", group="g", partition=partition))
        offset = self.committed.get(partition)
        self.history.append(e.CommittedFetched(reader="r", group="g", partition=partition, offset=offset))

    def rebalance(self) -> None:
        self.generation += 1
        members = ["m1", "m2"]
        self.chance.shuffle(members)
        for member, partition in zip(members, PARTITIONS, strict=True):
            self.history.append(
                e.Assigned(group="g", generation=self.generation, member=member, partitions=[partition])
            )

    def step(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        what = self.chance.random()
        if what < 0.35:
            self.produce(partition)
        elif what < 0.55:
            self.settle(partition)
        elif what < 0.75:
            self.consume(self.chance.choice(CONSUMERS), partition)
        elif what < 0.82:
            self.watch(partition)
        elif what < 0.90:
            self.commit(partition)
        elif what < 0.96:
            self.fetch_committed(partition)
        elif what < 0.98:
            self.rebalance()
        else:
            self.history.append(e.FaultBegun(kind="kill", target="broker 1"))

    def finish(self) -> list[e.Event]:
        """Settle everything, then let one consumer read every partition from its start to its end."""
        for partition in PARTITIONS:
            for _ in range(20):
                self.settle(partition)
            self.go_to("audit", partition, 0)
            while self.positions["audit", partition] < len(self.logs[partition]):
                self.consume_for_audit(partition)
            end = len(self.logs[partition])
            self.history.append(e.EndReached(consumer="audit", partition=partition, offset=end))
        return self.history

    def consume_for_audit(self, partition: str) -> None:
        offset = self.positions["audit", partition]
        producer, sequence = self.logs[partition][offset]
        digest = self.digest(producer, sequence)
        self.history.append(
            e.Consumed(
                consumer="audit",
                partition=partition,
                offset=offset,
                producer=producer,
                sequence=sequence,
                digest=digest,
            )
        )
        self.positions["audit", partition] = offset + 1


def honest_history(seed: int, steps: int = 100) -> list[e.Event]:
    cluster = HonestCluster(seed)
    for _ in range(steps):
        cluster.step()
    return cluster.finish()


Corruption = Callable[[list[e.Event], random.Random], Rule | None]


def _pick(history: list[e.Event], chance: random.Random, kind: type, consumer: str = "audit") -> int | None:
    found = [
        at
        for at, event in enumerate(history)
        if isinstance(event, kind) and getattr(event, "consumer", consumer) == consumer
    ]
    return chance.choice(found) if found else None


def drop_a_read(history: list[e.Event], chance: random.Random) -> Rule | None:
    at = _pick(history, chance, e.Consumed)
    if at is not None:
        del history[at]
    return None if at is None else Rule.HOLE


def cut_the_log(history: list[e.Event], chance: random.Random) -> Rule | None:
    """The last record, which was acknowledged, is gone for the auditor."""
    last = next((event for event in reversed(history) if isinstance(event, e.Consumed)), None)
    if last is None or last.consumer != "audit":
        return None
    if not any(
        isinstance(event, e.Acknowledged)
        and (event.producer, event.partition, event.sequence) == (last.producer, last.partition, last.sequence)
        for event in history
    ):
        return None
    history.remove(last)
    history[-1] = msgspec.structs.replace(history[-1], offset=last.offset)
    return Rule.LOST


def swap_two_records(history: list[e.Event], chance: random.Random) -> Rule | None:
    """Two neighbours in the auditor's log, both acknowledged with their offsets, have changed places."""
    placed = {
        (event.producer, event.partition, event.sequence)
        for event in history
        if isinstance(event, e.Acknowledged) and event.offset is not None
    }
    audits = [
        at
        for at, event in enumerate(history)
        if isinstance(event, e.Consumed)
        and event.consumer == "audit"
        and (event.producer, event.partition, event.sequence) in placed
    ]
    pairs = [(at, at + 1) for at in audits if at + 1 in audits]
    if not pairs:
        return None
    first, second = chance.choice(pairs)
    a = history[first]
    b = history[second]
    assert isinstance(a, e.Consumed)
    assert isinstance(b, e.Consumed)
    history[first] = msgspec.structs.replace(b, offset=a.offset)
    history[second] = msgspec.structs.replace(a, offset=b.offset)
    return Rule.OFFSET_REUSED


def change_content(history: list[e.Event], chance: random.Random) -> Rule | None:
    at = _pick(history, chance, e.Consumed)
    if at is None:
        return None
    history[at] = msgspec.structs.replace(history[at], digest="f" * 16)
    return Rule.CHANGED


def deliver_twice(history: list[e.Event], chance: random.Random) -> Rule | None:
    at = _pick(history, chance, e.Consumed)
    if at is not None:
        history.insert(at, history[at])
    return None if at is None else Rule.POSITION_BACK


def store_twice(history: list[e.Event], chance: random.Random) -> Rule | None:
    """A record that was read is there once more behind the auditor's end."""
    event = next((event for event in reversed(history) if isinstance(event, e.Consumed)), None)
    end = history[-1]
    if event is None or event.consumer != "audit" or not isinstance(end, e.EndReached):
        return None
    history.append(msgspec.structs.replace(event, offset=end.offset, partition=end.partition))
    return Rule.DUPLICATED if event.partition == end.partition else Rule.NEVER_SENT


def invent(history: list[e.Event], chance: random.Random) -> Rule | None:
    at = _pick(history, chance, e.Consumed)
    if at is None:
        return None
    history[at] = msgspec.structs.replace(history[at], producer=None)
    return Rule.NEVER_SENT


def refuse_what_is_there(history: list[e.Event], chance: random.Random) -> Rule | None:
    at = _pick(history, chance, e.Acknowledged)
    event = None if at is None else history[at]
    if at is None or not isinstance(event, e.Acknowledged):
        return None
    history[at] = e.Failed(producer=event.producer, partition=event.partition, sequence=event.sequence)
    return Rule.REFUSED_YET_THERE


def lower_a_watermark(history: list[e.Event], chance: random.Random) -> Rule | None:
    last: dict[str, int] = {}
    lowerable = []
    for at, event in enumerate(history):
        if isinstance(event, e.HighWatermarkSeen):
            if last.get(event.partition, 0) > 0:
                lowerable.append((at, last[event.partition] - 1))
            last[event.partition] = event.offset
    if not lowerable:
        return None
    at, offset = chance.choice(lowerable)
    history[at] = msgspec.structs.replace(history[at], offset=offset)
    return Rule.HIGH_WATERMARK_BACK


def forget_a_commit(history: list[e.Event], chance: random.Random) -> Rule | None:
    commits = [event for event in history if isinstance(event, e.CommitAcknowledged)]
    if not commits:
        return None
    partition = chance.choice(commits).partition
    history.append(e.CommittedFetched(reader="r", group="g", partition=partition))
    return Rule.COMMITTED_BACK


def give_to_two(history: list[e.Event], chance: random.Random) -> Rule | None:
    at = _pick(history, chance, e.Assigned)
    if at is None:
        return None
    history.insert(at, msgspec.structs.replace(history[at], member="m3"))
    return Rule.TWO_OWNERS


CORRUPTIONS: tuple[Corruption, ...] = (
    drop_a_read,
    cut_the_log,
    swap_two_records,
    change_content,
    deliver_twice,
    store_twice,
    invent,
    refuse_what_is_there,
    lower_a_watermark,
    forget_a_commit,
    give_to_two,
)


@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_honest_history_is_accepted(seed: int) -> None:
    history = honest_history(seed)
    assert check(history) == []
    checker = Checker()
    for event in history:
        checker.feed(event)
    assert checker.summary().unread == {}


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 32))
def test_single_corruption_is_rejected(corrupt: Corruption, seed: int) -> None:
    history = honest_history(seed)
    rule = corrupt(history, random.Random(seed))
    if rule is not None:
        assert rule in {violation.rule for violation in check(history)}


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_corruption_is_possible_in_most_histories(corrupt: Corruption) -> None:
    assert sum(corrupt(honest_history(seed), random.Random(seed)) is not None for seed in range(20)) >= 10
