"""The client's side of fetch sessions: what a request leaves out, and when it names everything again (KIP-227)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_clients.consumer.fetch_session import EPOCH_MAX, PARTITIONS_MIN, FetchSession
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

ID, OTHER_ID = b"a" * 16, b"b" * 16
Wanted = dict[int, int]


def full(wanted: Wanted, topic_id: bytes = ID) -> FetchRequest:
    rows = [FetchPartition(partition=number, fetch_offset=offset) for number, offset in wanted.items()]
    topics = [FetchTopic(topic="t", topic_id=topic_id, partitions=rows)] if rows else []
    return FetchRequest(max_wait_ms=7, min_bytes=3, max_bytes=9, isolation_level=1, rack_id="r", topics=topics)


def opened(wanted: Wanted, session_id: int = 5) -> FetchSession:
    session = FetchSession(partitions_min=1)
    request = session.request(full(wanted))
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert session.take(FetchResponse(session_id=session_id))
    return session


def named(request: FetchRequest) -> Wanted:
    return {row.partition: row.fetch_offset for topic in request.topics for row in topic.partitions}


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def test_a_session_names_what_has_changed_and_what_is_wanted_no_more() -> None:
    session = opened({0: 1, 1: 1, 2: 1})
    request = session.request(full({0: 1, 1: 2, 3: 0}))
    assert (request.session_id, request.session_epoch) == (5, 1)
    assert (named(request), forgotten(request)) == ({1: 2, 3: 0}, [2])
    assert session.take(FetchResponse(session_id=5))
    request = session.request(full({0: 1, 1: 2, 3: 0}))
    assert (request.session_epoch, request.topics, request.forgotten_topics_data) == (2, [], [])
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (7, 3, 9)
    assert (request.isolation_level, request.rack_id) == (1, "r")


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    session = opened({0: 1})
    request = session.request(full({0: 1}, OTHER_ID))
    assert named(request) == {0: 1}
    assert [(topic.topic_id, topic.partitions) for topic in request.forgotten_topics_data] == [(ID, [0])]


def test_a_broker_that_opens_no_session_is_told_everything_each_time() -> None:
    session = opened({0: 1}, session_id=0)
    request = session.request(full({0: 1}))
    assert (request.session_id, request.session_epoch, named(request)) == (0, 0, {0: 1})


def test_few_partitions_are_named_each_time_and_a_session_that_is_open_goes_on() -> None:
    few = dict.fromkeys(range(PARTITIONS_MIN - 1), 1)
    many = few | {PARTITIONS_MIN: 1}
    session = FetchSession()
    for _ in range(2):
        request = session.request(full(few))
        assert (request.session_id, request.session_epoch, named(request)) == (0, -1, few)
        assert session.take(FetchResponse())
    assert session.request(full(many)).session_epoch == 0
    session.take(FetchResponse(session_id=5))
    request = session.request(full(few))
    assert (request.session_epoch, named(request), forgotten(request)) == (1, {}, [PARTITIONS_MIN])
    session.lose()
    request = session.request(full(few))
    assert (request.session_id, request.session_epoch) == (5, -1), "it is ended, and there is no other"


def test_a_session_that_the_broker_ends_is_begun_anew() -> None:
    session = opened({0: 1})
    session.request(full({0: 1}))
    assert session.take(FetchResponse(session_id=0))
    assert not session.is_open


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 5),
    ],
)
def test_what_is_asked_in_a_session_that_is_over_is_asked_again_at_once(code: ErrorCode, session_id: int) -> None:
    session = opened({0: 1})
    session.request(full({0: 1}))
    assert not session.take(FetchResponse(error_code=code))
    request = session.request(full({0: 1}))
    assert (request.session_id, request.session_epoch, named(request)) == (session_id, 0, {0: 1})
    assert session.take(FetchResponse(error_code=code)), "it was no session that was over: the error counts"


def test_after_an_error_or_no_answer_everything_is_named_and_the_old_session_ended() -> None:
    for has_answer in (False, True):
        session = opened({0: 1})
        session.request(full({0: 2}))
        if has_answer:
            assert session.take(FetchResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            session.lose()
        request = session.request(full({0: 2}))
        assert (request.session_id, request.session_epoch, named(request)) == (5, 0, {0: 2})


def test_epochs_go_round_without_nought() -> None:
    session = opened({0: 1})
    session._epoch = EPOCH_MAX
    assert session.request(full({})).session_epoch == EPOCH_MAX
    session.take(FetchResponse(session_id=5))
    assert session.request(full({})).session_epoch == 1


@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=4), st.integers(0, 5))))
def test_the_broker_always_knows_what_is_wanted(steps: list[tuple[Wanted, int]]) -> None:
    session = FetchSession(partitions_min=2)
    known: Wanted = {}
    for wanted, luck in steps:
        request = session.request(full(wanted))
        if request.session_epoch <= 0:
            known = {}
        known |= named(request)
        for number in forgotten(request):
            del known[number]
        assert known == wanted
        if luck == 0:
            session.lose()
        else:
            session.take(FetchResponse(session_id=0 if luck == 1 or request.session_epoch < 0 else 5))
