"""Topics and partitions that somebody asks for, with brokers chosen by hand or not, and what is answered: as in Kafka.

One broker, with the id 1, and the topic `TOPIC` of one partition.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas_clients.protocol.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from broker.wire_client import Wire

from .admin_questions import TOPIC

__all__ = ["TOPIC_QUESTIONS", "TopicQuestion", "codes"]

CREATE, GROW = range(2, 8), range(4)
NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT
PARTITIONS = ErrorCode.INVALID_PARTITIONS
FACTOR = ErrorCode.INVALID_REPLICATION_FACTOR
CONFIG = ErrorCode.INVALID_CONFIG
NAME = ErrorCode.INVALID_TOPIC_EXCEPTION
EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Request = CreateTopicsRequest | CreatePartitionsRequest


class TopicQuestion(NamedTuple):
    """A request that changes nothing, and the code for each topic. `kafka` is None if its codes are the same."""

    name: str
    request: Request
    codes: Mapping[str, ErrorCode]
    kafka: Mapping[str, ErrorCode] | None = None

    @property
    def versions(self) -> range:
        return CREATE if isinstance(self.request, CreateTopicsRequest) else GROW


def codes(wire: Wire, request: Request, version: int) -> dict[str, ErrorCode]:
    """Ask, and return the code of each topic; every refusal says why."""
    answer = wire.ask(request, version)
    rows: Sequence[Any] = answer.topics if isinstance(request, CreateTopicsRequest) else answer.results
    assert len({row.name for row in rows}) == len(rows)
    return {row.name: ErrorCode(row.error_code) for row in rows}


def _made(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assigned: Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=them) for index, them in assigned],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def _create(what: str, code: ErrorCode, *topics: CreatableTopic, kafka: ErrorCode | None = None) -> TopicQuestion:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=True)
    theirs = None if kafka is None else {topic.name: kafka for topic in topics}
    return TopicQuestion(what, request, {topic.name: code for topic in topics}, theirs)


def _grow(what: str, code: ErrorCode, count: int, *assigned: Sequence[int], name: str = TOPIC) -> TopicQuestion:
    rows = [CreatePartitionsAssignment(broker_ids=them) for them in assigned] if assigned else None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return TopicQuestion(what, _growth(topic), {name: code})


def _growth(*topics: CreatePartitionsTopic) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics), timeout_ms=10_000, validate_only=True)


WRONG = {"retention.ms": "x"}
NEW = "new"
TOPIC_QUESTIONS = (
    _create("placed", NONE, _made(NEW, 2, 1)),
    _create("by default", NONE, _made(NEW)),
    _create("assigned", NONE, _made(NEW, assigned=[(0, [1])])),
    _create("two assigned", NONE, _made(NEW, assigned=[(1, [1]), (0, [1])])),
    _create("there already", EXISTS, _made(TOPIC, 1, 1)),
    _create("there already, and impossible", EXISTS, _made(TOPIC, 0, 0, configs=WRONG)),
    _create("there already, and assigned twice", EXISTS, _made(TOPIC, assigned=[(0, [1]), (0, [1])])),
    _create("no name", NAME, _made("no such name!", 0, 0)),
    _create("named twice", INVALID, _made(NEW, 1, 1), _made(NEW, 1, 1)),
    _create("no partition", PARTITIONS, _made(NEW, 0, 1)),
    _create("fewer than none", PARTITIONS, _made(NEW, -2, 1)),
    _create("no replica", FACTOR, _made(NEW, 1, 0)),
    _create("fewer replicas than none", FACTOR, _made(NEW, 1, -2)),
    _create("more replicas than brokers", FACTOR, _made(NEW, 1, 2)),
    _create("neither", FACTOR, _made(NEW, 0, 0)),
    _create("a wrong configuration", CONFIG, _made(NEW, 1, 1, configs=WRONG)),
    _create("a wrong configuration, and no partition", CONFIG, _made(NEW, 0, 0, configs=WRONG)),
    _create("a wrong configuration, and brokers", CONFIG, _made(NEW, assigned=[(0, [9])], configs=WRONG)),
    _create("assigned and counted", INVALID, _made(NEW, 1, -1, [(0, [1])])),
    _create("assigned with a factor", INVALID, _made(NEW, -1, 1, [(0, [1])])),
    _create("assigned twice, and counted", INVALID, _made(NEW, 2, -1, [(0, [1]), (0, [1])])),
    _create("assigned twice", ASSIGNMENT, _made(NEW, assigned=[(0, [1]), (0, [1])])),
    _create("assigned from 1 on", ASSIGNMENT, _made(NEW, assigned=[(1, [1])])),
    _create("assigned with a gap", ASSIGNMENT, _made(NEW, assigned=[(0, [1]), (2, [1])])),
    _create("assigned below 0", ASSIGNMENT, _made(NEW, assigned=[(-1, [1])])),
    _create("assigned to nobody", ASSIGNMENT, _made(NEW, assigned=[(0, [])])),
    _create("assigned to a stranger", ASSIGNMENT, _made(NEW, assigned=[(0, [1, 9])])),
    _create("assigned to one twice", ASSIGNMENT, _made(NEW, assigned=[(0, [1, 1])])),
    _create("assigned below nobody", ASSIGNMENT, _made(NEW, assigned=[(0, [-1])])),
    _create("assigned unevenly", ASSIGNMENT, _made(NEW, assigned=[(0, [1]), (1, [])])),
    _grow("grown", NONE, 2),
    _grow("grown by hand", NONE, 3, [1], [1]),
    _grow("not grown", PARTITIONS, 1),
    _grow("not grown by hand", PARTITIONS, 1, [1]),
    _grow("grown to none", PARTITIONS, 0),
    _grow("grown below none", PARTITIONS, -1),
    _grow("grown nowhere", UNKNOWN, 2, name="x"),
    _grow("grown with too few", ASSIGNMENT, 3, [1]),
    _grow("grown with too many", ASSIGNMENT, 2, [1], [1]),
    _grow("grown on nobody", ASSIGNMENT, 2, []),
    _grow("grown on a stranger", ASSIGNMENT, 2, [9]),
    _grow("grown on one twice", ASSIGNMENT, 2, [1, 1]),
    _grow("grown on a stranger beside", ASSIGNMENT, 3, [1], [1, 9]),
    TopicQuestion(
        "grown twice",
        _growth(CreatePartitionsTopic(name=TOPIC, count=2), CreatePartitionsTopic(name=TOPIC, count=3)),
        {TOPIC: INVALID},
    ),
    TopicQuestion(
        "grown with none", _growth(CreatePartitionsTopic(name=TOPIC, count=2, assignments=[])), {TOPIC: ASSIGNMENT}
    ),
)
