"""Stores how far a job is in a consumer group, so that tools which show the lag of groups show the job's."""

from collections.abc import Mapping

from barnabas_clients.errors import ClientError
from barnabas_clients.groups.coordinator import Coordinator, commit_offsets
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_spark.clusters import cluster_for, run
from barnabas_spark.options.reads import ReadOptions

from .output import complain

__all__ = ["GroupPositions"]

# Positions are for people who look at a lag. No job waits longer for a coordinator.
TIMEOUT_S = 5.0


class GroupPositions:
    """The positions of one topic in one group, which has no members. They decide nothing; the job never reads them."""

    def __init__(self, options: ReadOptions, topic: str, group: str) -> None:
        self._options = options
        self._topic = topic
        self._group = group
        self._stored: Mapping[int, int] = {}
        self._complaint = ""

    def store(self, ends: Mapping[int, int]) -> None:
        """Store the next offset of each partition, and wait for that. A failure is complained of, and no error."""
        if ends == self._stored:
            return
        offsets = {TopicPartition(self._topic, each): OffsetAndMetadata(end) for each, end in ends.items()}

        async def commit() -> None:
            cluster = await cluster_for(self._options, is_driver=True)
            await commit_offsets(Coordinator(cluster, self._group), offsets, TIMEOUT_S)

        try:
            run(commit(), TIMEOUT_S)
        except (ClientError, KafkaError, TimeoutError) as error:
            self._complain(error)
        else:
            self._stored, self._complaint = dict(ends), ""

    def _complain(self, error: Exception) -> None:
        """Say it once, and again only if it is something else, or was better meanwhile."""
        if isinstance(error, KafkaError) and error.code in {
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
        }:
            reason = "it has members; name a group that nobody else uses"
        else:
            reason = str(error)
        if reason != self._complaint:
            self._complaint = reason
            complain(f"the positions were not stored in group {self._group}: {reason}")
