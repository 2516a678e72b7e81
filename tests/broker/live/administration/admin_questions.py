"""Questions of administrators to a broker alone with one topic, and what is answered: here, and by Apache Kafka."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from barnabas_clients.protocol.add_raft_voter import AddRaftVoterListener, AddRaftVoterRequest
from barnabas_clients.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas_clients.protocol.create_acls import AclCreation, CreateAclsRequest
from barnabas_clients.protocol.create_delegation_token import CreateDelegationTokenRequest
from barnabas_clients.protocol.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas_clients.protocol.describe_acls import DescribeAclsRequest
from barnabas_clients.protocol.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas_clients.protocol.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from barnabas_clients.protocol.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from barnabas_clients.protocol.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas_clients.protocol.list_config_resources import ListConfigResourcesRequest
from barnabas_clients.protocol.remove_raft_voter import RemoveRaftVoterRequest
from barnabas_clients.protocol.renew_delegation_token import RenewDelegationTokenRequest
from barnabas_clients.protocol.unregister_broker import UnregisterBrokerRequest
from barnabas_raftlog.wire.schema import NO_UUID, Message
from broker.wire_client import Wire

__all__ = [
    "PREFERRED",
    "QUESTIONS",
    "QUORUM_REQUEST",
    "TOPIC",
    "UNCLEAN",
    "Question",
    "Surroundings",
    "elect",
    "move",
    "told",
]

TOPIC = "admin-answers"
QUORUM = "__cluster_metadata"
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID = ErrorCode.INVALID_REQUEST
ID = bytes(range(16))
PREFERRED, UNCLEAN = 0, 1
METRICS = 16


class Surroundings(NamedTuple):
    """What differs between two brokers that are asked the same."""

    log_dir: str
    cluster_id: str


class Question(NamedTuple):
    """A request, in these versions, and what is left of the answer when all that may differ is left out.

    `kafka` is None if the same is left of Kafka's.
    """

    name: str
    make: Callable[[Surroundings], Message]
    versions: range
    ours: Any
    kafka: Any = None


def told(wire: Wire, request: Message, version: int) -> Any:
    """Ask, and return what is left of the answer."""
    answer: Any = wire.ask(request, version)
    return _LEFT[type(request)](answer, version)


# Requests.


def elect(kind: int, *partitions: int, topic: str = TOPIC) -> ElectLeadersRequest:
    rows = [ElectLeadersTopic(topic=topic, partitions=partitions)]
    return ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=10_000)


def _quorum(*partitions: int, topic: str = QUORUM) -> DescribeQuorumRequest:
    rows = [DescribeQuorumPartition(partition_index=index) for index in partitions]
    return DescribeQuorumRequest(topics=[DescribeQuorumTopic(topic_name=topic, partitions=rows)])


def move(path: str, *partitions: int, topic: str = TOPIC) -> AlterReplicaLogDirsRequest:
    rows = [AlterReplicaLogDirTopic(name=topic, partitions=partitions)]
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)])


def _add(cluster_id: str | None, voter_id: int, directory: bytes = ID) -> AddRaftVoterRequest:
    listeners = [AddRaftVoterListener(name="CONTROLLER", host="localhost", port=1)]
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=1_000,
        voter_id=voter_id,
        voter_directory_id=directory,
        listeners=listeners,
    )


def _remove(cluster_id: str | None, voter_id: int, directory: bytes = ID) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory)


def _directories(topics: Sequence[tuple[str, tuple[int, ...]]] | None) -> DescribeLogDirsRequest:
    rows = None if topics is None else [DescribableLogDirTopic(topic=name, partitions=them) for name, them in topics]
    return DescribeLogDirsRequest(topics=rows)


QUORUM_REQUEST = _quorum(0)
ACL = AclCreation(resource_type=2, resource_name="t", principal="User:x", host="*", operation=3, permission_type=3)
FILTER = DeleteAclsFilter(resource_type_filter=2, resource_name_filter="t", operation=3, permission_type=3)
DESCRIBE_ACLS = DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1)


# What is left of answers.


def _elections(answer: Any, _: int) -> Any:
    rows = {
        (topic.topic, row.partition_id): ErrorCode(row.error_code)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }
    return ErrorCode(answer.error_code), rows


def _members(answer: Any, version: int) -> Any:
    rows = []
    for topic in answer.topics:
        for row in topic.partitions:
            voters = [one.replica_id for one in row.current_voters]
            assert version < 1 or all(one.last_caught_up_timestamp > 0 for one in row.current_voters)
            is_led = row.leader_id == 1 and row.leader_epoch > 0 and row.high_watermark > 0
            rows.append((topic.topic_name, row.partition_index, ErrorCode(row.error_code), is_led, voters))
    return ErrorCode(answer.error_code), rows


def _volumes(answer: Any, version: int) -> Any:
    (result,) = answer.results
    assert version < 4 or result.total_bytes > result.usable_bytes > 0
    rows = {
        (topic.name, row.partition_index, row.offset_lag, row.is_future_key)
        for topic in result.topics
        for row in topic.partitions
        if topic.name == TOPIC and row.partition_size >= 0
    }
    is_absolute = result.log_dir.startswith("/")
    return ErrorCode(answer.error_code), ErrorCode(result.error_code), is_absolute, result.is_cordoned, rows


def _moved(answer: Any, _: int) -> Any:
    return {
        (topic.topic_name, row.partition_index): ErrorCode(row.error_code)
        for topic in answer.results
        for row in topic.partitions
    }


def _resources(answer: Any, _: int) -> Any:
    rows = {(one.resource_type, one.resource_name) for one in answer.config_resources}
    return ErrorCode(answer.error_code), {row for row in rows if row[1] in {TOPIC, "1"}}


def _token(answer: Any, _: int) -> Any:
    return (
        ErrorCode(answer.error_code),
        (answer.principal_type, answer.principal_name),
        {answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms},
        answer.token_id or answer.hmac,
    )


def _acls(rows: str, inner: str = "") -> Callable[[Any, int], Any]:
    def left(answer: Any, _: int) -> Any:
        found = getattr(answer, rows)
        return [
            (ErrorCode(row.error_code), bool(row.error_message), getattr(row, inner) if inner else []) for row in found
        ]

    return left


_LEFT: dict[type[Any], Callable[[Any, int], Any]] = {
    DescribeAclsRequest: lambda answer, _: (ErrorCode(answer.error_code), bool(answer.error_message), answer.resources),
    CreateAclsRequest: _acls("results"),
    DeleteAclsRequest: _acls("filter_results", "matching_acls"),
    CreateDelegationTokenRequest: _token,
    RenewDelegationTokenRequest: lambda answer, _: (ErrorCode(answer.error_code), answer.expiry_timestamp_ms),
    ExpireDelegationTokenRequest: lambda answer, _: (ErrorCode(answer.error_code), answer.expiry_timestamp_ms),
    DescribeDelegationTokenRequest: lambda answer, _: (ErrorCode(answer.error_code), answer.tokens),
    ElectLeadersRequest: _elections,
    DescribeQuorumRequest: _members,
    DescribeLogDirsRequest: _volumes,
    AlterReplicaLogDirsRequest: _moved,
    ListConfigResourcesRequest: _resources,
    AddRaftVoterRequest: lambda answer, _: (ErrorCode(answer.error_code), bool(answer.error_message)),
    RemoveRaftVoterRequest: lambda answer, _: (ErrorCode(answer.error_code), bool(answer.error_message)),
    UnregisterBrokerRequest: lambda answer, _: (ErrorCode(answer.error_code), bool(answer.error_message)),
}


# The questions.

OFF: tuple[ErrorCode, bool, list[Any]] = (ErrorCode.SECURITY_DISABLED, True, [])
NO_TOKENS = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
# Kafka looks at the connection first, and tells nothing on one that proves nothing.
NOT_HERE = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NOBODY = ("User", "ANONYMOUS")
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED
REFUSED = (ErrorCode.UNSUPPORTED_VERSION, True)
HELD = (NONE, NONE, True, False, {(TOPIC, 0, 0, False)})

QUESTIONS = (
    Question("acls described", lambda _: DESCRIBE_ACLS, range(1, 4), OFF),
    Question("acls made", lambda _: CreateAclsRequest(creations=[ACL, ACL]), range(1, 4), [OFF] * 2),
    Question(
        "a broker forgotten that is not there",
        lambda _: UnregisterBrokerRequest(broker_id=77),
        range(1),
        (ErrorCode.BROKER_ID_NOT_REGISTERED, True),
    ),
    Question("no acls made", lambda _: CreateAclsRequest(), range(1, 4), []),
    Question("acls deleted", lambda _: DeleteAclsRequest(filters=[FILTER] * 3), range(1, 4), [OFF] * 3),
    Question(
        "a token made",
        lambda _: CreateDelegationTokenRequest(max_lifetime_ms=-1),
        range(1, 4),
        (NO_TOKENS, NOBODY, {-1}, b""),
        (NOT_HERE, NOBODY, {-1}, b""),
    ),
    Question(
        "a token made for somebody",
        lambda _: CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="x"),
        range(3, 4),
        (NO_TOKENS, ("User", "x"), {-1}, b""),
        (NOT_HERE, ("User", "x"), {-1}, b""),
    ),
    Question(
        "a token renewed",
        lambda _: RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        range(1, 3),
        (NO_TOKENS, -1),
        (NOT_HERE, -1),
    ),
    Question(
        "a token ended",
        lambda _: ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
        range(1, 3),
        (NO_TOKENS, -1),
        (NOT_HERE, -1),
    ),
    Question(
        "tokens described", lambda _: DescribeDelegationTokenRequest(), range(1, 4), (NO_TOKENS, []), (NOT_HERE, [])
    ),
    Question("elected", lambda _: elect(PREFERRED, 0), range(3), (NONE, {(TOPIC, 0): NOT_NEEDED})),
    Question("elected unclean", lambda _: elect(UNCLEAN, 0), range(1, 3), (NONE, {(TOPIC, 0): NOT_NEEDED})),
    Question("none such elected", lambda _: elect(PREFERRED, 1), range(3), (NONE, {(TOPIC, 1): UNKNOWN})),
    Question("elected nowhere", lambda _: elect(UNCLEAN, 0, topic="x"), range(1, 3), (NONE, {("x", 0): UNKNOWN})),
    Question("all elected", lambda _: ElectLeadersRequest(), range(3), (NONE, {})),
    Question("elected somehow", lambda _: elect(2, 0), range(1, 3), (INVALID, {(TOPIC, 0): INVALID})),
    Question("the quorum", lambda _: _quorum(0), range(3), (NONE, [(QUORUM, 0, NONE, True, [1])])),
    Question("another partition", lambda _: _quorum(1), range(3), (NONE, [(QUORUM, 1, UNKNOWN, False, [])])),
    Question("another topic", lambda _: _quorum(0, topic="x"), range(3), (NONE, [("x", 0, UNKNOWN, False, [])])),
    Question("no quorum", lambda _: DescribeQuorumRequest(), range(3), (NONE, [])),
    Question("added elsewhere", lambda _: _add("x", 9), range(2), (ErrorCode.INCONSISTENT_CLUSTER_ID, True)),
    Question("added without disk", lambda _: _add(None, 9, NO_UUID), range(2), (INVALID, True)),
    Question("added", lambda here: _add(here.cluster_id, 9), range(2), REFUSED),
    Question("removed elsewhere", lambda _: _remove("x", 1), range(1), (ErrorCode.INCONSISTENT_CLUSTER_ID, True)),
    Question("removed without disk", lambda _: _remove(None, 1, NO_UUID), range(1), (INVALID, True)),
    Question("removed", lambda here: _remove(here.cluster_id, 1), range(1), REFUSED),
    Question("directories", lambda _: _directories(None), range(1, 6), HELD),
    Question("one directory", lambda _: _directories([(TOPIC, (0, 7)), ("x", (0,))]), range(1, 6), HELD),
    Question("no directory", lambda _: _directories([]), range(1, 6), (*HELD[:-1], set())),
    Question("stays", lambda here: move(here.log_dir, 0), range(1, 3), {(TOPIC, 0): NONE}),
    Question(
        "not here to stay",
        lambda here: move(here.log_dir, 7),
        range(1, 3),
        {(TOPIC, 7): UNKNOWN},
    ),
    Question("nowhere to stay", lambda here: move(here.log_dir, 0, topic="x"), range(1, 3), {("x", 0): UNKNOWN}),
    Question("moves", lambda _: move("/elsewhere", 0), range(1, 3), {(TOPIC, 0): ErrorCode.LOG_DIR_NOT_FOUND}),
    Question("nothing moves", lambda _: AlterReplicaLogDirsRequest(), range(1, 3), {}),
    Question("metrics listed", lambda _: ListConfigResourcesRequest(), range(1), (NONE, set())),
    Question(
        "all listed",
        lambda _: ListConfigResourcesRequest(),
        range(1, 2),
        (NONE, {(2, TOPIC), (4, "1")}),
        (NONE, {(2, TOPIC), (4, "1"), (8, "1")}),  # There are no loggers to configure.
    ),
    Question(
        "topics listed", lambda _: ListConfigResourcesRequest(resource_types=(2,)), range(1, 2), (NONE, {(2, TOPIC)})
    ),
    Question(
        "nobody knows what listed",
        lambda _: ListConfigResourcesRequest(resource_types=(2, 3)),
        range(1, 2),
        (ErrorCode.UNSUPPORTED_VERSION, set()),
    ),
)
