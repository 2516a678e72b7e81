"""One broker's part in the metrics of clients: answers their questions, and sends on what they push.

What a push carries is unpacked and gone through by a thread, `AT_ONCE` at a time, because a MiB of it takes the
processor for milliseconds. It may become no larger than `telemetry.max.bytes`, as in Kafka.

Subscriptions are read from the image when the first client asks after they have changed. One that this broker cannot
read, which a newer one may have stored, counts as if it were not there.

Limits: those of `instances`, `exporter` and `subscriptions`.
"""

import asyncio
import uuid
from collections.abc import Callable, Generator, Mapping

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.client_metrics import CLIENT_METRICS, ClientMetricsError, check_client_metrics
from barnabas_metadata_quorum.image.image import Image
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.compression import Compression, decompress

from .exporter import Exporter
from .instances import Instance, Instances
from .metrics_data import MetricsDataError, with_attributes
from .subscriptions import Client, Subscription, Wanted, read_subscription, wanted_of

__all__ = ["ACCEPTED", "Telemetry"]

ACCEPTED = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""Kafka's codecs in Kafka's order: clients take the first that they have."""
AT_ONCE = 2

Configs = Mapping[tuple[int, str], Mapping[str, str]]


class Telemetry:
    """See the module. Owned by the loop; made where metrics have somewhere to go."""

    def __init__(self, exporter: Exporter, bytes_max: int, image: Callable[[], Image]) -> None:
        self.exporter = exporter
        self.bytes_max = bytes_max
        self._image = image
        self._read: Configs | None = None  # that `_subscriptions` come from; an image shares it with the one before
        self._subscriptions: tuple[Subscription, ...] = ()
        self._version = 0
        self._instances = Instances()
        self._threads = asyncio.Semaphore(AT_ONCE)

    def instance(self, instance_id: bytes, client: Client, peer: str) -> Generator[None, None, Instance]:
        """Return what is known of a client, or get to know it. Yields between pieces."""
        yield from self._refresh()
        version, subscriptions = self._version, self._subscriptions
        found = self._instances.find(instance_id, peer, version)
        if found is None:
            found = Instance(instance_id, peer, version, (yield from wanted_of(client, subscriptions)))
        self._instances.keep(instance_id, found)
        return found

    def wanted(self, client: Client) -> Generator[None, None, Wanted]:
        """Return what a client is asked for now. Yields between pieces."""
        yield from self._refresh()
        return (yield from wanted_of(client, self._subscriptions))

    async def take(self, metrics: bytes, codec: int, client: Client) -> ErrorCode:
        """Send metrics on; INVALID_RECORD if they are none. Cancelled, they may be sent."""
        async with self._threads:
            loop = asyncio.get_running_loop()
            try:
                data = await loop.run_in_executor(None, _unpacked, metrics, codec, self.bytes_max, client)
            except (CorruptBatchError, MetricsDataError):
                return ErrorCode.INVALID_RECORD
        if data:
            self.exporter.send_soon(data)
        return ErrorCode.NONE

    def _refresh(self) -> Generator[None, None, None]:
        configs = self._image().resource_configs
        if configs is self._read:
            return
        found = []
        for kind, name in sorted(configs):
            if kind != CLIENT_METRICS:
                continue
            try:
                check_client_metrics(name, configs[kind, name])
                found.append((yield from read_subscription(configs[kind, name])))
            except ClientMetricsError:
                continue
        if configs is self._image().resource_configs:
            self._read = configs
            self._subscriptions = tuple(found)
            self._version += 1


def client_of(client_id: str | None, instance_id: bytes, software: str, peer: str) -> Client:
    """Describe a client by what its connection and its request tell."""
    name, _, version = software.partition(" ")
    address, _, port = peer.rpartition(":")
    return Client(
        client_id=client_id or "",
        client_instance_id=str(uuid.UUID(bytes=instance_id)),
        client_software_name=name or "unknown",
        client_software_version=version or "unknown",
        client_source_address=address,
        client_source_port=port,
    )


def _unpacked(metrics: bytes, codec: int, bytes_max: int, client: Client) -> bytes:
    plain = memoryview(decompress(codec, metrics, bytes_max))
    if len(plain) > bytes_max:
        raise MetricsDataError(f"{len(plain)} bytes; {bytes_max} are the maximum")
    return with_attributes(plain, client)
