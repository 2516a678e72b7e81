"""Starts real S3 servers on loopback, each with its own storage, and ends them with their `with`.

* `versitygw`: a gateway over a POSIX directory, in Go.
* `swift`: OpenStack Swift with its S3 API: four processes, one replica, no memcached.
* `s3rver`: a small fake in Node.js, which takes conditions and ignores them. It is here to be refused.

Programs are fetched once, into the cache (`machines/cache.py`). One that cannot be had raises `NotInstalledError`.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from machines.cache import CACHE, NotInstalledError, fetch, go_install, pip_packages

__all__ = ["SERVERS", "Server", "running"]

VERSITYGW = "v1.8.0"
SWIFT = "2.38.3"
S3RVER = "3.7.1"
READY_LIMIT_S = 90.0
SWIFT_PARTS = {"account": "account", "container": "container", "object": "obj", "proxy": "proxy"}
SWIFT_STORAGE = ("account", "container", "object")
SWIFT_RINGS = """
import sys
from swift.common.ring import RingBuilder
folder, *ports = sys.argv[1:]
for name, port in zip(("account", "container", "object"), ports):
    builder = RingBuilder(4, 1, 0)
    device = {"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "d1", "weight": 1.0}
    builder.add_dev(device)
    builder.rebalance()
    builder.get_ring().save(f"{folder}/{name}.ring.gz")
"""
SWIFT_START = """
import sys
from importlib import import_module
from swift.common import utils
folder, name, module = sys.argv[1:]
utils.set_swift_dir(folder)
sys.argv = [f"swift-{name}-server", f"{folder}/{name}.conf", "verbose"]
sys.exit(import_module(f"swift.{module}.server").main())
"""
SWIFT_STORAGE_CONF = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
disable_fallocate = true
workers = 0
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
SWIFT_PROXY_CONF = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
workers = 0
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth copy slo dlo versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
# The filters ask for a cache, and can do without: nothing listens there.
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testtest .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:versioned_writes]
use = egg:swift#versioned_writes
"""


class Server(NamedTuple):
    """A server that answers. `options` are those of our stores."""

    name: str
    options: Mapping[str, str]
    pids: Sequence[int]


@contextmanager
def running(name: str) -> Iterator[Server]:
    """Start a server, yield it once it answers, and end all its processes.

    Raises:
        NotInstalledError: it cannot be fetched, or does not start.
    """
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder, ExitStack() as stack:
        port, *others = free_ports(4)
        key, secret, pids = SERVERS[name](Path(folder), [port, *others], stack)
        wait_for(port, name)
        endpoint = f"http://127.0.0.1:{port}"
        options = {"endpoint": endpoint, "access_key_id": key, "secret_access_key": secret, "region": "us-east-1"}
        yield Server(name, options, pids)


def start_versitygw(folder: Path, ports: Sequence[int], stack: ExitStack) -> tuple[str, str, list[int]]:
    program = go_install("github.com/versity/versitygw/cmd/versitygw", VERSITYGW)
    (folder / "buckets").mkdir()
    keys = ("--access", "test", "--secret", "testtest")
    words = [program, "--port", f"127.0.0.1:{ports[0]}", *keys, "--quiet", "posix", folder / "buckets"]
    return "test", "testtest", [started(words, folder / "log", stack)]


def start_swift(folder: Path, ports: Sequence[int], stack: ExitStack) -> tuple[str, str, list[int]]:
    packages = pip_packages("swift", SWIFT)
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = barnabas\n[storage-policy:0]\nname = one\ndefault = yes\n"
    )
    environment = {"PYTHONPATH": str(packages)}
    proxy, *storage = ports
    python = (sys.executable, "-c")
    subprocess.run([*python, SWIFT_RINGS, folder, *map(str, storage)], env=os.environ | environment, check=True)
    pids = []
    for name, port in zip((*SWIFT_STORAGE, "proxy"), (*storage, proxy), strict=True):
        text = SWIFT_PROXY_CONF if name == "proxy" else SWIFT_STORAGE_CONF
        (folder / f"{name}.conf").write_text(text.format(folder=folder, name=name, port=port, user=user_name()))
        words = [*python, SWIFT_START, folder, name, SWIFT_PARTS[name]]
        pids.append(started(words, folder / f"{name}.log", stack, environment))
    return "test:tester", "testtest", pids


def start_s3rver(folder: Path, ports: Sequence[int], stack: ExitStack) -> tuple[str, str, list[int]]:
    package = CACHE / f"s3rver-{S3RVER}"
    program = package / "node_modules" / "s3rver" / "bin" / "s3rver.js"
    if not program.exists():
        fetch("npm", "install", "--silent", "--prefix", package, f"s3rver@{S3RVER}")
    where = ("--directory", folder, "--address", "127.0.0.1", "--port", str(ports[0]))
    words = ["node", program, "--silent", "--no-vhost-buckets", *where]
    return "S3RVER", "S3RVER", [started(words, folder / "log", stack)]


Start = Callable[[Path, Sequence[int], ExitStack], tuple[str, str, list[int]]]
SERVERS: Mapping[str, Start] = {"versitygw": start_versitygw, "swift": start_swift, "s3rver": start_s3rver}


def started(words: Sequence[object], log: Path, stack: ExitStack, environment: Mapping[str, str] | None = None) -> int:
    """Start a process that ends with the stack; return its id."""
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | (environment or {}),
            )
        except OSError as error:
            raise NotInstalledError(f"{words[0]}: {error.strerror}") from error
    stack.callback(ended, process)
    return process.pid


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(port: int, name: str) -> None:
    deadline_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline_s:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise NotInstalledError(f"{name} does not listen after {READY_LIMIT_S:.0f} s")


def free_ports(count: int) -> list[int]:
    """Return ports that are free on loopback now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def user_name() -> str:
    """Return the name of this process' user: Swift wants to become somebody."""
    import pwd  # noqa: PLC0415 - not everywhere

    return pwd.getpwuid(os.getuid()).pw_name
