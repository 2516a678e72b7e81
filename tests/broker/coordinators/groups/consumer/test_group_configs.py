"""What holds for one group: what is set for it, within the bounds of the broker, before the broker's own settings."""

from typing import Any

import pytest
from broker.coordinators.groups.shard_world import SETTINGS, World

from barnabas_broker.config.addresses import ConfigError
from barnabas_broker.config.broker import ASSIGNORS as NAMES
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.consumer.assignors.built_in import ASSIGNORS
from barnabas_broker.coordinators.groups.consumer.messages import ConsumerAnswer, ConsumerConfig
from barnabas_broker.coordinators.groups.group_configs import changed_groups, config_of, consumer_config
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import ResourceConfigured
from barnabas_metadata_quorum.resource_configs import BROKER, GROUP, group_key

from .test_consumers_shard import Member, settle, topics_of

SESSION, HEARTBEAT, ASSIGNMENT = (
    f"consumer.{name}.ms" for name in ("session.timeout", "heartbeat.interval", "assignment.interval")
)


def config(**more: Any) -> BrokerConfig:
    return BrokerConfig.from_settings({**SETTINGS, **{name.replace("_", "."): value for name, value in more.items()}})


def of(configs: dict[str, str], **more: Any) -> ConsumerConfig:
    broker = config(**more)
    return config_of(consumer_config(broker), broker, configs)


def test_what_is_set_for_a_group_comes_before_the_brokers_own() -> None:
    assert of({}) == consumer_config(config())
    found = of({SESSION: "50000", HEARTBEAT: "6000", ASSIGNMENT: "700"})
    assert (found.session_timeout_ms, found.heartbeat_interval_ms, found.assignment_interval_ms) == (50_000, 6_000, 700)
    assert of({HEARTBEAT: "6000"}).session_timeout_ms == 45_000


def test_a_broker_keeps_it_within_its_bounds() -> None:
    bounds = {"group.consumer.max.session.timeout.ms": 50_000, "group.consumer.min.heartbeat.interval.ms": 8_000}
    found = of({SESSION: "60000", HEARTBEAT: "5000"}, **bounds)
    assert (found.session_timeout_ms, found.heartbeat_interval_ms) == (50_000, 8_000)


def test_if_sessions_would_end_between_heartbeats_both_are_the_brokers() -> None:
    bounds = {"group.consumer.max.session.timeout.ms": 45_000, "group.consumer.max.heartbeat.interval.ms": 90_000}
    found = of({SESSION: "60000", HEARTBEAT: "60000"}, **bounds)
    assert (found.session_timeout_ms, found.heartbeat_interval_ms) == (45_000, 5_000)


def test_bounds_that_are_crossed_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"group\.consumer\.min\.heartbeat\.interval\.ms \(9\) is larger than"):
        config(**{"group.consumer.min.heartbeat.interval.ms": 9, "group.consumer.max.heartbeat.interval.ms": 8})


def test_assignors_are_those_that_there_are_the_first_is_the_default() -> None:
    assert tuple(ASSIGNORS) == NAMES
    assert consumer_config(config()).assignors == ("uniform", "range")
    assert consumer_config(config(group_consumer_assignors=" range , uniform")).assignors == ("range", "uniform")
    for wrong, text in (
        ("uniform,sticky", "no assignor 'sticky'"),
        ("range,range", "'range' is named twice"),
        ("", "''"),
    ):
        with pytest.raises(ConfigError, match=rf"{text}.*there are: uniform, range"):
            config(group_consumer_assignors=wrong)


def test_the_groups_for_which_something_changes_are_found() -> None:
    old = apply_all(
        Image("c"),
        [ResourceConfigured(GROUP, "g", {SESSION: "50000"}), ResourceConfigured(GROUP, "h", {SESSION: "50000"})],
    )
    new = apply_all(
        old,
        [
            ResourceConfigured(GROUP, "g", {}),
            ResourceConfigured(GROUP, "i", {SESSION: "46000"}),
            ResourceConfigured(BROKER, "1", {"max.connections": "7"}),
        ],
    )
    assert sorted(changed_groups(old.resource_configs, new.resource_configs)) == ["g", "i"]


def test_a_group_that_is_there_goes_by_it_at_once() -> None:
    with World({"group.consumer.assignment.interval.ms": 50}) as world:
        topics_of(world, t=2)
        shard = world.lead()
        one = Member(world, "g", "a", "t")
        settle(world, one)
        group = shard.consumers.groups["g"].group
        assert group.config.session_timeout_ms == 45_000
        image: Any = world.coordinator._metadata.image
        image.resource_configs[group_key("g")] = {SESSION: "60000", HEARTBEAT: "15000"}
        shard.consumers.configure("g")
        shard.consumers.configure("nobody")
        assert group.config.session_timeout_ms == 60_000
        world.advance(59_000)
        assert "a" in group.members
        one.beat()
        assert isinstance(one.answers[-1], ConsumerAnswer)
        assert one.answers[-1].interval_ms == 15_000
        world.advance(60_001)
        world.commit()
        assert not group.members
