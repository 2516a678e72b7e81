"""What short commands must not load: each of these modules would be felt at every Enter."""

import os
import subprocess
import sys

import pytest

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
HEAVY = "rich pydantic numpy uvloop pandas pyarrow cramjam multiprocessing sqlite3 email.message"
BROKER = "barnabas_broker.node barnabas_broker.server barnabas_broker.leadership barnabas_raftlog.raft"
# What a client needs when it is made, and not before; and what only a broker and some calls need.
ENGINES = """
barnabas_clients.cluster.cluster barnabas_clients.producer.sender barnabas_clients.producer.accumulator
barnabas_clients.consumer.core barnabas_clients.groups.session
barnabas_clients.protocol.metadata barnabas_raftlog.wire.schema barnabas_raftlog.printable fastcrc random json
"""
ALL_APIS = "barnabas_clients.protocol.registry barnabas_clients.protocol.create_topics"
CALLS = "barnabas_clients.admin.topics barnabas_clients.admin.groups barnabas_clients.admin.surveys"
OTHER_CLIENTS = "barnabas_clients.protocol.registry barnabas_clients.producer barnabas_clients.consumer"
COMMAND = "import sys; from barnabas_broker.cli.entry import main; main({words!r})"


def loaded_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has after some code, and the packages that they are in."""
    code += "\nimport sys; sys.stderr.write('loaded ' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("loaded ")[2].split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "never"),
    [
        (
            COMMAND.format(words=["--version"]),
            f"{HEAVY} typer asyncio json re logging barnabas_clients msgspec tomllib",
        ),
        (COMMAND.format(words=["topic", "list", "-h"]), f"{HEAVY} {BROKER} asyncio logging barnabas_clients msgspec"),
        (
            COMMAND.format(words=["topic", "list", "-b", "127.0.0.1:1", "--timeout", "0.1"]),
            f"{HEAVY} {BROKER} {OTHER_CLIENTS} tomllib",
        ),
        (COMMAND.format(words=["profile", "list"]), f"{HEAVY} {BROKER}"),
        (COMMAND.format(words=["topic", "lst"]), f"{HEAVY} {BROKER} asyncio logging barnabas_clients msgspec"),
        (
            "import barnabas_clients as b; [getattr(b, name) for name in b.__all__]",
            f"{HEAVY} {BROKER} {ENGINES} {ALL_APIS} {CALLS} typer barnabas_broker barnabas_metadata_quorum",
        ),
        (
            "from barnabas_clients import Producer; Producer('localhost')",
            f"{HEAVY} {ALL_APIS} {CALLS} barnabas_clients.admin barnabas_clients.consumer typer barnabas_broker",
        ),
        (
            "from barnabas_clients import Consumer; Consumer('localhost', topics=['orders'], group_id='bar')",
            f"{HEAVY} {ALL_APIS} {CALLS} barnabas_clients.producer typer barnabas_broker",
        ),
        ("from barnabas_clients import Admin; Admin('localhost')", f"{HEAVY} {ALL_APIS} {CALLS} typer barnabas_broker"),
    ],
)
def test_nothing_heavy_is_loaded_by(code: str, never: str) -> None:
    loaded = loaded_by(code) & set(never.split())
    assert not loaded
