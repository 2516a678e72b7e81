"""Subscriptions to the metrics of clients (KIP-714), as they are configured: names, defaults and the rules. Pure.

A subscription has a name, and says which metrics are wanted (`metrics`, prefixes of names; `*` is all), of which
clients (`match`, all if it is empty), and how often (`interval.ms`). It is there as long as anything is configured.

Each item of `match` is a property of clients and a regular expression for it, `client_id=orders-.*`. The expressions
themselves are looked at by the brokers, who match with them.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_metadata_quorum.config_values import items_of

__all__ = [
    "ALL_METRICS",
    "CLIENT_METRICS",
    "CLIENT_METRICS_CONFIGS",
    "CLIENT_METRICS_LISTS",
    "INTERVAL_MS",
    "MATCH",
    "MATCHED",
    "METRICS",
    "ClientMetricsConfig",
    "ClientMetricsError",
    "check_client_metrics",
    "matchers_of",
]

CLIENT_METRICS = 16  # Kafka's number for this kind of resource
INTERVAL_MS, MATCH, METRICS = "interval.ms", "match", "metrics"
ALL_METRICS = "*"
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
ITEMS_MAX = 100
"""Of one list: every client is asked for what all of them want."""
MATCHED = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What may be matched."""


class ClientMetricsConfig(NamedTuple):
    """One name: Kafka's type for it, its value when nobody set one, and what it is for."""

    name: str
    type: str
    default: str
    documentation: str


CLIENT_METRICS_CONFIGS: Mapping[str, ClientMetricsConfig] = {
    config.name: config
    for config in (
        ClientMetricsConfig(INTERVAL_MS, "INT", "300000", "Time between two pushes of a client's metrics."),
        ClientMetricsConfig(MATCH, "LIST", "", "Which clients: NAME=PATTERN each, a regular expression."),
        ClientMetricsConfig(METRICS, "LIST", "", "Which metrics, by prefixes of their names; * is all."),
    )
}
CLIENT_METRICS_LISTS: Mapping[str, str] = {MATCH: "", METRICS: ""}


class ClientMetricsError(ValueError):
    """A subscription is refused. `is_config`: Kafka answers INVALID_CONFIG, otherwise INVALID_REQUEST."""

    def __init__(self, text: str, *, is_config: bool = False) -> None:
        super().__init__(text)
        self.is_config = is_config


def check_client_metrics(name: str, configs: Mapping[str, str]) -> None:
    """Check all that is configured for a subscription.

    Raises:
        ClientMetricsError: it is refused, and why.
    """
    if not name:
        raise ClientMetricsError("A subscription has a name.")
    for key in sorted(configs.keys() - CLIENT_METRICS_CONFIGS.keys()):
        raise ClientMetricsError(f"Unknown client metrics configuration: {key[:100]}")
    _check_interval(configs.get(INTERVAL_MS, CLIENT_METRICS_CONFIGS[INTERVAL_MS].default))
    for key in (MATCH, METRICS):
        items = items_of(configs.get(key, ""))
        if len(items) > ITEMS_MAX:
            raise ClientMetricsError(f"{key} has {len(items)} items; {ITEMS_MAX} are the maximum.", is_config=True)
        if not all(items) or len(set(items)) < len(items):
            raise ClientMetricsError(f"{key}: an item is empty, or there twice.", is_config=True)
    matchers_of(configs)


def matchers_of(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the expression for each property that is matched; of two for one the last counts, as in Kafka.

    Raises:
        ClientMetricsError: one is malformed.
    """
    found = {}
    for item in items_of(configs.get(MATCH, ""))[:ITEMS_MAX]:
        name, _, pattern = item.partition("=")
        if name.strip() not in MATCHED or not pattern.strip() or "=" in pattern:
            text = f"Illegal client matching pattern: {item[:200]}; it is NAME=PATTERN, NAME of {', '.join(MATCHED)}"
            raise ClientMetricsError(text, is_config=True)
        found[name.strip()] = pattern.strip()
    return found


def _check_interval(value: str) -> None:
    digits = value.strip().removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 10:
        raise ClientMetricsError(f"{INTERVAL_MS} must be a number, not {value[:100]}", is_config=True)
    if not INTERVAL_MS_MIN <= int(value) <= INTERVAL_MS_MAX:
        text = f"Invalid value {value} for {INTERVAL_MS}, interval must be between 100 and 3600000 (1 hour)"
        raise ClientMetricsError(text)
