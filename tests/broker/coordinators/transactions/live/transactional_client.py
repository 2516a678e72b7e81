"""Plays one transactional producer that says exactly what a test wants said.

It finds its coordinator again when that is lost, and comes again when it is told to.
"""

import time
from collections.abc import Callable
from typing import Any

from broker.wire_client import Wire

from barnabas_broker.coordinators.transactions.state_machine.producers import NOBODY, Producer
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.registry import Message

__all__ = ["AGAIN", "TransactionalClient"]

DEADLINE_S = 20.0
LOST = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
AGAIN = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
TRANSACTION = 1


class TransactionalClient:
    """Asks the coordinator of one transactional id. `producer` is what it was last told that it is."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self.addresses = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in bootstrap.split(","))]
        self.transactional_id = transactional_id
        self.producer = NOBODY
        self.coordinator_id = -1
        self._wire: Wire | None = None

    # The way to the coordinator.

    def find(self) -> Wire:
        """Return a connection to the coordinator; ask whoever answers, until somebody names it."""
        until_s = time.monotonic() + DEADLINE_S
        while self._wire is None and time.monotonic() < until_s:
            for address in self.addresses:
                try:
                    self._wire = self._named_by(Wire(*address))
                except OSError:
                    continue
                if self._wire is not None:
                    break
        assert self._wire is not None, "nobody names a coordinator"
        return self._wire

    def _named_by(self, wire: Wire) -> Wire | None:
        """Return a connection to the coordinator that a broker names; None if it names nobody."""
        try:
            request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[self.transactional_id])
            found = wire.ask(request, 4).coordinators[0]
        finally:
            wire.close()
        if found.error_code != ErrorCode.NONE:
            return None
        self.coordinator_id = found.node_id
        return Wire(found.host, found.port)

    def lose(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def surely(self, act: Callable[[], int]) -> int:
        """Return what a coordinator that knows itself to be one answers; come again as often as necessary."""
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                code = act()
                if code not in LOST | AGAIN:
                    return code
                if code in LOST:
                    self.lose()
            except OSError:
                self.lose()
            assert time.monotonic() < until_s, "no coordinator answers"

    def ask(self, request: Message, version: int) -> Any:
        """Ask the present coordinator once, and return any answer."""
        return self.find().ask(request, version)

    # Requests.

    def initialize(self, *, timeout_ms: int = 60_000, version: int = 5, **fields: Any) -> Any:
        """Become the owner of the id."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, **fields
        )
        answer = self.ask(request, version)
        if answer.error_code == ErrorCode.NONE:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
        return answer

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """Add partitions; return their codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (of_topic,) = self.ask(request, version).results_by_topic_v3_and_below
        return [row.partition_error_code for row in of_topic.results_by_partition]

    def add_offsets(self, group_id: str, *, version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=group_id,
        )
        code: int = self.ask(request, version).error_code
        return code

    def end(self, *, commit: bool = True, version: int = 5) -> int:
        """End the transaction; of version 5, be what is answered."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=commit,
        )
        answer = self.ask(request, version)
        if answer.error_code == ErrorCode.NONE and version >= 5:
            self.producer = Producer(answer.producer_id, answer.producer_epoch)
        code: int = answer.error_code
        return code

    # The same, with whichever broker coordinates by now.

    def become(self) -> Producer:
        """Become the owner of the id for sure."""
        assert self.surely(lambda: int(self.initialize().error_code)) == ErrorCode.NONE
        return self.producer

    def open(self, topic: str, *partitions: int) -> None:
        """Have these in the transaction for sure."""
        assert self.surely(lambda: max(self.add(topic, *partitions))) == ErrorCode.NONE

    def finish(self, *, commit: bool = True) -> None:
        """End the transaction for sure."""
        assert self.surely(lambda: self.end(commit=commit)) == ErrorCode.NONE
