"""A topic is deleted and made again while a transaction has it: the transaction ends in whatever bears the name."""

import pytest

from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from broker.live.test_three_brokers import Wires, leader_of

from .producing import Transactional, create, fetched, read


@pytest.mark.parametrize(("version", "is_commit"), [(11, False), (12, True)])
def test_t14_a_transaction_ends_in_the_new_topic_and_leaves_nothing_of_the_old_one(
    wires: Wires, version: int, is_commit: bool
) -> None:
    """What was written by name after that is part of it; numbers of the old log count for nothing in the new one."""
    topic = f"anew-{version}-{is_commit}"
    create(wires, topic, factor=3)
    writer = Transactional(wires, topic, version=version)
    other = Transactional(wires, f"{topic}-other", version=version)
    for producer in (other, writer):
        if not producer.is_v2:
            assert producer.add(topic) == 0
        assert producer.send(topic, 3).error_code == 0
    assert other.end(is_commit=True) == 0
    deletion = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    assert wires[1].ask(deletion, 5).responses[0].error_code == ErrorCode.NONE
    create(wires, topic, factor=3)
    writer.sequences.clear()
    assert writer.send(topic, 2).base_offset == 0
    leader = wires[leader_of(wires[1], topic)]
    assert fetched(leader, topic, is_committed=False).last_stable_offset == 0
    assert writer.end(is_commit=is_commit) == 0
    assert read(leader, topic, 3, is_committed=True) == ([0, 1] if is_commit else [])
    # Both go on as in any topic, with one marker behind each transaction.
    for producer, offset in ((other, 3), (writer, 5)):
        producer.sequences.clear()
        if not producer.is_v2:
            producer.init()
            assert producer.add(topic) == 0
        assert producer.send(topic).base_offset == offset
        assert producer.end(is_commit=True) == 0
    assert read(leader, topic, 7, is_committed=True) == [*([0, 1] if is_commit else []), 3, 5]


def test_t14_a_transaction_whose_topic_is_empty_again_ends_in_it(wires: Wires) -> None:
    """Nothing of the transaction is there: its marker is written, and holds nobody up."""
    topic = "anew-empty"
    create(wires, topic, factor=3)
    writer = Transactional(wires, topic)
    assert writer.send(topic, 3).error_code == 0
    wires[1].ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    create(wires, topic, factor=3)
    assert writer.end(is_commit=False) == 0
    assert writer.send(topic).error_code == 0
    assert writer.end(is_commit=True) == 0
    leader = wires[leader_of(wires[1], topic)]
    assert read(leader, topic, 3, is_committed=True) == [1]
    assert not fetched(leader, topic).aborted_transactions
