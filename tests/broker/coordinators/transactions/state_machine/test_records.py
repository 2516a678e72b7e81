"""Records of the transaction topic are laid out as Apache Kafka's schemas say."""

import struct
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2, SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.outcomes import KeptOutcomes
from barnabas_broker.coordinators.transactions.state_machine.producers import LAST_EPOCH, NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_raftlog.errors import MalformedMessageError

from .desk import Desk

EMPTY = SavedTransaction(
    TransactionState.EMPTY, Producer(4_000, 0), timeout_ms=60_000, updated_ms=9, previous_producer_id=4_000
)
# Version, id, epoch, timeout, state; then partitions; then two times; then the tags that are not at their default.
EMPTY_VALUE = (
    struct.pack(">hqhib", 1, 4_000, 0, 60_000, 0)
    + b"\0"
    + struct.pack(">qq", 9, -1)
    + b"\1\0\x08"
    + struct.pack(">q", 4_000)
)
PREPARED = SavedTransaction(
    TransactionState.PREPARE_COMMIT,
    Producer(4_000, 32_767),
    timeout_ms=60_000,
    updated_ms=9,
    started_ms=7,
    places=frozenset({("b", 0), ("a", 2), ("a", 1)}),
    next_producer=Producer(5_000, 7),
    previous_producer_id=5_000,
    last_epoch=6,
    client_version=V2,
)
PREPARED_VALUE = (
    struct.pack(">hqhib", 1, 4_000, 32_767, 60_000, 2)
    + (b"\3" + b"\2a\3" + struct.pack(">ii", 1, 2) + b"\0" + b"\2b\2" + struct.pack(">i", 0) + b"\0")
    + struct.pack(">qq", 9, 7)
    + (b"\4\0\x08" + struct.pack(">q", 5_000) + b"\1\x08" + struct.pack(">q", 5_000))
    + (b"\2\2" + struct.pack(">h", 2) + b"\3\2" + struct.pack(">h", 7))
)
COMPLETE = SavedTransaction(
    TransactionState.COMPLETE_ABORT, Producer(4_000, 3), timeout_ms=1, updated_ms=9, started_ms=7, client_version=1
)
COMPLETE_VALUE = (
    struct.pack(">hqhib", 1, 4_000, 3, 1, 5) + b"\1" + struct.pack(">qq", 9, 7) + b"\1\2\2" + struct.pack(">h", 1)
)
KEPT = COMPLETE._replace(outcomes=(KeptOutcomes(4_000, 3, b"\0\x09\0\x06"),))
KEPT_VALUE = (
    COMPLETE_VALUE[:-5]
    + (b"\2\2\2" + struct.pack(">h", 1))
    + (b"\x90\x4e\x11" + b"\2" + struct.pack(">qh", 4_000, 3) + b"\5\0\x09\0\x06" + b"\0")
)
RECORDS = pytest.mark.parametrize(
    ("saved", "data"),
    [(EMPTY, EMPTY_VALUE), (PREPARED, PREPARED_VALUE), (COMPLETE, COMPLETE_VALUE), (KEPT, KEPT_VALUE)],
)


@RECORDS
def test_a_value_is_written_as_the_schema_says(saved: SavedTransaction, data: bytes) -> None:
    assert encode_value(saved) == data
    assert decode_value(data) == saved


def test_a_key_is_written_as_the_schema_says() -> None:
    assert encode_key("orders-1") == b"\0\0\0\x08orders-1"
    assert decode_key(b"\0\0\0\x08orders-1") == "orders-1"


def test_a_key_of_another_kind_is_nobodys() -> None:
    assert decode_key(b"\0\1\0\1g") is None


def test_version_0_is_read() -> None:
    head = struct.pack(">hqhib", 0, 4_000, 3, 60_000, 1)
    data = head + struct.pack(">ih1siii", 1, 1, b"a", 2, 1, 2) + struct.pack(">qq", 9, 7)
    assert decode_value(data) == SavedTransaction(
        TransactionState.ONGOING,
        Producer(4_000, 3),
        timeout_ms=60_000,
        updated_ms=9,
        started_ms=7,
        places=frozenset({("a", 1), ("a", 2)}),
    )
    empty = struct.pack(">hqhib", 0, 4_000, 3, 60_000, 0) + struct.pack(">iqq", -1, 9, -1)
    assert decode_value(empty).places == frozenset()


KAFKAS = {  # By `TransactionLog.valueToBytes` of Apache Kafka 4.3.1, of what its `TransactionMetadata` decided.
    "initialize": "00010000000000000fa000000000ea6000000000000000000009ffffffffffffffff0100080000000000000fa0",
    "add": "00010000000000000fa000000000ea6001020261020000000100000000000000000a000000000000000a0200080000000000000fa0"
    "02020002",
    "commit": "00010000000000000fa000010000ea6002020261020000000100000000000000000b000000000000000a0200080000000000000f"
    "a002020002",
    "committed": "00010000000000000fa000010000ea600401000000000000000c000000000000000a0200080000000000000fa002020002",
    "abort": "00010000000000000fa000020000ea600301000000000000000d000000000000000d0200080000000000000fa002020002",
    "aborted": "00010000000000000fa000020000ea600501000000000000000e000000000000000d0200080000000000000fa002020002",
    "commit at the last epoch": "00010000000000000fa07fff0000ea6002020261020000000100000000000000000b0000000000000007"
    "0300080000000000000fa00108000000000000138802020002",
    "committed at the last epoch": "0001000000000000138800000000ea600401000000000000000c0000000000000007"
    "0200080000000000000fa002020002",
    "abort of v1": "00010000000000000fa000000000ea6003020261020000000100000000000000000b0000000000000007"
    "0100080000000000000fa0",
    "aborted of v1": "00010000000000000fa000000000ea600501000000000000000c00000000000000070100080000000000000fa0",
}


def test_lives_of_transactional_ids_are_written_as_kafka_writes_them() -> None:
    written = {}

    def desk_at(now_ms: int, first_id: int = 4_000) -> Desk:
        desk = Desk()
        desk.now_ms = now_ms
        desk.ids = count(first_id)
        return desk

    def note(name: str, desk: Desk) -> None:
        written[name] = encode_value(desk.saved).hex()
        desk.now_ms += 1

    def ending(desk: Desk, name: str, done: str, producer: Producer, *, commit: bool, version: int = V2) -> Producer:
        following = desk.end(producer, commit=commit, version=version).producer
        note(name, desk)
        assert desk.mark()
        note(done, desk)
        return following

    desk = desk_at(9)
    producer = desk.init().producer
    note("initialize", desk)
    desk.add(producer, ("a", 1))
    note("add", desk)
    following = ending(desk, "commit", "committed", producer, commit=True)
    ending(desk, "abort", "aborted", following, commit=False)

    last = Producer(4_000, LAST_EPOCH)
    open_since_7 = EMPTY._replace(
        state=TransactionState.ONGOING, started_ms=7, updated_ms=7, places=frozenset({("a", 1)})
    )
    desk = desk_at(11, 5_000)
    desk.transaction.saved = open_since_7._replace(producer=last, client_version=V2)
    ending(desk, "commit at the last epoch", "committed at the last epoch", last, commit=True)
    desk = desk_at(11)
    desk.transaction.saved = open_since_7
    ending(desk, "abort of v1", "aborted of v1", EMPTY.producer, commit=False, version=V1)
    assert written == KAFKAS
    assert {name: encode_value(decode_value(bytes.fromhex(data))).hex() for name, data in KAFKAS.items()} == KAFKAS


def test_a_next_producer_whose_epoch_is_not_said_begins_at_0() -> None:
    found = decode_value(bytes.fromhex(KAFKAS["commit at the last epoch"]))
    assert (found.owner, found.predecessor) == (Producer(5_000, 0), Producer(4_000, LAST_EPOCH))


@pytest.mark.parametrize(
    ("saved", "epoch"),
    [
        (COMPLETE._replace(client_version=V2, previous_producer_id=4_000), 2),
        (COMPLETE._replace(client_version=V2, producer=Producer(5_000, 0), previous_producer_id=4_000), LAST_EPOCH),
        (COMPLETE._replace(client_version=V2, producer=Producer(4_000, 0), previous_producer_id=4_000), -1),
        (COMPLETE, -1),
        (EMPTY._replace(client_version=V2, producer=Producer(4_000, 3)), -1),
        (COMPLETE._replace(client_version=V2, state=TransactionState.ONGOING), -1),
        (PREPARED._replace(next_producer=Producer(5_000, 9)), 8),
        (PREPARED._replace(next_producer=NOBODY, producer=Producer(4_000, 9)), 8),
    ],
)
def test_the_producer_before_is_known_after_an_end_of_v2_alone(saved: SavedTransaction, epoch: int) -> None:
    assert decode_value(encode_value(saved)).last_epoch == epoch


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE, 8, -1])
def test_a_state_that_nothing_is_saved_in_is_refused(state: int) -> None:
    data = bytearray(COMPLETE_VALUE)
    data[16] = state & 0xFF
    with pytest.raises(MalformedMessageError, match="a transaction's record"):
        decode_value(data)


@pytest.mark.parametrize("version", [-1, 2])
def test_a_version_that_is_not_known_is_refused(version: int) -> None:
    with pytest.raises(MalformedMessageError):
        decode_value(struct.pack(">h", version) + COMPLETE_VALUE[2:])


def test_half_a_run_of_outcomes_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="3 bytes of runs"):
        decode_value(encode_value(KEPT._replace(outcomes=(KeptOutcomes(4_000, 3, b"abc"),))))


def test_a_name_that_no_field_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="32767"):
        encode_key("x" * 32_768)


producers = st.builds(Producer, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
times = st.integers(-1, 2**62)
kept_outcomes = st.builds(
    KeptOutcomes,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.binary(max_size=3).map(lambda half: half + half),
)
saved_states = st.builds(
    SavedTransaction,
    st.sampled_from([state for state in TransactionState if state < TransactionState.DEAD]),
    producers,
    st.integers(0, 2**31 - 1),
    times,
    times,
    st.frozensets(st.tuples(st.text(max_size=10), st.integers(0, 2**31 - 1)), max_size=5),
    st.just(NOBODY) | producers,
    st.integers(-1, 2**63 - 1),
    st.just(-1),
    st.integers(0, 2),
    st.lists(kept_outcomes, max_size=2).map(tuple),
).map(lambda saved: saved._replace(places=frozenset()) if saved.state is TransactionState.EMPTY else saved)


@settings(max_examples=100, deadline=None)
@given(saved_states)
def test_values_come_back(saved: SavedTransaction) -> None:
    assert decode_value(encode_value(saved))._replace(last_epoch=-1) == saved


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=100))
def test_keys_come_back(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([EMPTY_VALUE, PREPARED_VALUE, KEPT_VALUE, encode_key("t")]), st.data())
def test_spoilt_bytes_are_refused_and_nothing_else_is_raised(data: bytes, chance: st.DataObject) -> None:
    spoilt = bytearray(data[: chance.draw(st.integers(0, len(data)))])
    if spoilt:
        spoilt[chance.draw(st.integers(0, len(spoilt) - 1))] = chance.draw(st.integers(0, 255))
    for decode in (decode_key, decode_value):
        try:
            decode(bytes(spoilt))
        except MalformedMessageError:
            continue
