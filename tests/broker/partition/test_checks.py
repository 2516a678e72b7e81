"""Which batches are checked on the loop, which in a thread for short, and which for long."""

import pytest
from broker.wire_client import batch
from raftlog.records.bombs import BOMBS

from barnabas_broker.partition import checks
from barnabas_broker.partition.checks import TakesLongError, check_at_once, check_in_thread, is_surely_short
from barnabas_broker.partition.record_rules import RecordRules, RefusedBatchError
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import BatchHeader, verify

RULES = RecordRules(message_bytes_max=64 << 20)
UNSEEN = RULES._replace(is_validated=False)
MIB = 1 << 20
NOW_MS = 10_000


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are those of the compiled walker, whichever walks."""
    monkeypatch.setattr(checks, "LIMITS", checks.limits(is_compiled=True))


def sent(data: bytes) -> tuple[BatchHeader, memoryview]:
    frame = memoryview(bytearray(data))
    return verify(frame), frame


def place_of(data: bytes, rules: RecordRules = RULES) -> str:
    """Return where a batch is checked."""
    header, frame = sent(data)
    if check_at_once(header, frame, rules, NOW_MS) is not None:
        assert is_surely_short(header, frame, rules) or header.attributes
        return "loop"
    assert not is_surely_short(header, frame, rules)
    try:
        check_in_thread(header, frame, rules, NOW_MS, is_long=False)
    except TakesLongError:
        check_in_thread(header, frame, rules, NOW_MS, is_long=True)
        return "long"
    return "short"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (batch(1), "loop"),
        (batch(1_000, body_bytes=MIB - 100), "loop"),
        (batch(2, body_bytes=2 * MIB), "short"),
        (batch(2, body_bytes=9 * MIB), "long"),
        (batch(100, attributes=Compression.LZ4, body_bytes=MIB - 100), "loop"),
        (batch(100, attributes=Compression.GZIP, body_bytes=MIB - 100), "short"),
        (batch(100, attributes=Compression.ZSTD, body_bytes=2 * MIB), "short"),
        (batch(100, attributes=Compression.ZSTD, body_bytes=9 * MIB), "long"),
    ],
    ids=["one", "usual", "large", "huge", "lz4", "gzip", "large zstd", "huge zstd"],
)
def test_the_size_of_a_batch_says_where_it_is_checked(data: bytes, place: str) -> None:
    assert place_of(data) == place
    assert place_of(data, UNSEEN) == "loop", "nothing is walked over"


def test_many_records_are_for_a_thread_though_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "AT_ONCE_NS", 24_000)
    monkeypatch.setattr(checks, "LIMITS", checks.limits(is_compiled=True))
    assert place_of(batch(2_000)) == "loop"
    assert place_of(batch(2_001)) == "short"
    assert place_of(batch(1_000, attributes=Compression.LZ4)) == "short", "in pieces a record takes twice as long"


@pytest.mark.parametrize(
    ("compression", "level", "kib", "place"),
    [
        (Compression.SNAPPY, 0, 900, "loop"),
        (Compression.LZ4, 9, 200, "loop"),
        (Compression.LZ4, 12, 200, "short"),
        (Compression.ZSTD, 3, 150, "loop"),
        (Compression.ZSTD, 9, 150, "short"),
        (Compression.ZSTD, 19, 150, "long"),
        (Compression.GZIP, -1, 40, "loop"),
        (Compression.GZIP, -1, 500, "short"),
        (Compression.GZIP, -1, 1_000, "long"),
    ],
)
def test_codec_and_level_say_where_a_batch_is_compressed_anew(
    compression: Compression, level: int, kib: int, place: str
) -> None:
    rules = RULES._replace(compression=compression, level=level)
    assert place_of(batch(10, body_bytes=kib << 10), rules) == place
    own = batch(10, attributes=compression, body_bytes=kib << 10)
    assert place_of(own, rules) == place_of(own), "kept as it came"


def test_what_is_not_looked_into_may_stand_for_any_number_of_bytes() -> None:
    rules = UNSEEN._replace(compression=Compression.SNAPPY)
    assert place_of(batch(10), rules) == "loop"
    assert place_of(batch(10, attributes=Compression.LZ4), rules) == "long"


def test_in_python_only_small_batches_are_checked_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LIMITS", checks.limits(is_compiled=False))
    assert place_of(batch(600)) == "loop"
    assert place_of(batch(700)) == "short"
    assert place_of(batch(1, body_bytes=9_000)) == "short"


def test_a_batch_beyond_what_may_come_of_one_is_refused_when_it_was_tried_for_long() -> None:
    header, frame = sent(BOMBS["zstd of a value of 128 MiB"].batch())
    assert check_at_once(header, frame, RULES, NOW_MS) is None
    with pytest.raises(TakesLongError):
        check_in_thread(header, frame, RULES, NOW_MS, is_long=False)
    with pytest.raises(RefusedBatchError) as refused:
        check_in_thread(header, frame, RULES, NOW_MS, is_long=True)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
