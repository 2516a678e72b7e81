"""Asks a broker something on its port for clients, with plain sockets.

For commands that look at a cluster, as `barnabas_raftlog.links.admin` is for the peer ports. One connection in the
caller's thread; every call has the deadline that was given at first. No event loop is needed.

Not here: asking again, TLS, SASL.
"""

import socket
import time
from types import TracebackType
from typing import Any, Self

from barnabas_broker.config.addresses import Address
from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.frames import decode_response, encode_request
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.wire.schema import Message

__all__ = ["ClientPort", "ClientPortError", "NotOursError"]

FRAME_BYTES_MAX = 16 << 20


class ClientPortError(BarnabasError):
    """Nobody answers there, or no broker does; the text says what."""


class NotOursError(ClientPortError):
    """A broker that does not have this API: not one of Barnabas, or an older one."""


class ClientPort:
    """A connection to `host`:`port`, to be used in a `with`. All that is done with it takes `timeout_s` at most."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._deadline_s = time.monotonic() + timeout_s
        self._where = str(Address(host, port))
        self._timeout_s = timeout_s
        self._offered: frozenset[int] | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except TimeoutError as error:
            raise self._late() from error
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ClientPortError(f"{self._where}: {reason}") from error
        except UnicodeError as error:
            raise ClientPortError(f"{self._where}: no host has that name") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, request: Message) -> Any:
        """Return the answer to a request in version 0.

        Raises:
            ClientPortError: it does not come in time, or is no answer.
            NotOursError: the broker does not have this API.
        """
        if self._offered is None:
            self._offered = frozenset(api.api_key for api in self._ask(ApiVersionsRequest()).api_keys)
        if request.api_key not in self._offered:
            name = type(request).__name__.removesuffix("Request")
            raise NotOursError(
                f"{self._where} has no {name}: it is not a broker of Barnabas, or one of an older version"
            )
        return self._ask(request)

    def _ask(self, request: Message) -> Any:
        try:
            self._socket.settimeout(self._left_s())
            self._socket.sendall(b"".join(encode_request(request, 0, 1, "barnabas-cli")))
            size = int.from_bytes(self._exactly(4), "big")
            if not 4 <= size <= FRAME_BYTES_MAX:
                raise ClientPortError(f"{self._where} does not answer as a broker does: is another service there?")
            return decode_response(type(request), self._exactly(size), 0)
        except TimeoutError as error:
            raise self._late() from error
        except (ConnectionResetError, BrokenPipeError) as error:
            # It was closed before our bytes had been read.
            raise self._closed() from error
        except OSError as error:
            raise ClientPortError(f"{self._where}: {(error.strerror or str(error)).lower()}") from error

    def _closed(self) -> ClientPortError:
        return ClientPortError(f"{self._where} has closed the connection: is it a broker's port for clients?")

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._socket.settimeout(self._left_s())
            part = self._socket.recv(count - len(data))
            if not part:
                raise self._closed()
            data += part
        return bytes(data)

    def _left_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _late(self) -> ClientPortError:
        return ClientPortError(f"{self._where}: no answer within {self._timeout_s:g} s")
