"""Reads where a collector of metrics takes them: `http://host:port/path`. Pure."""

from typing import NamedTuple
from urllib.parse import urlsplit

from .addresses import ConfigError

__all__ = ["Collector", "collector_at"]

OTLP_PORT = 4318
OTLP_PATH = "/v1/metrics"


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
    refusal = ConfigError(f"{name} is {url!r}; it must be like http://127.0.0.1:4318/v1/metrics")
    try:
        parts = urlsplit(url)
        port = parts.port or OTLP_PORT
    except ValueError as error:
        raise refusal from error
    path = (parts.path or OTLP_PATH) + (f"?{parts.query}" if parts.query else "")
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme != "http" or not parts.hostname or parts.username is not None or not is_plain:
        raise refusal
    return Collector(parts.hostname, port, path)
