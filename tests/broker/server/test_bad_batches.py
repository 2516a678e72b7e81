"""Each batch of the list of bad ones is answered as the list says, and what is taken can be read."""

import pytest
from broker.bad_batches import FAR_MS, THEN_MS, TOPICS, BadBatch, bad_batches
from broker.wire_client import Wire

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import topic_settings
from barnabas_broker.partition.record_rules import RefusedBatchError, check_header, check_records, rules_of
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import read_records

NOW_MS = (THEN_MS + FAR_MS) // 2
CONFIG = BrokerConfig.from_settings({"cluster.id": "c", "node.id": 1, "cluster.nodes": "1@127.0.0.1:1", "log.dir": "d"})
RULES = {kind: rules_of(topic_settings("t", configs, CONFIG)) for kind, configs in TOPICS.items()}


@pytest.mark.parametrize("bad", [one for one in bad_batches() if one.frame], ids=lambda one: one.name)
def test_a_batch_is_judged_as_the_list_says(bad: BadBatch) -> None:
    assert bad.frame is not None
    frame = memoryview(bytearray(bad.frame))
    rules = RULES[bad.topic]
    code = ErrorCode.NONE
    named = list[int]()
    try:
        header = check_header(frame, rules, bad.version, NOW_MS)
        checked = check_records(header, frame, rules, NOW_MS)
    except RefusedBatchError as error:
        code = error.code
        named = [number for number, _ in error.record_errors]
        assert error.text
        assert "\n" not in error.text
        assert error.code is not ErrorCode.CORRUPT_MESSAGE or not named
    else:
        found = list(read_records(checked.frame))
        assert len(found) == checked.header.record_count
        assert checked.header.max_timestamp == max(-1, *(record.timestamp for record in found))
    assert (code, tuple(named)) == (bad.ours, bad.named)


def test_a_reason_stands_where_kafka_answers_something_else_and_nowhere_else() -> None:
    for bad in bad_batches():
        assert bool(bad.reason) == (bad.kafka != bad.ours), bad.name


@pytest.mark.slow
def test_a_broker_answers_as_the_list_says_and_stores_nothing_else(one_broker: RunningCluster, wire: Wire) -> None:
    topics = {kind: f"bad-{kind}" for kind in TOPICS}
    for kind, topic in topics.items():
        wire.create(topic, **{name.replace(".", "_"): value for name, value in TOPICS[kind].items()})
    stored = dict.fromkeys(TOPICS, 0)
    for bad in bad_batches():
        answer = wire.produce(topics[bad.topic], bad.frame, version=bad.version)
        assert answer.error_code == bad.ours, bad.name
        assert bool(answer.error_message) == bool(answer.error_code) or bad.version < 8
        assert tuple(error.batch_index for error in answer.record_errors) == bad.named, bad.name
        assert answer.base_offset == (-1 if bad.ours else stored[bad.topic])
        assert (answer.log_append_time_ms > 0) == (bad.topic == "stamped" and not bad.ours)
        assert bad.frame is not None or bad.ours
        stored[bad.topic] += 0 if bad.ours or bad.frame is None else parse_header(bad.frame).record_count
    for kind, topic in topics.items():
        records = wire.fetch(topic, 0).records
        assert [record.offset for record in read_records(records)] == list(range(stored[kind]))


@pytest.mark.slow
def test_without_validation_a_broker_takes_the_word_of_headers(one_broker: RunningCluster, wire: Wire) -> None:
    wire.create("trusting", record_validation="none")
    for bad in bad_batches():
        if bad.topic == "any" and bad.named and "timestamp" not in bad.what:
            assert wire.produce("trusting", bad.frame, version=bad.version).error_code == ErrorCode.NONE, bad.name
        elif bad.ours and not bad.named and bad.codec == "plain" and "last record" not in bad.what:
            assert wire.produce("trusting", bad.frame).error_code == (bad.ours), bad.name
