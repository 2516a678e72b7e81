"""What is set for a broker at run time: what counts, what is refused, and what harms nobody."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.config.broker import BrokerConfig, settings
from barnabas_broker.config.dynamic import DYNAMIC, BrokerSettings, complaint_about, settle
from barnabas_broker.config.entries import ConfigSource, all_brokers_entries, broker_entries, group_entries
from barnabas_broker.config.topic import BEHIND_TOPICS, topic_settings

REQUIRED: dict[str, Any] = {"cluster.id": "c", "node.id": 1, "cluster.nodes": "1@127.0.0.1:1", "log.dir": "d"}
STARTED = BrokerConfig.from_settings(REQUIRED | {"message.max.bytes": 2_000})
LARGEST = "message.max.bytes"
NAMES = sorted(setting.name for setting in settings())


def test_all_that_stands_behind_topics_may_change_but_for_the_flush_mode() -> None:
    assert set(BEHIND_TOPICS.values()) - DYNAMIC == {"flush.mode"}
    assert set(NAMES) > DYNAMIC


def test_what_is_set_for_the_broker_comes_before_what_is_set_for_all_and_that_before_its_start() -> None:
    assert settle(STARTED, {}, {}).now is STARTED
    assert settle(STARTED, {}, {LARGEST: "3000"}).now.message_max_bytes == 3_000
    both = settle(STARTED, {LARGEST: " 4000 "}, {LARGEST: "3000"})
    assert both.now.message_max_bytes == 4_000
    assert topic_settings("t", {}, both.now).max_message_bytes == 4_000
    assert (both.of_broker, both.of_all, both.ignored) == ({LARGEST: "4000"}, {LARGEST: "3000"}, ())
    (entry,) = [one for one in broker_entries(both) if one.name == LARGEST]
    assert [(value, source) for _, value, source in entry.synonyms] == [
        ("4000", ConfigSource.DYNAMIC_BROKER),
        ("3000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("2000", ConfigSource.STATIC_BROKER),
        ("1048588", ConfigSource.DEFAULT),
    ]
    assert [(one.name, one.value, one.synonyms) for one in all_brokers_entries(both)] == [
        (LARGEST, "3000", ((LARGEST, "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER),))
    ]


def test_what_is_no_value_is_passed_over_and_the_rest_holds() -> None:
    found = settle(STARTED, {LARGEST: "x", "max.connections": "5"}, {"node.id": "2", "of.later": "1", LARGEST: "3000"})
    assert (found.now.message_max_bytes, found.now.max_connections, found.now.node_id) == (3_000, 5, 1)
    assert [text.partition(", ")[0] for text in found.ignored] == ["node.id=2", "of.later=1", f"{LARGEST}=x"]
    lags = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}
    half = settle(STARTED, {}, lags)
    assert half.now.log_cleaner_max_compaction_lag_ms == 8
    assert len(half.ignored) == 1


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"node.id": "2"}, "Cannot update these configs dynamically: node.id"),
        ({"no.such.setting": "2", "flush.mode": "fsync"}, "dynamically: flush.mode, no.such.setting"),
        ({LARGEST: "5"}, "it must be from 61 to"),
        ({LARGEST: "1MiB"}, "not a plain integer"),
        ({"log.retention.ms": "7d"}, "not a plain integer"),
        ({"log.cleaner.min.cleanable.ratio": "nan"}, "not a plain number"),
        ({"log.cleaner.min.cleanable.ratio": "1.1"}, "it must be from 0 to 1"),
        ({"log.cleanup.policy": "shred"}, "it must be one of delete"),
        ({LARGEST: str(60 << 20), "max.connections": "0"}, "max.connections is 0"),
    ],
)
def test_a_broker_says_what_it_cannot_take(values: dict[str, str], complaint: str) -> None:
    found = complaint_about(STARTED, values)
    assert found is not None
    assert complaint in found


def test_a_broker_takes_what_it_can() -> None:
    assert complaint_about(STARTED, {}) is None
    values = {LARGEST: " 3000 ", "log.retention.ms": "-1", "log.cleaner.min.cleanable.ratio": ".5"}
    assert complaint_about(STARTED, values) is None


@given(st.dictionaries(st.sampled_from([*NAMES, "x"]), st.text(max_size=9) | st.integers(-9, 9).map(str), max_size=9))
def test_nothing_that_is_stored_harms_a_broker(values: dict[str, str]) -> None:
    found = settle(STARTED, values, values)
    assert found.of_broker.keys() | found.of_all.keys() <= DYNAMIC
    assert len(found.ignored) == 2 * (len(values) - len(found.of_all))
    fixed = [name for name in NAMES if name not in DYNAMIC]
    before, now = (
        {one.name: one.value for one in broker_entries(each)} for each in (BrokerSettings.static(STARTED), found)
    )
    assert all(before[name] == now[name] for name in fixed)
    assert all(one.value is not None or one.is_sensitive for one in broker_entries(found))


def test_groups_have_values_of_their_own() -> None:
    name = "consumer.session.timeout.ms"
    found = {one.name: one for one in group_entries({name: "50000"}, BrokerSettings.static(STARTED))}
    assert (found[name].value, found[name].source) == ("50000", ConfigSource.GROUP)
    assert {one.source for other, one in found.items() if other != name} == {ConfigSource.DEFAULT}
