"""The configurations of what is no topic: brokers that run, and groups. Pure.

They are stored in the metadata, beside those of topics, under Kafka's number for the kind of resource and its name. The
empty name stands for all brokers.

*Brokers.* Which settings a broker takes while it runs, and with which values, it knows itself
(`barnabas_broker/config/dynamic.py`), and says so before it asks the controller. As in Kafka the controller only looks
at the form.

*Groups.* The controller checks these, as it checks those of topics. A group need not exist to be configured: whoever
coordinates it reads its configurations from the image (`group_key`). Kafka has more, of share groups and of Streams
groups; they are refused by name.
"""

from collections.abc import Mapping

from .config_values import KnownConfig, integer

__all__ = ["BROKER", "BROKER_LISTS", "GROUP", "GROUP_CONFIGS", "check_group_configs", "group_key"]

BROKER = 4
GROUP = 32
BROKER_LISTS: Mapping[str, str] = {"log.cleanup.policy": "delete"}
"""The lists among the settings of brokers, with their defaults."""


# The ranges are those of Kafka's group.consumer.min... and group.consumer.max..., as it ships.
GROUP_CONFIGS: Mapping[str, KnownConfig] = {
    config.name: config
    for config in (
        KnownConfig(
            name="consumer.assignment.interval.ms",
            type="INT",
            default="1000",
            complaint=integer(0, 15_000),
            documentation="Least time between two assignments of a consumer group.",
        ),
        KnownConfig(
            name="consumer.heartbeat.interval.ms",
            type="INT",
            default="5000",
            complaint=integer(5_000, 15_000),
            documentation="Time between two heartbeats of a member of a consumer group.",
        ),
        KnownConfig(
            name="consumer.session.timeout.ms",
            type="INT",
            default="45000",
            complaint=integer(45_000, 60_000),
            documentation="Silence after which a member of a consumer group is taken for dead.",
        ),
    )
}


def group_key(group_id: str) -> tuple[int, str]:
    """Return under which key an image has what is set for a group."""
    return GROUP, group_id


def check_group_configs(group_id: str, configs: Mapping[str, str]) -> str | None:
    """Return the first complaint about setting `configs` for a group, or None."""
    for name in sorted(configs):
        known = GROUP_CONFIGS.get(name)
        if known is None:
            return f"Unknown or unsupported group config {name}; supported are {', '.join(GROUP_CONFIGS)}"
        complaint = known.complaint(configs[name])
        if complaint is not None:
            return f"Group config {name}={configs[name]} of {group_id}: {complaint}"
    session_ms, heartbeat_ms = (
        int(configs.get(name, GROUP_CONFIGS[name].default))
        for name in ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
    )
    if session_ms <= heartbeat_ms:
        return f"Group config consumer.session.timeout.ms={session_ms}: must be above consumer.heartbeat.interval.ms"
    return None
