"""What `exactly-once` takes for a deviation, and for one that the first protocol of transactions allows."""

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from trials.transactions.audits import mismatches
from trials.transactions.exactly_once.ends import Ends, life_of, worker_of
from trials.transactions.exactly_once.history import Appending, Reading
from trials.transactions.exactly_once.run import FLOW, out_of_order

from barnabas_broker.history import Checker, Event, Violation
from barnabas_broker.history import events as e
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.topic_partition import TopicPartition

IN = f"{FLOW.input}-0"
OUT = f"{FLOW.output}-0"
Found = dict[TopicPartition, list[ConsumerRecord]]


def record(topic: str, offset: int, value: bytes) -> ConsumerRecord:
    return ConsumerRecord(topic, 0, offset, 0, None, value, (), -1)


def copies(*sources: int, inputs: int = 3) -> Found:
    """Return both topics: so many records went in, and these came out of partition 0."""
    found: Found = {place: [] for place in FLOW.inputs + FLOW.outputs}
    found[FLOW.inputs[0]] = [record(FLOW.input, offset, b"feeder %d x" % offset) for offset in range(inputs)]
    values = [f"w1.1 {number} from {IN}@{source}".encode() for number, source in enumerate(sources)]
    found[FLOW.outputs[0]] = [record(FLOW.output, offset, value) for offset, value in enumerate(values)]
    return found


def test_what_is_exact_is_no_deviation() -> None:
    found = copies(0, 1, 2)
    assert (mismatches(FLOW, found), out_of_order(FLOW, found)) == ([], [])


def test_what_is_missing_twice_or_behind_a_later_one_is_seen() -> None:
    found = copies(0, 2, 1, 2, inputs=4)
    assert mismatches(FLOW, found) == [f"{IN}@2 has come out 2 times", f"{IN}@3 has not come out"]
    assert out_of_order(FLOW, found) == [f"{IN}@1 came out behind {IN}@2"]


def test_what_was_never_there_or_belongs_elsewhere_is_seen() -> None:
    found = copies(0, 1, 2, 7)
    assert mismatches(FLOW, found) == [f"{IN}@7 came out and is not there"]
    found[FLOW.outputs[1]] = found[FLOW.outputs[0]]
    assert out_of_order(FLOW, found)[0] == f"{IN}@0 came out in {FLOW.outputs[1]}"


# A history of two transactions of one life, of which the second is found torn.


def transaction(name: str, sequence: int) -> list[Event]:
    return [
        e.Begun(transaction=name),
        e.Consumed(
            consumer=life_of(name), partition=IN, offset=sequence, producer="feeder", sequence=0, transaction=name
        ),
        e.Invoked(producer=life_of(name), partition=OUT, sequence=sequence, transaction=name),
    ]


def two(*between: Event, second: str = "w1.1/2") -> list[Event]:
    """Two transactions; `between` happens while the first one's end has been asked for and not answered."""
    return [
        *transaction("w1.1/1", 0),
        e.Ending(transaction="w1.1/1", commit=True),
        *between,
        e.Ended(transaction="w1.1/1", outcome="committed"),
        *transaction(second, 1),
    ]


def judged(history: Iterable[Event]) -> Ends:
    ends = Ends()
    for event in history:
        ends.feed(event)
    return ends


STRUCK: list[Event] = [e.FaultBegun(kind="broker killed", target="2"), e.FaultEnded(kind="broker killed", target="2")]


def violation(history: Iterable[Event]) -> Violation:
    """Have somebody read the last record as committed; return what the checker says of it."""
    checker = Checker()
    follower = e.Consumed(consumer="follower", partition=OUT, offset=1, producer="w1.1", sequence=1)
    for event in [*history, e.DeclaredConsumer(consumer="follower", read_committed=True), follower]:
        checker.feed(event)
    return next(found for found in checker.violations if found.rule.name == "OPEN_READ")


def test_a_transaction_behind_an_end_that_was_asked_for_twice_may_have_been_ended_by_it() -> None:
    history = two(*STRUCK)
    ends = judged(history)
    assert ends.may_be_late_end(violation(history))
    assert ends.may_be_late_end_of(f"{IN}@1 has come out 2 times")


def test_an_end_that_is_asked_for_while_a_broker_is_away_may_be_asked_for_twice() -> None:
    assert judged([STRUCK[0], *two()]).follows_a_repeated_end("w1.1/2")


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(two(), id="no broker was struck"),
        pytest.param([*STRUCK, *two()], id="it was back before"),
        pytest.param(two(e.FaultBegun(kind="worker killed", target="w2")), id="a worker was"),
        pytest.param(two(*STRUCK, second="w1.2/1"), id="another life has another epoch"),
        pytest.param(two(*STRUCK, second="w2.1/1"), id="another producer"),
    ],
)
def test_all_other_deviations_are_wrong(history: list[Event]) -> None:
    last = history[-1]
    assert isinstance(last, e.Invoked)
    assert last.transaction is not None
    ends = judged(history)
    assert not ends.follows_a_repeated_end(last.transaction)
    assert not ends.may_be_late_end_of(f"{IN}@1 has come out 2 times")


def test_the_first_transaction_itself_is_ended_by_nobody_else() -> None:
    ends = judged(two(*STRUCK))
    assert not ends.follows_a_repeated_end("w1.1/1")
    assert not ends.may_be_late_end_of(f"{IN}@0 has not come out")
    assert not ends.may_be_late_end_of(f"{IN}@9 has not come out"), "nobody has worked it off"


def test_names_say_whose_a_transaction_is() -> None:
    assert (life_of("w3.12/7"), worker_of("w3.12/7")) == ("w3.12", "w3")


# The common file.


def test_lines_of_many_threads_are_whole_and_torn_ones_are_left_out(tmp_path: Path) -> None:
    told = Appending(tmp_path / "told")
    whole = tmp_path / "whole"

    def tell(name: str) -> None:
        for number in range(200):
            told.tell(e.Begun(transaction=f"{name}/{number}"))

    writers = [threading.Thread(target=tell, args=(f"w{number}.1",)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with told.path.open("ab") as file:
        file.write(b'\n{"type":"ending","transaction":"w1')  # it was killed
    told.tell(e.Ending(transaction="w1.1/0", commit=True))
    told.close()
    reading = Reading(told.path, whole)
    reading.start()
    reading.finish()
    assert (reading.lines, reading.torn) == (801, 1)
    assert len(whole.read_bytes().splitlines()) == 801
    assert reading.checker.summary().transactions == {"open": 800}


def test_a_history_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    told = Appending(tmp_path / "told")
    told.tell(e.Ending(transaction="nobody/1", commit=True))
    reading = Reading(told.path, tmp_path / "whole")
    reading.start()
    with pytest.raises(RuntimeError, match="nobody/1 has not begun"):
        reading.finish()
    told.close()
