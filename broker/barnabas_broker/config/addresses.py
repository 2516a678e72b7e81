"""Reads addresses of settings, and says what is wrong with a setting. Pure."""

import ipaddress
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["Address", "ConfigError", "is_loopback", "is_wildcard", "parse_address"]

HOST_CHARACTERS_MAX = 255  # as many as a name in DNS has


class ConfigError(BarnabasError, ValueError):
    """A setting that cannot work; the message names the setting and, where it can, the fix."""


class AssignmentError(ConfigError):
    """A NAME=VALUE of the command line that cannot work, whatever other sources say."""


class Address(NamedTuple):
    """Where to listen or to connect. Port 0 asks the operating system for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(name: str, text: str) -> Address:
    """Read `host:port`, the host of IPv6 in brackets, for the setting `name`.

    Raises:
        ConfigError: it is something else, or the port is none.
    """
    host, colon, port_text = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host:
        raise ConfigError(f"{name} is {text!r}; write host:port")
    # All brokers tell clients each of these hosts: one that no message has room for would spoil the answers of all.
    if len(host) > HOST_CHARACTERS_MAX:
        raise ConfigError(f"{name} has a host of {len(host)} characters; {HOST_CHARACTERS_MAX} is the maximum")
    if not host.isprintable() or any(map(str.isspace, host)):
        raise ConfigError(f"{name} is {text!r}: a host must not have spaces or control characters")
    try:
        port = int(port_text)
    except ValueError as error:
        raise ConfigError(f"{name} is {text!r}: the port is not a number") from error
    if not 0 <= port <= 65_535:
        raise ConfigError(f"{name} has port {port}; ports are from 0 to 65535")
    return Address(host, port)


def is_loopback(address: Address) -> bool:
    """Say whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"


def is_wildcard(host: str) -> bool:
    """Say whether a host means "every address of this machine", which can be listened on and not connected to."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        # A name; or what the system's resolver takes for 0.0.0.0, too.
        return host in {"", "0", "*"}
