"""What is inside a batch that a stranger sent: the same answers for each codec, within 64 MiB, whatever it is."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression, compress, decompress
from barnabas_raftlog.records.header import HEADER_BYTES, parse_header
from barnabas_raftlog.records.inside import Inside, TooLargePlainError, check_inside
from barnabas_raftlog.records.pieces import small_body
from barnabas_raftlog.records.reader import read_batch
from barnabas_raftlog.records.walker.faults import Fault
from barnabas_raftlog.records.walker.pure.check import check
from barnabas_raftlog.records.walker.twins import IS_COMPILED

from .bombs import BOMBS, MIB, framed, value
from .strategies import new_records

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MOST_MIB = 64
# Bombs are up to 65 million headers, at a microsecond each where the walker is not compiled.
long_in_python = pytest.mark.timeout(120 if IS_COMPILED else 900)


def inside(batch: bytes | bytearray, plain_bytes_max: int = 128 * MIB) -> Inside:
    frame = memoryview(batch)
    return check_inside(parse_header(frame), frame, is_dense=True, plain_bytes_max=plain_bytes_max)


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=25, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=5))
def test_a_sound_batch_is_sound_with_every_codec(codec: Compression, records: list[NewRecord]) -> None:
    batch = build_batch(records, compression=codec)
    plain_bytes = len(decompress(codec, memoryview(batch)[HEADER_BYTES:]))
    walked, size = inside(batch)
    assert (walked.fault, walked.record, size) == (Fault.NONE, len(records), plain_bytes)
    assert (walked.min_timestamp, walked.max_timestamp) == (
        min(one.timestamp for one in records),
        max(one.timestamp for one in records),
    )
    assert walked.null_keys == sum(one.key is None for one in records)


def damaged_bodies() -> st.SearchStrategy[tuple[bytes, int]]:
    """Plain bodies with a byte changed, or cut off, and how many records they are to have."""

    def damage(records: list[NewRecord], position: int, byte: int, end: int) -> tuple[bytes, int]:
        body = bytearray(build_batch(records)[HEADER_BYTES:])
        body[position % len(body)] = byte
        return bytes(body[: len(body) - end % len(body)] if end % 3 == 0 else body), len(records)

    number = st.integers(0, 10_000)
    return st.builds(damage, st.lists(new_records(), min_size=1, max_size=4), number, st.integers(0, 255), number)


@settings(max_examples=100, deadline=None)
@given(codec=st.sampled_from(Compression), damaged=damaged_bodies(), repeats=st.sampled_from([1, 1, 400]))
def test_a_fault_is_the_same_behind_every_codec(codec: Compression, damaged: tuple[bytes, int], repeats: int) -> None:
    """Much of the same behind it makes the body too large to come out at once."""
    plain = damaged[0] * repeats
    expected = check(plain, damaged[1], 1_000, damaged[1] - 1, is_dense=True)
    walked, size = inside(framed(codec, bytes(compress(codec, plain)), damaged[1]))
    assert (walked.record, bool(walked.fault)) == (expected.record, bool(expected.fault))
    # What is wrong with a record that goes on beyond the body is told before its end is seen.
    assert walked == expected or expected.fault is Fault.LENGTH
    assert size <= len(plain)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_behind_a_fault_is_not_decompressed(codec: Compression) -> None:
    plain = b"\x02\x00" + os.urandom(MIB)
    batch = framed(codec, bytes(compress(codec, plain)))
    assert small_body(codec, memoryview(batch)[HEADER_BYTES:]) is None
    assert inside(batch).plain_bytes <= len(plain) // 2


@pytest.mark.parametrize("codec", Compression)
def test_records_beyond_the_limit_are_too_large(codec: Compression) -> None:
    batch = build_batch([NewRecord(None, b"value" * 20_000, 5)], compression=codec)
    size = inside(batch).plain_bytes
    assert inside(batch, size).plain_bytes == size
    with pytest.raises(TooLargePlainError):
        inside(batch, size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_that_says_that_it_is_beyond_the_limit_is_too_large_at_once(codec: Compression) -> None:
    plain = value(9, claim=129 * MIB).start + os.urandom(MIB)
    with pytest.raises(TooLargePlainError, match="a record up to byte 135"):
        inside(framed(codec, bytes(compress(codec, plain))))


def answer(batch: bytes) -> str:
    try:
        return inside(batch).walked.fault.name
    except CorruptBatchError as error:
        return type(error).__name__


@pytest.mark.slow
@long_in_python
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_answered_as_its_line_says(name: str) -> None:
    assert answer(BOMBS[name].batch()) == BOMBS[name].answer


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_a_sound_bomb_is_read_by_our_own_reader(codec: Compression) -> None:
    """Of records whose headers are the bomb, an object for each would be gigabytes."""
    batch = memoryview(next(one.batch() for name, one in BOMBS.items() if one.codec is codec and "sound value" in name))
    (record,) = read_batch(parse_header(batch), batch)
    assert record.value is not None
    assert len(record.value) >= 20 * MIB


METER = """
import json, sys
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.memory import give_back
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.inside import check_inside

def kib(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

found = []
while size := int.from_bytes(sys.stdin.buffer.read(8), "little"):
    frame = memoryview(sys.stdin.buffer.read(size))
    header = parse_header(frame)
    give_back()
    before = kib("VmRSS:")
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")  # the peak begins anew
    try:
        check_inside(header, frame, is_dense=True)
    except CorruptBatchError:
        pass
    found.append((kib("VmHWM:") - before) / 1024)
print(json.dumps(found))
"""


def framed_for_the_meter() -> Iterator[bytes]:
    for bomb in BOMBS.values():
        batch = bomb.batch()
        yield len(batch).to_bytes(8, "little") + batch


@pytest.mark.slow
@long_in_python
def test_no_bomb_takes_more_than_64_mib_beyond_its_own_size() -> None:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    if options := env.get("ASAN_OPTIONS"):
        env["ASAN_OPTIONS"] = f"{options}:quarantine_size_mb=0"  # freed memory is given back, as without a sanitizer
    batches = b"".join(framed_for_the_meter()) + bytes(8)
    done = subprocess.run([sys.executable, "-c", METER], input=batches, env=env, capture_output=True, check=True)
    found = dict(zip(BOMBS, json.loads(done.stdout), strict=True))
    assert {name: mib for name, mib in found.items() if mib > MOST_MIB} == {}
    assert max(found.values()) > MOST_MIB / 4  # the meter works: a window of 128 MiB is filled up to what is held
