"""Where metrics of clients go: what is an address of a collector, and what is refused."""

import pytest

from barnabas_broker.config.addresses import ConfigError
from barnabas_broker.config.collector import Collector, collector_at


@pytest.mark.parametrize(
    ("url", "collector"),
    [
        ("", None),
        ("http://127.0.0.1", Collector("127.0.0.1", 4318, "/v1/metrics")),
        ("http://c.local:9090/api/v1/otlp?a=b", Collector("c.local", 9090, "/api/v1/otlp?a=b")),
        ("http://[::1]:4318/", Collector("::1", 4318, "/")),
    ],
)
def test_addresses_of_collectors_are_read(url: str, collector: Collector | None) -> None:
    assert collector_at("x", url) == collector


@pytest.mark.parametrize(
    "url",
    [
        "x",
        "h:4318",
        "https://h/",
        "http://",
        "http://h:0",
        "http://h:65536",
        "http://me@h/",
        "http://h/a b",
        "http://h/\nX",
    ],
)
def test_what_is_no_address_of_a_collector_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="must be like http://"):
        collector_at("x", url)
