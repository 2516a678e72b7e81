"""Plans a cluster from the request, its directory and defaults. Changes nothing.

On several machines the same command is given on each, and nothing but `--host` may differ: the brokers of all machines
follow from the hosts, in their order, and from the number of brokers on each. They must also be of one cluster before
they have ever met, so its id is given, too.

A cluster on one host gets a secret when it is made, unless one is given. Several machines must have the same, so the
first of them draws it, and hands it on to the others by one-time tokens (`join_tokens`), unless it is given to all of
them with `--set cluster.secret=...`; machines that are all on the loopback are none, and have none.

A cluster with more than three brokers that is planned by `--brokers-per-host` keeps its metadata on the first three of
them, or five if there are as many hosts; these are on different hosts, as far as there are.
"""

import dataclasses
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas_broker.config.broker import ConfigError, is_wildcard

from .files import (
    BROKERS_MAX,
    ClusterError,
    ClusterFiles,
    RequestError,
    SettingError,
    check_settable,
    new_cluster_id,
    new_secret,
)
from .ports import PEER_PORT_DISTANCE, PortPlan

__all__ = ["AUTO", "Request", "cores", "plan"]

BROKERS_DEFAULT = 3
PORT_DEFAULT = 9092
HOST_DEFAULT = "127.0.0.1"
AUTO = "auto"
VOTERS = "controller.quorum.voters"
CONTROLLERS_MIN = 3
CONTROLLERS_MAX = 5
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of this control group, as a container sees it


class Request(NamedTuple):
    """The options of `cluster start`. None: as the directory says, or the default for a new one.

    `brokers_per_host` is a number or `AUTO`; `hosts` are all machines' addresses, `host` is this one's. `only`: those
    of this machine's brokers that are to be started if they are down; None: all.
    """

    directory: Path
    brokers: int | None = None
    host: str | None = None
    port: int | None = None
    peer_port: int | None = None
    settings: Mapping[str, str] = {}
    timeout_s: float = 60.0
    program: tuple[str, ...] = (sys.executable, "-P", "-m", "barnabas_broker.main")
    brokers_per_host: str | None = None
    hosts: tuple[str, ...] | None = None
    cluster_id: str | None = None
    token: str | None = None
    only: tuple[int, ...] | None = None


def cores(cpu_limit: Path = CPU_LIMIT) -> int:
    """Return how many cores this process may use: those it may run on, and no more than its container is given."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = cpu_limit.read_text(encoding="ascii").split()
        return count if quota == "max" else max(1, min(count, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return count  # there is no such limit here


def plan(request: Request) -> tuple[ClusterFiles, bool]:
    """Return the cluster as it shall be, and whether its directory is new.

    Raises:
        BarnabasError: it cannot be; one line.
    """
    directory = request.directory
    if directory.exists() and not directory.is_dir():
        raise ClusterError(f"--data {directory} is not a directory")
    if request.brokers is not None and not 1 <= request.brokers <= BROKERS_MAX:
        raise RequestError(f"--brokers {request.brokers} is out of range: it must be from 1 to {BROKERS_MAX}")
    is_new = not (directory / "cluster.json").exists()
    files = _new(request) if is_new else _known(request)
    for host in files.ports.hosts or (files.ports.host,):
        if is_wildcard(host):
            raise RequestError(f"host {host!r} cannot be used: clients are told this address; name one they can reach")
    files.ports.check()
    # A bad setting is bad for every broker; the brokers' own files are read later, for those that are down.
    try:
        for name in request.settings:
            check_settable(name)
        config = files.config(files.local_ids[0])
    except ConfigError as error:
        raise SettingError(str(error)) from error
    if request.token is None and not any(files.broker(node_id).exists() for node_id in files.local_ids):
        draws = not files.ports.hosts or (files.ports.host_index == 0 and config.exposed_nodes)
        files = dataclasses.replace(files, secret=new_secret() if draws else "")
    return files, is_new


def _new(request: Request) -> ClusterFiles:
    directory = request.directory
    if directory.exists() and any(directory.iterdir()):
        raise ClusterError(f"--data {directory} is not empty and holds no cluster; name an empty or a new directory")
    port = PORT_DEFAULT if request.port is None else request.port
    peer_port = port + PEER_PORT_DISTANCE if request.peer_port is None else request.peer_port
    hosts = request.hosts or ()
    per_host = request.brokers_per_host
    settings = dict(request.settings)
    host = request.host or HOST_DEFAULT
    if hosts:
        host = _check_hosts(hosts, request.host)
        if request.cluster_id is None:
            raise RequestError(
                f"the {len(hosts)} machines of --hosts must agree on a cluster id: give all of them "
                f"--cluster-id {new_cluster_id()}"
            )
    if request.brokers is not None and (hosts or per_host is not None):
        raise RequestError("--brokers counts the brokers of a cluster on one host; take --brokers-per-host instead")
    brokers = request.brokers or BROKERS_DEFAULT
    if hosts or per_host is not None:
        brokers = _number(per_host or "1", hosts) * max(1, len(hosts))
        if brokers > CONTROLLERS_MIN and VOTERS not in settings:
            settings[VOTERS] = ",".join(map(str, range(1, _controllers(brokers, len(hosts)) + 1)))
    ports = PortPlan(host=host, port=port, peer_port=peer_port, brokers=brokers, hosts=hosts)
    return ClusterFiles(directory, request.cluster_id or new_cluster_id(), ports, settings)


def _known(request: Request) -> ClusterFiles:
    directory = request.directory
    known = ClusterFiles.load(request.directory)
    was = known.ports
    if request.cluster_id not in {None, known.cluster_id}:
        raise ClusterError(f"{directory} belongs to cluster {known.cluster_id}, not to {request.cluster_id}")
    if request.brokers not in {None, was.brokers}:
        raise ClusterError(
            f"{directory} is a cluster of {was.brokers} brokers, which --brokers {request.brokers} cannot change"
        )
    per_host = request.brokers_per_host
    # `auto` is how many there were to be when the cluster was made; a machine may have got more cores since.
    if per_host is not None and per_host != AUTO and _number(per_host, was.hosts) != was.brokers_per_host:
        raise ClusterError(
            f"{directory} is a cluster of {was.brokers_per_host} brokers on each host, "
            f"which --brokers-per-host {per_host} cannot change"
        )
    hosts = was.hosts
    host = request.host or was.host
    if request.hosts is not None:
        if len(request.hosts) != was.hosts_count:
            raise ClusterError(
                f"{directory} is a cluster on {was.hosts_count} hosts, which --hosts with {len(request.hosts)} cannot "
                "change; give the same number, in the same order"
            )
        hosts = request.hosts
    if hosts:
        host = _check_hosts(hosts, request.host or hosts[was.host_index])
        if hosts.index(host) != was.host_index:
            raise ClusterError(
                f"{directory} has the brokers of host {was.host_index + 1} of --hosts, which is not {host}"
            )
    port = request.port or was.port
    peer_port = request.peer_port or port + was.peer_port - was.port
    ports = PortPlan(host=host, port=port, peer_port=peer_port, brokers=was.brokers, hosts=hosts)
    return ClusterFiles(directory, known.cluster_id, ports, {**known.settings, **request.settings})


def _check_hosts(hosts: tuple[str, ...], host: str | None) -> str:
    """Return this machine's address among `hosts`."""
    if len(set(hosts)) != len(hosts):
        raise RequestError(f"--hosts {','.join(hosts)} names a host twice")
    if host is None:
        raise RequestError("--hosts names all machines; give each of them --host with its own address as well")
    if host not in hosts:
        raise RequestError(f"--host {host} is not among --hosts {','.join(hosts)}")
    return host


def _number(text: str, hosts: tuple[str, ...]) -> int:
    if text == AUTO:
        if len(hosts) > 1:
            raise RequestError(
                f"--brokers-per-host auto counts the cores of this machine ({cores()}), which the other --hosts cannot "
                "know; give the number, the same on all of them"
            )
        return min(cores(), BROKERS_MAX)
    most = BROKERS_MAX // max(1, len(hosts))
    # No number of so many digits is in range, and int() refuses some thousand.
    if not text.isdecimal() or len(text) > len(str(BROKERS_MAX)) or not 1 <= int(text) <= most:
        raise RequestError(f"--brokers-per-host {text} is out of range: it must be {AUTO}, or from 1 to {most}")
    return int(text)


def _controllers(brokers: int, hosts: int) -> int:
    """Return on how many brokers the metadata lives: an odd number, and no more than are of use."""
    wanted = min(max(CONTROLLERS_MIN, hosts), CONTROLLERS_MAX, brokers)
    return wanted - 1 + wanted % 2
