"""Asks for the metadata and the producer id that a producer needs.

Each has a task that exists only while the answer is missing, and that asks with growing pauses until there is one. A
failure is not reported to callers by itself: batches carry the reason (`last_error`), and have deadlines.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import KafkaError, error_for
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.wording import shown_reason
from barnabas_raftlog.tasks import Tasks, report

from .sequences import Identity

__all__ = ["Upkeep"]

_log = logging.getLogger("barnabas_clients.producer")


class Upkeep:
    """Owns every task of a producer, so that closing ends them all.

    `on_learned` is called after metadata came, and says whether more is needed. `on_identity` is called after an id
    came, and `on_trouble` with the reason for a failure.
    """

    def __init__(
        self,
        cluster: Cluster,
        request_timeout_s: float,
        jitter: Jitter,
        *,
        on_learned: Callable[[], bool],
        on_identity: Callable[[], None],
        on_trouble: Callable[[Exception], None],
    ) -> None:
        self.topics: set[str] = set()
        self._cluster = cluster
        self._request_timeout_s = request_timeout_s
        self._on_learned = on_learned
        self._on_identity = on_identity
        self._on_trouble = on_trouble
        self._backoff = Backoff()
        self._jitter = jitter
        self._tasks = Tasks(report)
        self._is_stale = False
        self._is_learning = False
        self._is_identifying = False
        self._is_closed = False

    def learn(self) -> None:
        """Ask for metadata. If a refresh is under way, ask once more afterwards."""
        self._is_stale = True
        if not self._is_learning and not self._is_closed:
            self._is_learning = True
            self.spawn(self._learn())

    def identify(self, identity: Identity) -> None:
        """Ask for a producer id, if there is none and none is under way."""
        if identity.producer_id < 0 and not self._is_identifying and not self._is_closed:
            self._is_identifying = True
            self.spawn(self._identify(identity))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends when the producer closes."""
        self._tasks.spawn(coroutine)

    async def close(self) -> None:
        """End every task."""
        self._is_closed = True
        await self._tasks.close()

    async def _learn(self) -> None:
        failures = 0
        try:
            while True:
                self._is_stale = False
                try:
                    await self._cluster.refresh(self.topics, timeout_s=self._request_timeout_s)
                except (ClientError, KafkaError) as error:
                    self._is_stale = True
                    self._on_trouble(error)
                if not self._on_learned() and not self._is_stale:
                    return
                await asyncio.sleep(self._backoff.delay_s(failures, self._jitter))
                failures += 1
        finally:
            self._is_learning = False

    async def _identify(self, identity: Identity) -> None:
        def check(response: InitProducerIdResponse) -> None:
            if response.error_code:
                raise error_for(response.error_code, "asking for a producer id")

        failures = 0
        try:
            while identity.producer_id < 0:
                try:
                    answer: InitProducerIdResponse = await self._cluster.request_any(
                        InitProducerIdRequest(), self._request_timeout_s, check
                    )
                except (ClientError, KafkaError) as error:
                    if not failures:
                        _log.warning("no producer id (%s); trying again", shown_reason(error))
                    self._on_trouble(error)
                    await asyncio.sleep(self._backoff.delay_s(failures, self._jitter))
                    failures += 1
                else:
                    identity.producer_id = answer.producer_id
                    identity.epoch = answer.producer_epoch
                    level = logging.INFO if failures else logging.DEBUG
                    _log.log(level, "the producer id is %d", identity.producer_id)
        finally:
            self._is_identifying = False
        self._on_identity()
