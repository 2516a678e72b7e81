"""Reads the listeners of a broker: their names, where they listen, what clients are told. Pure.

As in Kafka, `listeners` and `advertised.listeners` are lists of `name://host:port`, and the names join the two. Names
are compared in capitals. One address without a name (`host:port`) is the listener `PLAINTEXT`.

    listeners            = "inside://0.0.0.0:9092,outside://0.0.0.0:19092"
    advertised.listeners = "inside://broker-1:9092,outside://localhost:19092"

A client is told the addresses of the listener that it came in on (`Broker.address_on` in the metadata's image). What
is listed first has a second meaning: it is the broker's address for all that knows one only, such as the placement of
replicas and versions that had one listener.

Where this differs from Kafka: a listener that `advertised.listeners` leaves out is advertised as it listens, if others
can connect to that; and two listeners may have one port on two addresses. The names of Kafka's other protocols (`SSL`,
`SASL_PLAINTEXT`, `SASL_SSL`) are refused: who writes them expects more than plain text, which is all there is.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from .addresses import Address, ConfigError, is_wildcard, parse_address
from .near_names import closest

__all__ = ["DEFAULT_NAME", "NamedListener", "parse_listeners", "shown_listeners"]

DEFAULT_NAME = "PLAINTEXT"
LISTENERS_MAX = 16
_OTHER_PROTOCOLS = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL", "TLS"})
_is_name = re.compile(r"[A-Z0-9][A-Z0-9_.\-]{0,63}").fullmatch


class NamedListener(NamedTuple):
    """One listener. The port of `advertised` is 0 if it is the one that listening on port 0 will get."""

    name: str
    bind: Address
    advertised: Address


def parse_listeners(listeners: str, advertised: str = "") -> tuple[NamedListener, ...]:
    """Return the listeners in the order of the setting `listeners`.

    Raises:
        ConfigError: one cannot be read, has the name or the port of another, or is advertised where nobody can connect;
            or `advertised` names one that is not there.
    """
    bound = _parts("listeners", listeners, may_be_everywhere=True)
    told = _parts("advertised.listeners", advertised) if advertised.strip() else {}
    if len(bound) == 1 and list(told) == [""]:
        told = dict(zip(bound, told.values(), strict=True))
    bound = {name or DEFAULT_NAME: address for name, address in bound.items()}
    told = {name or DEFAULT_NAME: address for name, address in told.items()}
    _check_ports(bound)
    if strangers := [name for name in told if name not in bound]:
        near = closest(strangers[0], bound)
        hint = f"did you mean {near.lower()}?" if near else f"there is {', '.join(bound).lower()}"
        raise ConfigError(
            f"advertised.listeners names {strangers[0].lower()}, which is not one of the listeners ({hint})"
        )
    found = tuple(NamedListener(name, address, told.get(name, address)) for name, address in bound.items())
    for one in found:
        _check_reachable(one, "advertised.listeners" if one.name in told else "listeners")
    return found


def shown_listeners(listeners: Sequence[NamedListener]) -> tuple[str, str]:
    """Return what `listeners` and `advertised.listeners` say for them; `parse_listeners` reads it back."""
    return (
        ",".join(f"{one.name}://{one.bind}" for one in listeners),
        ",".join(f"{one.name}://{one.advertised}" for one in listeners),
    )


def _parts(setting: str, text: str, *, may_be_everywhere: bool = False) -> dict[str, Address]:
    """Return the addresses by name; the name of one that has none is empty."""
    found: dict[str, Address] = {}
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > LISTENERS_MAX:
        raise ConfigError(f"{setting} has {len(parts)} listeners; {LISTENERS_MAX} is the maximum")
    for part in parts:
        name, separator, place = part.rpartition("://")
        name = name.upper()
        if separator and not _is_name(name):
            raise ConfigError(f"{setting} has {part!r}: a name has letters, digits, '_', '-' and '.'")
        if name in _OTHER_PROTOCOLS:
            raise ConfigError(
                f"{setting} has {part!r}: brokers speak PLAINTEXT only; choose a name that does not promise more"
            )
        if len(parts) > 1 and not separator:
            raise ConfigError(f"{setting} has {part!r}: with more than one listener write name://host:port for each")
        if name in found:
            raise ConfigError(f"{setting} has the name {name.lower()} twice; names differ in more than capitals")
        if may_be_everywhere and separator and place.startswith(":"):
            place = f"0.0.0.0{place}"  # noqa: S104 - Kafka writes "every address" without one
        try:
            found[name] = parse_address(setting, place)
        except ConfigError as error:
            # With a name, say which of them.
            raise ConfigError(f"{error} (in {part!r})" if separator else str(error)) from error
    return found


def _check_ports(bound: dict[str, Address]) -> None:
    for number, (name, address) in enumerate(bound.items()):
        for other, taken in list(bound.items())[:number]:
            is_same_place = address.host == taken.host or is_wildcard(address.host) or is_wildcard(taken.host)
            if address.port and address.port == taken.port and is_same_place:
                raise ConfigError(
                    f"listeners has port {address.port} twice, for {other.lower()} and {name.lower()}; "
                    "give each a port of its own"
                )


def _check_reachable(one: NamedListener, setting: str) -> None:
    if is_wildcard(one.advertised.host):
        text = str(one.advertised) if one.name == DEFAULT_NAME else f"{one.name.lower()}://{one.advertised}"
        raise ConfigError(
            f"{setting} is {text!r}: clients are told this address, and nobody can connect to it; "
            "name one that they can reach in advertised.listeners"
        )
