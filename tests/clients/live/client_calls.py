"""Every public call of the clients that asks a broker, for tests of all calls.

Each can be made again and again, in any order: it changes nothing that another one needs.
"""

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from barnabas_clients import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from barnabas_clients.admin.offset_resets import ResetTo
from barnabas_clients.admin.snapshot_ranges import NamedSnapshot, PinnedRange, SnapshotTopic
from barnabas_clients.admin.values import ConfigResource, GroupListing, NewTopic, OffsetSpec
from barnabas_clients.producer.encoded import EncodedBatch
from barnabas_clients.protocol.snapshot_states import SnapshotTopicState
from barnabas_raftlog.records.builder import NewRecord, build_batch

__all__ = ["ADMIN", "CONSUMER", "PRODUCER", "SURVEYS", "Call", "Clients", "asking_methods"]


class Clients(NamedTuple):
    """Open clients, a topic of one partition, and the group that `consumer` is a member of.

    Topics and groups that calls make have these names and a number behind them.
    """

    producer: Producer
    consumer: Consumer
    admin: Admin
    topic: str
    group_id: str

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


Call = Callable[[Clients, float], Awaitable[Any]]
"""(clients, timeout in seconds) -> the call under way."""


async def send_and_flush(clients: Clients, timeout_s: float) -> None:
    """Leave a record in the buffer, and wait for it."""
    _ = await clients.producer.send(clients.topic, b"v", timeout_s=timeout_s)
    await clients.producer.flush(timeout_s)


def snapshot_of(clients: "Clients") -> NamedSnapshot:
    """Return one that nobody has made, of the first partition."""
    ranges = {0: PinnedRange(0, 1)}
    topic = SnapshotTopic(clients.topic, bytes(16), SnapshotTopicState.THERE, is_compacted=False, partitions=ranges)
    return NamedSnapshot("made here", bytes(16), 0, False, 1, 1, (topic,))


def one_record() -> EncodedBatch:
    frame = build_batch([NewRecord(None, b"v", 1_000)])
    return EncodedBatch(frame, 1, 1_000, 1_000)


PRODUCER: Mapping[str, Call] = {
    "send": lambda c, s: c.producer.send(f"{c.topic}-1", b"v", timeout_s=s),
    "send_and_wait": lambda c, s: c.producer.send_and_wait(c.topic, b"v", timeout_s=s),
    "send_batch": lambda c, s: c.producer.send_batch(f"{c.topic}-1", 0, one_record(), s),
    "partitions": lambda c, s: c.producer.partitions(f"{c.topic}-1", s),
    "flush": send_and_flush,
}
CONSUMER: Mapping[str, Call] = {
    "subscribe": lambda c, s: c.consumer.subscribe([f"{c.topic}-1"], timeout_s=s),
    "commit": lambda c, s: c.consumer.commit({c.partition: 0}, timeout_s=s),
    "committed": lambda c, s: c.consumer.committed(c.partition, timeout_s=s),
    "seek_to_time": lambda c, s: c.consumer.seek_to_time(0, c.partition, timeout_s=s),
    "begin_offsets": lambda c, s: c.consumer.begin_offsets([c.partition], timeout_s=s),
    "end_offsets": lambda c, s: c.consumer.end_offsets([c.partition], timeout_s=s),
    "offsets_for_times": lambda c, s: c.consumer.offsets_for_times({c.partition: 0}, timeout_s=s),
    "lag": lambda c, s: c.consumer.lag(timeout_s=s),
    "partitions_for_topic": lambda c, s: c.consumer.partitions_for_topic(f"{c.topic}-1", timeout_s=s),
}
ADMIN: Mapping[str, Call] = {
    "describe_cluster": lambda c, s: c.admin.describe_cluster(timeout_s=s),
    "describe_quorum": lambda c, s: c.admin.describe_quorum(timeout_s=s),
    "unregister_broker": lambda c, s: c.admin.unregister_broker(2**31 - 1, timeout_s=s),  # There is none such.
    "describe_features": lambda c, s: c.admin.describe_features(timeout_s=s),
    "update_features": lambda c, s: c.admin.update_features({"transaction.version": 2}, timeout_s=s),
    "describe_configs": lambda c, s: c.admin.describe_configs([ConfigResource.topic(c.topic)], timeout_s=s),
    "list_config_resources": lambda c, s: c.admin.list_config_resources(timeout_s=s),
    "alter_configs": lambda c, s: c.admin.alter_configs(
        ConfigResource.topic(c.topic), {"max.message.bytes": "1048588"}, timeout_s=s
    ),
    "create_topic": lambda c, s: c.admin.create_topic(f"{c.topic}-2", timeout_s=s),
    "create_topics": lambda c, s: c.admin.create_topics([NewTopic(f"{c.topic}-3")], timeout_s=s),
    "delete_topics": lambda c, s: c.admin.delete_topics([f"{c.topic}-4"], timeout_s=s),
    "list_topics": lambda c, s: c.admin.list_topics(timeout_s=s),
    "create_snapshot": lambda c, s: c.admin.create_snapshot(f"s-{uuid.uuid4().hex}", [c.topic], timeout_s=s),
    "describe_snapshot": lambda c, s: c.admin.describe_snapshot(f"{c.topic}-1", timeout_s=s),
    "list_snapshots": lambda c, s: c.admin.list_snapshots(timeout_s=s),
    "check_snapshot": lambda c, s: c.admin.check_snapshot(snapshot_of(c), timeout_s=s),
    "delete_snapshot": lambda c, s: c.admin.delete_snapshot(f"{c.topic}-1", timeout_s=s),
    "describe_topics": lambda c, s: c.admin.describe_topics([c.topic], timeout_s=s),
    "create_partitions": lambda c, s: c.admin.create_partitions(c.topic, 2, timeout_s=s),
    # Nothing is under way, so cancelling is refused.
    "alter_partition_reassignments": lambda c, s: c.admin.alter_partition_reassignments(
        {c.partition: None}, timeout_s=s
    ),
    "elect_leaders": lambda c, s: c.admin.elect_leaders([c.partition], timeout_s=s),
    "list_partition_reassignments": lambda c, s: c.admin.list_partition_reassignments(timeout_s=s),
    "describe_log_dirs": lambda c, s: c.admin.describe_log_dirs(timeout_s=s),
    "list_offsets": lambda c, s: c.admin.list_offsets({c.partition: OffsetSpec.LATEST}, timeout_s=s),
    "delete_records": lambda c, s: c.admin.delete_records({c.partition: 0}, timeout_s=s),
    "list_groups": lambda c, s: c.admin.list_groups(timeout_s=s),
    "describe_groups": lambda c, s: c.admin.describe_groups([c.group_id], timeout_s=s),
    "delete_groups": lambda c, s: c.admin.delete_groups([f"{c.group_id}-2"], timeout_s=s),
    "group_offsets": lambda c, s: c.admin.group_offsets(c.group_id, timeout_s=s),
    "group_lag": lambda c, s: c.admin.group_lag(c.group_id, timeout_s=s),
    "alter_group_offsets": lambda c, s: c.admin.alter_group_offsets(
        f"{c.group_id}-3", {c.partition: OffsetAndMetadata(0)}, timeout_s=s
    ),
    "reset_group_offsets": lambda c, s: c.admin.reset_group_offsets(
        f"{c.group_id}-3", ResetTo.earliest(), partitions=[c.partition], timeout_s=s
    ),
    "delete_group_offsets": lambda c, s: c.admin.delete_group_offsets(f"{c.group_id}-3", [c.partition], timeout_s=s),
    "list_transactions": lambda c, s: c.admin.list_transactions(timeout_s=s),
    "describe_transactions": lambda c, s: c.admin.describe_transactions([f"{c.group_id}-x"], timeout_s=s),
    "describe_producers": lambda c, s: c.admin.describe_producers([c.partition], timeout_s=s),
    # There is none, so aborting is refused.
    "abort_transaction": lambda c, s: c.admin.abort_transaction(c.partition, 1, timeout_s=s),
}


# Calls that return what they have heard, and name the brokers that are silent.
SURVEYS: Mapping[str, Call] = {
    "survey_topics": lambda c, s: c.admin.survey_topics([c.topic], timeout_s=s),
    "survey_groups": lambda c, s: c.admin.survey_groups(
        [GroupListing(group_id=c.group_id, protocol_type="consumer", state="", type="", coordinator_id=1)], timeout_s=s
    ),
    "reachable_groups": lambda c, s: c.admin.reachable_groups(timeout_s=s),
    "reachable_transactions": lambda c, s: c.admin.reachable_transactions(timeout_s=s),
}


def asking_methods(client: type[object]) -> set[str]:
    """Return the names of the public coroutine methods of a client."""
    return {
        name for name, member in inspect.getmembers(client, inspect.iscoroutinefunction) if not name.startswith("_")
    }
