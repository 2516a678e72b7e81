"""Transfers without a sender: segments are made up, and received as if from a leader."""

from raftlog.log.frames import data_frame

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.transfer.incoming import Prepared
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile
from barnabas_raftlog.records.header import next_offset, parse_header, stamp
from barnabas_raftlog.wire.crc32c import crc32c

FRAMES_IN_A_SEGMENT = 5


def frames_of_segments(start_index: int, last_index: int, term: int) -> list[bytes]:
    """Return the entries behind `start_index`; the first of them has three times that as its offset."""
    frames = []
    offset = 3 * start_index
    for index in range(start_index + 1, last_index + 1):
        frame = data_frame(1 + index % 3, 100 * (index % 7), 1000 + index, fill=index)
        stamp(frame, offset, term)
        frames.append(bytes(frame))
        offset = next_offset(frame)
    return frames


def files_of(frames: list[bytes], start_index: int) -> list[tuple[SegmentFile, bytes]]:
    """Return the entries as files."""
    files: list[tuple[SegmentFile, bytes]] = []
    for place in range(0, len(frames), FRAMES_IN_A_SEGMENT):
        part = frames[place : place + FRAMES_IN_A_SEGMENT]
        data = b"".join(part)
        headers = [parse_header(frame) for frame in part]
        latest = max(headers, key=lambda header: header.max_timestamp)
        first_index = start_index + place + 1
        file = SegmentFile(
            base_offset=headers[0].base_offset,
            first_index=first_index,
            end_offset=headers[-1].end_offset,
            last_index=first_index + len(part) - 1,
            size_bytes=len(data),
            crc32c=crc32c(data),
            max_timestamp=latest.max_timestamp,
            max_timestamp_offset=latest.base_offset,
        )
        files.append((file, data))
    return files


def manifest_of(
    files: list[tuple[SegmentFile, bytes]], start_index: int, last_index: int, term: int, state: bytes
) -> Manifest:
    """Return the list of `files`, all of one term."""
    base_offset = 3 * start_index
    end_offset = files[-1][0].end_offset if files else base_offset
    epochs = ((term, max(1, min(start_index + 1, last_index)), base_offset),)
    listed = tuple(file for file, _ in files)
    return Manifest(
        snapshot_index=last_index,
        snapshot_term=term,
        end_offset=end_offset,
        start_index=start_index,
        log_start_offset=base_offset,
        epochs=epochs,
        files=listed,
        configuration=b"",
        state=state,
    )


def received(log: ReplicaLog, frames: list[bytes], start_index: int, term: int, state: bytes) -> Prepared:
    """Return the transfer that makes `frames` the log."""
    files = files_of(frames, start_index)
    manifest = manifest_of(files, start_index, start_index + len(frames), term, state)
    incoming = log.incoming()
    incoming.begin(manifest)
    for file, data in files:
        position = incoming.open(file)
        assert position is not None
        incoming.write(file, position, data[position:])
        incoming.finish(file)
    return incoming.prepare()
