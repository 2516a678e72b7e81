"""An S3 server (moto) behind a proxy that may cut requests off: before they arrive, or after.

Both run in a process of their own: deltalake keeps the interpreter's lock while it waits for an answer.
"""

import http.client
import json
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
from spark.lake.buckets import start_moto

KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}
CONTROL = "/-cutter-"
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "expect"}


class Cutter:
    """The proxy, as tests see it."""

    def __init__(self, port: int, target_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.target_url = f"http://127.0.0.1:{target_port}"

    def count(self) -> int:
        """Return how many requests there were."""
        return len(self._ask("GET", ""))

    def cut(self, numbers: Iterable[int], *, is_after: bool) -> None:
        """Cut off requests by their numbers, from 1 up; `is_after`: only their answers. Others are passed on."""
        self._ask("PUT", json.dumps(dict.fromkeys(numbers, is_after)))

    def _ask(self, method: str, body: str) -> list[str]:
        request = urllib.request.Request(f"{self.url}{CONTROL}", body.encode() or None, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - a proxy of ours
            found: list[str] = json.loads(answer.read())
            return found


@contextmanager
def s3_behind_a_cutter() -> Iterator[Cutter]:
    program = f"import sys; sys.path[:] = {sys.path!r}; from spark.lake.formats.cutting import main; main()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield Cutter(*json.loads(process.stdout.readline()))
        finally:
            process.kill()


class _CutServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.lock = threading.Lock()
        self.requests: list[str] = []
        self.cut: dict[int, bool] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that are cut."""


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _CutServer

    def parse_request(self) -> bool:
        # Whatever the method is, it is passed on.
        if well := super().parse_request():
            setattr(self, f"do_{self.command}", self._control if self.path == CONTROL else self._pass_on)
        return well

    def _control(self) -> None:
        body = self._body()
        if self.command == "PUT":
            self.server.cut = {int(number): is_after for number, is_after in json.loads(body).items()}
        self._answer(200, (), json.dumps(self.server.requests).encode())

    def _pass_on(self) -> None:
        body = self._body()
        with self.server.lock:
            self.server.requests.append(f"{self.command} {self.path}")
            cut = self.server.cut.get(len(self.server.requests))
        self.close_connection = cut is not None
        if cut is False:
            return
        connection = http.client.HTTPConnection(*self.server.target, timeout=60)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        connection.request(self.command, self.path, body, kept)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if cut is None:
            self._answer(answer.status, answer.getheaders(), data)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body

    def _answer(self, status: int, headers: Iterable[tuple[str, str]], data: bytes) -> None:
        self.send_response_only(status)
        given = {name.lower(): value for name, value in headers}
        length = given.get("content-length", "0") if self.command == "HEAD" else str(len(data))
        for name, value in {**given, "content-length": length}.items():
            if name not in HOP_BY_HOP - {"content-length"}:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until the other end of standard input is gone; the first line of output has both ports."""
    moto = start_moto()
    with _CutServer(moto.get_host_and_port()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{json.dumps([server.server_address[1], server.target[1]])}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()
    moto.stop()


class Bucket:
    """A new bucket, reached past the proxy for what is no part of a test."""

    def __init__(self, server: Cutter) -> None:
        self.name = f"lake-{uuid.uuid4().hex[:12]}"
        self._client = boto3.client(
            "s3",
            endpoint_url=server.target_url,
            aws_access_key_id=KEYS["access_key_id"],
            aws_secret_access_key=KEYS["secret_access_key"],
            region_name=KEYS["region"],
        )
        self._client.create_bucket(Bucket=self.name)

    def upload(self, path: Path, key: str) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=path.read_bytes())

    def download(self, to: Path) -> None:
        """Write all objects into a directory, by their keys."""
        for found in self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name):
            for one in found.get("Contents", ()):
                (to / one["Key"]).parent.mkdir(parents=True, exist_ok=True)
                (to / one["Key"]).write_bytes(self._client.get_object(Bucket=self.name, Key=one["Key"])["Body"].read())

    def close(self) -> None:
        self._client.close()
