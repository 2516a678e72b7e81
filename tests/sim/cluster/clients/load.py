"""Sends records at a steady rate, with or without answers, so that followers stay behind.

A request leaves at every beat and nobody waits for its answer, so that as many are under way as the distance asks for.
With acks 0 and 1 nothing is promised that lasts: such a record may be there once, or not at all.
"""

import asyncio
from collections.abc import Callable

from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_raftlog.records.builder import NewRecord, build_batch
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition
from sim.cluster.service import Load

from .client import REQUEST_S, Trouble, WireClient
from .workload import PRODUCE_TIMEOUT_MS, timestamp_ms

__all__ = ["keep_loading"]

IN_FLIGHT_MAX = 40
REFRESH_S = 0.2


class _Loading:
    """One client's load of one partition."""

    def __init__(
        self, client: WireClient, history: ClientHistory, availability: Availability, partition: Partition, load: Load
    ) -> None:
        self.client = client
        self.history = history
        self.availability = availability
        self.partition = partition
        self.load = load
        self._in_flight = set[asyncio.Task[None]]()
        self._number = 0

    async def beat(self) -> None:
        """Send one record to the known leader."""
        topic, index = self.partition
        try:
            leader, _ = await self.client.leader_of(topic, index)
        except Trouble:
            await asyncio.sleep(REFRESH_S)
            return
        if len(self._in_flight) >= IN_FLIGHT_MAX:
            return
        sent_ms = timestamp_ms(self.client)
        value = f"{self.client.name}-{topic}-{index}-{self._number}".encode()
        self._number += 1
        self.history.on_sent(value, self.partition, self.client.name, is_idempotent=False, timestamp_ms=sent_ms)
        frame = build_batch([NewRecord(self.history.key_of(value), value, sent_ms)])
        data = TopicProduceData(
            name=topic,
            topic_id=self.client.topic_ids[topic],
            partition_data=[PartitionProduceData(index=index, records=frame)],
        )
        request = ProduceRequest(acks=self.load.acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])
        task = asyncio.get_running_loop().create_task(self._send(leader, request, value))
        self._in_flight.add(task)
        task.add_done_callback(self._on_sent)

    def _on_sent(self, task: "asyncio.Task[None]") -> None:
        self._in_flight.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.client.world.fail(error)

    async def _send(self, leader: int, request: ProduceRequest, value: bytes) -> None:
        world = self.client.world
        acks = self.load.acks
        sent_us = world.now_us
        world.counts[f"sent with acks={acks}"] += 1
        try:
            if acks == 0:
                await self.client.post(leader, request)
                self.history.on_unknown([value])
                return
            answer = await self.client.ask(leader, request)
        except Trouble as trouble:
            self.availability.on_unanswered("no refusal", self.partition, sent_us, trouble)
            self.client.forget_leader(*self.partition)
            self.history.on_unknown([value])
            return
        outcome = answer.responses[0].partition_responses[0]
        code = ErrorCode(outcome.error_code)
        self.availability.on_refused(self.partition, acks, sent_us, code, outcome.error_message or "")
        if code is not ErrorCode.NONE:
            assert code in RETRIABLE, f"load of {self.partition}: {code.name} {outcome.error_message}"
            self.client.forget_leader(*self.partition)
        if code is ErrorCode.NONE and acks == -1:
            self.history.on_acknowledged([value], outcome.base_offset, is_in_order=False)
        else:
            self.history.on_unknown([value])


async def keep_loading(
    client: WireClient,
    history: ClientHistory,
    availability: Availability,
    partition: Partition,
    load: Load,
    goes_on: Callable[[], bool],
) -> None:
    """Send at the rate of `load` until `goes_on` says no; then wait for the requests under way."""
    loading = _Loading(client, history, availability, partition, load)
    pause_s = 1 / load.per_second
    while goes_on():
        await loading.beat()
        await asyncio.sleep(pause_s)
    await asyncio.sleep(REQUEST_S)
