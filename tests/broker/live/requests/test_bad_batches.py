"""Each batch of the list of bad ones is answered as the list says, and what is taken can be read."""

from contextlib import nullcontext
from typing import Any

import pytest

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import topic_settings
from barnabas_broker.partition.record_rules import (
    ZSTD_SINCE,
    Checked,
    RecordRules,
    RefusedBatchError,
    check_header,
    check_records,
    rules_of,
)
from barnabas_broker.testing import RunningCluster
from barnabas_raftlog.records.header import TRANSACTIONAL, parse_header
from barnabas_raftlog.records.reader import read_records
from broker.bad_batches import FAR_MS, THEN_MS, TOPICS, BadBatch, bad_batches, bombs
from broker.wire_client import Wire

NOW_MS = (THEN_MS + FAR_MS) // 2
CONFIG = BrokerConfig.from_settings({"cluster.id": "c", "node.id": 1, "cluster.nodes": "1@127.0.0.1:1", "log.dir": "d"})
TRUSTING = RecordRules(1 << 20, is_validated=False)
RULES = {kind: rules_of(topic_settings("t", configs, CONFIG)) for kind, configs in TOPICS.items()}


@pytest.mark.parametrize("bad", [one for one in bad_batches() if one.frame], ids=lambda one: one.name)
def test_a_batch_is_judged_as_the_list_says(bad: BadBatch) -> None:
    if bad.what == "a transactional batch":
        assert judged(bad).header.attributes & TRANSACTIONAL, "whether there are transactions is for the handler to say"
    elif bad.ours:
        with pytest.raises(RefusedBatchError, match=r"^[^\n]+$") as raised:
            judged(bad)
        assert raised.value.code == bad.ours
        assert tuple(number for number, _ in raised.value.record_errors) == bad.named
    else:
        header, stored = judged(bad)
        found = list(read_records(stored))
        assert len(found) == header.record_count
        assert header.max_timestamp == max(-1, *(record.timestamp for record in found))


@pytest.mark.slow
def test_a_bomb_is_judged_as_the_list_says() -> None:
    # Millions of headers take the twin in Python a minute; `tests/interop/test_validation.py` has those, too.
    for bad in bombs(records_max=1):
        if "million" in bad.what:
            continue
        with pytest.raises(RefusedBatchError) if bad.ours else nullcontext() as raised:
            judged(bad)
        if raised is not None:
            assert raised.value.code == bad.ours, bad.what
            assert tuple(number for number, _ in raised.value.record_errors) == bad.named, bad.what


def judged(bad: BadBatch) -> Checked:
    assert bad.frame is not None
    frame = memoryview(bytearray(bad.frame))
    rules = RULES[bad.topic]
    return check_records(check_header(frame, rules, bad.version, NOW_MS), frame, rules, NOW_MS)


def test_a_reason_stands_where_kafka_answers_something_else_and_nowhere_else() -> None:
    for bad in (*bad_batches(), *bombs(with_frames=False)):
        assert bool(bad.reason) == (bad.kafka != bad.ours), bad.name


@pytest.mark.slow
def test_a_broker_answers_as_the_list_says_and_stores_nothing_else(one_broker: RunningCluster, wire: Wire) -> None:
    topics = {kind: f"bad-{kind}" for kind in TOPICS}
    for kind, topic in topics.items():
        configs: dict[str, Any] = {name.replace(".", "_"): value for name, value in TOPICS[kind].items()}
        wire.create(topic, **configs)
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


def test_without_validation_what_is_inside_is_taken_as_it_is() -> None:
    for bad in bad_batches():
        if bad.frame is not None and bad.codec != "plain" and bad.topic == "any" and bad.version >= ZSTD_SINCE:
            frame = memoryview(bytearray(bad.frame))
            header = check_header(frame, TRUSTING, bad.version, NOW_MS)
            assert check_records(header, frame, TRUSTING, NOW_MS).frame == bad.frame, bad.name
