"""A topic that was deleted and made again is another one: whoever names the old one by its id is told so, each time."""

from typing import NamedTuple

import pytest

from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from broker.wire_client import Wire, batch, fetch_request, produce_request


class MadeAnew(NamedTuple):
    """A topic with one record that has the name of one that had three, and both ids."""

    name: str
    old_id: bytes
    new_id: bytes


@pytest.fixture
def made_anew(wire: Wire, topic: str) -> MadeAnew:
    name = f"{topic}-again"
    old_id = wire.create(name)
    wire.produce(name, batch(3, producer_id=7, epoch=0, sequence=0))
    deletion = wire.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    assert deletion.responses[0].error_code == ErrorCode.NONE
    new_id = wire.create(name)
    assert wire.produce(name, batch()).base_offset == 0
    return MadeAnew(name, old_id, new_id)


@pytest.mark.parametrize("version", range(13, 19))
def test_w2_a_fetch_by_the_old_id_is_told_so_under_that_id(wire: Wire, made_anew: MadeAnew, version: int) -> None:
    """Never under another id, of which the client would have to guess what is meant, and never from the new topic."""
    for topic_id, code in ((made_anew.old_id, ErrorCode.UNKNOWN_TOPIC_ID), (made_anew.new_id, ErrorCode.NONE)):
        for _ in range(2):
            (answer,) = wire.ask(fetch_request("", 0, topic_id=topic_id), version).responses
            assert answer.topic_id == topic_id
            assert answer.partitions[0].error_code == code
            assert bool(answer.partitions[0].records) == (code == ErrorCode.NONE)


@pytest.mark.parametrize("version", [13])
def test_w3_a_batch_for_the_old_id_is_refused_for_ever_and_not_stored(
    wire: Wire, made_anew: MadeAnew, version: int
) -> None:
    for sequence in (3, 3, 0):  # as the producer would go on in the old topic, repeat, and begin
        records = batch(producer_id=7, epoch=0, sequence=sequence)
        (answer,) = wire.ask(produce_request("", records, topic_id=made_anew.old_id), version).responses
        assert answer.topic_id == made_anew.old_id
        assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert wire.fetch(made_anew.name, 0).high_watermark == 1


def test_w3_a_producer_is_as_new_as_the_topic(wire: Wire, made_anew: MadeAnew) -> None:
    """What it numbered in the old topic counts for nothing: it has to begin with 0, and may."""
    code = wire.produce(made_anew.name, batch(producer_id=7, epoch=0, sequence=3)).error_code
    assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce(made_anew.name, batch(producer_id=7, epoch=0, sequence=0)).base_offset == 1
