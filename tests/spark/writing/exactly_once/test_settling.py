"""An operator brings a sink to rest: what was decided is committed, the rest aborted, and a torn batch accepted."""

import json
from collections import Counter

import pytest

from barnabas_spark import clusters as connections
from barnabas_spark.clusters import cluster_for
from barnabas_spark.jobs import cli
from barnabas_spark.writing.exactly_once.coordinators import end_transaction
from barnabas_spark.writing.exactly_once.decisions import Decision, Prepared
from barnabas_spark.writing.exactly_once.plan import (
    End,
    EndAny,
    Fence,
    Fenced,
    Owner,
    ReadLast,
    Sweep,
    Write,
    begin,
    commit,
)
from barnabas_spark.writing.exactly_once.requests import LostTransactionError, _reading, carry_out
from barnabas_spark.writing.exactly_once.settling import NotTornError, TornBatchError, outcome_of, settle

from .sink import Sink, stop_before

ONE, OTHER = Prepared("s/0/1.1.1", 7, 3), Prepared("s/1/1.1.2", 8, 0)
WAITING = Decision("s", 4, (ONE, OTHER))
OWNERS = [Owner(1, 5), Owner(1, 6)]


def effects(last: Decision | None, accepted: int | None, *are_committed: bool) -> tuple[list[object], object]:
    """Return what a settlement has carried out, and its result or error."""
    found: list[object] = []
    plan = settle("s", accepted)
    answer: object = None
    try:
        while True:
            effect = plan.send(answer)
            found.append(effect)
            match effect:
                case Fence():
                    answer = OWNERS[0]
                case ReadLast():
                    answer = last
                case EndAny():
                    answer = are_committed
                case _:
                    answer = OWNERS[1]
    except StopIteration as end:
        return found, end.value
    except (TornBatchError, NotTornError) as error:
        return found, error


def test_a_torn_batch_is_done_only_for_who_names_it() -> None:
    done = effects(WAITING, 4, True, False)
    assert done[0][2:] == [
        EndAny("s", OWNERS[0], (ONE, OTHER)),
        Write(OWNERS[0], Decision("s", 4, (), is_done=True)),
        Sweep("s", OWNERS[1]),
    ]
    assert done[1] == (4, (OTHER,))

    carried_out, error = effects(WAITING, None, True, False)
    assert carried_out[2:] == [EndAny("s", OWNERS[0], (ONE, OTHER)), Sweep("s", OWNERS[0])]
    assert isinstance(error, TornBatchError)
    assert "the rows of 1 of its 2 transactions are lost (s/1/1.1.2)" in str(error)
    assert "--accept-torn 4" in str(error)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (None, "no batch yet"),
        (WAITING._replace(version=5), "its last batch is 5, which is not done"),
        (Decision("s", 4, is_done=True), "its last batch is 4, which is done"),
    ],
)
def test_no_other_batch_is_accepted(last: Decision | None, words: str) -> None:
    carried_out, error = effects(last, 4, True, True)
    assert isinstance(error, NotTornError)
    assert words in str(error)
    assert carried_out == [Fence("s"), ReadLast("s")]


@pytest.mark.parametrize("last", [None, Decision("s", 4, is_done=True)])
def test_where_nothing_was_decided_the_rest_is_aborted(last: Decision | None) -> None:
    carried_out, _ = effects(last, None)
    assert carried_out == [Fence("s"), ReadLast("s"), Sweep("s", OWNERS[0])]


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "outcome"),
    [
        ("Ongoing", 7, 3, "open"),
        ("Ongoing", 7, 4, "replaced"),
        ("PrepareCommit", 7, 3, "committed"),
        ("CompleteCommit", 7, 4, "committed"),
        ("CompleteCommit", 9, 0, "committed"),
        ("CompleteCommit", 7, 5, "replaced"),
        ("CompleteAbort", 7, 4, "aborted"),
        ("CompleteAbort", 9, 1, "replaced"),
        ("Empty", 7, 5, "replaced"),
    ],
)
def test_what_became_of_a_transaction(state: str, producer_id: int, epoch: int, outcome: str) -> None:
    assert outcome_of(ONE, state, producer_id, epoch) == outcome


def told(sink: Sink, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capfd.readouterr()
    status = cli.main(["settle", sink.name, "--bootstrap-server", sink.bootstrap, *words])
    said = capfd.readouterr()
    return status, said.out, said.err


def lose(sink: Sink, one: Prepared) -> None:
    """Abort a transaction, as its coordinator does when it is too old."""

    async def abort() -> None:
        cluster = await cluster_for(_reading(sink.options()), is_driver=True)
        await end_transaction(cluster, one, 30, is_commit=False)

    connections.run(abort(), 60)


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_a_torn_sink_goes_on_when_its_operator_says_so(sink: Sink, capfd: pytest.CaptureFixture[str]) -> None:
    assert told(sink, capfd)[0] == 1
    sink.batch(0, {0: "0", 1: "1"})
    assert told(sink, capfd) == (0, "", f"sink {sink.name}: batch 0 is done\n")

    begun = carry_out(begin(sink.name), sink.options())
    one, other = (sink.attempt(begun, each, str(each), each) for each in (2, 3))
    loser = sink.attempt(begun, 9, "9", 2)
    carry_out(stop_before(commit(begun, Decision(sink.name, 1, (one, other))), End), sink.options())
    lose(sink, one)
    status, out, _ = told(sink, capfd, "--json")
    assert (status, json.loads(out)) == (
        1,
        {
            "sink": sink.name,
            "batch": 1,
            "done": False,
            "decided": {one.transactional_id: "aborted", other.transactional_id: "open"},
            "undecided": [loser.transactional_id],
        },
    )

    with pytest.raises(LostTransactionError, match="the batch is torn"):
        carry_out(begin(sink.name), sink.options())
    status, _, err = told(sink, capfd, "--finish")
    assert status == 1
    assert f"batch 1 of sink '{sink.name}' is torn" in err
    assert sink.read() == Counter([0, 1, 3])
    assert told(sink, capfd, "--finish", "--accept-torn", "2")[0] == 1
    status, _, err = told(sink, capfd, "--finish", "--accept-torn", "1")
    assert status == 0
    assert f"lost: the rows of {one.transactional_id}\n" in err
    sink.batch(2, {0: "4", 1: "5"})
    assert sink.read() == Counter([0, 1, 3, 4, 5])


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_a_sink_that_is_given_up_is_finished_and_a_driver_that_lives_is_refused(
    sink: Sink, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = carry_out(begin(sink.name), sink.options())
    one = sink.attempt(begun, 1, "1")
    sink.attempt(begun, 2, "2", 1)
    carry_out(stop_before(commit(begun, Decision(sink.name, 0, (one,))), End), sink.options())
    assert told(sink, capfd, "--finish") == (0, "", f"sink {sink.name}: batch 0 is done, and nothing is open\n")
    assert sink.read() == Counter([1])
    assert told(sink, capfd) == (0, "", f"sink {sink.name}: batch 0 is done\n")
    with pytest.raises(Fenced):
        carry_out(commit(begun, Decision(sink.name, 1)), sink.options())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["settle", "s", "--accept-torn", "3"], "--accept-torn goes with --finish"),
        (["settle", "a/b"], "SINK 'a/b' is not possible"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert complaint in capfd.readouterr().err
