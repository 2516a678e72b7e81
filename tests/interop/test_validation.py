"""Apache Kafka answers each batch of the list of bad ones as the list says.

What Barnabas answers to the same bytes is asked in the same run, so the two columns of `docs/validation.md` are never
older than the code.
"""

import pytest
from broker.bad_batches import TOPICS, BadBatch, bad_batches, bombs
from broker.wire_client import Wire
from confluent_kafka.admin import AdminClient, NewTopic
from machines.cluster_handle import ClusterHandle

from .conftest import wait_for_leaders

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def answers(bootstrap: str, batches: list[BadBatch]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return the code, and the records that are named, for each batch by its name."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = {kind: f"validation-{kind}" for kind in TOPICS}
    new = [NewTopic(names[kind], 1, 1, config=configs) for kind, configs in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(20)
    wires = dict[str, Wire]()
    try:
        for kind, topic in names.items():
            wait_for_leaders(admin, topic, 1)
            known = admin.list_topics(topic, timeout=20)
            leader = known.brokers[known.topics[topic].partitions[0].leader]
            wires[kind] = Wire(leader.host, leader.port)
        found = {}
        for bad in batches:
            answer = wires[bad.topic].produce(names[bad.topic], bad.frame, version=bad.version)
            found[bad.name] = answer.error_code, tuple(error.batch_index for error in answer.record_errors)
        return found
    finally:
        for wire in wires.values():
            wire.close()


def test_kafka_and_we_answer_as_the_list_says(kafka_alone: str, cluster: ClusterHandle) -> None:
    batches = [bad for bad in (*bad_batches(), *bombs()) if bad.kafka is not None]
    theirs = answers(kafka_alone, batches)
    ours = answers(cluster.bootstrap, batches)
    assert {bad.name: theirs[bad.name][0] for bad in batches} == {bad.name: bad.kafka for bad in batches}
    assert {bad.name: ours[bad.name][0] for bad in batches} == {bad.name: bad.ours for bad in batches}
    # Kafka names none where it could not read on, we none where the header says it all.
    named = [name for name in theirs if theirs[name][1] and ours[name][1] and theirs[name][0] == ours[name][0]]
    assert len(named) > 10
    assert {name: theirs[name][1] for name in named} == {name: ours[name][1] for name in named}
