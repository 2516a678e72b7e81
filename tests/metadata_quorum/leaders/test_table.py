"""The leader table ends up the same for any order of the news."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_metadata_quorum.leaders.table import (
    DELETED_TOPICS_MAX,
    NO_LEADER,
    Announcement,
    Leadership,
    LeaderTable,
    decode_announcements,
    encode_announcements,
)
from barnabas_raftlog.errors import MalformedMessageError

DIGEST = 3341280661541234060
TOPIC = bytes(15) + b"\x01"
OTHER = bytes(15) + b"\x02"


def leads(
    topic_id: bytes = TOPIC,
    partition: int = 0,
    *,
    term: int = 1,
    version: int = 1,
    leader_id: int = 7,
    isr: tuple[int, ...] = (7,),
) -> Announcement:
    return Announcement(
        topic_id=topic_id,
        partition=partition,
        term=term,
        version=version,
        leader_id=leader_id,
        isr=isr,
    )


@st.composite
def news(draw: st.DrawFn) -> Announcement:
    """News as a correct cluster makes it: one leader per term, which may say that it leads no more."""
    term = draw(st.integers(1, 4))
    version = draw(st.integers(0, 4))
    topic_id = draw(st.sampled_from([TOPIC, OTHER]))
    partition = draw(st.integers(0, 1))
    leader_id = term % 3 if version < 4 else NO_LEADER
    return leads(topic_id, partition, term=term, version=version, leader_id=leader_id, isr=(term % 3, version))


def table_of(several: list[Announcement]) -> LeaderTable:
    table = LeaderTable()
    for item in several:
        table.merge(item)
    return table


def entries(table: LeaderTable) -> dict[tuple[bytes, int], Leadership | None]:
    return {key: table.get(*key) for key in product((TOPIC, OTHER), range(2))}


@settings(max_examples=50)
@given(st.data(), st.lists(news(), max_size=12))
def test_order_and_repetition_do_not_matter(data: st.DataObject, several: list[Announcement]) -> None:
    newest: dict[tuple[bytes, int], Leadership | None] = dict.fromkeys(entries(LeaderTable()))
    for item in sorted(several, key=lambda item: (item.term, item.version)):
        newest[item.topic_id, item.partition] = Leadership(*item[2:])
    shuffled = data.draw(st.permutations(several + several[:3]))
    assert entries(table_of(list(shuffled))) == newest


@settings(max_examples=50)
@given(st.data(), st.lists(news(), max_size=12), st.booleans())
def test_equal_digests_say_that_two_tables_hold_the_same_of_a_leader(
    data: st.DataObject, several: list[Announcement], is_deleted: bool
) -> None:
    some = data.draw(st.lists(st.sampled_from(several)) if several else st.just([]))
    tables = [table_of(several), table_of(some)]
    if is_deleted:
        tables[0].forget_topics([TOPIC])
        tables[0].sweep(100)
    for leader_id in range(3):
        held = [set(table.led_by({leader_id}, table.keys())) for table in tables]
        digests = [table.digest_of(leader_id) for table in tables]
        assert (digests[0] == digests[1]) == (held[0] == held[1])
        assert [digest == 0 for digest in digests] == [not entries for entries in held]


def test_digest_is_the_same_on_every_node_and_version() -> None:
    table = table_of([leads(term=2, isr=(7, 8)), leads(OTHER, 3, term=9, version=4)])
    assert table.digest_of(7) == DIGEST
    assert DIGEST < 1 << 63


def test_merge_tells_whether_it_was_news() -> None:
    table = LeaderTable()
    assert table.merge(leads(term=2, isr=(7, 8)))
    assert not table.merge(leads(term=2, isr=(7, 8)))
    assert not table.merge(leads(version=9, leader_id=8, isr=(8,)))
    assert table.merge(leads(term=2, version=2, leader_id=NO_LEADER))
    assert table.get(TOPIC, 0) == Leadership(2, 2, NO_LEADER, (7,))


def test_a_deleted_topic_stays_gone() -> None:
    table = table_of([leads(), leads(OTHER)])
    table.forget_topics([TOPIC])
    assert not table.merge(leads(term=5, leader_id=8, isr=(8,)))
    assert table.sweep(100) == [(TOPIC, 0)]
    assert table.get(TOPIC, 0) is None
    assert list(table.led_by({7}, table.keys())) == [leads(OTHER)]
    assert len(table) == 1
    assert len(list(table.led_by([7], table.keys()))) == 1
    assert not list(table.led_by([8], table.keys()))


def test_a_deleted_topic_goes_in_pieces() -> None:
    table = table_of([leads(TOPIC, number) for number in range(25)])
    assert table.merge(leads(OTHER))
    table.forget_topics([TOPIC, OTHER])
    table.forget_topics([TOPIC])
    pieces = [table.sweep(10) for _ in range(4)]
    assert [len(piece) for piece in pieces] == [10, 10, 6, 0]
    assert len({key for piece in pieces for key in piece}) == 26
    assert (len(table), table.digest_of(7), table.sweep(10)) == (0, 0, [])


def test_the_memory_of_deletions_is_bounded() -> None:
    table = LeaderTable()
    table.forget_topics(number.to_bytes(16, "big") for number in range(DELETED_TOPICS_MAX + 1))
    assert table.merge(leads(bytes(16)))
    assert not table.merge(leads((1).to_bytes(16, "big")))


@settings(max_examples=100)
@given(st.lists(news(), max_size=12))
def test_the_partitions_that_have_a_leader_are_counted(several: list[Announcement]) -> None:
    table = table_of(several)
    for topic_id in (TOPIC, OTHER):
        known = [table.get(topic_id, partition) for partition in range(2)]
        assert table.count_led(topic_id) == sum(one is not None and one.leader_id >= 0 for one in known)
    table.forget_topics([TOPIC])
    table.sweep(100)
    assert table.count_led(TOPIC) == 0


@settings(max_examples=50)
@given(st.lists(news(), max_size=3))
def test_announcements_survive_a_round_trip(several: list[Announcement]) -> None:
    assert decode_announcements(encode_announcements(several)) == several


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x91\x01", b"\x93"])
def test_garbage_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_announcements(body)
