"""Asks a running node something from outside the cluster, with plain sockets.

For the command line and for scripts. One connection, one question, one answer, in the caller's thread. No event loop is
needed, and importing this costs a few milliseconds.
"""

import os
import socket
import time
from typing import Any

from barnabas_raftlog.errors import MalformedMessageError

from .framing import FRAME_BYTES_MAX, FrameKind, encode_frame, frame_of, read_header
from .handshake import ADMIN, NONCE_BYTES, Dialler, Identity
from .rpc import LinkDownError, RemoteError

__all__ = ["ask"]


def ask(
    host: str,
    port: int,
    method: str,
    body: bytes = b"",
    timeout_s: float = 5.0,
    *,
    secret: bytes | None = None,
    number: int = ADMIN,
) -> bytes:
    """Connect to a node's peer port, call `method`, and return the answer.

    A newcomer has the `number` of its token, and the token's key for a `secret`.

    Raises:
        LinkDownError: nobody listens there, or it hung up.
        HandshakeRefusedError: it wants a secret that we do not have.
        RemoteError: it answered with an error.
        TimeoutError: `timeout_s` passed, everything included.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as sock:
            dialler = Dialler(Identity("", number, 0), ADMIN, secret, os.urandom(NONCE_BYTES))
            sock.sendall(b"".join(encode_frame(dialler.first())))
            while not dialler.done:
                answer = dialler.receive(_receive(sock, deadline_s)[0])
                if answer is not None:
                    sock.sendall(b"".join(encode_frame(answer)))
            sock.sendall(b"".join(encode_frame((FrameKind.CALL, 0, method), [body], len(body))))
            header, answer_body = _receive(sock, deadline_s)
    except TimeoutError:
        raise
    except OSError as error:
        raise LinkDownError(f"{host}:{port}: {error}") from error
    if len(header) != 4 or header[0] != FrameKind.REPLY:
        raise MalformedMessageError(f"{host}:{port} answered with a frame of kind {header[0]}")
    if header[2] is not None:
        raise RemoteError(str(header[2]), str(header[3]))
    return answer_body


def _receive(sock: socket.socket, deadline_s: float) -> tuple[tuple[Any, ...], bytes]:
    size = int.from_bytes(_exactly(sock, 4, deadline_s), "big")
    if not 4 <= size <= FRAME_BYTES_MAX:
        raise MalformedMessageError(f"frame of {size} bytes")
    frame = frame_of(memoryview(_exactly(sock, size, deadline_s)), owned=True)
    return read_header(frame.header), bytes(frame.payload)


def _exactly(sock: socket.socket, count: int, deadline_s: float) -> bytes:
    data = bytearray()
    while len(data) < count:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{len(data)} of {count} bytes came in time")
        sock.settimeout(left_s)
        chunk = sock.recv(min(count - len(data), 1 << 20))
        if not chunk:
            raise LinkDownError("it closed the connection without an answer")
        data += chunk
    return bytes(data)
