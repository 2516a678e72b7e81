"""The examples of the clients' pages, in the order of each page, against Apache Kafka if the tests run against that.

`tests/docs` runs those of `docs/` against our brokers. An example is a whole program, and means its brokers by
`localhost:9092`. Names of topics and groups become unique, so that what an earlier run has left is not in the way.
"""

import asyncio
import os
import re
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas_clients import Admin
from barnabas_clients.protocol.errors import UnknownTopicOrPartitionError

ROOT = Path(__file__).parents[3]
PAGES = ["clients/README.md"]
if "BARNABAS_TEST_BOOTSTRAP" in os.environ:
    PAGES += ["docs/admin.md", "docs/consumer.md", "docs/producer.md"]
TOPICS = ("orders", "coffees", "purchases", "scratch")
GROUPS = ("bar", "mailer", "tables", "sales", "scratch-readers")


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
async def test_examples_run(bootstrap: str, page: str) -> None:
    found = examples(page)
    assert found
    suffix = uuid.uuid4().hex[:8]
    names = {name: f"{name}-{suffix}" for name in (*TOPICS, *GROUPS)}

    def program(source: str) -> str:
        source = source.replace('"localhost:9092"', "BOOTSTRAP")
        return re.sub(r'"([\w-]+)"', lambda match: f'"{names.get(match[1], match[1])}"', source)

    try:
        for number, source in enumerate(found):
            code = compile(program(source), f"{page}, example {number + 1}", "exec")
            # A thread, because an example has a loop of its own.
            await asyncio.to_thread(exec, code, {"BOOTSTRAP": bootstrap, "__name__": "__main__"})
    finally:
        async with Admin(bootstrap) as admin:
            topics = {topic.name for topic in await admin.list_topics()}
            for name in TOPICS:
                if names[name] in topics:
                    # An example may have deleted it, of which the broker that was asked need not have heard yet.
                    with suppress(UnknownTopicOrPartitionError):
                        await admin.delete_topics([names[name]])
            groups = {group.group_id for group in await admin.list_groups()}
            await admin.delete_groups([names[name] for name in GROUPS if names[name] in groups])
