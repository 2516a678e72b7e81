"""Runs seeded histories of a producer among failing brokers, and plants mistakes in its sender."""

import ast
import asyncio
import types
from contextlib import suppress
from inspect import getsource
from random import Random
from types import ModuleType
from typing import Any

import pytest
from sim.mutants import in_place

from barnabas_clients.errors import ClientError
from barnabas_clients.producer import accumulator, sender, sequences
from barnabas_clients.producer import exchange as produce_exchange
from barnabas_clients.producer.delivery import Delivery, Receipt, RecordsLostError
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_raftlog.records.reader import Record

from .leaders import HONEST, Ending, Fate, Sent, check
from .virtual import Stage

SEEDS = range(60)
MUTANT_SEEDS = range(300)
"""A mistake may need longer to show; most need a few."""
ROUNDS = 12

# (code, whether the batch was appended all the same)
CODES = [
    (ErrorCode.REQUEST_TIMED_OUT, True),
    (ErrorCode.REQUEST_TIMED_OUT, False),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    (ErrorCode.NOT_ENOUGH_REPLICAS, False),
    (ErrorCode.KAFKA_STORAGE_ERROR, True),
    (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    (ErrorCode.INVALID_RECORD, False),
    (ErrorCode.MESSAGE_TOO_LARGE, False),
    (ErrorCode.CORRUPT_MESSAGE, False),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
    (ErrorCode.INVALID_PRODUCER_EPOCH, False),
]


class Chaos:
    """The faults of one history. The seed chooses them, and when they strike."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.chance = stage.world.chance("chaos")
        self.codes = self.chance.sample(CODES, self.chance.randint(0, 4))
        self.endings = self.chance.sample(list(Ending), self.chance.randint(0, 3))
        self.kinds = self.chance.sample(
            ["stall", "reset", "refuse", "cut", "move", "interrupt"], self.chance.randint(0, 4)
        )
        self.rate = self.chance.choice([0.05, 0.2, 0.5])
        stage.leaders.gives_hints = self.chance.random() < 0.5
        stage.leaders.fate = self.fate
        stage.leaders.ending = self.ending

    def fate(self, _: int, records: list[Record]) -> Fate:
        if not self.codes or self.chance.random() > self.rate:
            return HONEST
        return Fate(*self.chance.choice(self.codes))

    def ending(self, _: ProduceRequest) -> Ending:
        return (
            self.chance.choice(self.endings) if self.endings and self.chance.random() < self.rate else Ending.ANSWERED
        )

    def strike(self) -> None:
        """Let something happen to a broker."""
        if not self.kinds:
            return
        stage = self.stage
        node_id = self.chance.randint(1, len(self.stage.brokers))
        match self.chance.choice(self.kinds):
            case "stall":
                stage.stall(node_id, self.chance.choice([0.1, 3, 40]))
            case "reset":
                stage.reset(node_id)
            case "refuse":
                stage.refuse(node_id)
                stage.after(self.chance.choice([0.5, 10]), lambda: stage.mend(node_id))
            case "cut":
                stage.cut(node_id)
                stage.after(self.chance.choice([0.5, 10]), lambda: stage.mend(node_id))
            case "move":
                stage.leaders.move(self.chance.randrange(len(stage.leaders.logs)), node_id)
            case _:
                stage.brokers[node_id - 1].interrupts.add(ProduceRequest)

    def stop(self) -> None:
        self.stage.leaders.fate = lambda *_: HONEST
        self.stage.leaders.ending = lambda _: Ending.ANSWERED
        for broker in self.stage.brokers:
            broker.interrupts.clear()
            self.stage.loops[broker.node_id].resume()
            self.stage.mend(broker.node_id)


async def live(stage: Stage, chaos: Chaos, given: list[tuple[int, bytes, Delivery]]) -> None:
    """Send in bursts while things go wrong, then a record to each partition when nothing does."""
    chance = stage.world.chance("producer")
    partitions = len(stage.leaders.logs)
    one = stage.producer(
        delivery_timeout_s=chance.choice([2, 10, 60]),
        request_timeout_s=chance.choice([1.5, 30]),
        linger_s=chance.choice([0, 0.005]),
        batch_bytes=chance.choice([100, 1_000]),
        buffer_bytes=100_000,
        compression=chance.choice(["none", "gzip"]),
    )
    with suppress(RecordsLostError):
        async with one:
            for number in range(ROUNDS):
                for _ in range(chance.randint(1, 8)):
                    partition = chance.randrange(partitions)
                    value = b"%d-%d" % (number, len(given))
                    with suppress(ClientError):
                        given.append(
                            (partition, value, await one.send("t", value, partition=partition, timestamp_ms=0))
                        )
                if chance.random() < 0.4:
                    chaos.strike()
                await asyncio.sleep(chance.choice([0, 0.001, 0.05, 0.5]))
            if chance.random() < 0.8:
                with suppress(ClientError, RecordsLostError):
                    await one.flush(timeout_s=90)
                chaos.stop()
                # Batches that met the faults have their pauses; a connection, too.
                await asyncio.sleep(20)
                for partition in range(partitions):
                    receipt = await one.send_and_wait("t", b"end", partition=partition, timestamp_ms=0, timeout_s=90)
                    given.append((partition, b"end", _done(receipt)))
            await one.close(timeout_s=chance.choice([0, 5, 100]))
    metrics = one.metrics()
    assert (metrics.buffered_batches, metrics.buffered_bytes) == (0, 0)


def _done(receipt: Receipt) -> Any:
    return types.SimpleNamespace(done=lambda: True, result=lambda: receipt)


def history(seed: int) -> tuple[int, int]:
    """Live through one history and check it; return how many records were delivered, and how many failed."""
    chance = Random(seed)
    stage = Stage(seed, 2, partitions=chance.randint(1, 3), takes_any_first=chance.random() < 0.5)
    chaos = Chaos(stage)
    given = list[tuple[int, bytes, Delivery]]()
    stage.run(live(stage, chaos, given), within_s=2_000)
    sent = [Sent(partition, value, _told(delivery)) for partition, value, delivery in given]
    assert check(stage.leaders.logs, sent) == []
    failed = sum(not isinstance(each.told, Receipt) for each in sent)
    return len(sent) - failed, failed


def _told(delivery: Delivery) -> Receipt | ClientError | KafkaError:
    assert delivery.done(), "a delivery is open after the producer was closed"
    try:
        return delivery.result()
    except (ClientError, KafkaError) as error:
        return error


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_producer_says_is_true_whatever_happens(seed: int) -> None:
    delivered, failed = history(seed)
    assert delivered + failed


# (module, a text of it, what it says instead)
MUTANTS: dict[str, tuple[ModuleType, str, str]] = {
    "a lost connection is taken for a refusal before the append": (
        sender,
        "self._settle(under_way, Outcome.UNKNOWN, failure)",
        "self._settle(under_way, Outcome.NOT_NOW, failure)",
    ),
    "what timed out at the broker counts as delivered": (
        produce_exchange,
        "    if code in _APPENDED:",
        "    if code in _APPENDED or code == ErrorCode.REQUEST_TIMED_OUT:",
    ),
    "a code that says nothing is taken for a refusal": (
        produce_exchange,
        "else Outcome.DOUBTFUL",
        "else Outcome.REFUSED",
    ),
    "what was appended, and not replicated in time, is taken for a refusal": (
        produce_exchange,
        "    if code in _NOT_NOW:",
        "    if code in _NOT_NOW or code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:",
    ),
    "every failure says that nothing was done": (
        sender,
        "error.may_be_done = under_way.may_be_appended",
        "pass",
    ),
    "a batch that is on the wire at its deadline says that nothing was done": (
        accumulator,
        "(under_way.is_out or under_way.may_be_appended)",
        "under_way.may_be_appended",
    ),
    "a batch that was lost before its deadline says that nothing was done": (
        accumulator,
        "(under_way.is_out or under_way.may_be_appended)",
        "under_way.is_out",
    ),
    "a part of a divided batch knows nothing of the whole": (
        sequences,
        "part.may_be_appended = batch.may_be_appended",
        "part.may_be_appended = False",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_noticed(name: str) -> None:
    module, text, instead = MUTANTS[name]
    source = getsource(module)
    assert source.count(text) == 1, "the module reads otherwise now"
    with in_place(module, ast.parse(source.replace(text, instead))):
        assert any(_is_noticed(seed) for seed in MUTANT_SEEDS), "nothing notices it"


def _is_noticed(seed: int) -> bool:
    try:
        history(seed)
    except AssertionError:
        return True
    return False
