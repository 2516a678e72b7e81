"""Computes the addresses of a cluster's brokers, and looks whether their ports are free.

On one machine broker k serves clients on `port + k - 1` (TCP) and the other brokers on `peer_port + k - 1` (TCP for the
log, UDP for liveness). On several, brokers are dealt out in turn: of three hosts the second one has the brokers 2, 5, 8
and so on, on `port`, `port + 1`, `port + 2`. So the first brokers are on different machines.

A port is tried by taking it for a moment, as the broker will: with SO_REUSEADDR for TCP, so that connections of a
cluster stopped a minute ago do not count, and without it for UDP, where it would let two share a port.

A port that is free now may be taken when the broker starts; then the broker says so itself.
"""

import contextlib
import errno
import socket
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["PEER_PORT_DISTANCE", "PortError", "PortPlan", "taken"]

PORT_MAX = 65_535
PEER_PORT_DISTANCE = 1000
UNPRIVILEGED_PORT_MIN = 1024  # Linux's default


class PortError(BarnabasError):
    """Ports that do not exist, collide with each other, or are somebody's already."""


class PortPlanError(PortError):
    """Ports that no machine could have: the command ends with exit status 2."""

    status = 2


class PortPlan(NamedTuple):
    """Where the brokers 1 to `brokers` listen. `host` is this machine's address, `hosts` those of all, if several."""

    host: str
    port: int
    peer_port: int
    brokers: int
    hosts: tuple[str, ...] = ()

    @property
    def hosts_count(self) -> int:
        return max(1, len(self.hosts))

    @property
    def brokers_per_host(self) -> int:
        """How many brokers the first host has; no other has more."""
        return -(-self.brokers // self.hosts_count)

    @property
    def host_index(self) -> int:
        """Which of the hosts this machine is, from 0."""
        return self.hosts.index(self.host) if self.hosts else 0

    @property
    def local_ids(self) -> range:
        """The brokers that run on this machine."""
        return range(self.host_index + 1, self.brokers + 1, self.hosts_count)

    def host_of(self, node_id: int) -> str:
        return self.hosts[(node_id - 1) % len(self.hosts)] if self.hosts else self.host

    def client_port(self, node_id: int) -> int:
        return self.port + (node_id - 1) // self.hosts_count

    def node_port(self, node_id: int) -> int:
        return self.peer_port + (node_id - 1) // self.hosts_count

    def check(self) -> None:
        """Refuse a plan that no machine could carry out.

        Raises:
            PortPlanError: the ranges leave 1..65535 or overlap.
        """
        count = self.brokers_per_host
        for name, first in (("--port", self.port), ("--peer-port", self.peer_port)):
            last = first + count - 1
            if first < 1 or last > PORT_MAX:
                raise PortPlanError(
                    f"{name} {first} is out of range: {count} brokers need the ports {first} to {last}, "
                    f"and ports end at {PORT_MAX}"
                )
        if abs(self.port - self.peer_port) < count:
            raise PortPlanError(
                f"--port {self.port} and --peer-port {self.peer_port} are too close: "
                f"{count} brokers need {count} ports from each"
            )


def taken(host: str, port: int, *, datagrams: bool) -> str | None:
    """Return why a port cannot be listened on, or None if it can.

    Raises:
        PortError: `host` is not an address of this machine.
    """
    kind = socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise PortError(f"--host {host} is not an address of this machine: {error.strerror}") from error
    with contextlib.closing(socket.socket(family, kind)) as trial:
        try:
            if not datagrams:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            if not datagrams:
                trial.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise PortError(f"--host {host} is not an address of this machine") from error
            if error.errno == errno.EACCES:
                return f"reserved for administrators; take one from {UNPRIVILEGED_PORT_MIN} on"
            return "in use" if error.errno == errno.EADDRINUSE else str(error.strerror).lower()
    return None
