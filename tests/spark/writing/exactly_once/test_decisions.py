"""A decision comes back as it was written, and what is none is refused."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.options.writes import check_sink
from barnabas_spark.writing.exactly_once.decisions import (
    Decision,
    Prepared,
    Ticket,
    UnreadableDecisionError,
    Vacant,
    decode,
    encode,
)
from barnabas_spark.writing.exactly_once.names import attempt_id, driver_id, is_of_attempt, partition_of, ticket_id

IDS, EPOCHS = st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)
TICKETS = st.builds(Ticket, IDS, EPOCHS)
PREPARED = st.builds(Prepared, st.text(), IDS, EPOCHS, st.none() | TICKETS)
VACANT = st.builds(Vacant, st.text(), IDS, EPOCHS, TICKETS)
DECISIONS = st.builds(
    Decision,
    st.text(),
    st.integers(-1, 2**63 - 1),
    st.lists(PREPARED).map(tuple),
    st.booleans(),
    st.text(),
    st.lists(VACANT).map(tuple),
)


@given(DECISIONS)
def test_round_trip(decision: Decision) -> None:
    assert decode(encode(decision)) == decision


def test_the_bytes_are_these() -> None:
    prepared = (Prepared("s/0/1.2.0", 9, 4), Prepared("s/1/1.2.1", 10, 0, Ticket(11, 6)))
    vacant = (Vacant("s/2/0.0.7", 12, 5, Ticket(13, 8)),)
    decision = Decision("s", 3, prepared, application="q", vacant=vacant)
    assert encode(decision) == (
        b'{"v":1,"sink":"s","version":3,"done":false,"application":"q",'
        b'"transactions":[["s/0/1.2.0",9,4],["s/1/1.2.1",10,0,11,6]],"vacant":[["s/2/0.0.7",12,5,13,8]]}'
    )


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"done": 1},
        {"version": "3"},
        {"version": True},
        {"transactions": [["a", 1]]},
        {"transactions": 5},
        {"transactions": [["a", 1, 2, 3]]},
        {"vacant": [["a", 1, 2]]},
        {"vacant": [["a", 1, 2, "3", 4]]},
    ],
)
def test_what_is_no_decision_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(encode(Decision("s", 3)))
    with pytest.raises(UnreadableDecisionError):
        decode(json.dumps(fields | change).encode())
    for name in fields:
        with pytest.raises(UnreadableDecisionError):
            decode(json.dumps({key: value for key, value in fields.items() if key != name}).encode())
    with pytest.raises(UnreadableDecisionError):
        decode(b"\xff")


def test_ids_of_a_sink_are_its_own() -> None:
    one = attempt_id("s", 3, (7, 1), 12)
    assert one == "s/3/7.1.12"
    assert is_of_attempt("s", one)
    assert partition_of("s", one) == 3
    for other in (driver_id("s"), ticket_id("s", 3), "s/3/12", "t/3/7.1.12", "s/s/3/7.1.12", one + "x", "ss/3/7.1.12"):
        assert not is_of_attempt("s", other), other
        with pytest.raises(ValueError, match="not the id of an attempt"):
            partition_of("s", other)


@pytest.mark.parametrize("sink", ["", "a/b", "a\nb", "x" * 201])
def test_what_cannot_be_the_name_of_a_sink(sink: str) -> None:
    with pytest.raises(ValueError, match=re.escape("write 1 to 200 bytes without '/'")):
        check_sink(sink)
