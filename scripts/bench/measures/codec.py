"""Compares the protocol codec with kio and kafka-python: the same bytes, both ways.

Every library turns the same bytes into its own objects, and encodes those. The libraries take turns within each round,
in an order that alternates, so that a busy machine harms all of them alike. Printed are the median over the rounds of
each round's mean, and the ratios of the others to it. Only the ratios mean anything on a shared machine.

`--show FetchResponse 12` prints the functions that are generated for a message in a version.
"""

import argparse
import io
import json
import statistics
import timeit
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from barnabas_clients.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas_clients.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_clients.protocol.registry import APIS
from barnabas_raftlog.wire.decoder import decoder_source
from barnabas_raftlog.wire.encoder import encoder_source
from barnabas_raftlog.wire.schema import Message

Call = Callable[[], object]
OURS = "barnabas"
KIO = "kio"
KAFKA_PYTHON = "kafka-python"
LIBRARIES = (OURS, KIO, KAFKA_PYTHON)
ROUND_S = 0.02  # long enough for the clock, short enough that a round sees one state of the machine


class Case(NamedTuple):
    """One row of the table: a message, the operation, and the call of each library."""

    name: str
    calls: dict[str, Call]


def metadata_response() -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host=f"broker-{node}.example.org", port=9092) for node in range(3)]
    topics = [
        MetadataResponseTopic(
            name=f"orders-{topic:03d}",
            topic_id=bytes((topic + 1,)) * 16,
            partitions=[
                MetadataResponsePartition(
                    partition_index=partition,
                    leader_id=partition,
                    leader_epoch=7,
                    replica_nodes=(partition, (partition + 1) % 3, (partition + 2) % 3),
                    isr_nodes=(partition, (partition + 1) % 3, (partition + 2) % 3),
                )
                for partition in range(3)
            ],
        )
        for topic in range(100)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def fetch_response(partitions: int, record_bytes: int) -> FetchResponse:
    records = bytes(record_bytes)
    rows = [PartitionData(partition_index=index, high_watermark=9, records=records) for index in range(partitions)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=rows)])


def produce_request() -> ProduceRequest:
    rows = [PartitionProduceData(index=index, records=bytes(16 << 10)) for index in range(3)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=rows)])


def encoding(name: str, message: Message, version: int) -> Case:
    kio = kio_class(message, version)
    kafka_python = kafka_python_class(message)
    from kio.serial import entity_reader, entity_writer  # noqa: PLC0415 - needed by the comparison alone

    data = message.to_bytes(version)
    kio_message, _ = entity_reader(kio)(data, 0)
    kafka_message = kafka_python.decode(data, version=version)
    kafka_message._header = None
    write = entity_writer(kio)
    assert len(kafka_message.encode(version=version)) == len(data), "the libraries disagree"
    return Case(
        f"{name}, encode",
        {
            OURS: lambda: message.encode(version),
            KIO: lambda: write(io.BytesIO(), kio_message),
            KAFKA_PYTHON: lambda: kafka_message.encode(version=version),
        },
    )


def decoding(name: str, message: Message, version: int) -> Case:
    kio = kio_class(message, version)
    kafka_python = kafka_python_class(message)
    from kio.serial import entity_reader  # noqa: PLC0415 - needed by the comparison alone

    data = message.to_bytes(version)
    read = entity_reader(kio)
    received = memoryview(bytearray(data))
    return Case(
        f"{name}, decode",
        {
            # The broker and the clients have a view of their receive buffer; kio takes nothing but bytes.
            OURS: lambda: type(message).decode(received, version),
            KIO: lambda: read(data, 0),
            KAFKA_PYTHON: lambda: kafka_python.decode(received, version=version),
        },
    )


def kio_class(message: Message, version: int) -> Any:
    name = type(message).__name__
    api = APIS[message.api_key].name
    return getattr(import_module(f"kio.schema.{api.lower()}.v{version}.{name.removeprefix(api).lower()}"), name)


def kafka_python_class(message: Message) -> Any:
    with warnings.catch_warnings():  # It reads its schemas with a deprecated function.
        warnings.simplefilter("ignore")
        from kafka.protocol import consumer, metadata, producer  # noqa: PLC0415 - see above
    name = type(message).__name__
    return next(getattr(module, name) for module in (consumer, metadata, producer) if hasattr(module, name))


def cases() -> list[Case]:
    ask = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])
    return [
        encoding("Metadata v12 response, 100 topics x 3 partitions", metadata_response(), 12),
        decoding("Metadata v12 response, 100 topics x 3 partitions", metadata_response(), 12),
        decoding("Metadata v12 request, 1 topic", ask, 12),
        encoding("Fetch v12 response, 1 MiB of records", fetch_response(1, 1 << 20), 12),
        encoding("Fetch v12 response, 50 empty partitions", fetch_response(50, 0), 12),
        decoding("Fetch v12 response, 1 MiB of records", fetch_response(1, 1 << 20), 12),
        decoding("Produce v9 request, 3 x 16 KiB", produce_request(), 9),
    ]


def measure(case: Case, rounds: int) -> dict[str, float]:
    """Return the median time of one call, in microseconds, by library."""
    numbers = {}
    times = {name: list[float]() for name in LIBRARIES}
    for name, call in case.calls.items():
        call()
        once = min(timeit.repeat(call, number=1, repeat=5))
        numbers[name] = max(1, round(ROUND_S / once))
    for turn in range(rounds):
        for name in LIBRARIES if turn % 2 else reversed(LIBRARIES):
            times[name].append(timeit.timeit(case.calls[name], number=numbers[name]) / numbers[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def show(name: str, number: str) -> None:
    messages = {side.__name__: side for api in APIS.values() for side in (api.request, api.response)}
    version = int(number) if number.isdecimal() else -1
    if name not in messages or version not in messages[name].versions:
        raise SystemExit(f"scripts/bench/codec: no {name} v{number}; there are {', '.join(messages)}")
    flexible = version >= messages[name].flexible_since
    print(encoder_source(messages[name], version, flexible=flexible).text())
    print(decoder_source(messages[name], version, flexible=flexible).text())


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench/codec", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="turns that each library gets (default: 15)")
    parser.add_argument("--json", type=Path, help="also write the medians to this file")
    parser.add_argument(
        "--show", nargs=2, metavar=("MESSAGE", "VERSION"), help="print generated code and measure nothing"
    )
    options = parser.parse_args()
    if options.show:
        show(*options.show)
        return
    table = Table("one call", *(f"{name}, µs" for name in LIBRARIES), "kio / ours", "kafka-python / ours")
    results = {}
    for case in cases():
        times = measure(case, options.rounds)
        results[case.name] = times
        ratios = (f"{times[name] / times[OURS]:.1f}" for name in (KIO, KAFKA_PYTHON))
        table.add_row(case.name, *(f"{times[name]:.1f}" for name in LIBRARIES), *ratios)
    Console(width=140).print(table)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
