"""Describes records of the metadata log to an operator, in words. Pure."""

from typing import assert_never

from barnabas_metadata_quorum.controller.client_metrics import CLIENT_METRICS
from barnabas_metadata_quorum.controller.witnesses import needs_witness
from barnabas_metadata_quorum.image.pinned_ranges import count_of
from barnabas_metadata_quorum.image.records import (
    NOBODY,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    CommandAnswered,
    FeatureFinalized,
    NamedSnapshotCreated,
    NamedSnapshotDeleted,
    PartitionMoved,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    ResourceConfigured,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from barnabas_metadata_quorum.resource_configs import BROKER, GROUP
from barnabas_raftlog.raft.messages import Fact

__all__ = ["fact_of"]

CHARACTERS_MAX = 1_000
"""Of what was configured: a client chooses how much that is."""


def fact_of(record: Record, term: int) -> Fact | None:
    """Return the event that this record is, or None when nobody would ask about it."""
    match record:
        case BrokerRegistered():
            places = ", ".join(f"{one.name.lower()}://{one.host}:{one.port}" for one in record.listeners or ())
            place = places or f"{record.host}:{record.port}"
            cause = f"node {record.node_id} at {place}, epoch {record.epoch}"
            return Fact("broker registered", term, cause)
        case BrokerUnfenced():
            return Fact("broker unfenced", term, f"node {record.node_id} has applied its registration")
        case BrokerFenced():
            return Fact("broker fenced", term, f"node {record.node_id}: {record.cause}")
        case BrokerShuttingDown():
            return Fact("broker shutting down", term, f"node {record.node_id} asked for it")
        case BrokerUnregistered():
            return Fact("broker forgotten", term, f"node {record.node_id}, epoch {record.epoch}: somebody asked for it")
        case NamedSnapshotCreated() | NamedSnapshotDeleted() | FeatureFinalized() | ResourceConfigured():
            return _kept_fact(record, term)
        case ProducerIdsAllocated() | CommandAnswered():
            return None
        case _:
            return _topic_fact(record, term)


def _kept_fact(
    record: NamedSnapshotCreated | NamedSnapshotDeleted | FeatureFinalized | ResourceConfigured, term: int
) -> Fact:
    match record:
        case NamedSnapshotCreated():
            snapshot = record.snapshot
            partitions = sum(count_of(topic.ranges) for topic in snapshot.topics)
            what = f"{snapshot.name} ({snapshot.snapshot_id.hex()}): {partitions} partitions"
            return Fact("snapshot created", term, what)
        case NamedSnapshotDeleted():
            return Fact("snapshot deleted", term, f"{record.name} ({record.snapshot_id.hex()})")
        case FeatureFinalized():
            return Fact("feature finalized", term, f"{record.name} is at level {record.level} now")
        case ResourceConfigured():
            kind = {BROKER: "broker", GROUP: "group", CLIENT_METRICS: "subscription"}.get(
                record.kind, f"resource of kind {record.kind}"
            )
            whose = f"{kind} {record.name}" if record.name else f"all {kind}s"
            what = ", ".join(f"{name}={value}" for name, value in sorted(record.configs.items())) or "nothing is set"
            return Fact(f"{kind} configured", term, f"{whose}: {what}"[:CHARACTERS_MAX])
        case _:
            assert_never(record)


def _topic_fact(
    record: TopicCreated | PartitionsAdded | PartitionMoved | TopicConfigured | TopicDeleted, term: int
) -> Fact:
    match record:
        case TopicCreated():
            shape = f"{len(record.assignments)} partitions, {len(record.assignments[0])} replicas"
            if needs_witness(record.assignments[0]):
                shape += f", {sum(witness != NOBODY for witness in record.witnesses)} of them with a witness"
            return Fact("topic created", term, f"{record.name} ({record.topic_id.hex()}): {shape}")
        case PartitionsAdded():
            return Fact("partitions added", term, f"id {record.topic_id.hex()}: {len(record.assignments)} more")
        case PartitionMoved():
            where = f"id {record.topic_id.hex()}, partition {record.partition}"
            witness = "" if record.witness == NOBODY else f" with {record.witness} as witness"
            if not record.target:
                return Fact("partition moved", term, f"{where}: it is on {list(record.replicas)}{witness} now")
            way = f"from {list(record.original)} to {list(record.target)}"
            if record.target == record.original:
                is_back = len(record.replicas) > len(record.target)
                way = f"called off, back to {list(record.target)}" if is_back else f"stays on {list(record.target)}"
            return Fact("partition moving", term, f"{where}: {way}{witness}")
        case TopicConfigured():
            configs = ", ".join(f"{name}={value}" for name, value in sorted(record.configs.items())) or "nothing"
            return Fact("topic configured", term, f"id {record.topic_id.hex()}: set for it now is {configs}")
        case TopicDeleted():
            return Fact("topic deleted", term, f"id {record.topic_id.hex()}")
        case _:
            assert_never(record)
