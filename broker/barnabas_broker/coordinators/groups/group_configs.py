"""The settings that hold for one group of KIP-848: those of the broker, and what is set for that group before them.

What is set for a group was checked by the controller, which knows no broker's settings; so each broker keeps it within
its own bounds (`group.consumer.min.session.timeout.ms`, and so on), as Kafka does. If a session would be no longer than
the time between two heartbeats then, both are the broker's.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from barnabas_broker.config.broker import BrokerConfig
from barnabas_metadata_quorum.resource_configs import GROUP

from .consumer.conversion import CONVERTED_MAX
from .consumer.messages import ConsumerConfig

__all__ = ["changed_groups", "config_of", "consumer_config"]

GATHERING_MS_MAX = 200
"""So long at most the first member of a group of KIP-848 waits for others. Kafka's do not, and classic ones longer."""
Configs: TypeAlias = Mapping[tuple[int, str], Mapping[str, str]]
"""What is set, by the kind of resource and its name."""


def consumer_config(config: BrokerConfig) -> ConsumerConfig:
    """Return the settings of a group for which nothing is set."""
    policy = config.group_consumer_migration_policy
    return ConsumerConfig(
        size_max=config.group_consumer_max_size,
        session_timeout_ms=config.group_consumer_session_timeout_ms,
        heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        settled_interval_ms=config.group_consumer_settled_heartbeat_interval_ms,
        initial_delay_ms=min(config.group_initial_rebalance_delay_ms, GATHERING_MS_MAX),
        assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        assignors=config.consumer_assignors,
        upgrades=policy in {"bidirectional", "upgrade"},
        downgrades=policy in {"bidirectional", "downgrade"},
        classic_size_max=min(config.group_max_size, CONVERTED_MAX),
    )


def config_of(broker: ConsumerConfig, bounds: BrokerConfig, configs: Mapping[str, str]) -> ConsumerConfig:
    """Return the settings of a group for which `configs` are set."""
    if not configs:
        return broker

    def found(name: str, of_broker: int, low: int, high: int) -> int:
        return min(high, max(low, int(configs[name]))) if name in configs else of_broker

    config = broker._replace(
        session_timeout_ms=found(
            "consumer.session.timeout.ms",
            broker.session_timeout_ms,
            bounds.group_consumer_min_session_timeout_ms,
            bounds.group_consumer_max_session_timeout_ms,
        ),
        heartbeat_interval_ms=found(
            "consumer.heartbeat.interval.ms",
            broker.heartbeat_interval_ms,
            bounds.group_consumer_min_heartbeat_interval_ms,
            bounds.group_consumer_max_heartbeat_interval_ms,
        ),
        assignment_interval_ms=found(
            "consumer.assignment.interval.ms",
            broker.assignment_interval_ms,
            bounds.group_consumer_min_assignment_interval_ms,
            bounds.group_consumer_max_assignment_interval_ms,
        ),
    )
    if "consumer.heartbeat.interval.ms" in configs:
        config = config._replace(settled_interval_ms=config.heartbeat_interval_ms)  # Somebody wants it so, not sooner.
    if config.session_timeout_ms <= config.heartbeat_interval_ms:
        times = (broker.session_timeout_ms, broker.heartbeat_interval_ms)
        config = config._replace(session_timeout_ms=times[0], heartbeat_interval_ms=times[1])
    return config


def changed_groups(old: Configs, new: Configs) -> Iterator[str]:
    """Yield the groups for which something else is set now."""
    for key in old.keys() | new.keys():
        if key[0] == GROUP and old.get(key) != new.get(key):
            yield key[1]
