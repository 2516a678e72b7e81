"""Limits of a fetch, and the turn of every partition (KIP-74)."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from broker.wire_client import Wire, batch, offsets_of
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import outcome

from barnabas_broker.server.cold_window import BYTES_MAX, FIRST_BYTES, ColdWindow
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.server.handlers import fetch
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_raftlog.errors import StorageFailedError


def one_broker_with_small_memory(**more: str | int) -> RunningCluster:
    return RunningCluster(1, settings={"log.tail.cache.bytes": 1 << 20, **more})


def asked(names: list[str], positions: dict[str, int], bytes_max: int) -> list[FetchTopic]:
    return [
        FetchTopic(topic=name, partitions=[FetchPartition(fetch_offset=positions[name], partition_max_bytes=bytes_max)])
        for name in names
    ]


def test_a_large_batch_on_disk_comes_while_another_partition_is_written_to() -> None:
    with one_broker_with_small_memory() as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        for name in ("cold", "hot"):
            wire.create(name)
        for _ in range(4):
            wire.produce("cold", batch(body_bytes=900_000))
        order = ["cold", "hot"]
        positions = {"cold": 0, "hot": 0}
        for _ in range(4):
            wire.produce("hot", batch(body_bytes=100))
            answer = wire.ask(FetchRequest(max_bytes=50 << 20, topics=asked(order, positions, 500_000)), 12)
            for topic in answer.responses:
                if topic.partitions[0].records:
                    positions[topic.topic] = offsets_of(topic.partitions[0].records)[-1] + 1
                    order.remove(topic.topic)
                    order.append(topic.topic)
        wire.close()
        assert running.cluster.nodes[1].storage.stats.cold_reads > 0
    assert positions["cold"] >= 2
    assert positions["hot"] >= 2


def test_what_a_broker_gives_from_disk_at_once_is_bounded_by_its_own_limit() -> None:
    with one_broker_with_small_memory(**{"fetch.max.bytes": 2 << 20}) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create("cold")
        for _ in range(9):
            wire.produce("cold", batch(body_bytes=900_000))
        request = FetchRequest(max_bytes=2**31 - 1, topics=asked(["cold"], {"cold": 0}, 2**31 - 1))
        answers = [wire.ask(request, 12).responses[0].partitions[0].records for _ in range(6)]
        wire.close()
        assert running.cluster.nodes[1].storage.stats.cold_reads > 0
    assert [len(offsets_of(records)) for records in answers] == [1, 1, 1, 2, 2, 2]


ASKED = 3


def slow_reader(port: int, request: FetchRequest) -> Wire:
    """Return a client that asks several times, and takes next to nothing."""
    made = Wire("127.0.0.1", port, receive_bytes=4_096)
    for _ in range(ASKED):
        made.send(request, 12)
    return made


def test_many_slow_readers_from_disk_are_given_little_and_one_that_reads_gets_more_and_more() -> None:
    with one_broker_with_small_memory() as running:
        node = running.cluster.nodes[1]
        wire = Wire("127.0.0.1", node.port)
        wire.create("cold")
        for _ in range(150):
            wire.produce("cold", batch(body_bytes=50_000))
        request = FetchRequest(max_bytes=50 << 20, topics=asked(["cold"], {"cold": 0}, 50 << 20))
        account = node.listener.account
        account.total_max = 0
        before = node.storage.stats.cold_reads
        count = 100
        slow = [slow_reader(node.port, request) for _ in range(count)]

        async def go_on(_: Cluster) -> None:
            await asyncio.sleep(0)

        for _ in range(20_000):
            if node.storage.stats.cold_reads == before + ASKED * count:
                break
            running.run(go_on)
        assert node.storage.stats.cold_reads == before + ASKED * count
        assert account.total_max <= 2 * count * FIRST_BYTES
        windows = [one._cold_window for one in node.listener._connections]
        # The kernel has taken it all; the clients have not, so none of them is given more.
        assert {window.size_bytes for window in windows if window is not None} == {FIRST_BYTES}
        sizes = list[int]()
        while sum(sizes) < 100 * 50_000:
            request = FetchRequest(max_bytes=50 << 20, topics=asked(["cold"], {"cold": sum(sizes) // 50_000}, 50 << 20))
            sizes.append(len(wire.ask(request, 12).responses[0].partitions[0].records))
        for one in (wire, *slow):
            one.close()
    assert sizes[0] <= FIRST_BYTES
    assert len(sizes) <= 6


def test_what_is_given_from_disk_grows_with_what_is_taken() -> None:
    window = ColdWindow()
    sizes = list[int]()
    for _ in range(6):
        sizes.append(window.look(0, 0))
        window.given_bytes = sizes[-1]
    assert sizes == [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 16 << 20]
    assert (sizes[0], sizes[-1]) == (FIRST_BYTES, BYTES_MAX)


def test_what_is_not_taken_or_is_little_lets_nothing_grow() -> None:
    window = ColdWindow()
    assert window.look(0, 0) == FIRST_BYTES
    window.given_bytes = FIRST_BYTES // 2 - 1
    assert window.look(0, 0) == FIRST_BYTES
    window.given_bytes = FIRST_BYTES
    assert window.look(0, 1) == FIRST_BYTES, "it is on its way"
    window.given_bytes = FIRST_BYTES
    grown = window.look(0, 0)
    assert grown > FIRST_BYTES
    window.given_bytes = grown
    assert window.look(0, 1) == grown
    window.given_bytes = grown
    assert window.look(1, 0) == FIRST_BYTES, "the socket takes no more"


class _Log:
    """Batches of one record each: those below `first_hot` are not in memory, those in `emptied` have no records."""

    log_start_offset = 0

    def __init__(self, sizes: list[int], first_hot: int, emptied: frozenset[int]) -> None:
        self.sizes = sizes
        self.first_hot = first_hot
        self.emptied = emptied

    @property
    def log_end_offset(self) -> int:
        return len(self.sizes)

    def read(self, start: int, end: int, bytes_max: int) -> list[bytes] | None:
        return None if start < self.first_hot else self.frames(start, end, bytes_max)

    async def read_cold(self, start: int, end: int, bytes_max: int) -> list[bytes]:
        await asyncio.sleep(0)
        return self.frames(start, end, bytes_max)

    def frames(self, start: int, end: int, bytes_max: int) -> list[bytes]:
        taken: list[bytes] = []
        for offset in range(start, end):
            if offset in self.emptied:
                continue
            if taken and sum(map(len, taken)) + self.sizes[offset] > bytes_max:
                break
            taken.append(offset.to_bytes(2) + bytes(self.sizes[offset] - 2))
        return taken


LOGS = st.builds(
    lambda sizes, cold, emptied: _Log(sizes, min(cold, len(sizes)), frozenset(emptied)),
    st.lists(st.integers(2, 40), max_size=8),
    st.integers(0, 8),
    st.sets(st.integers(0, 8), max_size=3),
)


class _Damaged(_Log):
    """It cannot be read from disk."""

    async def read_cold(self, start: int, end: int, bytes_max: int) -> list[bytes]:
        raise StorageFailedError("damaged")


def answered(logs: dict[str, _Log], positions: dict[str, int], order: list[str], limits: tuple[int, int, int]) -> Any:
    """Return the answer to one fetch; `limits`: of the request, of each partition, of the broker."""

    def hosted(name: str, _: bytes, *, by_id: bool) -> Any:
        log = logs[name]
        partition = SimpleNamespace(is_leader=True, can_serve=True, term=1, changes=0, log=log)
        partition.high_watermark = partition.last_stable_offset = log.log_end_offset
        return SimpleNamespace(partitions={0: partition})

    broker = SimpleNamespace(config=SimpleNamespace(fetch_max_bytes=limits[2]), is_stopping=False, topic=hosted)
    request = FetchRequest(max_bytes=limits[0], topics=asked(order, positions, limits[1]))
    one = fetch._Look(cast("BrokerContext", broker), 12, request, 1 << 30)
    outcome(one.run())
    asyncio.run(one.read_rest())
    return {topic.topic: topic.partitions[0] for topic in one.topics}


def look(logs: dict[str, _Log], positions: dict[str, int], order: list[str], limits: tuple[int, int, int]) -> Any:
    """Return the batches in the answer to one fetch."""
    results = answered(logs, positions, order, limits)
    return {name: list(result.records or ()) for name, result in results.items()}


def test_what_cannot_be_read_from_disk_is_said_and_the_others_are_read() -> None:
    logs: dict[str, _Log] = {"damaged": _Damaged([10], 2, frozenset()), "other": _Log([10], 1, frozenset())}
    results = answered(logs, dict.fromkeys(logs, 0), list(logs), (100, 100, 100))
    damaged = results["damaged"]
    assert (damaged.error_code, damaged.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert (results["other"].error_code, len(results["other"].records)) == (ErrorCode.NONE, 1)


@given(
    st.lists(LOGS, min_size=1, max_size=5),
    st.tuples(st.integers(0, 120), st.integers(0, 60), st.integers(1, 120)),
    st.data(),
)
@settings(deadline=None)
def test_every_partition_advances_in_its_turn_and_the_limits_hold(
    given_logs: list[_Log], limits: tuple[int, int, int], data: st.DataObject
) -> None:
    logs = {str(number): log for number, log in enumerate(given_logs)}
    order = list(logs)
    positions = dict.fromkeys(logs, 0)
    waited = dict.fromkeys(logs, 0)
    for _ in range(30):
        for log in logs.values():
            if data.draw(st.booleans()):  # it is written to, and memory lets go of something
                log.sizes.append(data.draw(st.integers(2, 40)))
                log.first_hot = min(log.first_hot + data.draw(st.integers(0, 2)), len(log.sizes))
        found = look(logs, positions, order, limits)
        batches = [len(one) for records in found.values() for one in records]
        assert sum(batches) <= min(limits[0], limits[2]) or len(batches) == 1
        for name in list(order):
            records = found[name]
            is_first = not any(found[before] for before in order[: order.index(name)])
            assert sum(map(len, records)) <= limits[1] or (len(records) == 1 and is_first)
        for name, records in found.items():
            log = logs[name]
            if records:
                positions[name] = int.from_bytes(records[-1][:2]) + 1
                waited[name] = 0
                order.remove(name)
                order.append(name)
            elif set(range(positions[name], log.log_end_offset)) - log.emptied:
                waited[name] += 1
                assert waited[name] < len(logs), f"{name} waits for ever"
