"""Runs Debezium on Barnabas: what happens to a table of PostgreSQL is to be in a topic, each change once.

This is `scripts/trials/ecosystem/debezium`. Debezium's source runs in a cluster of two workers of Kafka Connect, and
writes in transactions. Rows are there before it, come, change and go; the worker that runs the source is killed, and a
broker. For who reads what is committed, the changes of the topic, one after the other, must make the table, and each
of them must be there once.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from machines.cache import NotInstalledError
from machines.cluster_handle import ClusterHandle, cluster, free_port

from .connect_worker import connect_worker, runs, state_of
from .jars import install_debezium, status_of
from .workers import until

__all__ = ["main"]

TOPIC = "shop.public.orders"
JSON = "org.apache.kafka.connect.json.JsonConverter"


class Database:
    """A server of PostgreSQL in a folder, of which it is the only thing. It runs as `postgres` if this is root."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._data = folder / "data"
        self.port = free_port(1)
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", self._data, "-U", "barnabas", "-A", "trust")
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c wal_level=logical -k {folder}"
        self._run("pg_ctl", "-D", self._data, "-l", folder / "log", "-w", "-o", options, "start")

    def _run(self, program: str, *words: object) -> str:
        command = [*self._as, str(self._programs / program), *map(str, words)]
        # Not through pipes: a server that stays would keep them open.
        with tempfile.TemporaryFile("w+") as out:
            subprocess.run(command, check=True, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120)
            out.seek(0)
            return out.read()

    def sql(self, text: str) -> str:
        return self._run("psql", "-h", "127.0.0.1", "-p", self.port, "-U", "barnabas", "-At", "-c", text, "postgres")

    def rows(self) -> dict[int, str]:
        lines = self.sql("select id, what from orders").splitlines()
        return {int(number): what for number, what in (line.split("|") for line in lines)}

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")


@contextmanager
def database() -> Iterator[Database]:
    """Run a server.

    Raises:
        NotInstalledError: there is no PostgreSQL.
    """
    found = shutil.which("postgres")
    if found is None:
        raise NotInstalledError("no postgres on the PATH")
    # A short name, because sockets have no long ones, which the user of the server reaches.
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    try:
        server = Database(Path(found).resolve().parent, folder)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def source_of(server: Database) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "barnabas",
        "database.password": "barnabas",
        "database.dbname": "postgres",
        "topic.prefix": "shop",
        "table.include.list": "public.orders",
        "plugin.name": "pgoutput",
        "exactly.once.support": "required",
        "tombstones.on.delete": "false",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "3",
        "poll.interval.ms": "50",
        **{f"{what}.converter": JSON for what in ("key", "value")},
        **{f"{what}.converter.schemas.enable": "false" for what in ("key", "value")},
    }


def changes(bootstrap: str) -> list[dict[str, Any]]:
    """Return the committed changes of the topic, in order; none if there is no topic."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True})
    found: list[dict[str, Any]] = []
    try:
        if consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].error is not None:
            return found
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while (message := consumer.poll(60)) is not None and not message.error():
            found.append(json.loads(message.value() or b"null"))
    finally:
        consumer.close()
    return found


def made_of(found: list[dict[str, Any]]) -> dict[int, str]:
    """Return the rows that these changes make."""
    rows: dict[int, str] = {}
    for change in found:
        if change["op"] == "d":
            del rows[change["before"]["id"]]
        else:
            rows[change["after"]["id"]] = change["after"]["what"]
    return rows


def work(server: Database, count: int, times: int) -> None:
    """Let rows come, change and go, in transactions with a row of each, some milliseconds apart."""
    first = int(server.sql("select max(id) + 1 from orders"))
    text = ""
    for number in range(first, first + count):
        text += f"begin; insert into orders values ({number}, 'new'); "  # noqa: S608 - numbers of ours, and below
        text += f"update orders set what = 'changed {times}' where id = {number}; "  # noqa: S608
        text += f"delete from orders where id = {number - 2} and what like 'changed%'; "  # noqa: S608
        text += "commit; select pg_sleep(0.01); "
    server.sql(text)


def run(jars: Path, handle: ClusterHandle, folder: Path, server: Database, count: int) -> None:
    server.sql("create table orders (id int primary key, what text); alter table orders replica identity full")
    server.sql(f"insert into orders select number, 'first' from generate_series(1, {count}) number")  # noqa: S608

    def has_all() -> bool:
        return made_of(changes(handle.bootstrap)) == server.rows()

    with ExitStack() as ends:
        port = free_port(2)
        workers = [connect_worker(f"{jars}/*", handle.bootstrap, folder, port + number) for number in range(2)]
        for worker in workers:
            ends.callback(worker.end)
        until(lambda: all(one.ask("GET", "/connectors") == [] for one in workers), "both workers", *workers)
        until(partial(workers[0].takes, "/connectors/shop/config", source_of(server)), "the connector", *workers)
        until(has_all, "the rows that were there before", *workers)
        work(server, count, 1)
        place, _ = state_of(workers[0], "shop")
        (killed,) = [one for one in workers if place.endswith(f":{one.port}")]
        (left,) = [one for one in workers if one is not killed]
        killed.kill()
        work(server, count, 2)
        until(has_all, "changes after a worker was killed", left)
        handle.kill(2)
        work(server, count, 3)
        until(has_all, "changes after a broker was killed", left)
        until(lambda: runs(left, "shop"), "the connector to run", left)
        handle.start()
    found = changes(handle.bootstrap)
    # The number of a place in PostgreSQL's log is that of one change; before the log was read there was none.
    places = [(one["source"]["lsn"], one["op"], one["source"]["txId"]) for one in found if one["op"] != "r"]
    assert len({*places}) == len(places), "a change is there twice"
    assert sum(one["op"] == "r" for one in found) == count, "rows that were there before are there twice, or missing"
    kinds = {kind: sum(one["op"] == kind for one in found) for kind in "rcud"}
    assert kinds["c"] == 3 * count, kinds
    assert kinds["u"] == 3 * count, kinds
    print(
        f"{len(found)} changes in the topic, each once, make the table's {len(server.rows())} rows: {kinds}", flush=True
    )


def _work() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="of rows that come before and after each death")
    options = parser.parse_args()
    jars = install_debezium()
    with tempfile.TemporaryDirectory(prefix="debezium-") as folder, database() as server, cluster() as handle:
        run(jars, handle, Path(folder), server, options.count)
    return 0


def main() -> int:
    return status_of("debezium", "Debezium", _work)


if __name__ == "__main__":
    sys.exit(main())
