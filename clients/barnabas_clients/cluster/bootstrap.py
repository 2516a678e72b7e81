"""Parses the addresses that a client starts from: `host:port`, with commas, IPv6 in brackets. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from barnabas_clients.arguments import shown, text

__all__ = ["Endpoint", "parse_bootstrap", "shown_endpoint"]

Endpoint = tuple[str, int]
"""Host and port to connect to."""

PORT_DEFAULT = 9092


def parse_bootstrap(servers: str | Sequence[str]) -> list[Endpoint]:
    """Return the endpoints that are named, in order and without repetitions. A missing port is 9092.

    Raises:
        TypeError: it is neither a `str` nor a list of such.
        ValueError: no address is named, or a part is not a valid address; the message quotes the part.
    """
    several = [servers] if isinstance(servers, str) else servers
    if isinstance(several, bytes | bytearray | memoryview | Mapping) or not isinstance(several, Iterable):
        raise TypeError(f"bootstrap is {shown(servers)}; write 'host:port,host:port', or a list of such")
    parts = [part for each in several for part in text("a bootstrap server", each, may_be_empty=True).split(",")]
    endpoints: dict[Endpoint, None] = {}
    for part in filter(None, (part.strip() for part in parts)):
        endpoints[_endpoint(part)] = None
    if not endpoints:
        raise ValueError("no bootstrap server is named; write host:port")
    return list(endpoints)


def shown_endpoint(endpoint: Endpoint) -> str:
    """Return an endpoint as it is written: IPv6 in brackets."""
    host, port = endpoint
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _endpoint(said: str) -> Endpoint:
    host = said
    port = str(PORT_DEFAULT)
    if said.startswith("["):
        host, bracket, rest = said[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{said[:80]!r} is not a valid address; write [host]:port")
        port = rest[1:] or port
    elif said.count(":") == 1:
        host, port = said.split(":")
    elif ":" in said:
        raise ValueError(f"{said[:80]!r} is not a valid address; write an IPv6 host in brackets, as [::1]:9092")
    # isdecimal alone would accept digits of other scripts, which int() reads and nobody means.
    if not host or not (port.isascii() and port.isdecimal()) or len(port) > 9 or not 0 < int(port) < 65_536:
        raise ValueError(f"{said[:80]!r} is not a valid address; write host:port with a port from 1 to 65535")
    if not _is_host(host):
        raise ValueError(f"{said[:80]!r} is not a valid address; no host can have that name")
    return host, int(port)


def _is_host(name: str) -> bool:
    """Say whether a resolver can be asked for this name."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return name.isprintable() and not any(mark in name for mark in " /@")
