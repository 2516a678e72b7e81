"""ElectLeaders: have partitions led by their preferred replica; or, unclean, by any replica at all, which never is.

*Preferred.* The leader of each partition hands it to the first replica, and the answer comes when this broker has heard
of the new leader. As in Kafka one that leads already is ELECTION_NOT_NEEDED (and left out where all partitions are
meant), and one that is away or behind is PREFERRED_LEADER_NOT_AVAILABLE. A change that is not seen in time is
REQUEST_TIMED_OUT.

*Unclean.* In Kafka it makes a replica the leader that was not in sync, at the cost of records. A Raft group elects
whoever has all that is committed as soon as a majority can be reached, so a partition with a leader needs nothing
(ELECTION_NOT_NEEDED, as in Kafka), and one without has nobody who could be elected: ELIGIBLE_LEADERS_NOT_AVAILABLE,
which is Kafka's answer, too, where no replica is there.

At most `commands.NAMED_MAX` partitions may be named. Where all are meant, those that need an election are moved in lots
until the time is up.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from barnabas_broker.leadership.elections import ElectionFate, Wanted
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import sorted_names
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import Refused, check_named

from .create_topics import code_of, limit_s

__all__ = ["handle", "refuse"]

PREFERRED, UNCLEAN = 0, 1
PIECE = 200  # partitions between two yields
_CODES = {
    ElectionFate.ELECTED: (ErrorCode.NONE, None),
    ElectionFate.NOT_AVAILABLE: (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "The first replica cannot be reached, or has not caught up.",
    ),
    ElectionFate.NOT_YET: (ErrorCode.REQUEST_TIMED_OUT, "The new leader has not been heard of in time."),
}
_NO_LEADER = (
    "No majority of the replicas can be reached, and no election does without: committed records would be lost."
)


class _Row(NamedTuple):
    """A partition and its answer: a code, or the place of what is wanted of its leader."""

    topic: str
    partition: int
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    place: int | None = None


async def handle(broker: BrokerContext, _: Exchange, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect; cancelled, leaders may change nevertheless."""
    until_ms = broker.now_ms() + int(limit_s(request.timeout_ms) * 1000)
    if request.election_type not in {PREFERRED, UNCLEAN}:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    named = request.topic_partitions
    try:
        check_named(sum(len(topic.partitions) or 1 for topic in named or ()), "partitions")
    except Refused as refused:
        return ElectLeadersResponse(error_code=code_of(refused.reason))
    wanted: list[Wanted] = []
    names = iter(()) if named is not None else await taken(sorted_names(broker.partitions.topics))
    asked = _everything(broker, names) if named is None else _named(named)
    rows = await taken(_rows(broker, asked, wanted, request.election_type, is_all=named is None))
    fates = await broker.elections.elect(wanted, until_ms)
    return ElectLeadersResponse(replica_election_results=await taken(_results(rows, fates)))


def refuse(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Answer the whole, and every partition that is named, with `code`."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[PartitionResult(partition_id=index, error_code=code) for index in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _named(topics: list[ElectLeadersTopic]) -> Iterator[tuple[str, int] | None]:
    for topic in topics:
        yield None
        for index in topic.partitions:
            yield topic.topic, index


def _everything(broker: BrokerContext, names: Iterator[str]) -> Iterator[tuple[str, int] | None]:
    for name in names:
        yield None
        hosted = broker.partitions.topics.get(name)
        for index in range(0 if hosted is None else len(hosted.topic.partitions)):
            yield name, index


def _rows(
    broker: BrokerContext,
    asked: Iterator[tuple[str, int] | None],
    wanted: list[Wanted],
    election_type: int,
    *,
    is_all: bool,
) -> Generator[None, None, list[_Row]]:
    """Return the partitions with what can be said at once; put the others into `wanted`.

    `asked` has None where there is time for something else.
    """
    rows = []
    for number, one in enumerate(asked, 1):
        if one is None or not number % PIECE:
            yield
        if one is None:
            continue
        row = _row(broker, *one, wanted, election_type)
        if not (is_all and row.code == ErrorCode.ELECTION_NOT_NEEDED):
            rows.append(row)
    return rows


def _row(broker: BrokerContext, name: str, index: int, wanted: list[Wanted], election_type: int) -> _Row:
    hosted = broker.partitions.topics.get(name)
    if hosted is None or not 0 <= index < len(hosted.topic.partitions):
        return _Row(name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, in_words(f"There is no {name}-{index}."))
    leader_id = broker.leader_of(hosted, index).leader_id
    if election_type == UNCLEAN:
        if leader_id >= 0:
            return _Row(name, index, ErrorCode.ELECTION_NOT_NEEDED)
        return _Row(name, index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, _NO_LEADER)
    preferred = hosted.topic.partitions[index].replicas[0]
    if leader_id == preferred:
        return _Row(name, index, ErrorCode.ELECTION_NOT_NEEDED)
    wanted.append(Wanted(hosted.topic.topic_id, index, preferred))
    return _Row(name, index, place=len(wanted) - 1)


def _results(rows: list[_Row], fates: list[ElectionFate]) -> Generator[None, None, list[ReplicaElectionResult]]:
    results: list[ReplicaElectionResult] = []
    for number, row in enumerate(rows, 1):
        code, text = (row.code, row.text) if row.place is None else _CODES[fates[row.place]]
        if not results or results[-1].topic != row.topic:
            results.append(ReplicaElectionResult(topic=row.topic))
        results[-1].partition_result.append(
            PartitionResult(partition_id=row.partition, error_code=code, error_message=text)
        )
        if not number % PIECE:
            yield
    return results
