"""Writes and reads the directory of a cluster on this machine.

    DIR/cluster.json           cluster id, number of brokers, addresses, settings given with --set
    DIR/broker-K/broker.toml   configuration of broker K
    DIR/broker-K/broker.pid    process id and start time of broker K while it runs
    DIR/broker-K/broker.log    its output; one older file is kept as broker.log.1
    DIR/broker-K/data/         its data, which names the cluster and the node it belongs to (meta.json)

Starts and stops keep each other out by a lock on the directory itself, which leaves no file.

The secret of a cluster stands in each `broker.toml`, and in `cluster.json` only if it was given with --set. A file that
holds it can be read by its owner only.

`cluster.json` decides. A `broker.toml` may be edited by hand: a start changes in it only identity, addresses, the
data directory (so that a moved directory works) and what --set names, and leaves the rest as it is.
"""

import base64
import contextlib
import dataclasses
import fcntl
import json
import os
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from barnabas_broker.config.broker import BrokerConfig, ConfigError
from barnabas_raftlog.errors import BarnabasError

from .ports import PortPlan
from .processes import ProcessIdentity, is_running

__all__ = [
    "BROKERS_MAX",
    "KEY_SETTING",
    "ClusterError",
    "ClusterFiles",
    "RequestError",
    "SettingError",
    "new_cluster_id",
    "new_secret",
    "replace_file",
]

FORMAT = 1
# Has `hosts`, too: a version that knows one host only must not take all brokers for its own.
FORMAT_OF_SEVERAL_HOSTS = 2
# Each broker is a process with a journal of its own. More on one machine is a mistake in the number.
BROKERS_MAX = 64
KEY_SETTING = "cluster.secret"
SECRET_BYTES = 32
LOG_BYTES_MAX = 64 * 1024 * 1024
# The identity of a broker. `cluster start` writes these; --set may not.
MANAGED = ("node.id", "cluster.id", "cluster.nodes", "listeners", "advertised.listeners", "log.dir", "log.file.path")


class ClusterError(BarnabasError):
    """A local cluster cannot do what was asked; the message is one line for the operator."""


class RequestError(ClusterError):
    """What was asked makes no sense, whatever there is on this machine: the command ends with exit status 2."""

    status = 2


class SettingError(ConfigError):
    """A setting of the command line cannot work: exit status 2."""

    status = 2


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The directory of one cluster, as `cluster.json` describes it. Nodes count from 1, over all hosts."""

    directory: Path
    cluster_id: str
    ports: PortPlan
    settings: Mapping[str, str]
    # Drawn for a cluster that is being made, or come with a token; afterwards its brokers' files have it.
    secret: str = dataclasses.field(default="", compare=False, repr=False)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read a cluster's directory.

        Raises:
            ClusterError: there is none, or its cluster.json is damaged.
        """
        path = directory / "cluster.json"
        try:
            found = json.loads(path.read_text())
            if found["format"] not in {FORMAT, FORMAT_OF_SEVERAL_HOSTS}:
                raise ClusterError(
                    f"{path} has format {found['format']}; this version reads formats up to {FORMAT_OF_SEVERAL_HOSTS}"
                )
            host = str(found["host"])
            hosts = tuple(str(one) for one in found.get("hosts", ()))
            if hosts and host not in hosts:
                raise ValueError(f"host {host} is not one of its hosts")
            return cls(
                directory=directory,
                cluster_id=str(found["cluster_id"]),
                ports=PortPlan(
                    host=host,
                    port=int(found["port"]),
                    peer_port=int(found["peer_port"]),
                    brokers=int(found["brokers"]),
                    hosts=hosts,
                ),
                settings={str(name): str(value) for name, value in found["settings"].items()},
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise ClusterError(f"{directory} holds no cluster (no cluster.json there)") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ClusterError(f"{path} is damaged: {error}") from error

    @property
    def node_ids(self) -> range:
        return range(1, self.ports.brokers + 1)

    @property
    def local_ids(self) -> range:
        """The brokers of this machine, which are all if there is one host only."""
        return self.ports.local_ids

    @property
    def bootstrap(self) -> str:
        ports = self.ports
        return ",".join(f"{ports.host_of(node_id)}:{ports.client_port(node_id)}" for node_id in self.node_ids)

    def broker(self, node_id: int) -> Path:
        return self.directory / f"broker-{node_id}"

    def config_file(self, node_id: int) -> Path:
        return self.broker(node_id) / "broker.toml"

    def log_file(self, node_id: int) -> Path:
        return self.broker(node_id) / "broker.log"

    def data(self, node_id: int) -> Path:
        return self.broker(node_id) / "data"

    # Configurations.

    def config(self, node_id: int) -> BrokerConfig:
        """Return the configuration of broker `node_id`: its file, if it has one, under what this class decides.

        Raises:
            ConfigError: a setting is unknown or cannot work; names the file when the fault lies there.
        """
        ports = self.ports
        path = self.config_file(node_id)
        values: dict[str, Any] = {}
        if path.exists():
            try:
                values = _flatten(tomllib.loads(path.read_text(encoding="utf-8")))
            except UnicodeDecodeError as error:
                raise ConfigError(f"{path} is not valid TOML: byte {error.start} is not UTF-8") from error
            except ValueError as error:  # a TOMLDecodeError, or a number that int() refuses
                raise ConfigError(f"{path} is not valid TOML: {error}") from error
            if (other := values.get("cluster.id", self.cluster_id)) != self.cluster_id:
                raise ClusterError(f"{path} belongs to cluster {other}, {self.directory} to {self.cluster_id}")
            values = {name: value for name, value in values.items() if not name.startswith("cluster.nodes")}
        if not values.get(KEY_SETTING) and (secret := self._shared_secret() if not path.exists() else self.secret):
            values[KEY_SETTING] = secret
        ours: dict[str, str | int] = {
            **self.settings,
            "node.id": node_id,
            "cluster.id": self.cluster_id,
            "listeners": f"{ports.host_of(node_id)}:{ports.client_port(node_id)}",
            "log.dir": str(self.data(node_id)),
            **{f"cluster.nodes.{peer}": f"{ports.host_of(peer)}:{ports.node_port(peer)}" for peer in self.node_ids},
        }
        # --set is checked without the file first, so that a fault is laid at the right door.
        BrokerConfig.from_settings(ours)
        try:
            return BrokerConfig.from_settings({**values, **ours})
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    def _shared_secret(self) -> str:
        """Return the secret for a broker without a file: that of the others, as far as this machine knows them."""
        for path in map(self.config_file, self.local_ids):
            with contextlib.suppress(OSError, ValueError):
                if secret := _flatten(tomllib.loads(path.read_text())).get(KEY_SETTING):
                    return str(secret)
        return self.secret

    def write(self, configs: Mapping[int, BrokerConfig]) -> None:
        """Write cluster.json and the given brokers' configurations, each file whole or not at all."""
        described: dict[str, Any] = {
            "format": FORMAT_OF_SEVERAL_HOSTS if self.ports.hosts else FORMAT,
            "cluster_id": self.cluster_id,
            "brokers": self.ports.brokers,
            "host": self.ports.host,
            "port": self.ports.port,
            "peer_port": self.ports.peer_port,
            "settings": dict(self.settings),
        }
        if self.ports.hosts:
            described["hosts"] = list(self.ports.hosts)
        text = json.dumps(described, indent=2) + "\n"
        replace_file(self.directory / "cluster.json", text, is_secret=bool(self.settings.get(KEY_SETTING)))
        for node_id, config in configs.items():
            self.data(node_id).mkdir(parents=True, exist_ok=True)
            text = config.to_toml()
            path = self.config_file(node_id)
            # Left alone while it says the same, comments and all.
            if not path.exists() or BrokerConfig.from_toml(path.read_text()) != config:
                replace_file(path, text, is_secret=bool(config.cluster_secret))

    def check_data(self, node_id: int) -> None:
        """Refuse data that another cluster or another node wrote.

        Raises:
            ClusterError: the data directory names another owner.
        """
        path = self.data(node_id) / "meta.json"
        try:
            meta = json.loads(path.read_text())
            owner = str(meta["cluster_id"]), int(meta["node_id"])
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError) as error:
            raise ClusterError(f"{path} is damaged: {error}") from error
        if owner != (self.cluster_id, node_id):
            raise ClusterError(
                f"{path.parent} belongs to node {owner[1]} of cluster {owner[0]}, "
                f"not to node {node_id} of cluster {self.cluster_id}"
            )

    # Processes.

    def process(self, node_id: int) -> ProcessIdentity | None:
        """Return the process that runs broker `node_id`, or None when it is down."""
        try:
            found = json.loads((self.broker(node_id) / "broker.pid").read_text())
            process = ProcessIdentity(int(found["pid"]), str(found["started"]))
        except (OSError, ValueError, TypeError, KeyError):
            # Torn by a crash of the machine, or not there: no process of this boot has written it.
            return None
        return process if is_running(process) else None

    def note_process(self, node_id: int, process: ProcessIdentity) -> None:
        replace_file(self.broker(node_id) / "broker.pid", json.dumps(process._asdict()) + "\n")

    def forget_process(self, node_id: int) -> None:
        (self.broker(node_id) / "broker.pid").unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other starts and stops of this directory, which must exist, out.

        Raises:
            ClusterError: one is at work.
        """
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ClusterError(f"another start or stop of {self.directory} is at work; try again") from error
            yield
        finally:
            os.close(fd)

    # Logs.

    def open_log(self, node_id: int) -> int:
        """Return a descriptor that appends to the broker's log, which is set aside first if it has grown large."""
        path = self.log_file(node_id)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_BYTES_MAX:
                path.replace(path.with_suffix(".log.1"))
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def last_log_line(self, node_id: int, start: int = 0) -> str:
        """Return the last line that is not empty from byte `start` on, shortened; empty if there is none."""
        try:
            with self.log_file(node_id).open("rb") as log:
                log.seek(max(start, log.seek(0, os.SEEK_END) - 8192))
                lines = [line.strip() for line in log.read().decode(errors="replace").splitlines()]
        except OSError:
            return ""
        return next((line[:500] for line in reversed(lines) if line), "")


def new_cluster_id() -> str:
    """Return a fresh id in the form that Kafka gives its own: a UUID in URL-safe base 64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One that begins with a dash would look like an option on a command line.
        if not text.startswith("-"):
            return text


def new_secret() -> str:
    """Return a secret that nobody can guess."""
    return os.urandom(SECRET_BYTES).hex()


def check_settable(name: str) -> None:
    """Refuse a setting that `cluster start` decides for each broker.

    Raises:
        ConfigError: it is one of these.
    """
    if name in MANAGED or name.startswith("cluster.nodes."):
        raise ConfigError(f"{name} is not for --set: cluster start gives every broker its own (see --port, --data)")


def _flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def replace_file(path: Path, text: str, *, is_secret: bool = False) -> None:
    """Write a file whole or not at all; one that `is_secret` can be read by its owner only."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if is_secret else 0o666)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    temporary.replace(path)
