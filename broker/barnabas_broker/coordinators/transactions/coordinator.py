"""Finds the shard that has a transactional id, and keeps everything that the shards share.

Every broker computes an id's partition of `__transaction_state` from the id (`state_machine.location`); the leader of
that partition is its coordinator (`coordinators.runtime.homes`).

A coordinator works wherever the topic is, whether clients are offered transactions or not: what was prepared before
they were no longer is completed all the same.

Limits: the memory of ids by `room`; two tasks for upkeep, one for requests that wait for a producer id each. One entry
in the node's heap of deadlines per request that waits.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import PAGE_CACHE
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.coordinator import CoordinatorRuntime
from barnabas_broker.coordinators.runtime.homes import Homes
from barnabas_broker.coordinators.runtime.shard import ShardRuntime
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.rounds import Rounds
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_metadata_quorum.controller.features import transaction_version
from barnabas_metadata_quorum.service import MetadataService

from .additions import Additions
from .expiry import Expiry
from .markers import Written
from .outcome_messages import VERSION as OUTCOMES_VERSION
from .outcome_messages import OutcomesRequest, OutcomesResponse
from .outcomes import Outcomes
from .shard import SendsMarkers, Shared, TransactionShard
from .state_machine.location import TRANSACTION_TOPIC, partition_for
from .state_machine.messages import V1, V2, Place, TransactionSettings
from .state_machine.producers import Producer
from .table import TransactionalIdTable
from .topic import transaction_topic

__all__ = ["ADD_PARTITIONS", "TransactionCoordinator"]

ADD_PARTITIONS = "transactions.add_partitions"
"""The question of another broker, and its answer: the messages in `ADD_PARTITIONS_VERSION`."""
ADD_PARTITIONS_VERSION = 5
ELEMENTS_MAX = 100_000  # of one such question, as of a client's
TEXT_MAX = 1_000
"""Characters of a name or a reason that the history keeps: both are a client's, and a thousand events are kept."""


class TransactionCoordinator(Homes[TransactionalIdTable, TransactionShard]):
    """See the module. `room` and `transaction_events` are of all ids of this broker.

    `host` is its own, and ends with it. `make_markers` makes the sender, which is given whom to tell.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataService,
        partitions: Partitions,
        host: ShardHost,
        producer_ids: ProducerIds,
        make_markers: Callable[[Written], SendsMarkers],
    ) -> None:
        super().__init__(partitions, TRANSACTION_TOPIC, partition_for)
        self.host = host
        self.room = Room(config.transaction_state_max_bytes)
        # Beside the broker's own: a thousand transactions that time out would push its elections out of the history.
        self.transaction_events = EventHistory(host.wall_ms)
        self._config = config
        self._metadata = metadata
        self._settings = TransactionSettings(
            timeout_ms_max=config.transaction_max_timeout_ms,
            expiration_ms=config.transactional_id_expiration_ms,
            two_phase_commit_enabled=config.transaction_two_phase_commit_enable,
            version=V1,
        )
        self.markers = make_markers(self.written)
        self._shared = Shared(
            self.settings, self.room, producer_ids, self.markers, self.tell_transaction, self._may_forget
        )
        self.expiry = Expiry(self.active_shards)
        self.runtime = CoordinatorRuntime(
            self.host,
            metadata,
            partitions,
            transaction_topic(config),
            make_table=TransactionalIdTable,
            make_shard=self._make_shard,
            upkeep=Rounds(
                host.timers,
                host.spawn,
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
                self.expiry.expire_round,
            ),
        )
        self._aborts = Rounds(
            host.timers,
            host.spawn,
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.expiry.abort_round,
        )
        self._additions = Additions(self, partitions)
        self._outcomes = Outcomes(self.active_shards)

    def _make_shard(self, runtime: ShardRuntime[TransactionalIdTable, TransactionShard]) -> TransactionShard:
        self._aborts.start()
        return TransactionShard(runtime, self._shared)

    def settings(self) -> TransactionSettings:
        """Return the operator's settings, and the protocol that is finalized now."""
        version = V2 if transaction_version(self._metadata.image) >= V2 else V1
        if version != self._settings.version:
            self._settings = self._settings._replace(version=version)
        return self._settings

    # Markers, and questions of other brokers.

    def written(self, transactional_id: str, producer: Producer, place: Place) -> None:
        """Hear that a marker is in its partition, or that there is no such partition."""
        shard = self.shard_of(transactional_id)
        if isinstance(shard, TransactionShard):
            shard.written(transactional_id, producer, place)

    async def add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Add or verify partitions, as `Additions.carry_out`: of version 4 or later."""
        return await self._additions.carry_out(request)

    async def answer(self, _source: int, body: bytes) -> bytes:
        """Do the same for another broker: the leader of a partition asks before it appends.

        Raises:
            MalformedMessageError: the body is something else.
        """
        version = ADD_PARTITIONS_VERSION
        decoded = AddPartitionsToTxnRequest.decode_in_steps(body, version, elements_max=ELEMENTS_MAX)
        response = await self.add_partitions(await taken(decoded))
        return b"".join(await taken(response.encode_in_steps(version)))

    async def outcomes(self, request: OutcomesRequest) -> OutcomesResponse:
        """Say how transactions stand, as `Outcomes.answer`."""
        return await self._outcomes.answer(request)

    async def answer_outcomes(self, _source: int, body: bytes) -> bytes:
        """Do the same for another broker: one that has begun to lead a partition that may have lost markers.

        Raises:
            MalformedMessageError: the body is something else.
        """
        decoded = OutcomesRequest.decode_in_steps(body, OUTCOMES_VERSION, elements_max=ELEMENTS_MAX)
        response = await self.outcomes(await taken(decoded))
        return b"".join(await taken(response.encode_in_steps(OUTCOMES_VERSION)))

    def _may_forget(self, topic: str) -> bool:
        hosted = self._partitions.topics.get(topic)
        return hosted is not None and hosted.settings.flush_mode == PAGE_CACHE

    # Events and status.

    def tell_transaction(self, kind: str, transactional_id: str, cause: str) -> None:
        """Remember an event of a transactional id."""
        self.transaction_events.add(kind, f"transactional id {transactional_id[:TEXT_MAX]}", cause[:TEXT_MAX])

    def status(self) -> dict[str, Any]:
        """Return everything that an operator may ask, as plain values."""
        shards = [runtime.shard for runtime in self.runtime.shards.values()]
        states: Counter[str] = Counter()
        for shard in shards:
            states.update(hosted.transaction.state.title for hosted in shard.open.values())
        return {
            "transactional_ids": sum(len(shard.ids) for shard in shards),
            "open": dict(states),
            "held_bytes": self.room.held_bytes,
            "held_bytes_max": self.room.limit_bytes,
            "markers": self.markers.status(),
            "partitions": {index: runtime.state.value for index, runtime in sorted(self.runtime.shards.items())},
        }

    async def close(self) -> None:
        """Serve nothing any more, and end every task."""
        self.runtime.close()
        self._aborts.close()
        self.markers.close()
        await self.host.close()
