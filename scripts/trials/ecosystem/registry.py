"""Runs Apicurio Registry on Barnabas, and asks it for the schemas that it was given.

This is `scripts/trials/ecosystem/registry`. The registry keeps schemas in a topic, and each of its processes reads all
of that into memory. Two of them are asked in turns through the interface of Confluent's registry; one is killed, and a
broker. Each must know all schemas by the same ids, and so must a third one that begins with nothing but the topic.
"""

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from machines.cluster_handle import ClusterHandle, cluster, free_port

from .jars import install_registry, status_of
from .workers import Worker, until

__all__ = ["main"]

MAIN = "io.quarkus.runner.GeneratedMain"
API = "/apis/ccompat/v7"


def schema(number: int) -> str:
    fields = [{"name": f"field{number}", "type": "string"}]
    return json.dumps({"type": "record", "name": "order", "fields": fields})


def start(installed: Path, bootstrap: str, folder: Path, port: int) -> Worker:
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.port": port + 1,
        "apicurio.storage.kind": "kafkasql",
        "apicurio.kafkasql.bootstrap.servers": bootstrap,
    }
    options = tuple(f"-D{name}={value}" for name, value in settings.items())
    (jar,) = installed.glob("*-runner.jar")
    return Worker(str(jar), folder / str(port), MAIN, port=port, options=options)


def put(worker: Worker, number: int) -> int | None:
    """Give a registry a schema, and return its id; None if it was not taken."""
    told = worker.ask("POST", f"{API}/subjects/subject{number}/versions", {"schema": schema(number)})
    return None if told is None else int(told["id"])


def knows(worker: Worker, ids: dict[int, int]) -> bool:
    """Tell whether a registry has all of these schemas, with these ids."""
    for number, schema_id in ids.items():
        told = worker.ask("GET", f"{API}/subjects/subject{number}/versions/latest")
        if told is None or told["id"] != schema_id or json.loads(told["schema"]) != json.loads(schema(number)):
            return False
    return True


def run(installed: Path, handle: ClusterHandle, folder: Path, count: int) -> None:
    ids: dict[int, int] = {}

    def add(worker: Worker, more: int) -> None:
        for number in range(len(ids), len(ids) + more):

            def is_taken(number: int = number) -> bool:
                if (found := put(worker, number)) is not None:
                    ids[number] = found
                return found is not None

            until(is_taken, f"schema {number}", worker)

    with ExitStack() as ends:

        def another() -> Worker:
            worker = start(installed, handle.bootstrap, folder, free_port(2))
            ends.callback(worker.end)
            until(lambda: worker.ask("GET", f"{API}/subjects") is not None, "a registry", worker)
            return worker

        one, two = another(), another()
        add(one, count)
        until(partial(knows, two, ids), "the other one to know", two)
        add(two, count)
        until(partial(knows, one, ids), "the first one to know", one)
        one.kill()
        add(two, count)
        handle.kill(2)
        add(two, count)
        handle.start()
        three = another()
        until(partial(knows, three, ids), "a new one to know", three)
    assert len({*ids.values()}) == 4 * count, "an id was given twice"
    print(f"{4 * count} schemas, and each registry knows them by the same ids", flush=True)


def _work() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="of schemas before each death")
    options = parser.parse_args()
    installed = install_registry()
    with tempfile.TemporaryDirectory(prefix="registry-") as folder, cluster() as handle:
        run(installed, handle, Path(folder), options.count)
    return 0


def main() -> int:
    return status_of("registry", "Apicurio Registry", _work)


if __name__ == "__main__":
    sys.exit(main())
