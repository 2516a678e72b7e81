"""An S3 server in this process (moto), and a bucket of its own for each test."""

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import boto3  # type: ignore[import-untyped]
import pytest
from moto.server import ThreadedMotoServer

from barnabas_spark.lake.store import Location

__all__ = ["S3", "bucket", "s3_server", "start_moto"]


def start_moto() -> ThreadedMotoServer:
    """Start a server that answers one request after the other.

    moto looks whether an object is there, and writes it later: of writers at the same time, several are told that they
    have created it, as a store must not. The archive's probe finds that out, now and then.
    """
    started = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    started.start()
    server: Any = started._server
    answer, lock = server.app, threading.Lock()

    def one_by_one(environ: Any, start_response: Any) -> Any:
        with lock:
            return answer(environ, start_response)

    server.app = one_by_one
    return started


class S3(NamedTuple):
    """An S3 server: the options with which it is reached."""

    options: Mapping[str, str]

    def create(self, name: str) -> None:
        client = boto3.client(
            "s3",
            endpoint_url=self.options["endpoint"],
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - of a server in this process
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=name)
        client.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = start_moto()
    host, port = server.get_host_and_port()
    yield S3(
        {
            "endpoint": f"http://{host}:{port}",
            "access_key_id": "test",
            "secret_access_key": "test",
            "region": "us-east-1",
        }
    )
    server.stop()


@pytest.fixture
def bucket(s3_server: S3) -> Location:
    """Return a folder of a new bucket."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    s3_server.create(name)
    return Location(f"s3://{name}/lake", s3_server.options)
