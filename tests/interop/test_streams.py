"""A Kafka Streams application has exact results (`exactly_once_v2`), although it and a broker are killed.

Results are compared with a computation that knows only the input. `scripts/trials/transactions/streams-rounds` goes on
for longer, with more kinds of faults and two instances.
"""

from collections import Counter
from pathlib import Path

import pytest
from machines import cluster_handle
from trials.transactions.streams.expected import expected_of
from trials.transactions.streams.faults import BROKER_SETTINGS, Faults
from trials.transactions.streams.inputs import Order, Payment
from trials.transactions.streams.judge import mismatches
from trials.transactions.streams.run import PARTITIONS, Run, Work

from barnabas_clients import Admin, ConfigResource, OffsetSpec, TopicPartition

from . import runtimes

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ORDERS = 900
LIMIT_S = 240.0
POLICIES = {
    "tumbling-changelog": "compact,delete",
    "hopping-changelog": "compact,delete",
    "sessions-changelog": "compact,delete",
    "totals-changelog": "compact",
    "tumbling-until-over-store-changelog": "compact",
    "joined-this-join-store-changelog": "delete",
    "joined-other-join-store-changelog": "delete",
    "by-item-repartition": "delete",
    "by-order-left-repartition": "delete",
}
"""Of the topics that Kafka Streams makes for itself: how each is kept."""


async def test_the_results_are_exact_although_the_application_and_a_broker_are_killed(tmp_path: Path) -> None:
    jars = runtimes.streams_jars()
    with cluster_handle.cluster(settings=BROKER_SETTINGS) as handle:
        run = Run(Work.of(seed=1, orders=ORDERS), handle.bootstrap, jars, tmp_path)
        faults = Faults(run, handle, seed=1)
        wrong = await run.run([faults.strike("instance", ORDERS // 4), faults.strike("broker", ORDERS // 2)], LIMIT_S)
        assert wrong == []
        # They struck in the middle, and what the second process knew of the first one came from the changelogs.
        assert [name for name, _ in faults.struck] == ["instance", "broker"]
        assert all(0 < at < ORDERS for _, at in faults.struck), faults.struck
        assert run.aborted > 0
        restored = run.instances[0].restored(2)
        assert all(restored[store] > 0 for store in ("tumbling", "hopping", "sessions", "totals")), restored
        await internal_topics_are_kept_as_they_must_be(handle.bootstrap)


async def internal_topics_are_kept_as_they_must_be(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        topics = {f"application-{name}": policy for name, policy in POLICIES.items()}
        found = {topic.name for topic in await admin.list_topics()} - PARTITIONS.keys()
        assert found == topics.keys()
        configs = await admin.describe_configs([ConfigResource.topic(name) for name in topics])
        assert {resource.name: entries["cleanup.policy"].value for resource, entries in configs.items()} == topics
        # What has been read of them is deleted, record by record.
        for name in ("by-item-repartition", "by-order-left-repartition"):
            places = [TopicPartition(f"application-{name}", number) for number in range(3)]
            begins = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
            assert sum(begin.offset for begin in begins.values()) > 0, begins


ORDERS_OF_ONE = [Order("c1", "o1", "i1", 5, 0, 61_000), Order("c1", "o1", "i1", 7, 1, 66_000)]
PAYMENTS_OF_ONE = [Payment("o1", 0, 31_000), Payment("o1", 1, 96_001)]
RIGHT: dict[str, list[tuple[str, str | None]]] = {
    "tumbling": [("c1@60000", "2 12")],
    "hopping": [(f"i1@{start}", value) for start in (40_000, 50_000, 60_000) for value in ("1 5", "2 12")],
    "sessions": [("c1@61000-61000", "1 5"), ("c1@61000-61000", None), ("c1@61000-66000", "2 12")],
    "totals": [("c1", "1 5"), ("c1", "2 12")],
    "joined": [("o1", "0 0")],
}
"""The results of two orders, of which the first one is paid in time."""


def test_right_results_are_told_from_wrong_ones() -> None:
    expected = expected_of(ORDERS_OF_ONE, PAYMENTS_OF_ONE)
    assert mismatches(RIGHT, expected) == []
    for topic, results in RIGHT.items():
        doubled = RIGHT | {topic: [*results, results[-1]]}
        lost = RIGHT | {topic: results[:-1]}
        if topic != "sessions":  # of which the last result counts, however often it is told
            assert mismatches(doubled, expected), topic
        assert mismatches(lost, expected), topic
    assert mismatches(RIGHT | {"sessions": RIGHT["sessions"][::2]}, expected), "the session that grew is still there"
    assert mismatches(RIGHT | {"totals": [("c1", "1 5"), ("c1", "1 5"), ("c1", "2 12")]}, expected)


def test_windows_are_bounded_as_kafka_streams_bounds_them() -> None:
    """A hopping window contains its begin, and not its end; both a gap and a join their whole length."""
    orders = [Order("c1", f"o{serial}", "i1", 1, serial, at) for serial, at in enumerate((60_000, 65_000, 70_001))]
    payments = [Payment("o0", 0, 90_000), Payment("o1", 1, 95_001)]
    expected = expected_of(orders, payments)
    assert expected.sessions == {"c1@60000-65000": (2, 2), "c1@70001-70001": (1, 1)}
    assert expected.tumbling == {"c1@60000": (2, 2), "c1@70000": (1, 1)}
    starts = {"i1@40000": (2, 2), "i1@50000": (3, 3), "i1@60000": (3, 3), "i1@70000": (1, 1)}
    assert expected.hopping == starts
    assert expected.joined == Counter({("o0", "0 0"): 1})
