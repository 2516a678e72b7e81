"""The table is what the newest record of each transactional id says, and a rewritten log says the same."""

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.coordinators.runtime.contracts import Table
from barnabas_broker.coordinators.transactions.state_machine.messages import SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.producers import Producer
from barnabas_broker.coordinators.transactions.state_machine.records import decode_value, encode_key, encode_value
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.table import (
    ENCODED_AT_ONCE,
    PLACES_STEP,
    RECORDS_STEP,
    TransactionalIdTable,
    TransactionName,
)
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.reader import Record, batches
from barnabas_raftlog.steps import at_once

HEADER = next(batches(build_batch([NewRecord(b"k", b"v", 0)])))[0]
NAMES = ("a", "b", "ä" * 40)
Said = tuple[str, SavedTransaction | None]


def saved(number: int, places: int = 0) -> SavedTransaction:
    state = TransactionState.ONGOING if places else TransactionState.EMPTY
    return SavedTransaction(
        state,
        Producer(number, 0),
        timeout_ms=1,
        updated_ms=number,
        places=frozenset(("t", partition) for partition in range(places)),
    )


def record(transactional_id: str, value: SavedTransaction | None) -> Record:
    return Record(0, -1, encode_key(transactional_id), None if value is None else encode_value(value))


def states_of(table: TransactionalIdTable) -> dict[str, SavedTransaction]:
    return {transactional_id: value for transactional_id, (value, _) in table.saved.items()}


says = st.tuples(
    st.sampled_from(NAMES),
    st.none() | st.builds(saved, st.integers(0, 99), st.sampled_from([0, 1, ENCODED_AT_ONCE + 1])),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(says, max_size=4), max_size=6))
def test_the_newest_record_of_each_id_counts(batches: list[list[Said]]) -> None:
    table = TransactionalIdTable()
    model: dict[str, SavedTransaction] = {}
    for batch in batches:
        at_once(table.take(HEADER, [record(*said) for said in batch]))
        for transactional_id, value in batch:
            model.pop(transactional_id, None)
            if value is not None:
                model[transactional_id] = value
        assert states_of(table) == model
        assert {name: table.get(name) for name in NAMES} == {name: model.get(name) for name in NAMES}
        lengths = sum(12 + len(encode_key(name)) + len(encode_value(value)) for name, value in model.items())
        assert table.live_bytes == lengths == sum(table.size_of(TransactionName(name)) for name in NAMES)


@settings(max_examples=50, deadline=None)
@given(st.lists(says, max_size=6), says)
def test_a_rewritten_log_says_the_same_also_of_what_changes_meanwhile(batch: list[Said], late: Said) -> None:
    table: Table[TransactionName] = TransactionalIdTable()
    assert isinstance(table, TransactionalIdTable)
    at_once(table.take(HEADER, [record(*said) for said in batch]))
    names = at_once(table.names_in_steps())
    record_of = at_once(table.prepare_in_steps(names))
    at_once(table.take(HEADER, [record(*late)]))
    again = TransactionalIdTable()
    written = [found for name in names if (found := record_of(name)) is not None]
    at_once(again.take(HEADER, [Record(0, -1, key, value) for key, value in written]))
    expected = states_of(table)
    if (late[0],) not in names:
        expected.pop(late[0], None)
    assert states_of(again) == expected


def test_keys_of_another_kind_and_records_without_one_are_skipped() -> None:
    table = TransactionalIdTable()
    at_once(table.take(HEADER, [Record(0, -1, None, b"x"), Record(1, -1, b"\0\7what", b"x"), record("a", saved(1))]))
    assert list(table.saved) == ["a"]


def test_a_batch_taken_in_twice_counts_once() -> None:
    """The first time it may have been cancelled half-way."""
    table = TransactionalIdTable()
    batch = [record(f"t{number}", saved(number)) for number in range(2 * RECORDS_STEP)]
    steps = table.take(HEADER, batch)
    next(steps)
    steps.close()
    at_once(table.take(HEADER, batch))
    assert len(table.saved) == 2 * RECORDS_STEP
    assert table.live_bytes == sum(size for _, size in table.saved.values())


def test_long_work_pauses() -> None:
    table = TransactionalIdTable()
    short = [record(f"t{number}", saved(number)) for number in range(3 * RECORDS_STEP)]
    assert len(list(table.take(HEADER, short))) == 3
    many = [record(f"many{number}", saved(number, PLACES_STEP // 2)) for number in range(6)]
    assert len(list(table.take(HEADER, many))) == 3
    names = [TransactionName(f"many{number}") for number in range(6)]
    assert len(list(table.prepare_in_steps(names))) == 3


def test_what_is_committed_keeps_what_only_its_coordinator_knows() -> None:
    """The epoch before the present one is not in a record; a new coordinator makes it out."""
    table = TransactionalIdTable()
    value = saved(1)._replace(last_epoch=7)
    table.put("a", value, 10)
    assert table.get("a") is value
    assert decode_value(encode_value(value)).last_epoch == -1
