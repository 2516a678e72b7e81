"""The addresses a client starts from: `host:port`, several separated by commas, IPv6 in brackets. Pure."""

from collections.abc import Sequence

__all__ = ["Endpoint", "parse_bootstrap"]

Endpoint = tuple[str, int]
"""Host and port to connect to."""

PORT_DEFAULT = 9092


def parse_bootstrap(servers: str | Sequence[str]) -> list[Endpoint]:
    """Return the endpoints named, without repetitions, in order. A missing port is 9092.

    Raises:
        ValueError: nothing is named, or a part is no address; the message quotes the part.
    """
    parts = servers.split(",") if isinstance(servers, str) else [part for text in servers for part in text.split(",")]
    endpoints: dict[Endpoint, None] = {}
    for part in filter(None, (part.strip() for part in parts)):
        endpoints[_endpoint(part)] = None
    if not endpoints:
        raise ValueError("no bootstrap server is named; write host:port")
    return list(endpoints)


def _endpoint(text: str) -> Endpoint:
    host, port = text, str(PORT_DEFAULT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is no address; write [host]:port")
        port = rest[1:] or port
    elif text.count(":") == 1:
        host, port = text.split(":")
    elif ":" in text:
        raise ValueError(f"{text!r} is no address; write an IPv6 host in brackets, as [::1]:9092")
    # isdecimal alone would take digits of other scripts, which int() reads and nobody means.
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is no address; write host:port with a port from 1 to 65535")
    return host, int(port)
