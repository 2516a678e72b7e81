"""A real Spark session writes batches as a whole, or not at all; readers of committed records see that."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas_spark.writing.exactly_once.decisions import Decision
from barnabas_spark.writing.exactly_once.plan import End, Fenced, begin, commit
from barnabas_spark.writing.exactly_once.requests import LostTransactionError, carry_out

from .sink import Sink, once, stop_before

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


def test_a_batch_is_there_once_however_often_it_is_written(sink: Sink) -> None:
    sink.write(sink.rows(0, 100), 0)
    sink.write(sink.rows(0, 100, 2), 0)
    sink.write(sink.rows(100, 150), 1)
    sink.write(sink.rows(0, 100).repartition(3), 1)
    assert sink.read() == sink.read("read_uncommitted") == once(range(150))


def test_nothing_of_a_batch_is_there_of_which_a_task_has_failed(sink: Sink) -> None:
    frame = sink.rows(0, 100).selectExpr("value", "cast(if(value = '99', 9, 0) as int) as partition")
    with pytest.raises(Exception, match="partition 9"):
        sink.write(frame, 0)
    sink.write(sink.rows(0, 10), 0)
    assert sink.read() == once(range(10))


def test_a_decision_whose_driver_died_is_finished_by_the_next_batch(sink: Sink) -> None:
    begun = carry_out(begin(sink.name), sink.options())
    prepared = tuple(sink.attempt(begun, number, str(number), number) for number in range(3))
    loser = sink.attempt(begun, 7, "7")
    assert sink.read() == Counter()
    carry_out(stop_before(commit(begun, Decision(sink.name, 0, prepared)), End), sink.options())
    assert sink.read() == Counter()
    sink.write(sink.rows(0, 3), 0)
    assert sink.read() == once(range(3))
    sink.write(sink.rows(3, 5), 1)
    assert sink.read() == once(range(5))
    assert loser not in prepared
    assert sink.read("read_uncommitted")[7] == 1


def test_what_was_not_decided_is_aborted_by_the_next_batch(sink: Sink) -> None:
    begun = carry_out(begin(sink.name), sink.options())
    sink.attempt(begun, 0, "0")
    sink.write(sink.rows(10, 12), 0)
    assert sink.read() == once(range(10, 12))


def test_a_driver_that_was_believed_dead_decides_nothing(sink: Sink) -> None:
    old = carry_out(begin(sink.name), sink.options())
    one = sink.attempt(old, 0, "0")
    new = carry_out(begin(sink.name), sink.options())
    other = sink.attempt(new, 0, "1")
    with pytest.raises((Fenced, LostTransactionError)):
        carry_out(commit(old, Decision(sink.name, 0, (one,))), sink.options())
    with pytest.raises(Fenced):
        carry_out(commit(old, Decision(sink.name, 0)), sink.options())
    assert carry_out(commit(new, Decision(sink.name, 0, (other,))), sink.options())
    assert sink.read() == once(range(1, 2))


def test_a_transaction_that_has_timed_out_fails_its_batch_and_is_named(sink: Sink) -> None:
    begun = carry_out(begin(sink.name), sink.options())
    one, other = sink.attempt(begun, 0, "0"), sink.attempt(begun, 1, "1")
    carry_out(begin(sink.name), sink.options())  # aborts both, as time does
    with pytest.raises(LostTransactionError, match=one.transactional_id.replace(".", r"\.")) as caught:
        carry_out(commit(begun, Decision(sink.name, 0, (one, other))), sink.options())
    assert not caught.value.is_decided


def run_to_its_end(writer: DataStreamWriter) -> None:
    """Let a stream write what there is."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def test_a_stream_repeats_a_micro_batch_and_its_rows_are_there_once(sink: Sink, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    sink.rows(0, 40).write.text(str(source))

    def run() -> None:
        frame = sink.spark.readStream.schema("value string").text(str(source))
        writer = frame.writeStream.format("barnabas").options(**sink.given(checkpointLocation=str(checkpoint)))
        run_to_its_end(writer)

    run()
    # Spark did not get to say that the batch was done.
    for file in (checkpoint / "commits").glob("*0*"):
        file.unlink()
    run()
    assert sink.read() == sink.read("read_uncommitted") == once(range(40))


def test_foreach_batch_writes_each_batch_once_under_its_number(sink: Sink, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    sink.rows(0, 40).write.text(str(source))

    def write(frame: DataFrame, batch_id: int) -> None:
        sink.write(frame.repartition(2 + len(sink.more)), batch_id)

    def run() -> None:
        frame = sink.spark.readStream.schema("value string").text(str(source))
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        run_to_its_end(writer)

    run()
    for file in (checkpoint / "commits").glob("*0*"):
        file.unlink()
    sink.more["kafka.compression.type"] = "lz4"
    run()
    assert sink.read() == sink.read("read_uncommitted") == once(range(40))


@pytest.mark.parametrize(("given", "words"), [({}, "txnAppId"), ({"txnAppId": "a"}, "txnVersion")])
def test_a_batch_without_a_name_or_a_version_is_refused(sink: Sink, given: dict[str, str], words: str) -> None:
    with pytest.raises(AnalysisException, match=f"{words}: is required"):
        sink.rows(0, 1).write.format("barnabas").options(**sink.given(**given)).mode("append").save()
