"""`compression.type`: what a topic's batches are stored with, whoever sends them."""

import pytest

from barnabas_broker.partition import checks
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import verify
from barnabas_raftlog.records.reader import read_records
from broker.live.requests.test_alter_configs import SET, alter
from broker.wire_client import Wire, batch, framed

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
TOPIC = 2


def stored(wire: Wire, topic: str, offset: int = 0) -> memoryview:
    return memoryview(wire.fetch(topic, offset, max_wait_ms=10_000, partition_max_bytes=1).records)


@pytest.mark.parametrize("place", ["on the loop", "in a thread"])
@pytest.mark.parametrize("name", CODECS)
def test_batches_are_stored_with_the_codec_of_their_topic(
    wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    if place == "in a thread":
        monkeypatch.setattr(checks, "_bytes_at_once", lambda *_: 0)
    alter(wire, topic, ("compression.type", SET, name))
    offset = 0
    for source in Compression:
        sent = batch(20, attributes=source, body_bytes=3_000)
        assert wire.produce(topic, sent).base_offset == offset
        frame = stored(wire, topic, offset)
        assert verify(frame).attributes == CODECS[name]
        read = [(record.timestamp, record.value) for record in read_records(frame)]
        assert read == [(record.timestamp, record.value) for record in read_records(sent)]
        offset += 20


def test_a_level_counts_for_batches_of_other_codecs_only(wire: Wire, topic: str) -> None:
    alter(wire, topic, ("compression.type", SET, "gzip"), ("compression.gzip.level", SET, "1"))
    own = batch(20, attributes=Compression.GZIP, body_bytes=3_000)
    wire.produce(topic, own)
    assert stored(wire, topic)[61:] == own[61:], "kept as it came, as in Kafka"
    plain = batch(20, body_bytes=200_000)
    sizes = []
    for number, level in enumerate(("1", "9")):
        alter(wire, topic, ("compression.gzip.level", SET, level))
        wire.produce(topic, plain)
        sizes.append(len(stored(wire, topic, 20 * (number + 1))))
    assert sizes[1] < sizes[0] < 20_000


def test_a_batch_that_grows_beyond_what_a_topic_takes_is_refused(wire: Wire, topic: str) -> None:
    alter(wire, topic, ("compression.type", SET, "uncompressed"), ("max.message.bytes", SET, "5000"))
    result = wire.produce(topic, batch(attributes=Compression.ZSTD, body_bytes=200_000))
    assert (result.error_code, result.base_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert result.error_message == "a batch of more than 5000 bytes when it is uncompressed; 5000 are accepted"
    assert wire.produce(topic, batch(attributes=Compression.ZSTD, body_bytes=4_000)).base_offset == 0


def test_a_repetition_is_recognised_and_the_time_of_arrival_is_stamped(wire: Wire, topic: str) -> None:
    alter(wire, topic, ("compression.type", SET, "lz4"), ("message.timestamp.type", SET, "LogAppendTime"))
    sent = batch(3, producer_id=74, epoch=0, sequence=0)
    results = [wire.produce(topic, sent) for _ in range(2)]
    assert [row.base_offset for row in results] == [0, 0]
    header = verify(stored(wire, topic))
    assert header.attributes == 0x08 | Compression.LZ4
    assert header.max_timestamp == results[0].log_append_time_ms == results[1].log_append_time_ms > 1_000


def test_what_is_not_looked_into_is_compressed_anew_all_the_same(wire: Wire, topic: str) -> None:
    alter(wire, topic, ("compression.type", SET, "zstd"), ("record.validation", SET, "none"))
    for source in (Compression.NONE, Compression.GZIP):
        assert wire.produce(topic, batch(attributes=source)).error_code == 0
    assert verify(stored(wire, topic, 1)).attributes == Compression.ZSTD
    damaged = wire.produce(topic, _damaged_gzip())
    assert damaged.error_code == ErrorCode.INVALID_RECORD


def _damaged_gzip() -> bytes:
    return framed(b"no gzip", Compression.GZIP, 0, 1, 1, -1, -1, -1, 1)


def test_the_setting_of_the_broker_holds_for_topics_that_have_none_but_not_for_internal_ones() -> None:
    with RunningCluster(1, settings={"compression.type": "zstd", "compression.zstd.level": 1}) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create("t")
        wire.produce("t", batch(20, body_bytes=3_000))
        assert verify(stored(wire, "t")).attributes == Compression.ZSTD
        resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=None)]
        rows = wire.ask(DescribeConfigsRequest(resources=resources), 4).results[0].configs
        wire.close()
    told = {row.name: row.value for row in rows if row.name.startswith("compression.")}
    assert told == {
        "compression.type": "zstd",
        "compression.gzip.level": "-1",
        "compression.lz4.level": "9",
        "compression.zstd.level": "1",
    }
