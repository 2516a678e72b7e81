"""The producer table against a model that keeps and searches the whole log."""

from typing import NamedTuple

import msgpack
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.partition import producer_state
from barnabas_broker.partition.producer_state import (
    ANY_ID,
    DUPLICATES_COUNT,
    FORGOTTEN_AT_ONCE,
    PIECE,
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    PerhapsForgottenError,
    ProducerBatch,
    ProducerImage,
    ProducerTable,
)
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.steps import at_once

LAST = (1 << 31) - 1
PRODUCERS = st.integers(1, 3)
SEQUENCES = st.integers(0, 12) | st.integers(LAST - 5, LAST)


def read(blob: bytes) -> ProducerTable:
    return at_once(ProducerTable.from_blob_in_steps(blob))


def add(table: ProducerTable, index: int, base_sequence: int, delta: int = 0, *, epoch: int = 0, pid: int = 1) -> None:
    table.append(pid, epoch, base_sequence, delta, index, base_offset=100 + index, timestamp_ms=index)


class Written(NamedTuple):
    """An entry of a producer; of a marker `outcome` says whether it commits, and `base` and `delta` are 0."""

    pid: int
    epoch: int
    base: int = 0
    delta: int = 0
    is_transactional: bool = False
    outcome: bool | None = None
    coordinator_epoch: int = -1


class Known(NamedTuple):
    """What the log says of a producer; `following` is its next sequence, None if any is as likely."""

    epoch: int
    following: int | None
    sent: list[tuple[int, Written]]
    is_open: bool
    coordinator_epoch: int


def known_of(entries: list[tuple[int, Written]]) -> Known | None:
    known: Known | None = None
    for index, entry in entries:
        _, _, sent, is_open, coordinator_epoch = known or Known(0, None, [], False, -1)
        if entry.outcome is not None:
            following = None if known is None else known.following if entry.epoch == known.epoch else 0
            known = Known(entry.epoch, following, sent, False, entry.coordinator_epoch)
        else:
            following = (entry.base + entry.delta + 1) % 2**31
            sent = [*sent, (index, entry)]
            known = Known(entry.epoch, following, sent, is_open or entry.is_transactional, coordinator_epoch)
    return known


def remembered(batches: tuple[ProducerBatch, ...]) -> list[int]:
    """Return the indexes of what a table has of a producer, but for what it keeps longer than it must."""
    sent = [one.log_index for one in batches if not one.is_marker and one.epoch == batches[-1].epoch][-5:]
    return [*sent, batches[-1].log_index] if batches[-1].is_marker else sent


class TableFollowsTheLog(RuleBasedStateMachine):
    """`log` is the truth: at index position + 1 what a producer has written, or None without a producer.

    `forgotten`: how many of its first entries belong to producers that were forgotten before they wrote again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = ProducerTable()
        self.log: list[Written | None] = []
        self.commit_index = 0
        self.forgotten: dict[int, int] = {}
        self.images: list[tuple[ProducerImage, int, list[tuple[int, list[int]]]]] = []

    def entries_of(self, pid: int, last_index: int = 1 << 60) -> list[tuple[int, Written]]:
        """Return index and entry of each batch of a producer since it was last forgotten."""
        since = self.forgotten.get(pid, 0)
        log = self.log[:last_index]
        return [(i + 1, entry) for i, entry in enumerate(log) if entry and entry.pid == pid and i >= since]

    def expected(self, sent: Written, *, begins: bool) -> object:
        known = known_of(self.entries_of(sent.pid))
        is_new = begins or all(sent.pid > forgotten for forgotten in self.forgotten)
        gap_of_unknown = OutOfOrderSequenceError if is_new else PerhapsForgottenError
        if known is None:
            return None if sent.base == 0 else gap_of_unknown
        if sent.epoch < known.epoch:
            return InvalidProducerEpochError
        if sent.epoch > known.epoch:
            if sent.base != 0:
                return OutOfOrderSequenceError
        elif sent.base != (known.following or 0):
            for index, entry in known.sent[-5:]:
                if entry[:4] == sent[:4]:
                    return index
            return gap_of_unknown if known.following is None else OutOfOrderSequenceError
        return InvalidTransactionStateError if known.is_open and not sent.is_transactional else None

    @rule(
        pid=PRODUCERS,
        epoch=st.integers(0, 2),
        base=SEQUENCES,
        delta=st.integers(0, 2),
        is_transactional=st.booleans(),
        begins=st.booleans(),
    )
    def produce(self, pid: int, epoch: int, base: int, delta: int, is_transactional: bool, begins: bool) -> None:
        sent = Written(pid, epoch, base, delta, is_transactional)
        expected = self.expected(sent, begins=begins)
        kwargs = {"is_transactional": is_transactional, "begins": begins}
        if isinstance(expected, type):
            assert issubclass(expected, Exception)
            with pytest.raises(expected) as raised:
                self.table.check(pid, epoch, base, delta, **kwargs)
            assert raised.type is expected
            if expected is not PerhapsForgottenError:
                return
            original = None
        else:
            original = self.table.check(pid, epoch, base, delta, **kwargs)
            assert (original.log_index if original else None) == expected
        if original is None:
            self.log.append(sent)
            self.note(len(self.log), sent)
        else:
            assert original.base_offset == 100 + original.log_index

    @rule(pid=PRODUCERS, delta=st.integers(0, 1), count=st.integers(1, 4), is_transactional=st.booleans())
    def produce_in_order(self, pid: int, delta: int, count: int, is_transactional: bool) -> None:
        for _ in range(count):
            known = known_of(self.entries_of(pid))
            epoch, base = (known.epoch, known.following or 0) if known else (0, 0)
            self.produce(pid, epoch, base, delta, is_transactional, False)

    @rule(pid=PRODUCERS, bumps_epoch=st.booleans(), is_commit=st.booleans(), coordinator_epoch=st.integers(1, 3))
    def end_a_transaction(self, pid: int, bumps_epoch: bool, is_commit: bool, coordinator_epoch: int) -> None:
        known = known_of(self.entries_of(pid))
        epoch = known.epoch if known else 0
        self.send_marker(EndMarker(pid, epoch + bumps_epoch, is_commit, coordinator_epoch), bumps_epoch)

    @rule(
        marker=st.builds(EndMarker, PRODUCERS, st.integers(0, 2), st.booleans(), st.integers(1, 3)),
        bumps_epoch=st.booleans(),
    )
    def send_marker(self, marker: EndMarker, bumps_epoch: bool) -> None:
        mine = self.entries_of(marker.producer_id)
        known = known_of(mine)
        expected: type[Exception] | None = None
        repeated = None
        if known is not None:
            index, last = mine[-1]
            is_same = (last.epoch, last.outcome) == (marker.producer_epoch, marker.is_commit)
            is_over = bumps_epoch and marker.producer_epoch == known.epoch and not is_same
            if marker.producer_epoch < known.epoch or is_over:
                expected = InvalidProducerEpochError
            elif marker.coordinator_epoch < known.coordinator_epoch:
                expected = CoordinatorFencedError
            elif is_same and marker.coordinator_epoch == known.coordinator_epoch:
                repeated = index
        if expected is not None:
            with pytest.raises(expected):
                self.table.check_marker(marker, bumps_epoch=bumps_epoch)
            return
        found = self.table.check_marker(marker, bumps_epoch=bumps_epoch)
        assert (found.log_index if found else None) == repeated
        if found is None:
            pid, epoch, is_commit, coordinator_epoch = marker
            self.log.append(Written(pid, epoch, outcome=is_commit, coordinator_epoch=coordinator_epoch))
            self.note(len(self.log), self.log[-1])

    def note(self, index: int, entry: Written | None) -> None:
        if entry is None:
            self.table.skip(index)
        elif entry.outcome is None:
            pid, epoch, base, delta, is_transactional, _, _ = entry
            self.table.append(pid, epoch, base, delta, index, 100 + index, index, is_transactional)
        else:
            self.table.append_marker(entry.pid, entry.epoch, entry.coordinator_epoch, entry.outcome, index, index)

    @rule()
    def append_without_producer(self) -> None:
        self.log.append(None)
        self.table.skip(len(self.log))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_index = data.draw(st.integers(self.commit_index, len(self.log)))
        self.table.commit_index = self.commit_index

    @precondition(lambda self: self.commit_index < len(self.log))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.commit_index + 1, len(self.log)))
        del self.log[index - 1 :]
        self.table.truncate_from(index)

    @rule()
    def t21_forget_the_oldest_that_has_no_transaction_open(self) -> None:
        """They are as old as their last index; those that are not committed stay."""
        last_of = {pid: mine[-1][0] for pid in (1, 2, 3) if (mine := self.entries_of(pid))}
        known = {pid: known_of(self.entries_of(pid)) for pid in last_of}
        idle = [pid for pid, one in known.items() if one is not None and not one.is_open]
        pid = min(idle, key=lambda pid: last_of[pid], default=None)
        last = 0 if pid is None else last_of[pid]
        assert self.table.forget_before(last + 1) == (0 < last <= self.commit_index)
        if pid is not None and last <= self.commit_index:
            self.forgotten[pid] = last

    @rule()
    def take_an_image(self) -> None:
        """As of the committed entries: what a table knew that had never seen more."""
        committed = {pid: self.entries_of(pid, self.commit_index) for pid in (1, 2, 3)}
        order = sorted((mine[-1][0], pid) for pid, mine in committed.items() if mine)
        known = [(pid, self.needed(committed[pid])) for _, pid in order]
        self.images.append((self.table.committed(), min(len(self.log), self.commit_index), known))

    def needed(self, entries: list[tuple[int, Written]]) -> list[int]:
        """Return the indexes of the batches that may be sent again, and of a marker behind them."""
        known = known_of(entries)
        assert known is not None
        sent = [index for index, entry in known.sent if entry.epoch == known.epoch][-5:]
        return sent if entries[-1][1].outcome is None else [*sent, entries[-1][0]]

    @rule()
    def encode_the_images(self) -> None:
        """Later events do not change it."""
        for image, applied_index, known in self.images:
            table = read(image.to_blob())
            assert table.applied_index == applied_index
            found = [(pid, remembered(table.batches(pid))) for pid in table.producer_ids()]
            assert found == known
        self.images.clear()

    @rule()
    def save_and_load(self) -> None:
        self.table = read(self.table.image().to_blob())

    @rule()
    def save_what_is_committed_and_replay_the_rest(self) -> None:
        self.table = read(self.table.committed().to_blob())
        assert self.table.applied_index == min(len(self.log), self.commit_index)
        for index in range(self.table.applied_index + 1, len(self.log) + 1):
            self.note(index, self.log[index - 1])

    @invariant()
    def knows_of_each_producer_what_the_log_says(self) -> None:
        for pid in (1, 2, 3):
            known = known_of(self.entries_of(pid))
            batches = self.table.batches(pid)
            if known is None:
                assert not batches
                continue
            epoch, is_open, coordinator_epoch = batches[-1].epoch, batches[-1].is_open, batches[-1].coordinator_epoch
            assert (epoch, is_open, coordinator_epoch) == (known.epoch, known.is_open, known.coordinator_epoch)

    @invariant()
    def is_at_the_end_of_the_log(self) -> None:
        assert self.table.applied_index == len(self.log)

    @invariant()
    def knows_exactly_the_producers_of_the_log(self) -> None:
        order = {pid: mine[-1][0] for pid in (1, 2, 3) if (mine := self.entries_of(pid))}
        assert list(self.table.producer_ids()) == sorted(order, key=lambda pid: order[pid])


TestTableFollowsTheLog = TableFollowsTheLog.TestCase
TestTableFollowsTheLog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_sequence_wraps_at_2_to_the_31() -> None:
    table = ProducerTable()
    add(table, 1, LAST - 1, 3)  # LAST-1, LAST, 0, 1
    assert table.check(1, 0, 2, 0) is None
    original = table.check(1, 0, LAST - 1, 3)
    assert original is not None
    assert original.last_sequence == 1


def test_the_sequence_after_the_last_one_is_0() -> None:
    table = ProducerTable()
    add(table, 1, LAST - 4, 4)  # ends with LAST
    assert table.check(1, 0, 0, 9) is None
    with pytest.raises(OutOfOrderSequenceError):
        table.check(1, 0, 1, 0)
    add(table, 2, 0, 9)
    assert table.check(1, 0, 10, 0) is None
    for index, base, delta in ((1, LAST - 4, 4), (2, 0, 9)):
        original = table.check(1, 0, base, delta)
        assert original is not None
        assert original.log_index == index


def test_history_of_a_producer_is_bounded_once_committed() -> None:
    table = ProducerTable()
    for index in range(1, 101):
        add(table, index, index - 1)
        table.commit_index = index - 1
    assert len(table.batches(1)) <= 7


def test_whoever_is_newer_than_all_that_were_forgotten_must_begin_with_0() -> None:
    table = ProducerTable()
    add(table, 1, 0, pid=5)
    table.commit_index = 1
    assert table.forget_before(2) == 1
    for known in (table, read(table.image().to_blob())):
        with pytest.raises(PerhapsForgottenError):
            known.check(5, 0, 1, 0)
        with pytest.raises(OutOfOrderSequenceError) as raised:
            known.check(6, 0, 1, 0)
        assert not isinstance(raised.value, PerhapsForgottenError)
        assert known.check(6, 0, 0, 0) is None


@pytest.mark.parametrize(("is_complete", "forgotten_id_max"), [(True, -1), (False, ANY_ID)])
def test_a_table_that_was_saved_with_a_flag_is_read(is_complete: bool, forgotten_id_max: int) -> None:
    table = read(msgpack.packb((1, 7, 6, is_complete, [])))
    assert (table.applied_index, table.commit_index, table.forgotten_id_max) == (7, 6, forgotten_id_max)
    assert read(table.image().to_blob()).forgotten_id_max == forgotten_id_max


def test_uncommitted_producers_are_not_forgotten() -> None:
    table = ProducerTable()
    add(table, 1, 0)
    assert table.forget_before(1_000) == 0


def test_oldest_writer_is_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 2)
    table = ProducerTable()
    table.commit_index = 10
    for index, pid in enumerate((1, 2, 1, 3), start=1):
        add(table, index, index - 1 if pid == 1 else 0, pid=pid)
    assert list(table.producer_ids()) == [1, 3]
    assert table.forgotten_id_max == 2


@pytest.mark.parametrize("blob", [b"", b"\x00", b"\x95\x04\x00\x00\xc3\x90"])
def test_unreadable_blob_is_refused(blob: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        read(blob)


def test_a_table_is_read_in_pieces_and_written_as_ever() -> None:
    table = ProducerTable()
    count = 5 * PIECE // 2
    for pid in range(count):
        add(table, pid + 1, 0, pid=pid)
    table.commit_index = count
    blob = table.image().to_blob()
    rows = [(pid, [one[:6] for one in table.batches(pid)]) for pid in range(count)]
    assert blob == msgpack.packb((2, count, count, -1, rows))
    assert len(list(ProducerTable.from_blob_in_steps(blob))) == 3
    assert read(blob).image() == table.image()


@pytest.mark.parametrize("blob", [b"", msgpack.packb((2, 1, 1, -1)), msgpack.packb((2, 1, 1, -1, [])) + b"x"])
def test_what_is_too_short_or_too_long_is_no_table(blob: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        read(blob)


def test_so_many_producers_are_forgotten_at_once_and_the_others_next() -> None:
    table = ProducerTable()
    count = FORGOTTEN_AT_ONCE + 5
    for pid in range(count):
        add(table, pid + 1, 0, pid=pid)
    table.commit_index = count
    assert [table.forget_before(count + 2) for _ in range(3)] == [FORGOTTEN_AT_ONCE, 5, 0]


def end(
    table: ProducerTable, index: int, epoch: int, *, commit: bool = True, coordinator_epoch: int = 1, pid: int = 1
) -> None:
    table.append_marker(pid, epoch, coordinator_epoch, commit, index, timestamp_ms=index)


def in_transaction(table: ProducerTable, index: int, base_sequence: int, *, epoch: int = 0, pid: int = 1) -> None:
    table.append(pid, epoch, base_sequence, 0, index, 100 + index, index, True)


def test_t5_a_marker_of_the_current_epoch_is_refused_with_version_2_and_of_an_older_one_with_version_1() -> None:
    table = ProducerTable()
    in_transaction(table, 1, 0, epoch=3)
    for epoch, bumps_epoch, is_refused in [(3, True, True), (4, True, False), (2, False, True), (3, False, False)]:
        marker = EndMarker(1, epoch, True, 1)
        if is_refused:
            with pytest.raises(InvalidProducerEpochError):
                table.check_marker(marker, bumps_epoch=bumps_epoch)
        else:
            assert table.check_marker(marker, bumps_epoch=bumps_epoch) is None


def test_t6_a_marker_of_a_coordinator_that_was_replaced_is_refused_also_after_the_next_batches() -> None:
    table = ProducerTable()
    in_transaction(table, 1, 0)
    end(table, 2, 1, coordinator_epoch=5)
    in_transaction(table, 3, 0, epoch=1)
    with pytest.raises(CoordinatorFencedError):
        table.check_marker(EndMarker(1, 2, True, 4), bumps_epoch=True)
    table.truncate_from(2)
    assert table.check_marker(EndMarker(1, 1, True, 4), bumps_epoch=True) is None, "the other marker is gone"


def test_t7_whoever_is_unknown_begins_with_0_with_version_2_though_it_may_have_been_forgotten() -> None:
    table = ProducerTable()
    table.forgotten_id_max = 9
    for sequence, begins, expected in [(7, True, OutOfOrderSequenceError), (7, False, PerhapsForgottenError)]:
        with pytest.raises(OutOfOrderSequenceError) as raised:
            table.check(1, 0, sequence, 0, is_transactional=True, begins=begins)
        assert raised.type is expected
    assert table.check(1, 0, 0, 0, is_transactional=True, begins=True) is None


def test_a_marker_of_an_unknown_producer_says_nothing_of_its_sequence() -> None:
    """With version 1 it may have written for days elsewhere, and be forgotten here."""
    table = ProducerTable()
    table.forgotten_id_max = 9
    end(table, 1, 0)
    with pytest.raises(PerhapsForgottenError):
        table.check(1, 0, 7, 0)
    assert table.check(1, 0, 0, 0) is None
    end(table, 2, 1)
    with pytest.raises(InvalidProducerEpochError):
        table.check(1, 0, 0, 0)


def test_t8_a_batch_outside_of_transactions_is_refused_while_one_is_open() -> None:
    table = ProducerTable()
    in_transaction(table, 1, 0)
    for epoch, sequence in [(0, 1), (1, 0)]:
        with pytest.raises(InvalidTransactionStateError):
            table.check(1, epoch, sequence, 0)
        assert table.check(1, epoch, sequence, 0, is_transactional=True) is None
    original = table.check(1, 0, 0, 0)
    assert original is not None, "a repetition of what is there does no harm"
    end(table, 2, 0)
    assert table.check(1, 0, 1, 0) is None


def test_a_bumped_epoch_begins_at_0_and_the_same_one_goes_on() -> None:
    for epoch, sequence in [(1, 0), (0, 5)]:
        table = ProducerTable()
        in_transaction(table, 1, 4)
        end(table, 2, epoch)
        assert table.check(1, epoch, sequence, 0) is None
        with pytest.raises(OutOfOrderSequenceError):
            table.check(1, epoch, sequence + 1, 0)


def test_a_marker_that_is_in_the_log_is_recognised_until_the_producer_writes_again() -> None:
    table = ProducerTable()
    in_transaction(table, 1, 0)
    end(table, 2, 1, coordinator_epoch=3)
    for bumps_epoch in (True, False):
        found = table.check_marker(EndMarker(1, 1, True, 3), bumps_epoch=bumps_epoch)
        assert (found.log_index if found else None) == 2
        # Whoever has taken over is noted, or its predecessor's could still end what comes next.
        assert table.check_marker(EndMarker(1, 1, True, 4), bumps_epoch=bumps_epoch) is None
    with pytest.raises(InvalidProducerEpochError):
        table.check_marker(EndMarker(1, 1, False, 3), bumps_epoch=True)
    in_transaction(table, 3, 0, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        table.check_marker(EndMarker(1, 1, True, 3), bumps_epoch=True)


def test_the_last_five_batches_are_recognised_though_each_was_a_transaction_of_version_1() -> None:
    table = ProducerTable()
    for number in range(10):
        in_transaction(table, 2 * number + 1, number)
        end(table, 2 * number + 2, 0)
        table.commit_index = 2 * number + 2
    for number in range(5, 10):
        original = table.check(1, 0, number, 0, is_transactional=True)
        assert (original.log_index if original else None) == 2 * number + 1
    with pytest.raises(OutOfOrderSequenceError):
        table.check(1, 0, 4, 0, is_transactional=True)


@pytest.mark.parametrize("bump", [0, 1])
def test_history_of_a_producer_with_transactions_is_bounded_once_committed(bump: int) -> None:
    table = ProducerTable()
    for number in range(100):
        in_transaction(table, 2 * number + 1, 0 if bump else number, epoch=number * bump)
        end(table, 2 * number + 2, (number + 1) * bump)
        table.commit_index = 2 * number + 1
    assert len(table.batches(1)) <= DUPLICATES_COUNT + 3


def test_t21_no_producer_with_an_open_transaction_is_forgotten_for_age_or_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 2)
    table = ProducerTable()
    table.commit_index = 100
    for pid in (1, 2, 3):
        in_transaction(table, pid, 0, pid=pid)
    add(table, 4, 0, pid=4)
    add(table, 5, 0, pid=5)
    assert list(table.producer_ids()) == [1, 2, 3], "there is no room for others"
    assert (table.forget_before(1_000), table.forgotten_id_max) == (0, 5)
    end(table, 6, 1, pid=1)
    end(table, 7, 1, pid=2)
    assert table.forget_before(1_000) == 2


def test_a_table_with_transactions_survives_and_without_any_older_brokers_can_read_it() -> None:
    table = ProducerTable()
    add(table, 1, 0, pid=7)
    assert msgpack.unpackb(table.image().to_blob())[0] == 2
    in_transaction(table, 2, 0, pid=8)
    in_transaction(table, 3, 0, pid=9)
    end(table, 4, 1, pid=9)
    table.commit_index = 4
    blob = table.image().to_blob()
    assert msgpack.unpackb(blob)[0] == 3
    assert read(blob).image() == table.image()
    assert list(read(blob).producer_ids()) == [7, 8, 9]
