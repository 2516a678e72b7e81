"""Transactional ids live as they do in Apache Kafka: its own coordinator decides the same requests, step by step.

Each answer is compared, and each record. They differ where the state machine's README says so, and nowhere else.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from broker.coordinators.transactions.state_machine.desk import Desk
from interop.lines.line_programs import LineProgram, java_command

from barnabas_broker.coordinators.transactions.state_machine.messages import (
    V1,
    V2,
    Answer,
    SavedTransaction,
    TransactionSettings,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import (
    EPOCH_MAX,
    LAST_EPOCH,
    NOBODY,
    Producer,
    successor_of,
)
from barnabas_broker.coordinators.transactions.state_machine.records import decode_value, encode_value
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SOURCE = Path(__file__).with_name("KafkaCoordinator.java")
LIVES = 400
STEPS = 30
NOW_MS = 1_000
FIRST_ID = 99
KINDS = (
    *("initialize", "take-over", "time-out", "move", "verify"),
    *("add", "add", "add", "end", "end", "end", "end", "mark", "mark", "mark"),
)
LEFT = {"initialize": 5, "take-over": 5, "add": 50, "end": 50, "verify": 50}  # of each kind that must have succeeded


class Kafka(LineProgram):
    """The process in which Apache Kafka's coordinator decides."""

    def ask(self, *words: object) -> tuple[Answer, SavedTransaction | None]:
        """Have it decide; return its answer, and what is committed then."""
        code, producer_id, epoch, record = self.line_for(*words).split()
        answer = Answer(ErrorCode.NONE if code == "-" else ErrorCode[code], Producer(int(producer_id), int(epoch)))
        return answer, None if record == "-" else decode_value(bytes.fromhex(record))


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    kafka = Kafka(*java_command(SOURCE))
    yield kafka
    kafka.end()


class Step(NamedTuple):
    """One request, and what came of it here and there. `version`: of the request, or of who coordinates."""

    kind: str
    producer: Producer
    version: int
    before: SavedTransaction | None
    ours: tuple[Answer, SavedTransaction | None]
    kafkas: tuple[Answer, SavedTransaction | None]

    @property
    def is_as_documented(self) -> bool:
        """Whether the README tells of this difference."""
        before, code = self.before, self.ours[0].code
        if before is None:
            return False
        changes = self.ours[1] != self.kafkas[1]
        fenced = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        both_refuse = ErrorCode.NONE not in {code, self.kafkas[0].code} and not changes
        if before.state.is_prepared:
            return both_refuse
        if before.state is TransactionState.ONGOING:
            if self.kind == "initialize" and self.producer != before.owner:
                return code in fenced
            aborts = self.kind in {"initialize", "take-over", "time-out"}
            after = self.ours[1]
            goes_on = after is not None and after.next_producer != NOBODY
            return aborts and goes_on and self.version < V2 and before.owner.epoch == LAST_EPOCH
        if self.kind == "initialize" and self.producer == before.predecessor:
            return self.ours[0] == Answer(producer=before.owner)
        if self.kind == "initialize":
            return code in fenced and self.producer != before.owner
        is_of_v1 = before.state is not TransactionState.EMPTY and before.client_version < V2
        is_before = successor_of(self.producer, before.owner.producer_id) == before.owner
        return self.kind == "end" and code in fenced and (both_refuse or (is_of_v1 and is_before and not changes))


class Life:
    """One transactional id, here and in Kafka."""

    def __init__(self, kafka: Kafka, chance: random.Random, level: int | None = None) -> None:
        self._kafka = kafka
        self._chance = chance
        is_drawn = level is None
        self._level = chance.choice((1, 2, 2)) if level is None else level
        self._client = chance.choice((V1, V2, V2, None))
        self._seen: list[Producer] = []
        self.desk = Desk(TransactionSettings(version=self._level))
        self.desk.now_ms = NOW_MS
        epoch = chance.choice((None, None, 5, LAST_EPOCH - 3, LAST_EPOCH - 2, LAST_EPOCH - 1)) if is_drawn else None
        producer = NOBODY if epoch is None else Producer(FIRST_ID, epoch)
        if epoch is not None:
            self.desk.transaction.saved = SavedTransaction(
                TransactionState.EMPTY, producer, 60_000, NOW_MS, previous_producer_id=FIRST_ID
            )
        kafka.ask("begin", *producer, self._level)

    def step(self) -> Step:
        """Do one thing that makes sense, or none."""
        chance, saved = self._chance, self.desk.transaction.saved
        kind = chance.choice(KINDS)
        if saved is None:
            kind = chance.choice(("initialize", "take-over", "add", "end", "verify"))
        elif kind == "mark" and not saved.state.is_prepared:
            kind = "add"
        elif kind == "time-out" and saved.state is not TransactionState.ONGOING:
            kind = "end"
        producer = self._someone()
        version = chance.choice((V1, V2)) if self._client is None else self._client
        answer, words = self.do(kind, producer, version, commit=chance.random() < 0.6)
        if answer.producer != NOBODY:
            self._seen.append(answer.producer)
        after = self.desk.transaction.saved
        after = None if after is None else decode_value(encode_value(after))
        is_versioned = kind in {"add", "end"}
        return Step(
            kind, producer, version if is_versioned else self._level, saved, (answer, after), self._kafka.ask(*words)
        )

    def _someone(self) -> Producer:
        """Whoever it belongs to mostly, else somebody before, behind or beside."""
        saved = self.desk.transaction.saved
        if saved is None:
            return Producer(1, 0)
        owner = saved.owner
        beside = [owner._replace(epoch=max(0, owner.epoch - 1)), owner._replace(epoch=min(owner.epoch + 1, EPOCH_MAX))]
        someone = [owner] * 10 + [saved.predecessor] * 4 + [saved.producer] * 2 + beside + [Producer(7, 0)]
        found = self._chance.choice(someone + self._seen[-4:])
        return found if found.epoch >= 0 else Producer(1, 0)

    def do(self, kind: str, producer: Producer, version: int, *, commit: bool) -> tuple[Answer, tuple[object, ...]]:
        """Return what is answered here, and the line that asks the same of Kafka."""
        desk, chance = self.desk, self._chance
        match kind:
            case "initialize":
                return desk.init(producer), (kind, *producer)
            case "take-over":
                return desk.init(), ("initialize", *NOBODY)
            case "add":
                numbers = sorted(chance.sample((1, 2, 3), chance.randint(1, 2)))
                code = desk.add(producer, *(("a", number) for number in numbers), version=version)
                return Answer(code), (kind, *producer, version, ",".join(map(str, numbers)))
            case "verify":
                number = chance.randint(1, 3)
                return Answer(desk.verify(producer, ("a", number))), (kind, *producer, number)
            case "end":
                answer = desk.end(producer, commit=commit, version=version)
                return answer, (kind, *producer, version, "commit" if commit else "abort")
            case "mark":
                assert desk.mark()
            case "time-out":
                # Its time is over at once; what is written says the timeout that it had.
                timeout_ms = desk.saved.timeout_ms
                desk.transaction.saved = desk.saved._replace(timeout_ms=0)
                assert desk.time_out()
                desk.transaction.saved = desk.saved._replace(timeout_ms=timeout_ms)
            case _:
                desk.move()
        return Answer(), (kind,)


@pytest.mark.parametrize("seed", range(3))
def test_requests_are_decided_as_kafka_decides_them(kafka: Kafka, seed: int) -> None:
    chance = random.Random(seed)
    succeeded = dict.fromkeys(LEFT, 0)
    differences = 0
    for _ in range(LIVES):
        life = Life(kafka, chance)
        for _ in range(STEPS):
            step = life.step()
            if step.ours == step.kafkas:
                if step.kind in succeeded and step.ours[0].code == ErrorCode.NONE:
                    succeeded[step.kind] += 1
                continue
            assert step.is_as_documented, step
            differences += 1
            if step.ours[1] != step.kafkas[1]:
                break
    assert {kind: count for kind, count in succeeded.items() if count < LEFT[kind]} == {}
    assert differences < LIVES * STEPS // 5, "most is no different at all"


@pytest.mark.parametrize(("level", "version"), [(1, V1), (2, V1), (2, V2)])
def test_an_end_after_a_timeout_hears_what_kafka_says(kafka: Kafka, level: int, version: int) -> None:
    """Fenced with v1; with v2 as after an abort of its own, until another producer takes over."""
    life = Life(kafka, random.Random(1), level)

    def both(kind: str, producer: Producer = NOBODY, *, commit: bool = True) -> ErrorCode:
        answer, words = life.do(kind, producer, version, commit=commit)
        kafkas = kafka.ask(*words)[0]
        # While markers are written, Kafka lets everybody come again who is not fenced.
        waits = life.desk.state.is_prepared and kafkas.code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert kafkas == answer or (waits and answer.code == ErrorCode.INVALID_TXN_STATE), (kind, producer, commit)
        return answer.code

    def ends(producer: Producer) -> list[ErrorCode]:
        return [both("end", producer, commit=commit) for commit in (True, False)]

    both("take-over")
    producer = life.desk.saved.owner
    both("add", producer)
    both("time-out")
    heard = [ends(producer)]
    both("mark")
    heard.append(ends(producer))
    both("take-over")
    heard.append(ends(producer))
    fenced, invalid = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
    if version == V1:
        assert heard == [[fenced, fenced]] * 3
    else:
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
        assert heard == [[invalid, concurrent], [invalid, ErrorCode.NONE], [fenced, fenced]]
