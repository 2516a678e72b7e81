"""What an archive reads next follows from the table and the logs, and what does not fit stops it with both offsets."""

import pytest

from barnabas_spark.lake.ranges import PartitionKey, Span
from barnabas_spark.lake.rounds import (
    Gap,
    GapError,
    Log,
    LostLogError,
    OtherTopicError,
    TopicLogs,
    backfill_splits,
    check_ends,
    check_topic,
    epochs_to_ask,
    gaps_before,
    holes_of,
    missing_splits,
    next_splits,
)

RAW_ID = bytes(range(16))
TOPIC_ID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


def logs(**partitions: tuple[int, int, int]) -> TopicLogs:
    return TopicLogs("c", "orders", RAW_ID, {int(name[1:]): Log(*one) for name, one in partitions.items()})


def key(partition: int, topic_id: str = TOPIC_ID, cluster: str = "c") -> PartitionKey:
    return PartitionKey(cluster, topic_id, partition)


def test_what_is_missing_is_read_from_the_end_of_the_table_and_the_longest_first() -> None:
    found = next_splits({key(0): [Span(0, 5), Span(7, 30)]}, logs(p0=(0, 40, 2), p1=(3, 90, 1), p2=(8, 8, 1)))
    assert [(one.partition, one.start_offset, one.end_offset, one.leader_epoch) for one in found] == [
        (1, 3, 90, 1),
        (0, 30, 40, 2),
    ]
    assert {one.topic_id for one in found} == {RAW_ID}


def test_nothing_is_read_that_another_archiver_has_beyond_the_end_that_was_asked() -> None:
    assert next_splits({key(0): [Span(0, 50)]}, logs(p0=(0, 40, 2))) == []


def test_holes_are_listed_and_filled_where_the_log_has_them() -> None:
    stored = {key(0): [Span(10, 20), Span(30, 40), Span(50, 60)], key(1): [Span(5, 9)]}
    log = logs(p0=(15, 70, 2), p1=(0, 9, 1), p2=(0, 9, 1))
    assert holes_of(stored, log) == [(0, Span(20, 30), True), (0, Span(40, 50), True), (1, Span(0, 5), True)]
    assert not holes_of(stored, logs(p0=(25, 70, 2)))[0][2]

    def filled(start: int, end: int, found: TopicLogs = log) -> list[tuple[int, ...]]:
        return [(one.partition, *one[4:6]) for one in backfill_splits(stored, found, start, end)]

    assert filled(0, 2**63 - 1) == [(0, 20, 30), (1, 0, 5)]
    assert filled(25, 45) == [(0, 25, 30)]
    assert filled(30, 45) == [(0, 40, 45)]
    assert filled(60, 70) == []
    assert filled(0, 40, logs(p0=(25, 70, 2))) == [(0, 25, 30)]


def test_what_the_table_lacks_is_all_that_brokers_are_asked_for() -> None:
    stored = {key(0): [Span(10, 20), Span(30, 40)]}
    found = missing_splits(stored, logs(p0=(5, 50, 2), p1=(3, 4, 1), p2=(8, 8, 1)))
    assert [(one.partition, *one[4:6]) for one in found] == [(0, 5, 10), (0, 20, 30), (0, 40, 50), (1, 3, 4)]
    with pytest.raises(GapError, match=r"orders-0: the table lacks \[20, 30\), and the log starts at 25"):
        missing_splits(stored, logs(p0=(25, 50, 2)))
    assert [one[4:6] for one in missing_splits({key(0): [Span(0, 40)]}, logs(p0=(25, 50, 2)))] == [(40, 50)]


def test_gaps_are_found_between_the_table_and_the_log() -> None:
    stored = {key(0): [Span(0, 10)], key(1): [Span(0, 10)]}
    assert gaps_before(stored, logs(p0=(25, 40, 1), p1=(10, 20, 1), p2=(99, 100, 1))) == [Gap(0, 10, 25)]


def test_a_log_that_ends_before_the_table_is_refused_with_both_offsets() -> None:
    with pytest.raises(LostLogError, match="orders-0: the table ends at 100, and the log at 80"):
        check_ends({key(0): [Span(0, 100, 5)]}, logs(p0=(0, 80, 6)), {})


@pytest.mark.parametrize("contained", [80, -1])
def test_a_log_that_was_rewritten_below_the_table_is_refused_with_both_offsets(contained: int) -> None:
    stored = {key(0): [Span(0, 100, 5)]}
    log = logs(p0=(30, 120, 7))
    assert epochs_to_ask(stored, log) == {0: 5}
    with pytest.raises(LostLogError, match=rf"the table ends at 100 \(epoch 5\), .* ends at {max(contained, 30)}"):
        check_ends(stored, log, {0: contained})
    check_ends(stored, log, {0: 100})
    check_ends(stored, log, {0: 110})


def test_an_epoch_older_than_all_of_the_log_is_right_where_the_log_begins() -> None:
    check_ends({key(0): [Span(0, 100, 5)]}, logs(p0=(100, 120, 7)), {0: -1})


def test_an_unknown_epoch_is_not_asked_for() -> None:
    assert epochs_to_ask({key(0): [Span(0, 100)]}, logs(p0=(0, 100, 7))) == {}


def test_a_topic_made_anew_does_not_continue_the_old_one() -> None:
    old = {key(0, "8a2b"): [Span(0, 10)]}
    with pytest.raises(OtherTopicError, match=f"id 8a2b, and orders has id {TOPIC_ID}.*--restart-topic"):
        check_topic(old, logs(p0=(0, 5, 0)))
    with pytest.raises(OtherTopicError, match="of cluster other"):
        check_topic({key(0, TOPIC_ID, "other"): [Span(0, 10)]}, logs(p0=(0, 5, 0)))
    check_topic(old | {key(1): [Span(0, 1)]}, logs(p0=(0, 5, 0)))
    check_topic({}, logs(p0=(0, 5, 0)))


def test_without_ids_the_name_stands_for_the_topic() -> None:
    assert logs()._replace(raw_id=None).key(3) == PartitionKey("c", "orders", 3)


def test_a_table_of_all_records_is_ahead_of_the_committed_ones_while_a_transaction_is_open() -> None:
    """It is not the log that lost records, and nothing is read until the end of the committed ones has passed it."""
    stored = {key(0): [Span(0, 100, 5)]}
    log = TopicLogs("c", "orders", RAW_ID, {0: Log(0, 80, 5, 120)}, "read_committed")
    check_ends(stored, log, {0: 120})
    assert next_splits(stored, log) == missing_splits(stored, log) == []
    with pytest.raises(LostLogError, match="ends at 100, and the log at 90"):
        check_ends(stored, TopicLogs("c", "orders", RAW_ID, {0: Log(0, 80, 5, 90)}), {})
