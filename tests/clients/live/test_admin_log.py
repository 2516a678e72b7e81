"""The log tells which changes an `Admin` has made."""

import logging
import uuid

import pytest

from barnabas_clients import Admin, ConfigResource, NewTopic, TopicPartition


async def test_changes_are_told_and_questions_are_not(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas_clients.admin")
    one, two = (f"told-{uuid.uuid4().hex[:8]}" for _ in range(2))
    first = TopicPartition(one, 0)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(one, 2)
        await admin.create_topics([NewTopic(two)], validate_only=True)
        await admin.create_topics([NewTopic(two)])
        await admin.create_partitions(one, 3)
        await admin.alter_configs(ConfigResource.topic(one), {"retention.ms": 5_000_000})
        await admin.delete_records({first: 0})
        await admin.alter_group_offsets(one, {first: 0})
        await admin.list_topics()
        await admin.group_lag(one)
        await admin.delete_groups([one])
        await admin.delete_topics([one, two])
    assert [row.getMessage() for row in caplog.records if row.name == "barnabas_clients.admin"] == [
        f"topic {one} created, with 2 partitions",
        f"topics created: {two}",
        f"topic {one} has 3 partitions now",
        f"configurations of {one} set: retention.ms",
        f"records deleted of {one}-0",
        f"offsets of group {one} set: {one}-0",
        f"groups deleted: {one}",
        f"topics deleted: {one}, {two}",
    ]
