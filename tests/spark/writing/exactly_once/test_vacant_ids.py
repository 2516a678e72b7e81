"""A sink goes on with the transactional ids of the batch before, and no two attempts have one epoch of an id."""

from collections import Counter
from pathlib import Path

import pytest

from barnabas_clients import KafkaError, Producer
from barnabas_spark import clusters as connections
from barnabas_spark.writing.exactly_once.decisions import Decision, Prepared
from barnabas_spark.writing.exactly_once.names import driver_id, ticket_id
from barnabas_spark.writing.exactly_once.plan import Begun, End, begin, commit
from barnabas_spark.writing.exactly_once.requests import carry_out
from barnabas_spark.writing.producers import prepare

from .sink import Sink, once, stop_before

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


def test_twenty_batches_leave_as_many_ids_as_one(sink: Sink) -> None:
    """A partition that comes and goes keeps its own."""
    for version in range(20):
        sink.batch(version, {each: str(10 * version + each) for each in range(version % 2, 2)})
    assert len(sink.ids()) == 1 + 2 * 2
    assert sink.read() == Counter(10 * version + each for version in range(20) for each in range(version % 2, 2))


def test_micro_batches_of_a_stream_go_on_with_the_ids_of_those_before(sink: Sink, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for number in range(3):
        sink.rows(10 * number, 10 * number + 10, 1).coalesce(1).write.mode("append").text(str(source))

    frame = sink.spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").text(str(source))
    options = sink.given(checkpointLocation=str(checkpoint), txnAppId=sink.name)
    writer = frame.repartition(2).writeStream.format("barnabas").options(**options)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sink.ids() >= {driver_id(sink.name), ticket_id(sink.name, 0), ticket_id(sink.name, 1)}
    assert len(sink.ids()) == 1 + 2 * 2
    assert sink.read() == once(range(30))


def begun_behind_a_batch(sink: Sink) -> tuple[Begun, Prepared]:
    """Write a batch of one row, and return the beginning of the next one, and what its first attempt goes on with."""
    (before,) = sink.batch(0, {0: "0"})
    begun = carry_out(begin(sink.name), sink.options())
    (vacant,) = begun.vacant
    assert (vacant.transactional_id, vacant.epoch) == (before.transactional_id, before.epoch + 1)
    return begun, Prepared(vacant.transactional_id, vacant.producer_id, vacant.epoch)


def test_two_attempts_that_both_are_the_first_have_two_ids(sink: Sink) -> None:
    """A stage that is run again begins to count at 0, while attempts of its first run are still there."""
    begun, mine = begun_behind_a_batch(sink)
    one, other = sink.attempt(begun, 7, "1"), sink.attempt(begun, 8, "2")
    assert one[:3] == mine[:3]
    assert other.transactional_id != one.transactional_id
    decision = Decision(sink.name, 1, (other,), vacant=begun.vacant)
    assert carry_out(commit(begun, decision), sink.options())
    assert sink.read() == Counter([0, 2])
    assert carry_out(begin(sink.name), sink.options()).vacant[0].transactional_id == other.transactional_id


def test_an_attempt_that_was_believed_dead_writes_nothing_more_when_the_driver_has_gone_on(sink: Sink) -> None:
    begun, mine = begun_behind_a_batch(sink)
    zombie, ticket = sink.begin(begun, 7)
    connections.run(zombie.send_and_wait(sink.topic, b"99", partition=0), 60)
    won = sink.attempt(begun, 8, "1")
    assert carry_out(commit(begun, Decision(sink.name, 1, (won,), vacant=begun.vacant)), sink.options())
    # Until its marker is written the transaction takes records still, which are aborted with it.
    sink.await_state(mine.transactional_id, "CompleteAbort")
    with pytest.raises(KafkaError):
        connections.run(zombie.send_and_wait(sink.topic, b"98", partition=0), 60)
    with pytest.raises(KafkaError):
        connections.run(prepare(sink.options(), zombie, ticket), 60)
    connections.run(zombie.close(5), 60)
    sink.batch(2, {0: "2"})
    assert sink.read() == once(range(3))


def test_an_attempt_of_an_old_batch_does_not_reach_the_transaction_that_goes_on_with_its_id(sink: Sink) -> None:
    (before,) = sink.batch(0, {0: "0"})
    begun = carry_out(begin(sink.name), sink.options())
    now = sink.attempt(begun, 7, "1")
    assert now.transactional_id == before.transactional_id

    async def write_late() -> None:
        producer = Producer(sink.bootstrap, transactional_id=before.transactional_id)
        producer.begin_as(before.producer_id, before.epoch)
        async with producer:
            await producer.transaction().begin()
            with pytest.raises(KafkaError):
                await producer.send_and_wait(sink.topic, b"99", partition=0)

    connections.run(write_late(), 60)
    assert carry_out(commit(begun, Decision(sink.name, 1, (now,), vacant=begun.vacant)), sink.options())
    assert sink.read() == once(range(2))


def test_an_attempt_that_has_not_begun_to_write_shares_nothing_with_those_of_the_next_driver(sink: Sink) -> None:
    """Its id is still vacant, by the last record that a batch is done."""
    begun, mine = begun_behind_a_batch(sink)
    zombie, _ = sink.begin(begun, 7)
    assert zombie.transaction_owner[:3] == mine[:3]
    again = carry_out(begin(sink.name), sink.options())
    assert again.vacant == begun.vacant
    won = sink.attempt(again, 7, "1")
    assert won.transactional_id != mine.transactional_id
    connections.run(zombie.send_and_wait(sink.topic, b"99", partition=0), 60)
    assert carry_out(commit(again, Decision(sink.name, 1, (won,), vacant=again.vacant)), sink.options())
    connections.run(zombie.close(5), 60)
    sink.batch(2, {0: "2"})
    assert sink.read() == once(range(3))


def test_ids_of_another_timeout_are_left_alone(sink: Sink) -> None:
    sink.batch(0, {0: "0"})
    sink.more["kafka.transaction.timeout.ms"] = "200000"
    assert not carry_out(begin(sink.name), sink.options()).vacant
    (one,) = sink.batch(1, {0: "1"})
    assert sink.transaction(one.transactional_id).timeout_s == 200
    assert carry_out(begin(sink.name), sink.options()).vacant


def test_ids_that_are_not_as_they_were_left_are_left_alone(sink: Sink) -> None:
    """Somebody has aborted there, say, or the id has expired."""
    one, _ = sink.batch(0, {0: "0", 1: "1"})

    async def take_over() -> None:
        async with Producer(sink.bootstrap, transactional_id=one.transactional_id):
            pass

    connections.run(take_over(), 60)
    begun = carry_out(begin(sink.name), sink.options())
    assert [each.transactional_id.split("/")[1] for each in begun.vacant] == ["1"]


def test_a_driver_that_died_behind_the_decision_leaves_its_ids_to_the_next_one(sink: Sink) -> None:
    sink.batch(0, {0: "0", 1: "1"})
    begun = carry_out(begin(sink.name), sink.options())
    one = sink.attempt(begun, 7, "2")
    decision = Decision(sink.name, 1, (one,), vacant=begun.vacant)
    carry_out(stop_before(commit(begun, decision), End), sink.options())
    sink.batch(2, {0: "3", 1: "4"})
    assert len(sink.ids()) == 1 + 2 * 2
    assert sink.read() == once(range(5))
