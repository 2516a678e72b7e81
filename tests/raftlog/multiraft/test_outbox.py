"""Messages leave for a peer in one frame, unless too much waits for it already."""

from collections.abc import Sequence

from raftlog.messages import acknowledgement, append_entries, install_snapshot, vote_request, vote_response

from barnabas_raftlog.links.framing import Buffer, frame_of, read_header
from barnabas_raftlog.links.raft_frames import Addressed, decode_messages
from barnabas_raftlog.multiraft.outbox import ENTRIES_BYTES_MAX, Outbox
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    Entry,
    LeadershipEnded,
    Message,
    TimeoutNow,
    VoteResponse,
)

from .fakes import data_frame, group_id

DIRECTORY = bytes(15) + b"\x07"


class Links:
    """Takes everything for node 2, as long as `takes` says so; node 3 is not connected."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self.takes = True
        self.is_up = True
        self.frames: list[bytes] = []

    def is_connected(self, node_id: int) -> bool:
        return node_id != 3 and self.is_up

    def buffered_bytes(self, node_id: int) -> int:
        assert node_id == 2
        return self.waiting_bytes

    def send_frames(self, node_id: int, frames: Sequence[list[Buffer]]) -> bool:
        if self.takes:
            self.frames += [b"".join(frame) for frame in frames]
        return self.takes

    def messages(self) -> list[Addressed]:
        found: list[Addressed] = []
        for data in self.frames:
            frame = frame_of(memoryview(data)[4:], owned=True)
            found += decode_messages(read_header(frame.header), frame.payload, 1, 2, owned=True)
        return found


def append(*, target: int = 2, entries: bool = False) -> AppendEntries:
    frame = data_frame()
    frame[12:16] = (5).to_bytes(4, "big")
    held = [Entry(8, 5, memoryview(frame))] if entries else ()
    return append_entries(
        term=5, source=1, target=target, prev_index=7, prev_term=4, commit_index=6, round=3, entries=held
    )


LIGHT: list[Message] = [
    append(),
    acknowledgement(term=5, source=1, target=2, match_index=7, round=3),
    vote_request(term=5, source=1, target=2, last_index=7, last_term=4),
    vote_response(term=5, source=1, target=2),
    TimeoutNow(5, 1, 2),
    LeadershipEnded(5, 1, 2),
]
HEAVY: list[Message] = [
    append(entries=True),
    install_snapshot(term=5, source=1, target=2, snapshot_index=7, snapshot_term=4, data=b"state"),
]


def kinds(messages: Sequence[Message]) -> list[tuple[type, bool]]:
    return [(type(message), isinstance(message, AppendEntries) and bool(message.entries)) for message in messages]


def test_under_pressure_entries_and_snapshots_are_dropped_and_nothing_else() -> None:
    """Above all no heartbeat: without them a peer would elect somebody else, because of load alone."""
    links = Links()
    links.waiting_bytes = ENTRIES_BYTES_MAX + 1
    outbox = Outbox(links, DIRECTORY)
    outbox.add(group_id(1), [HEAVY[0], *LIGHT, HEAVY[1]])
    assert outbox.flush() == []
    assert kinds([message for _, message in links.messages()]) == kinds(LIGHT)
    assert (outbox.sent, outbox.dropped) == (len(LIGHT), len(HEAVY))


def test_up_to_that_everything_leaves_in_the_order_in_which_it_was_said() -> None:
    links = Links()
    links.waiting_bytes = ENTRIES_BYTES_MAX
    outbox = Outbox(links, DIRECTORY)
    outbox.add(group_id(1), LIGHT)
    outbox.add(group_id(2), HEAVY)
    outbox.flush()
    said = [(group_id(1), message) for message in LIGHT] + [(group_id(2), message) for message in HEAVY]
    heard = links.messages()
    assert [group for group, _ in heard] == [group for group, _ in said]
    assert kinds([message for _, message in heard]) == kinds([message for _, message in said])
    assert (outbox.sent, outbox.dropped) == (len(said), 0)
    votes = [message for _, message in heard if isinstance(message, VoteResponse)]
    assert [vote.directory_id for vote in votes] == [DIRECTORY]


def test_what_was_said_is_said_once() -> None:
    links = Links()
    outbox = Outbox(links, DIRECTORY)
    outbox.add(group_id(1), LIGHT)
    outbox.flush()
    outbox.flush()
    assert len(links.messages()) == len(LIGHT)


def test_what_nobody_takes_is_counted_and_forgotten() -> None:
    links = Links()
    outbox = Outbox(links, DIRECTORY)
    outbox.add(group_id(1), [append(target=3), append(target=3)])
    assert outbox.flush() == []
    assert (outbox.sent, outbox.dropped) == (0, 2)
    links.takes = False
    outbox.add(group_id(1), [append()])
    assert outbox.flush() == []
    assert (outbox.sent, outbox.dropped) == (0, 3)
    links.takes = True
    outbox.flush()
    assert not links.frames


def test_a_snapshot_that_no_frame_holds_is_reported_and_the_rest_leaves() -> None:
    links = Links()
    outbox = Outbox(links, DIRECTORY)
    giant = install_snapshot(term=5, source=1, target=2, snapshot_index=7, snapshot_term=4, data=bytes(64 << 20))
    outbox.add(group_id(1), [giant, append()])
    assert outbox.flush() == [(group_id(1), giant)]
    assert kinds([message for _, message in links.messages()]) == [(AppendEntries, False)]


def test_much_for_one_peer_leaves_in_pieces_in_order_and_before_what_is_said_later() -> None:
    links = Links()
    outbox = Outbox(links, DIRECTORY)
    megabyte = data_frame(bytes(1 << 20))
    megabyte[12:16] = (5).to_bytes(4, "big")
    for number in range(1, 6):
        entries = [Entry(8, 5, memoryview(megabyte))]
        outbox.add(
            group_id(number),
            [
                append_entries(
                    term=5, source=1, target=2, prev_index=7, prev_term=4, commit_index=6, round=3, entries=entries
                )
            ],
        )
    outbox.flush()
    assert len(links.frames) == 1
    outbox.add(group_id(9), [append()])
    for flushed in range(2, 6):
        outbox.flush()
        assert len(links.frames) == flushed
    outbox.flush()
    assert [group for group, _ in links.messages()] == [group_id(number) for number in (1, 2, 3, 4, 5, 9)]


def test_what_is_left_for_a_peer_goes_with_its_connection() -> None:
    links = Links()
    outbox = Outbox(links, DIRECTORY)
    megabyte = data_frame(bytes(1 << 20))
    megabyte[12:16] = (5).to_bytes(4, "big")
    for number in (1, 2):
        entries = [Entry(8, 5, memoryview(megabyte))]
        outbox.add(
            group_id(number),
            [
                append_entries(
                    term=5, source=1, target=2, prev_index=7, prev_term=4, commit_index=6, round=3, entries=entries
                )
            ],
        )
    outbox.flush()
    links.is_up = False
    outbox.flush()
    links.is_up = True
    outbox.flush()
    assert len(links.frames) == 1
