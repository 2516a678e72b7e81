"""Reads where a collector of metrics takes them: `http://host:port/path`. Pure."""

import re
from typing import NamedTuple

from .addresses import ConfigError

__all__ = ["Collector", "collector_at"]

OTLP_PORT = 4318
OTLP_PATH = "/v1/metrics"
_parts_of = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?(/[!-~]*)?", re.ASCII).fullmatch


class Collector(NamedTuple):
    """Where to send a request, and what for."""

    host: str
    port: int
    path: str


def collector_at(name: str, url: str) -> Collector | None:
    """Return the collector at the URL that the setting of this name has; None if it is empty.

    Raises:
        ConfigError: it is no URL, or none that can be spoken to.
    """
    if not url:
        return None
    parts = _parts_of(url)
    port = int(parts[2] or OTLP_PORT) if parts else 0
    if parts is None or not 0 < port < 1 << 16:
        raise ConfigError(f"{name} is {url!r}; it must be like http://127.0.0.1:4318/v1/metrics")
    return Collector(parts[1].strip("[]"), port, parts[3] or OTLP_PATH)
