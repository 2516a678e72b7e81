"""Raft messages through the codec and back; damage of every kind is refused, never misread."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.messages import acknowledgement, append_entries, install_snapshot, vote_response

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links import raft_frames as wire
from barnabas_raftlog.links.framing import FRAME_BYTES_MAX, frame_of, read_header
from barnabas_raftlog.links.raft_frames import Addressed, decode_messages, encode_messages
from barnabas_raftlog.raft.membership import NOBODY, Configuration, Member
from barnabas_raftlog.raft.messages import (
    INDEX_MAX,
    TERM_MAX,
    AppendEntries,
    AppendResponse,
    Entry,
    GroupId,
    InstallSnapshot,
    LeadershipEnded,
    Message,
    Removed,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from barnabas_raftlog.records.header import BATCH_BYTES_MAX, HEADER_BYTES, ControlKind, control_frame

SOURCE = 1
TARGET = 2
DISK = bytes(range(16))
NUMBERS = st.integers(0, (1 << 31) - 1)
GROUPS = st.binary(min_size=20, max_size=20).map(GroupId)


def entry(index: int, term: int, body: bytes = b"") -> Entry:
    return Entry(index, term, control_frame(0, term, ControlKind.NO_OP, body))


@st.composite
def appends(draw: st.DrawFn) -> AppendEntries:
    term = draw(NUMBERS)
    prev_index = draw(NUMBERS)
    terms = sorted(draw(st.lists(st.integers(max(0, term - 2), term), max_size=5)))
    entries: Sequence[Entry] = [entry(prev_index + n, t, draw(st.binary(max_size=40))) for n, t in enumerate(terms, 1)]
    return append_entries(
        term=term,
        source=SOURCE,
        target=TARGET,
        prev_index=prev_index,
        prev_term=draw(NUMBERS),
        commit_index=draw(NUMBERS),
        round=draw(NUMBERS),
        quiesce=draw(st.booleans()),
        entries=entries,
        certain=draw(NUMBERS),
        released_index=draw(st.just(0) | NUMBERS),
    )


ENDS = {"source": st.just(SOURCE), "target": st.just(TARGET)}
CONFIGURATIONS = st.sampled_from([NOBODY, Configuration((Member(1, DISK), Member(2)), (Member(3),), (2,))])


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    appends(),
    st.builds(
        AppendResponse,
        **ENDS,
        term=NUMBERS,
        match_index=NUMBERS,
        round=NUMBERS,
        rejected=st.booleans(),
        hint_index=NUMBERS,
        hint_term=NUMBERS,
    ),
    st.builds(
        VoteRequest,
        **ENDS,
        term=NUMBERS,
        last_index=NUMBERS,
        last_term=NUMBERS,
        pre=st.booleans(),
        transfer=st.booleans(),
        is_learner=st.booleans(),
    ),
    st.builds(
        VoteResponse,
        **ENDS,
        term=NUMBERS,
        granted=st.booleans(),
        pre=st.booleans(),
        uncertain=st.booleans(),
        commit_index=NUMBERS,
        commit_term=NUMBERS,
        blank=st.booleans(),
    ),
    st.builds(
        InstallSnapshot,
        **ENDS,
        term=NUMBERS,
        snapshot_index=NUMBERS,
        snapshot_term=NUMBERS,
        data=st.binary(max_size=50),
        configuration=CONFIGURATIONS,
    ),
    st.builds(TimeoutNow, **ENDS, term=NUMBERS),
    st.builds(LeadershipEnded, **ENDS, term=NUMBERS),
    st.builds(Removed, **ENDS, term=NUMBERS, index=NUMBERS, index_term=NUMBERS),
)


def decode(frame: bytes, *, owned: bool = True) -> list[Addressed]:
    split = frame_of(memoryview(frame)[4:], owned=owned)
    return decode_messages(read_header(split.header), split.payload, SOURCE, TARGET, owned=owned)


def plain(messages: list[Addressed]) -> list[tuple[GroupId, str]]:
    """Comparable form: views become bytes, tuples of entries become lists."""
    shown = []
    for group_id, message in messages:
        if isinstance(message, AppendEntries):
            message.entries = [Entry(e.index, e.term, bytes(e.frame)) for e in message.entries]
        elif isinstance(message, InstallSnapshot):
            message.data = bytes(message.data)
        shown.append((group_id, repr(message)))
    return shown


@settings(deadline=None, max_examples=80)
@given(messages=st.lists(st.tuples(GROUPS, MESSAGES), max_size=8), owned=st.booleans())
def test_messages_survive_the_wire(messages: list[Addressed], owned: bool) -> None:
    frames, oversized = encode_messages(messages)
    assert not oversized
    got = [message for frame in frames for message in decode(b"".join(frame), owned=owned)]
    assert plain(got) == plain(messages)


@settings(deadline=None, max_examples=100)
@given(
    messages=st.lists(st.tuples(GROUPS, MESSAGES), min_size=1, max_size=3),
    position=st.integers(0, 1 << 20),
    value=st.integers(0, 255),
)
def test_damaged_frames_are_refused_or_are_what_a_peer_could_send(
    messages: list[Addressed], position: int, value: int
) -> None:
    (frame,), _ = encode_messages(messages)
    data = bytearray(b"".join(frame))
    data[8 + position % (len(data) - 8)] = value
    try:
        for _, message in decode(bytes(data)):
            assert message.source == SOURCE
    except MalformedMessageError:
        pass


@pytest.mark.parametrize(
    ("header", "payload", "complaint"),
    [
        ((6,), b"", "not .kind"),
        ((6, 1), b"", "not .kind"),
        ((6, (1,), DISK), b"", "not an array"),
        ((6, (), b"short"), b"", "not 16 bytes"),
        ((6, (), None), b"", "not 16 bytes"),
        ((6, ((3,),), DISK), b"", "wrong shape"),
        ((6, ((3, b"short", 1),), DISK), b"", "group id"),
        ((6, ((99, bytes(20), 1),), DISK), b"", "unknown kind 99"),
        ((6, ((7, bytes(20), -1),), DISK), b"", "not a number"),
        ((6, ((7, bytes(20), 1 << 63),), DISK), b"", "terms end at"),
        ((6, ((4, bytes(20), 1, 1 << 63, 0, 0, 0, 0),), DISK), b"", "not a number"),
        ((6, ((7, bytes(20), 1.5),), DISK), b"", "not a number"),
        ((6, ((7, bytes(20), True),), DISK), b"", "not a number"),
        ((6, ((7, bytes(20), 1),), DISK), b"x", "belong to no message"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (), (10,)),), DISK), b"x", "claimed at 0"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (), (1 << 62,)),), DISK), b"x", "claimed at 0"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (), (1,)),), DISK), b"x", "damaged"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (1,), (1,)),), DISK), b"x", "term runs"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (1, 1 << 40), (1,)),), DISK), b"x", "term runs"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (2, 1), (1,)),), DISK), b"x", "terms up to 2"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, (1, 1), ()),), DISK), b"", "has terms"),
        ((6, ((3, bytes(20), 1, 0, 0, 0, 0, 0, {1: 1}, {1: 1}),), DISK), b"", "are arrays"),
        ((6, ((5, bytes(20), 1, 1, 1, 0, b"x"),), DISK), b"", "a configuration of 1 bytes"),
        ((6, ((5, bytes(20), 1, 1, 1, 5, bytes(3)),), DISK), b"abc", "claimed at 0"),
    ],
)
def test_contradictions_are_named(header: tuple[object, ...], payload: bytes, complaint: str) -> None:
    with pytest.raises(MalformedMessageError, match=complaint):
        decode_messages(header, memoryview(payload), SOURCE, TARGET, owned=True)


def test_votes_and_acknowledgements_carry_the_disk_that_they_were_given_on() -> None:
    group = GroupId(bytes(20))
    messages: list[Addressed] = [
        (group, vote_response(term=1, source=SOURCE, target=TARGET)),
        (group, acknowledgement(term=1, source=SOURCE, target=TARGET, match_index=5, round=1)),
    ]
    (frame,), _ = encode_messages(messages, DISK)
    for _, message in decode(b"".join(frame)):
        assert isinstance(message, VoteResponse | AppendResponse)
        assert message.directory_id == DISK


def test_an_entry_stamped_with_another_term_is_refused() -> None:
    lying = Entry(1, 3, entry(1, 2).frame)
    append = append_entries(term=3, source=SOURCE, target=TARGET, entries=[lying])
    (frame,), _ = encode_messages([(GroupId(bytes(20)), append)])
    with pytest.raises(MalformedMessageError, match="stamped 2"):
        decode(b"".join(frame))


def append_of(*sizes: int) -> AppendEntries:
    entries = [entry(n, 1, bytes(size)) for n, size in enumerate(sizes, 1)]
    return append_entries(term=1, source=SOURCE, target=TARGET, entries=entries)


def test_payload_is_neither_copied_nor_joined_when_sent() -> None:
    append = append_of(100, 200)
    (frame,), _ = encode_messages([(GroupId(bytes(20)), append)])
    assert frame[1] is append.entries[0].frame
    assert frame[2] is append.entries[1].frame


def test_a_lone_append_is_not_copied_and_shared_ones_are() -> None:
    group = GroupId(bytes(20))
    for count, shared in ((1, True), (2, False)):
        (frame,), _ = encode_messages([(group, append_of(100))] * count)
        data = b"".join(frame)
        for _, message in decode(data):
            assert isinstance(message, AppendEntries)
            view = message.entries[0].frame
            assert isinstance(view, memoryview)
            assert view.readonly
            assert (view.obj is data) is shared


def test_what_would_be_copied_in_more_time_has_a_frame_of_its_own() -> None:
    group = GroupId(bytes(20))
    ended = LeadershipEnded(1, SOURCE, TARGET)
    small = append_of(100)
    bulk = append_of(wire.BULK_BYTES)
    messages: list[Message] = [ended, small, small, ended, bulk, ended, small, bulk, bulk]
    frames, _ = encode_messages([(group, message) for message in messages])
    found = [[wire.payload_bytes_of(message) for _, message in decode(b"".join(frame))] for frame in frames]
    one, many = (wire.payload_bytes_of(message) for message in (small, bulk))
    assert found == [[0, one, one, 0], [many, 0], [one], [many], [many]]


def test_large_batches_are_split_and_giants_reported() -> None:
    group = GroupId(bytes(20))
    big = append_of(3 << 20)
    frames, oversized = encode_messages([(group, big), (group, big), (group, append_of(10))])
    assert [sum(len(part) for part in frame) >> 10 for frame in frames] == [3072, 3072, 0]
    giant = install_snapshot(
        term=1, source=SOURCE, target=TARGET, snapshot_index=1, snapshot_term=1, data=bytes(64 << 20)
    )
    frames, oversized = encode_messages([(group, append_of(1)), (group, giant)])
    assert [message for _, message in oversized] == [giant]
    assert len(frames) == 1


def test_an_entry_that_is_larger_than_any_frame_travels_alone() -> None:
    """Logs hold such batches from before there was a limit; dropped, they would stop their partitions for ever."""
    group = GroupId(bytes(20))
    ended = LeadershipEnded(1, SOURCE, TARGET)
    giant = append_of(64 << 20)
    messages: list[Message] = [ended, giant, ended, append_of(10)]
    frames, oversized = encode_messages([(group, message) for message in messages])
    assert not oversized
    decoded = [[message for _, message in decode(b"".join(frame))] for frame in frames]
    assert [[type(message) for message in frame] for frame in decoded] == [
        [LeadershipEnded],
        [AppendEntries],
        [LeadershipEnded, AppendEntries],
    ]
    assert decoded[1] == [giant]


@pytest.mark.parametrize(
    "messages",
    [
        [append_of(32 << 20, 32 << 20)],
        [append_of(64 << 20), LeadershipEnded(1, SOURCE, TARGET)],
        [
            install_snapshot(
                term=1, source=SOURCE, target=TARGET, snapshot_index=1, snapshot_term=1, data=bytes((64 << 20) + 1)
            )
        ],
    ],
    ids=["two entries", "two messages", "a snapshot"],
)
def test_nothing_but_a_single_entry_may_be_larger_than_a_frame(
    messages: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as larger:
        larger.setattr(wire, "PAYLOAD_BYTES_MAX", 1 << 30)
        larger.setattr(wire, "SPLIT_BYTES", 1 << 30)
        (frame,), _ = encode_messages([(GroupId(bytes(20)), message) for message in messages])
    with pytest.raises(MalformedMessageError, match="not of one entry"):
        decode(b"".join(frame))


def test_every_batch_that_is_taken_fits_a_frame() -> None:
    assert BATCH_BYTES_MAX <= wire.PAYLOAD_BYTES_MAX < FRAME_BYTES_MAX
    frames, oversized = encode_messages([(GroupId(bytes(20)), append_of(BATCH_BYTES_MAX - HEADER_BYTES - 1))])
    assert not oversized
    (frame,) = frames
    assert sum(len(part) for part in frame) <= FRAME_BYTES_MAX


def test_many_small_messages_do_not_make_one_endless_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "SPLIT_MESSAGES", 3)
    ended = (GroupId(bytes(20)), LeadershipEnded(1, SOURCE, TARGET))
    frames, _ = encode_messages([ended] * 7)
    assert [len(decode(b"".join(frame))) for frame in frames] == [3, 3, 1]


def test_append_layout_is_pinned() -> None:
    group = GroupId(bytes(range(20)))
    append = append_entries(
        term=5,
        source=SOURCE,
        target=TARGET,
        prev_index=7,
        prev_term=4,
        commit_index=6,
        round=300,
        quiesce=True,
        entries=[entry(8, 5)],
    )
    (frame,), _ = encode_messages([(group, append)])
    head = "9306" + "91" + "9a" + "03" + "c414" + bytes(range(20)).hex() + "05" + "07" + "04" + "06" + "cd012c" + "01"
    assert bytes(frame[0])[8:].hex() == head + "90" + "913e" + "c410" + bytes(16).hex()


def test_an_append_to_a_witness_has_one_number_more() -> None:
    group = GroupId(bytes(range(20)))
    append = append_entries(
        term=5,
        source=SOURCE,
        target=TARGET,
        prev_index=7,
        prev_term=4,
        commit_index=6,
        round=300,
        quiesce=True,
        entries=[entry(8, 5)],
        released_index=7,
    )
    (frame,), _ = encode_messages([(group, append)])
    head = "9306" + "91" + "9b" + "03" + "c414" + bytes(range(20)).hex() + "05" + "07" + "04" + "06" + "cd012c" + "01"
    assert bytes(frame[0])[8:].hex() == head + "07" + "90" + "913e" + "c410" + bytes(16).hex()


@pytest.mark.parametrize("kind", [VoteRequest, AppendResponse, TimeoutNow, LeadershipEnded])
def test_terms_end_where_epochs_of_batches_do(kind: type[Any]) -> None:
    fields: tuple[object, ...] = ()
    if kind is VoteRequest:
        fields = (0, 0, False, False)
    elif kind is AppendResponse:
        fields = (0, 0, False, 0, 0)
    for term, is_right in ((TERM_MAX, True), (TERM_MAX + 1, False), (1 << 40, False)):
        (buffers,), _ = encode_messages([(GroupId(bytes(20)), kind(term, SOURCE, TARGET, *fields))], DISK)
        frame = frame_of(memoryview(b"".join(buffers))[4:], owned=False)
        if is_right:
            ((_, message),) = decode_messages(read_header(frame.header), frame.payload, SOURCE, TARGET, owned=False)
            assert message.term == TERM_MAX
        else:
            with pytest.raises(MalformedMessageError, match="terms end at 2147483647"):
                decode_messages(read_header(frame.header), frame.payload, SOURCE, TARGET, owned=False)


@pytest.mark.parametrize(
    ("following", "complaint"),
    [
        ((4, 0), "entry 8 of term 4 at offset 0 follows term 5 and offset 0"),
        ((5, 1), "entry 8 of term 5 at offset 1 follows term 5 and offset 0"),
        ((5, -1), "entry 8 of term 5 at offset -1"),
    ],
)
def test_entries_that_do_not_continue_each_other_are_refused(following: tuple[int, int], complaint: str) -> None:
    term, base_offset = following
    second = Entry(8, term, control_frame(base_offset, term, ControlKind.NO_OP))
    append = append_entries(
        term=5, source=SOURCE, target=TARGET, prev_index=6, prev_term=4, round=1, entries=[entry(7, 5), second]
    )
    (frame,), _ = encode_messages([(GroupId(bytes(20)), append)])
    with pytest.raises(MalformedMessageError, match=complaint):
        decode(b"".join(frame))


def test_a_snapshot_beyond_any_log_is_refused() -> None:
    for index, is_right in ((INDEX_MAX, True), (INDEX_MAX + 1, False)):
        snapshot = install_snapshot(
            term=1, source=SOURCE, target=TARGET, snapshot_index=index, snapshot_term=1, data=b"state"
        )
        (frame,), _ = encode_messages([(GroupId(bytes(20)), snapshot)], DISK)
        if is_right:
            assert decode(b"".join(frame)) == [(GroupId(bytes(20)), snapshot)]
        else:
            with pytest.raises(MalformedMessageError, match="no log reaches beyond"):
                decode(b"".join(frame))
