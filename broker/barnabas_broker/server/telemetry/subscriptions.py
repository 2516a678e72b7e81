"""Which metrics are wanted of a client, by the subscriptions that match it. Pure.

A subscription is what is configured under its name (`controller.client_metrics`). A client is asked for what all that
match it want together, at the shortest of their intervals; `*` stands for all. The number of such a set is the same at
every broker, so that a client may go from one to the next: as in Kafka it is a checksum of the set and the client's id.

Expressions are matched in pieces (`coordinators.patterns`): a client chooses its own names.

Limits: `PATTERN_CHARACTERS_MAX` for an expression, and as many subscriptions as the controller takes.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import NamedTuple

from barnabas_broker.coordinators.patterns import Pattern, PatternError
from barnabas_metadata_quorum.config_values import items_of
from barnabas_metadata_quorum.controller.client_metrics import (
    ALL_METRICS,
    CLIENT_METRICS_CONFIGS,
    INTERVAL_MS,
    METRICS,
    ClientMetricsError,
    matchers_of,
)
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["Client", "Subscription", "Wanted", "check_patterns", "read_subscription", "wanted_of"]

PATTERN_CHARACTERS_MAX = 200
DEFAULT_INTERVAL_MS = int(CLIENT_METRICS_CONFIGS[INTERVAL_MS].default)


class Client(NamedTuple):
    """What is known of a client, by the names under which it may be matched."""

    client_id: str
    client_instance_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class Subscription(NamedTuple):
    """One subscription, ready to match."""

    metrics: tuple[str, ...]
    interval_ms: int
    matchers: tuple[tuple[str, Pattern], ...]


class Wanted(NamedTuple):
    """What a client is asked for: no metrics at all, if none is named."""

    metrics: tuple[str, ...]
    interval_ms: int

    def number_for(self, instance_id: bytes) -> int:
        """Return the number of this set for a client: 32 bits with a sign."""
        text = f"{','.join(self.metrics)} {self.interval_ms}".encode()
        number = crc32c(text + instance_id)
        return number - (1 << 32) if number >= 1 << 31 else number


Matchers = tuple[tuple[str, Pattern], ...]


def read_subscription(configs: Mapping[str, str]) -> Generator[None, None, Subscription]:
    """Read what is configured, and has passed `check_client_metrics`; yields between pieces.

    Raises:
        ClientMetricsError: an expression is none.
    """
    matchers = yield from _matchers(configs)
    interval_ms = int(configs.get(INTERVAL_MS, DEFAULT_INTERVAL_MS))
    return Subscription(tuple(items_of(configs.get(METRICS, ""))), interval_ms, matchers)


def check_patterns(configs: Mapping[str, str]) -> Generator[None, None, ClientMetricsError | None]:
    """Return why the expressions of a subscription are refused, or None."""
    try:
        yield from _matchers(configs)
    except ClientMetricsError as error:
        return error
    return None


def _matchers(configs: Mapping[str, str]) -> Generator[None, None, Matchers]:
    """Compile the expressions; yields between them, as each takes a millisecond or two."""
    matchers = []
    for name, text in matchers_of(configs).items():
        if len(text) > PATTERN_CHARACTERS_MAX:
            words = f"The pattern for {name} has more than {PATTERN_CHARACTERS_MAX} characters"
            raise ClientMetricsError(words, is_config=True)
        try:
            matchers.append((name, Pattern.compile(text)))
        except PatternError as error:
            words = f"Illegal client matching pattern: {name}={text}: {error}"
            raise ClientMetricsError(words, is_config=True) from error
        yield
    return tuple(matchers)


def wanted_of(client: Client, subscriptions: Iterable[Subscription]) -> Generator[None, None, Wanted]:
    """Return what a client is asked for; yields between pieces."""
    metrics: set[str] = set()
    interval_ms = DEFAULT_INTERVAL_MS
    for subscription in subscriptions:
        for name, pattern in subscription.matchers:
            if not (yield from pattern.matching(getattr(client, name))):
                break
        else:
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
        yield
    return Wanted((ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics)), interval_ms)
