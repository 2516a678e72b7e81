"""A caller may decide the order of requests itself.

It waits for room first, and then sends without an await in between.
"""

import asyncio

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, serving

from barnabas_clients.cluster.connection import Connection
from barnabas_clients.errors import ConnectionLostError, DeadlineExceededError, UnsupportedVersionError
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_clients.protocol.produce import ProduceRequest

FOREVER_S = 15.0


class Echo(FakeBroker):
    """Answers with the name that was asked for, when `open` is set; produce requests are read and not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.answers[MetadataRequest] = self.echo
        self.answers[ProduceRequest] = self.nothing

    async def echo(self, request: MetadataRequest) -> Answer:
        await self.open.wait()
        return MetadataResponse(cluster_id=str((request.topics or [])[0].name))

    async def nothing(self, _: ProduceRequest) -> Answer:
        return b""


def asking_for(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


async def connect(broker: FakeBroker, in_flight_max: int = 64) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, timeout_s=FOREVER_S, in_flight_max=in_flight_max)


def test_submitted_requests_are_sent_at_once_and_in_order(run: Run) -> None:
    async def main() -> None:
        broker = Echo()
        async with serving(broker):
            connection = await connect(broker)
            answers = [connection.submit(asking_for(f"t{number}"), FOREVER_S) for number in range(20)]
            assert connection.in_flight == 20
            assert [(await answer).cluster_id for answer in answers] == [f"t{number}" for number in range(20)]
            await connection.close()

    run(main())


def test_posted_requests_have_no_answer_and_do_not_disturb_those_that_have(run: Run) -> None:
    async def main() -> None:
        broker = Echo()
        async with serving(broker):
            connection = await connect(broker)
            for _ in range(3):
                connection.post(ProduceRequest(acks=0))
            answer = await connection.submit(asking_for("t"), FOREVER_S)
            assert answer.cluster_id == "t"
            # It was answered after the broker had read the others.
            assert broker.count(ProduceRequest) == 3
            await connection.close()

    run(main())


def test_room_comes_with_an_answer_or_not_in_time(run: Run) -> None:
    async def main() -> None:
        broker = Echo()
        broker.open.clear()
        async with serving(broker):
            connection = await connect(broker, in_flight_max=1)
            answer = connection.submit(asking_for("t"), FOREVER_S)
            assert not connection.has_room
            with pytest.raises(DeadlineExceededError, match="too far behind"):
                await connection.room(0.02)
            broker.open.set()
            await connection.room(FOREVER_S)
            assert answer.done()
            await connection.close()

    run(main())


def test_an_answer_that_does_not_come_in_time_fails_its_future(run: Run) -> None:
    async def main() -> None:
        broker = Echo()
        broker.open.clear()
        async with serving(broker):
            connection = await connect(broker)
            with pytest.raises(DeadlineExceededError) as caught:
                await connection.submit(asking_for("t"), 0.02)
            assert caught.value.may_be_done
            await connection.close()

    run(main())


def test_a_lost_connection_has_room_and_refuses(run: Run) -> None:
    async def main() -> None:
        broker = Echo()
        broker.open.clear()
        async with serving(broker):
            connection = await connect(broker)
            answer = connection.submit(asking_for("t"), FOREVER_S)
            await connection.close()
            with pytest.raises(ConnectionLostError) as caught:
                await answer
            assert caught.value.may_be_done
            assert connection.has_room
            for send in (lambda: connection.submit(asking_for("t"), 1), lambda: connection.post(ProduceRequest())):
                with pytest.raises(ConnectionLostError) as refused:
                    send()
                assert not refused.value.may_be_done

    run(main())


def test_an_api_that_is_not_offered_is_refused_without_a_trace(run: Run) -> None:
    async def main() -> None:
        broker = Echo()
        del broker.offered[ProduceRequest.api_key]
        async with serving(broker):
            connection = await connect(broker)
            with pytest.raises(UnsupportedVersionError, match="ProduceRequest"):
                connection.post(ProduceRequest(acks=0))
            assert (await connection.submit(asking_for("t"), FOREVER_S)).cluster_id == "t"
            await connection.close()

    run(main())
