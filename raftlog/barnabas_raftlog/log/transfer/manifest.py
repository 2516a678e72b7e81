"""The manifest of a snapshot: all files of a log up to one entry. Pure.

There is no second format for data: a snapshot is the sealed segments of the log, byte for byte, and this list beside
them. It names each file with its place, its size and its checksum; the terms that wrote them; where the log starts; and
all that the replica's owner must know that is not in the log (its producer table). A replica that has all that has the
sender's log up to there: the entries behind `snapshot_index` follow as always.

*Two files are the same* if everything that the manifest says of them is equal, the checksum included. That is how a
transfer is resumed with another sender: a file that was received is kept if the new manifest names it too. Names alone
would not do, because compacted replicas differ in bytes, and half of one compaction with half of another may bring back
records that both had removed.

Encoded, a manifest is as large as the owner's state makes it, so it is sent in pieces. Limit: `MANIFEST_BYTES_MAX`.
"""

import struct

import msgspec

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.unpacking import UNREADABLE
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["MANIFEST_BYTES_MAX", "Manifest", "SegmentFile", "decode_manifest", "encode_manifest", "stem_of"]

MAGIC = b"BNBSMNFT"
VERSION = 1
MANIFEST_BYTES_MAX = 256 << 20  # a million producers take 80 MiB
DIGITS = 20  # of a 64-bit number in a file's name, as in `segment`
_HEADER = struct.Struct(">8sIIQ")  # magic, version, crc of the body, length of the body


class SegmentFile(msgspec.Struct, array_like=True, frozen=True):
    """One sealed segment: entries `first_index` to `last_index`, offsets from `base_offset` to before `end_offset`."""

    base_offset: int
    first_index: int
    end_offset: int
    last_index: int
    size_bytes: int
    crc32c: int
    max_timestamp: int
    max_timestamp_offset: int


class Manifest(msgspec.Struct, array_like=True, frozen=True):
    """A log from behind entry `start_index` to `snapshot_index`, inclusive, and all that belongs to it.

    `epochs`: (term, first index, start offset), as the log keeps them. `state`: the owner's, as of `snapshot_index` or
    a later committed entry. `configuration`: of the group as of `snapshot_index`, encoded, or empty.
    """

    snapshot_index: int
    snapshot_term: int
    end_offset: int
    start_index: int
    log_start_offset: int
    epochs: tuple[tuple[int, int, int], ...]
    files: tuple[SegmentFile, ...]
    configuration: bytes
    state: bytes

    @property
    def size_bytes(self) -> int:
        """Bytes in all files."""
        return sum(file.size_bytes for file in self.files)


_packer = msgspec.msgpack.Encoder()
_reader = msgspec.msgpack.Decoder(Manifest)


def stem_of(base_offset: int, first_index: int) -> str:
    """Return the name that a segment's files have in common."""
    return f"{base_offset:0{DIGITS}d}.{first_index:0{DIGITS}d}"


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest.

    Raises:
        ValueError: there are more than `MANIFEST_BYTES_MAX` of them.
    """
    body = _packer.encode(manifest)
    if len(body) > MANIFEST_BYTES_MAX - _HEADER.size:
        raise ValueError(f"a manifest of {len(body)} bytes: at most {MANIFEST_BYTES_MAX} can be sent")
    return _HEADER.pack(MAGIC, VERSION, crc32c(body), len(body)) + body


def decode_manifest(data: bytes | bytearray | memoryview) -> Manifest:
    """Read a manifest and check that it is one log without a gap.

    Raises:
        MalformedMessageError: it is damaged, of another version, or contradicts itself.
    """
    if len(data) < _HEADER.size:
        raise MalformedMessageError("the manifest is shorter than its header")
    magic, version, checksum, size = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != MAGIC or len(body) != size or crc32c(body) != checksum:
        raise MalformedMessageError("the manifest is damaged")
    if version != VERSION:
        raise MalformedMessageError(f"manifest format {version}, this version reads {VERSION}")
    try:
        manifest = _reader.decode(body)
    except UNREADABLE as error:
        raise MalformedMessageError(f"the manifest is damaged: {error}") from error
    _check(manifest)
    return manifest


def _check(manifest: Manifest) -> None:
    index = manifest.start_index
    offset = manifest.files[0].base_offset if manifest.files else manifest.end_offset
    if manifest.log_start_offset < offset:
        raise MalformedMessageError(f"the log starts at {manifest.log_start_offset}, its first file at {offset}")
    for file in manifest.files:
        if file.first_index != index + 1 or file.base_offset != offset:
            raise MalformedMessageError(f"file {stem_of(file.base_offset, file.first_index)} does not follow {index}")
        if file.last_index < index or file.end_offset < offset or file.size_bytes < 0:
            raise MalformedMessageError(f"file {stem_of(file.base_offset, file.first_index)} ends before it begins")
        index = file.last_index
        offset = file.end_offset
    if index != manifest.snapshot_index or offset != manifest.end_offset:
        raise MalformedMessageError(f"the files end with entry {index}, the snapshot with {manifest.snapshot_index}")
    before = (0, 0, -1)
    for row in manifest.epochs:
        if row[0] <= before[0] or row[1] <= before[1] or row[2] < before[2] or row[1] > manifest.snapshot_index:
            raise MalformedMessageError(f"epoch {row} does not follow {before}")
        before = row
    last_term = manifest.epochs[-1][0] if manifest.epochs else 0
    if last_term != manifest.snapshot_term:
        raise MalformedMessageError(f"the last epoch is {last_term}, the snapshot's term {manifest.snapshot_term}")
