"""One connection keeps order and deadlines, also with cancellations and peers that are no brokers."""

import asyncio
import socket
from typing import Any

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, serving

from barnabas_clients.cluster.connection import Connection
from barnabas_clients.errors import ConnectionLostError, DeadlineExceededError, UnsupportedVersionError
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_clients.protocol.registry import encode_response

FOREVER_S = 15.0  # longer than a test may take


async def connect(broker: FakeBroker, **options: Any) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, timeout_s=FOREVER_S, **options)


def asking_for(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def named(request: MetadataRequest) -> str:
    return str((request.topics or [])[0].name)


async def echo(request: MetadataRequest) -> Answer:
    return MetadataResponse(cluster_id=named(request))


class Gate:
    """Holds every answer back until it is opened."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, request: MetadataRequest) -> Answer:
        self.entered.set()
        await self.open.wait()
        return await echo(request)


def test_requests_sent_together_get_their_own_answers(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.answers[MetadataRequest] = echo
        async with serving(broker):
            connection = await connect(broker, in_flight_max=5)
            names = [f"t{number}" for number in range(40)]
            answers = await asyncio.gather(*(connection.request(asking_for(name), FOREVER_S) for name in names))
            assert [answer.cluster_id for answer in answers] == names
            assert connection.in_flight == 0
            await connection.close()

    run(main())


def test_the_newest_version_that_both_speak_is_used(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.offered[MetadataRequest.api_key] = (0, 7)
        broker.offered[FetchRequest.api_key] = (90, 99)
        del broker.offered[20]
        broker.answers[MetadataRequest] = echo
        async with serving(broker):
            connection = await connect(broker)
            await connection.request(asking_for("t"), FOREVER_S)
            assert broker.seen[-1][1] == 7
            with pytest.raises(UnsupportedVersionError, match="offers FetchRequest 90 to 99"):
                await connection.request(FetchRequest(), FOREVER_S)
            assert connection.is_open
            await connection.close()

    run(main())


def test_a_broker_that_only_knows_old_handshakes_is_asked_again_in_its_version(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.offered[ApiVersionsRequest.api_key] = (0, 2)

        async def refuse_new(request: ApiVersionsRequest) -> Answer:
            version = broker.seen[-1][1]
            answer: Any = await broker.api_versions(request)
            if version <= 2:
                return answer  # type: ignore[no-any-return]
            answer.error_code = 35
            return b"".join(encode_response(ApiVersionsRequest.api_key, 0, 1, answer))

        broker.answers[ApiVersionsRequest] = refuse_new
        broker.answers[MetadataRequest] = echo
        async with serving(broker):
            connection = await connect(broker)
            assert [version for _, version in broker.seen] == [4, 2]
            assert (await connection.request(asking_for("t"), FOREVER_S)).cluster_id == "t"
            await connection.close()

    run(main())


def test_an_answer_that_comes_after_its_request_was_cancelled_is_discarded(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker)
            cancelled = asyncio.create_task(connection.request(asking_for("lost"), FOREVER_S))
            await gate.entered.wait()
            cancelled.cancel()
            kept = asyncio.create_task(connection.request(asking_for("kept"), FOREVER_S))
            gate.open.set()
            assert (await kept).cluster_id == "kept"
            assert cancelled.cancelled()
            assert connection.in_flight == 0
            await connection.close()

    run(main())


def test_a_deadline_that_passes_raises_and_leaves_the_connection_usable(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker)
            with pytest.raises(DeadlineExceededError, match="did not answer MetadataRequest") as late:
                await connection.request(asking_for("late"), 0.01)
            assert late.value.may_be_done
            gate.open.set()
            assert (await connection.request(asking_for("next"), FOREVER_S)).cluster_id == "next"
            await connection.close()

    run(main())


def test_a_deadline_in_the_past_sends_nothing(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        async with serving(broker):
            connection = await connect(broker)
            with pytest.raises(DeadlineExceededError) as early:
                await connection.request(asking_for("t"), 0.0)
            assert not early.value.may_be_done
            assert broker.count(MetadataRequest) == 0
            await connection.close()

    run(main())


def test_no_more_than_the_limit_is_in_flight(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker, in_flight_max=2)
            tasks = [asyncio.create_task(connection.request(asking_for(str(n)), FOREVER_S)) for n in range(6)]
            await gate.entered.wait()
            assert connection.in_flight == 2
            # A waiting caller that leaves gives its turn to the next; one that was just admitted, too.
            tasks[2].cancel()
            gate.open.set()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert [getattr(answer, "cluster_id", None) for answer in answers] == ["0", "1", None, "3", "4", "5"]
            await connection.close()

    run(main())


def test_waiting_for_room_ends_at_the_deadline(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker, in_flight_max=1)
            first = asyncio.create_task(connection.request(asking_for("first"), FOREVER_S))
            await gate.entered.wait()
            with pytest.raises(DeadlineExceededError, match="too far behind"):
                await connection.request(asking_for("second"), 0.01)
            gate.open.set()
            assert (await first).cluster_id == "first"
            assert (await connection.request(asking_for("third"), FOREVER_S)).cluster_id == "third"
            await connection.close()

    run(main())


def test_a_broker_that_answers_nobody_is_given_up(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker, in_flight_max=2)
            for _ in range(2):
                with pytest.raises(DeadlineExceededError):
                    await connection.request(asking_for("t"), 0.01)
            with pytest.raises(ConnectionLostError, match="2 requests went unanswered"):
                await connection.request(asking_for("t"), FOREVER_S)
            assert not connection.is_open
            await connection.close()
            gate.open.set()

    run(main())


def test_a_lost_connection_fails_everything_pending_and_names_the_broker(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker, in_flight_max=2)
            tasks = [asyncio.create_task(connection.request(asking_for(str(n)), FOREVER_S)) for n in range(4)]
            await gate.entered.wait()
            broker.drop_connections()
            errors = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(error, ConnectionLostError) and error.retriable for error in errors)
            assert all(f"127.0.0.1:{broker.port}" in str(error) for error in errors)
            # The first two were on the wire, the others were not.
            assert [error.may_be_done for error in errors if isinstance(error, ConnectionLostError)] == [
                True,
                True,
                False,
                False,
            ]
            with pytest.raises(ConnectionLostError):
                await connection.request(asking_for("t"), FOREVER_S)
            gate.open.set()

    run(main())


@pytest.mark.parametrize(
    ("bytes_sent", "complaint"),
    [
        pytest.param(b"\xff\xff\xff\xff", "frame of -1 bytes", id="negative length"),
        pytest.param(b"\x7f\xff\xff\xff", "frame of 2147483647 bytes", id="giant length"),
        pytest.param(b"\x00\x00\x00\x02\x00\x00", "answer of 2 bytes", id="no header"),
        pytest.param(b"\x00\x00\x00\x04\x00\x00\x00\x63", "answer 99 where 2 is due", id="wrong correlation id"),
        pytest.param(b"\x00\x00\x00\x06\x00\x00\x00\x02\x00\x09", "MetadataResponse", id="garbage body"),
    ],
)
def test_what_no_broker_sends_closes_the_connection(run: Run, bytes_sent: bytes, complaint: str) -> None:
    async def main() -> None:
        broker = FakeBroker()

        async def lie(_: MetadataRequest) -> Answer:
            return bytes_sent

        broker.answers[MetadataRequest] = lie
        async with serving(broker):
            connection = await connect(broker)
            with pytest.raises(ConnectionLostError, match=complaint):
                await connection.request(asking_for("t"), FOREVER_S)
            assert not connection.is_open
            await connection.close()

    run(main())


def test_an_answer_to_no_request_closes_the_connection(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker)
            broker.connections[0].write(b"\x00\x00\x00\x04\x00\x00\x00\x07")
            # Whether the answer comes before the request or after it: it is nobody's.
            with pytest.raises(ConnectionLostError, match="answer 7"):
                await connection.request(asking_for("t"), FOREVER_S)
            gate.open.set()

    run(main())


def test_closing_fails_what_is_pending_and_returns(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker()
        gate = Gate()
        broker.answers[MetadataRequest] = gate
        async with serving(broker):
            connection = await connect(broker)
            pending = asyncio.create_task(connection.request(asking_for("t"), FOREVER_S))
            await gate.entered.wait()
            await connection.close()
            await connection.close()
            with pytest.raises(ConnectionLostError, match="closed by this client"):
                await pending
            gate.open.set()

    run(main())


def test_nobody_listening_is_a_lost_connection(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1"):
                await Connection.open("127.0.0.1", holder.getsockname()[1], timeout_s=FOREVER_S)

    run(main())


def test_a_listener_that_says_nothing_costs_only_the_deadline(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            with pytest.raises(DeadlineExceededError):
                await Connection.open("127.0.0.1", silent.getsockname()[1], timeout_s=0.05)

    run(main())


def test_records_of_a_large_answer_are_views_that_outlive_the_connection(run: Run) -> None:
    records = bytes(range(256)) * 4096

    async def fetched(_: FetchRequest) -> Answer:
        partition = PartitionData(partition_index=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])

    async def main() -> None:
        broker = FakeBroker()
        broker.answers[FetchRequest] = fetched
        async with serving(broker):
            connection = await connect(broker)
            answers = await asyncio.gather(*(connection.request(FetchRequest(), FOREVER_S) for _ in range(3)))
            await connection.close()
        for answer in answers:
            view = answer.responses[0].partitions[0].records
            assert isinstance(view, memoryview)
            assert view == records

    run(main())
