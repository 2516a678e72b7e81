"""Makes the settings of `__transaction_state`, the topic that transactional ids live in.

As with the topic of groups, the replication factor follows from the nodes that the configuration names, not from those
that are up, and the topic is always flushed to disk before an answer: what was decided about a transaction is a
promise, whatever `flush.mode` the topics have that are part of it.
"""

from barnabas_broker.config.broker import BrokerConfig
from barnabas_metadata_quorum.controller.commands import NewTopic

from .state_machine.location import TRANSACTION_TOPIC

__all__ = ["transaction_topic"]

AUTOMATIC_REPLICAS = 3
RECORD_BYTES_MAX = 4 << 20  # 4,000 partitions of as many topics with the longest names, four times


def transaction_topic(config: BrokerConfig) -> NewTopic:
    """Return what the controller should create."""
    factor = config.transaction_state_log_replication_factor or min(AUTOMATIC_REPLICAS, len(config.cluster_nodes))
    return NewTopic(
        TRANSACTION_TOPIC,
        config.transaction_state_log_num_partitions,
        factor,
        configs={
            "flush.mode": "fsync",
            # More than there are replicas could never be met.
            "min.insync.replicas": str(min(config.transaction_state_log_min_isr, factor)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "max.message.bytes": str(RECORD_BYTES_MAX),
        },
    )
