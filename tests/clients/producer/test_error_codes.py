"""Every error code in an answer to a produce leads to a true outcome.

Each says something of the batch, and decides what becomes of the record.
"""

import asyncio

import pytest
from clients.fake_broker import Answer, FakeBroker, serving

from barnabas_clients import Producer
from barnabas_clients.errors import ClientError
from barnabas_clients.producer.delivery import Receipt
from barnabas_clients.producer.exchange import outcome_of
from barnabas_clients.producer.sequences import Outcome
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_raftlog.records.reader import Record

from .leaders import Fate, Leaders, Sent, check
from .virtual import Stage

UNHEARD_OF = [-32_768, -2, max(ErrorCode) + 1, 999, 32_767]
"""Codes that a newer broker may have."""
EVERY_CODE: list[int] = [*(int(code) for code in ErrorCode), *UNHEARD_OF]

# The whole truth about every code, written down a second time. What is in none of these no broker answers to a produce,
# or answers without saying whether the batch was appended: then nobody may count on either.
MEANINGS: dict[Outcome, set[ErrorCode]] = {
    Outcome.APPENDED: {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER},
    Outcome.GAP: {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID},
    Outcome.FENCED: {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED},
    Outcome.NOT_NOW: {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    },
    Outcome.UNKNOWN: {
        # A leader says these when it has appended, and then was deposed, or out of time, replicas or disk.
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        # These it does not say, but they all say "try again".
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    },
    Outcome.REFUSED: {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    },
}


def meaning(code: int) -> Outcome:
    return next((outcome for outcome, codes in MEANINGS.items() if code in codes), Outcome.DOUBTFUL)


@pytest.mark.parametrize("code", EVERY_CODE)
def test_what_a_code_says_of_a_batch(code: int) -> None:
    assert outcome_of(code) is meaning(code)


class Fault:
    """Answers each partition with a code of its own, `times` times, beginning with batch number `first`; then NONE."""

    def __init__(self, codes: list[int], first: int, times: int, *, is_taken: bool) -> None:
        self.codes = codes
        self.last = first + times
        self.is_taken = is_taken
        self.first = first
        self.seen = [0] * len(codes)

    def __call__(self, partition: int, _: list[Record]) -> Fate:
        number = self.seen[partition]
        self.seen[partition] += 1
        if not self.first <= number < self.last:
            return Fate()
        return Fate(self.codes[partition], self.is_taken)


async def send_all(leaders: Leaders, *, idempotent: bool) -> list[list[Sent]]:
    """Send four records to every partition, three of them at once, each in a batch of its own."""
    count = len(leaders.logs)
    producer = Producer(
        f"127.0.0.1:{leaders.brokers[0].port}", idempotent=idempotent, linger_s=0, batch_bytes=100, timeout_s=15
    )
    told: list[list[Sent]] = [[] for _ in range(count)]
    async with producer:
        for names in ((b"a", b"b", b"c"), (b"d",)):
            values = [name.ljust(90) for name in names]
            deliveries = [
                (number, value, await producer.send("t", value, partition=number))
                for number in range(count)
                for value in values
            ]
            outcomes = await asyncio.gather(*(each for _, _, each in deliveries), return_exceptions=True)
            for (number, value, _), outcome in zip(deliveries, outcomes, strict=True):
                assert isinstance(outcome, Receipt | ClientError | KafkaError), (leaders.logs, outcome)
                told[number].append(Sent(number, value, outcome))
        metrics = producer.metrics()
        assert (metrics.buffered_batches, metrics.buffered_bytes, metrics.requests_in_flight) == (0, 0, 0)
    return told


def expect(code: int, sent: list[Sent], hit: list[int], *, is_taken: bool, idempotent: bool) -> None:
    """Check what four records were told; those in `hit` were answered with `code` if each was sent only once."""
    outcome = meaning(code)
    is_final = outcome in {Outcome.REFUSED, Outcome.DOUBTFUL}
    if outcome in {Outcome.GAP, Outcome.FENCED} and not idempotent:
        is_final = True  # There is no numbering to begin anew.
    failed = [number for number, each in enumerate(sent) if not isinstance(each.told, Receipt)]
    assert failed == (hit if is_final else []), (code, sent)
    for number in failed:
        error = sent[number].told
        assert isinstance(error, KafkaError), code
        assert error.code == (code if code in list(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR)
        assert error.may_be_done is (outcome is Outcome.DOUBTFUL), code
        assert is_taken <= error.may_be_done


# A broker that has taken a batch does not say that it has not, and the other way round.
FOR_TAKEN = [
    code for code in EVERY_CODE if code and meaning(code) in {Outcome.APPENDED, Outcome.UNKNOWN, Outcome.DOUBTFUL}
]
FOR_LEFT = [code for code in EVERY_CODE if meaning(code) is not Outcome.APPENDED]


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("codes", "is_taken"), [(FOR_LEFT, False), (FOR_TAKEN, True)], ids=["not appended", "appended"]
)
async def test_a_record_is_delivered_or_fails_as_its_code_says(
    codes: list[int], is_taken: bool, first: int, times: int, idempotent: bool
) -> None:
    broker = FakeBroker()
    leaders = Leaders(broker, partitions=len(codes))
    leaders.fate = Fault(codes, first, times, is_taken=is_taken)
    async with serving(broker):
        told = await send_all(leaders, idempotent=idempotent)
    for code, sent in zip(codes, told, strict=True):
        expect(code, sent, list(range(first, first + times)), is_taken=is_taken, idempotent=idempotent)
    every = [each for sent in told for each in sent]
    assert check(leaders.logs, every, is_idempotent=idempotent) == []


@pytest.mark.parametrize("code", [code for code in EVERY_CODE if code])
def test_a_refused_producer_id_is_asked_for_again(code: int) -> None:
    stage = Stage(1)
    answer = stage.brokers[0].answers[InitProducerIdRequest]

    async def refuse(_: InitProducerIdRequest) -> Answer:
        stage.brokers[0].answers[InitProducerIdRequest] = answer
        return InitProducerIdResponse(error_code=code, producer_id=99, producer_epoch=99)

    stage.brokers[0].answers[InitProducerIdRequest] = refuse

    async def main() -> None:
        async with stage.producer() as producer:
            assert (await producer.send_and_wait("t", b"value", timeout_s=10)).offset == 0

    stage.run(main())
    assert stage.leaders.logs[0].table.log[0].producer_id == 1


@pytest.mark.parametrize("code", [code for code in EVERY_CODE if code])
def test_a_topic_that_is_refused_is_refused_at_the_call_unless_it_may_be_there_soon(code: int) -> None:
    stage = Stage(1)
    stage.leaders.errors["t"] = code

    async def main() -> None:
        async with stage.producer(metadata_max_age_s=1_000) as producer:
            stage.after(0.2, stage.leaders.errors.clear)
            if code in RETRIABLE:
                assert (await producer.send_and_wait("t", b"value", timeout_s=10)).offset == 0
                return
            with pytest.raises(KafkaError) as caught:
                _ = await producer.send("t", b"value")
            assert caught.value.code == (code if code in list(ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR)
            await asyncio.sleep(1)
            assert (await producer.send_and_wait("t", b"value", timeout_s=10)).offset == 0

    stage.run(main())
