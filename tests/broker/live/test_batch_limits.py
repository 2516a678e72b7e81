"""Batches that could not be replicated are refused, and stop no partition if stored."""

import contextlib

import pytest

from barnabas_broker.config.broker import BrokerConfig, ConfigError
from barnabas_broker.config.topic import topic_settings
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_raftlog.records.header import BATCH_BYTES_MAX, parse_header
from broker.wire_client import Wire, batch

from .test_three_brokers import leader_of

WIDER = str(90 << 20)


MINIMAL = {"node.id": "1", "cluster.id": "c", "log.dir": "/d", "cluster.nodes": "1@a:1"}


def test_a_broker_cannot_be_set_to_take_more_than_replicates() -> None:
    widest = BrokerConfig.from_settings({**MINIMAL, "message.max.bytes": str(BATCH_BYTES_MAX)})
    assert widest.message_max_bytes == BATCH_BYTES_MAX
    with pytest.raises(ConfigError, match=r"message\.max\.bytes is 66060289"):
        BrokerConfig.from_settings({**MINIMAL, "message.max.bytes": str(BATCH_BYTES_MAX + 1)})


def test_a_topic_that_was_once_set_to_more_takes_what_replicates() -> None:
    config = BrokerConfig.from_settings(MINIMAL)
    assert topic_settings("t", {"max.message.bytes": WIDER}, config).max_message_bytes == BATCH_BYTES_MAX
    assert topic_settings("t", {"max.message.bytes": "5"}, config).max_message_bytes == 5


def test_a_batch_from_before_the_limit_is_replicated_and_what_follows_it_too() -> None:
    """It is put into the leader's log as a broker without the limit would have done it.

    Three brokers share one loop here, and 70 MiB go through it three times: no follower may doubt its leader meanwhile.
    """
    patient = {"raft.election.timeout.ms": 60_000}
    giant = bytearray(batch(body_bytes=70 << 20))
    with RunningCluster(3, settings=patient) as cluster:
        nodes = cluster.cluster.nodes
        with contextlib.closing(Wire("127.0.0.1", nodes[1].port)) as wire:
            wire.create("giant", 1, 3, min_insync_replicas="2")
            leader_id = leader_of(wire, "giant")

        async def append(_: Cluster) -> None:
            nodes[leader_id].partitions.topics["giant"].partitions[0].append(parse_header(giant), giant)

        cluster.run(append)
        with contextlib.closing(Wire("127.0.0.1", nodes[leader_id].port)) as wire:
            wire.socket.settimeout(60)
            answer = wire.produce("giant", batch(), timeout_ms=30_000)
    assert (answer.error_code, answer.base_offset) == (0, 1)
