"""Encodes the Raft messages of all groups for one peer into few frames. Pure.

The header of a RAFT frame is ``[kind, [message, message, ...], directory id]``. The directory id is the sender's, and
half of its identity as a voter: votes and acknowledgements count only for the disk that they were given on. It stands
in each frame, not in the handshake, because only Raft asks.

A message is an array of small ints: its kind, the group id, the term, and the values of its kind. Source and target are
not sent: the connection knows both, so nobody can speak in another's name. Entries follow `prev_index` without a gap,
so no index is sent; their terms are run-length encoded, and left out when all equal the message's own term (the steady
state); their sizes are listed; their frames follow the header as raw bytes in message order. Appends to witnesses have
one number more: the index up to which they may forget.

Decoding trusts nothing: counts, sizes, every entry's CRC and stamped leader epoch (`records.header.verify`), the order
of terms and offsets. A contradiction raises `MalformedMessageError`, which closes that connection.

A single entry above `FRAME_BYTES_MAX` travels alone, in the only kind of frame that may be larger; a snapshot that fits
no frame is not sent, and reported. If several messages of a frame carry payload, each gets a copy of its own, so that
no entry keeps those of other groups in memory; a single append is never copied, so a payload of `BULK_BYTES` and more
gets a frame of its own. `docs/links.md` ("Frames of Raft messages") has the reasons.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from barnabas_raftlog.errors import CorruptBatchError, MalformedMessageError
from barnabas_raftlog.raft.membership import DIRECTORY_ID_BYTES, UNKNOWN_DIRECTORY, Configuration
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
    PeerDigest,
    Removed,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from barnabas_raftlog.records.header import verify

from .digests import decode_digests
from .framing import FRAME_BYTES_MAX, Buffer, FrameKind, encode_frame

__all__ = [
    "GROUP_ID_BYTES",
    "METADATA_GROUP",
    "SPLIT_BYTES",
    "Addressed",
    "Heard",
    "decode_frame",
    "decode_messages",
    "encode_messages",
    "payload_bytes_of",
]

Addressed: TypeAlias = tuple[GroupId, Message]
Heard: TypeAlias = tuple[GroupId, Message | PeerDigest]

GROUP_ID_BYTES = 20
METADATA_GROUP = GroupId(bytes(GROUP_ID_BYTES))
SPLIT_BYTES = 4 << 20  # A frame is closed once it holds this much, so that its receiver can start on it.
BULK_BYTES = 64 << 10  # copied in more time than a frame of its own takes
PAYLOAD_BYTES_MAX = FRAME_BYTES_MAX - (1 << 20)  # The rest is for headers.
SPLIT_MESSAGES = 1_000  # The same for frames of heartbeats: this many headers decode in two or three milliseconds.
INT_MAX = (1 << 63) - 1  # Every index and round fits in it, on disk too.

_VOTE_REQUEST, _VOTE_RESPONSE, _APPEND, _APPEND_RESPONSE, _INSTALL, _TIMEOUT_NOW, _ENDED, _REMOVED = range(1, 9)
_RAFT = int(FrameKind.RAFT)
_DIGEST = int(FrameKind.DIGEST)


def payload_bytes_of(message: Message) -> int:
    """Return how many raw bytes `message` adds to a frame behind the header."""
    if type(message) is AppendEntries:
        return sum([len(entry.frame) for entry in message.entries]) if message.entries else 0
    return len(message.data) if type(message) is InstallSnapshot else 0


def encode_messages(
    messages: Sequence[Addressed], directory_id: bytes = UNKNOWN_DIRECTORY
) -> tuple[list[list[Buffer]], list[Addressed]]:
    """Return the frames that carry `messages` in order, and those that are too large for any frame: no appends."""
    frames: list[list[Buffer]] = []
    oversized: list[Addressed] = []
    headers: list[tuple[object, ...]] = []
    payloads: list[Buffer] = []
    filled = 0
    for group_id, message in messages:
        size = payload_bytes_of(message)
        is_split = size >= BULK_BYTES or filled >= BULK_BYTES or filled + size > SPLIT_BYTES
        if size > PAYLOAD_BYTES_MAX and type(message) is InstallSnapshot:
            oversized.append((group_id, message))
            continue
        is_alone = size > PAYLOAD_BYTES_MAX or filled > PAYLOAD_BYTES_MAX
        if (size and filled and is_split) or len(headers) == SPLIT_MESSAGES or (headers and is_alone):
            frames.append(encode_frame((_RAFT, headers, directory_id), payloads, filled))
            headers = []
            payloads = []
            filled = 0
        headers.append(_encode(group_id, message, payloads))
        filled += size
    if headers:
        frames.append(encode_frame((_RAFT, headers, directory_id), payloads, filled))
    return frames, oversized


def _encode(group_id: GroupId, message: Message, payloads: list[Buffer]) -> tuple[object, ...]:
    match message:
        case AppendEntries():
            entries = message.entries
            terms, sizes = _describe(entries, message.term, payloads) if entries else ((), ())
            head = (
                _APPEND,
                group_id,
                message.term,
                message.prev_index,
                message.prev_term,
                message.commit_index,
                message.round,
                message.quiesce | message.certain << 1,
            )
            return (*head, message.released_index, terms, sizes) if message.released_index else (*head, terms, sizes)
        case AppendResponse():
            return (
                _APPEND_RESPONSE,
                group_id,
                message.term,
                message.match_index,
                message.round,
                message.rejected | message.uncertain << 1,
                message.hint_index,
                message.hint_term,
            )
        case VoteRequest():
            flags = message.pre | message.transfer << 1 | message.is_learner << 2
            return (_VOTE_REQUEST, group_id, message.term, message.last_index, message.last_term, flags)
        case VoteResponse():
            flags = message.granted | message.pre << 1 | message.uncertain << 2 | message.blank << 3
            return (_VOTE_RESPONSE, group_id, message.term, flags, message.commit_index, message.commit_term)
        case InstallSnapshot():
            payloads.append(message.data)
            return (
                _INSTALL,
                group_id,
                message.term,
                message.snapshot_index,
                message.snapshot_term,
                len(message.data),
                message.configuration.encode(),
                *(message.witness_since or ()),
            )
        case TimeoutNow():
            return (_TIMEOUT_NOW, group_id, message.term)
        case LeadershipEnded():
            return (_ENDED, group_id, message.term)
        case Removed():
            return (_REMOVED, group_id, message.term, message.index, message.index_term)


def _describe(entries: Sequence[Entry], term: int, payloads: list[Buffer]) -> tuple[Sequence[int], Sequence[int]]:
    """Return runs of terms (term, count, term, count, ...; empty: all are of `term`) and the sizes of the frames."""
    frames = [entry.frame for entry in entries]
    payloads += frames
    sizes = [len(frame) for frame in frames]
    # Terms never decrease along a log, so equal ends mean one term.
    if entries[0].term == term == entries[-1].term:
        return (), sizes
    runs: list[int] = []
    for entry in entries:
        if runs and runs[-2] == entry.term:
            runs[-1] += 1
        else:
            runs += (entry.term, 1)
    return runs, sizes


def decode_frame(
    header: tuple[Any, ...], payload: memoryview, source: int, target: int, *, owned: bool
) -> Sequence[Heard]:
    """Return the messages of a RAFT frame, or those of a DIGEST frame; raises as `decode_messages` does."""
    if header[0] == _DIGEST:
        return decode_digests(header, source)
    return decode_messages(header, payload, source, target, owned=owned)


def decode_messages(
    header: tuple[Any, ...], payload: memoryview, source: int, target: int, *, owned: bool
) -> list[Addressed]:
    """Return the messages of a RAFT frame. With `owned` false, entries are copied out of `payload`.

    Raises:
        MalformedMessageError: anything in it contradicts anything else.
    """
    if len(header) != 3 or type(header[1]) is not tuple:
        raise MalformedMessageError("raft frame is not [kind, messages, directory id]")
    _, messages, directory_id = header
    if type(directory_id) is not bytes or len(directory_id) != DIRECTORY_ID_BYTES:
        raise MalformedMessageError(f"directory id {directory_id!r} is not {DIRECTORY_ID_BYTES} bytes")
    if len(payload) > FRAME_BYTES_MAX and not _is_one_entry(messages):
        raise MalformedMessageError(f"{len(payload)} payload bytes that are not of one entry")
    payload = payload.toreadonly()
    share = owned and (len(messages) == 1 or sum(1 for item in messages if _carries_payload(item)) <= 1)
    decoded: list[Addressed] = []
    position = 0
    try:
        for item in messages:
            group_id = _group_of(item)
            if item[0] == _APPEND:
                append, position = _decode_append(item, payload, position, source, target, share=share)
                decoded.append((group_id, append))
            elif item[0] == _INSTALL:
                install, position = _decode_install(item, payload, position, source, target, share=share)
                decoded.append((group_id, install))
            else:
                decoded.append((group_id, _decode_small(item, source, target, directory_id)))
    except (ValueError, TypeError, IndexError) as error:
        raise MalformedMessageError(f"raft message of a wrong shape: {error}") from error
    except CorruptBatchError as error:
        raise MalformedMessageError(f"entry is damaged: {error}") from error
    if position != len(payload):
        raise MalformedMessageError(f"{len(payload) - position} payload bytes belong to no message")
    return decoded


def _group_of(item: tuple[Any, ...]) -> GroupId:
    """Return which group a message is for, if it can be for one and of a term that there may be."""
    if type(item) is not tuple:
        raise MalformedMessageError("raft message is not an array")
    group_id = item[1]
    if type(group_id) is not bytes or len(group_id) != GROUP_ID_BYTES:
        raise MalformedMessageError(f"group id {group_id!r} is not {GROUP_ID_BYTES} bytes")
    if item[2] > TERM_MAX:
        raise MalformedMessageError(f"term {item[2]!r}; terms end at {TERM_MAX}")
    return GroupId(group_id)


def _carries_payload(item: object) -> bool:
    # Only a hint for copying; the shape is checked when the item is decoded.
    if type(item) is not tuple or not item:
        return False
    return item[0] == _INSTALL or (item[0] == _APPEND and bool(item[-1]))


def _is_one_entry(messages: tuple[Any, ...]) -> bool:
    """Tell whether this can only be a single append of a single entry, which alone may be larger than other frames."""
    item = messages[0] if len(messages) == 1 else None
    return type(item) is tuple and item[:1] == (_APPEND,) and type(item[-1]) is tuple and len(item[-1]) == 1


def _check(numbers: tuple[int, ...]) -> None:
    for number in numbers:
        if type(number) is not int or not 0 <= number <= INT_MAX:
            raise MalformedMessageError(f"{number!r} is not a number from 0 to 2**63-1")


def _decode_small(item: tuple[Any, ...], source: int, target: int, directory_id: bytes) -> Message:
    kind = item[0]
    numbers = item[2:]
    _check(numbers)
    if kind == _APPEND_RESPONSE:
        term, match_index, round_, flags, hint_index, hint_term = numbers
        return AppendResponse(
            term=term,
            source=source,
            target=target,
            match_index=match_index,
            round=round_,
            rejected=flags & 1 != 0,
            hint_index=hint_index,
            hint_term=hint_term,
            directory_id=directory_id,
            uncertain=flags >> 1,
        )
    if kind == _VOTE_REQUEST:
        term, last_index, last_term, flags = numbers
        return VoteRequest(
            term=term,
            source=source,
            target=target,
            last_index=last_index,
            last_term=last_term,
            pre=flags & 1 != 0,
            transfer=flags & 2 != 0,
            is_learner=flags & 4 != 0,
        )
    if kind == _VOTE_RESPONSE:
        term, flags, commit_index, commit_term = numbers
        return VoteResponse(
            term=term,
            source=source,
            target=target,
            granted=flags & 1 != 0,
            pre=flags & 2 != 0,
            directory_id=directory_id,
            uncertain=flags & 4 != 0,
            commit_index=commit_index,
            commit_term=commit_term,
            blank=flags & 8 != 0,
        )
    if kind == _REMOVED:
        term, index, index_term = numbers
        return Removed(term=term, source=source, target=target, index=index, index_term=index_term)
    (term,) = numbers
    if kind == _TIMEOUT_NOW:
        return TimeoutNow(term, source, target)
    if kind == _ENDED:
        return LeadershipEnded(term, source, target)
    raise MalformedMessageError(f"raft message of unknown kind {kind!r}")


def _take(payload: memoryview, position: int, size: int, *, share: bool) -> memoryview:
    if size > len(payload) - position:
        raise MalformedMessageError(f"{size} payload bytes claimed at {position}, the frame has {len(payload)}")
    view = payload[position : position + size]
    return view if share else memoryview(bytes(view))


def _decode_append(
    item: tuple[Any, ...], payload: memoryview, position: int, source: int, target: int, *, share: bool
) -> tuple[AppendEntries, int]:
    _, _, term, prev_index, prev_term, commit_index, round_, flags, *released, terms, sizes = item
    _check((term, prev_index, prev_term, commit_index, round_, flags, *released))
    if len(released) > 1:
        raise MalformedMessageError(f"an append of {len(item)} fields")
    if type(sizes) is not tuple or type(terms) is not tuple:
        raise MalformedMessageError("sizes and terms of an append are arrays")
    entries: list[Entry] = []
    total = 0
    if sizes:
        _check(sizes)
        total = sum(sizes)
        taken = _take(payload, position, total, share=share)
        entry_terms = [term] * len(sizes) if not terms else _decode_terms(terms, len(sizes))
        if prev_index + len(sizes) > INT_MAX or max(entry_terms) > term:
            raise MalformedMessageError(f"entries of terms up to {max(entry_terms)} after {prev_index} in term {term}")
        start = 0
        before_term = 0
        end_offset: int | None = None
        for number, (entry_term, size) in enumerate(zip(entry_terms, sizes, strict=True), prev_index + 1):
            frame = taken[start : start + size]
            start += size
            batch = verify(frame)
            if batch.leader_epoch != entry_term:
                raise MalformedMessageError(f"entry {number} of term {entry_term} is stamped {batch.leader_epoch}")
            if entry_term < before_term or end_offset not in {None, batch.base_offset}:
                place = f"of term {entry_term} at offset {batch.base_offset}"
                raise MalformedMessageError(
                    f"entry {number} {place} follows term {before_term} and offset {end_offset}"
                )
            before_term = entry_term
            end_offset = batch.end_offset
            entries.append(Entry(number, entry_term, frame))
    elif terms:
        raise MalformedMessageError("an append without entries has terms")
    append = AppendEntries(
        term=term,
        source=source,
        target=target,
        prev_index=prev_index,
        prev_term=prev_term,
        commit_index=commit_index,
        round=round_,
        quiesce=flags & 1 != 0,
        entries=entries or (),
        certain=flags >> 1,
        released_index=released[0] if released else 0,
    )
    return append, position + total


def _decode_terms(runs: tuple[int, ...], count: int) -> list[int]:
    _check(runs)
    if len(runs) % 2 or sum(runs[1::2]) != count:
        raise MalformedMessageError(f"term runs {runs[:8]} do not cover {count} entries")
    terms: list[int] = []
    for term, length in zip(runs[::2], runs[1::2], strict=True):
        terms += [term] * length
    return terms


def _decode_install(
    item: tuple[Any, ...], payload: memoryview, position: int, source: int, target: int, *, share: bool
) -> tuple[InstallSnapshot, int]:
    _, _, term, snapshot_index, snapshot_term, size, members, *since = item
    _check((term, snapshot_index, snapshot_term, size, *since))
    if len(since) not in {0, 2}:
        raise MalformedMessageError(f"a snapshot of {len(item)} fields")
    if type(members) is not bytes:
        raise MalformedMessageError("the members that come with a snapshot are bytes")
    if snapshot_index > INDEX_MAX:
        raise MalformedMessageError(f"a snapshot up to entry {snapshot_index}; no log reaches beyond {INDEX_MAX}")
    data = _take(payload, position, size, share=share)
    install = InstallSnapshot(
        term=term,
        source=source,
        target=target,
        snapshot_index=snapshot_index,
        snapshot_term=snapshot_term,
        data=data,
        configuration=Configuration.decode(members),
        witness_since=(since[0], since[1]) if since else None,
    )
    return install, position + size
