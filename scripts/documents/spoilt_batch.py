"""Writes two invoices, a batch that nobody can read, and one more invoice: what a page about that needs.

    python -m documents.spoilt_batch TOPIC

The broker is the first of `BARNABAS_BOOTSTRAP_SERVER`. No client that works would do this, and a topic takes it
only with `record.validation=none`, so it is not on the page.
"""

import asyncio
import os
import sys

from broker.wire_client import Wire, garbage

from barnabas_clients import Admin
from barnabas_raftlog.records.builder import NewRecord, build_batch

MADE_AT_MS = 1_700_000_000_000


async def leader_of_new(topic: str) -> tuple[str, int]:
    """Create a topic of one partition, and return the address of its leader."""
    async with Admin(os.environ["BARNABAS_BOOTSTRAP_SERVER"]) as admin:
        made = await admin.create_topic(topic, partitions=1, configs={"retention.ms": -1, "record.validation": "none"})
        leader = made.partitions[0].leader_id
        address = next(broker for broker in (await admin.describe_cluster()).brokers if broker.node_id == leader)
        return address.host, address.port


def main() -> None:
    topic = sys.argv[1]
    wire = Wire(*asyncio.run(leader_of_new(topic)))
    for values in (b"invoice 1", b"invoice 2"), None, (b"invoice 3",):
        records = [NewRecord(None, value, MADE_AT_MS) for value in values or ()]
        frame = build_batch(records) if records else garbage(1, timestamp=MADE_AT_MS)
        answer = wire.produce(topic, bytes(frame))
        assert answer.error_code == 0, answer
    wire.close()


if __name__ == "__main__":
    main()
