"""Frames requests and responses. Pure.

A frame is `u32 size | header | body`. The header's layout depends on the API and the version, with two exceptions that
break every client if they are missed. A response to ApiVersions always has header version 0, whatever its body is,
because its reader does not know the broker yet (KIP-511). And the client id of a flexible request header is an ordinary
nullable string, not a compact one, so that any broker can read it.

    request header 1    api_key i16, api_version i16, correlation_id i32, client_id nullable string
    request header 2    the same, then tagged fields (flexible versions)
    response header 0   correlation_id i32
    response header 1   the same, then tagged fields (flexible versions)

A client needs the declarations of those messages only that it sends, so nothing here knows all of them: registry.py
does, and reads the headers of requests.
"""

import struct
import sys
from collections.abc import Generator
from typing import Final

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.wire.primitives import read_uvarint, skip_tags
from barnabas_raftlog.wire.schema import Buffer, Message

from .api_versions import ApiVersionsRequest, ApiVersionsResponse
from .error_codes import ErrorCode

__all__ = [
    "CLIENT_ID_START",
    "decode_response",
    "encode_request",
    "encode_response",
    "encode_response_in_steps",
    "response_frame",
    "response_to",
]

CLIENT_ID_START: Final = 10
"""The position of the client id in the header of a request, which starts after the frame's size."""
_REQUEST_FRAME: Final = struct.Struct(">ihhih")
_RESPONSE_FRAME: Final = struct.Struct(">ii")
_RESPONSE_FRAME_FLEXIBLE: Final = struct.Struct(">iix")  # the x is an empty set of tagged fields
_CORRELATION_ID: Final = struct.Struct(">i")

# As many entries as there are declared requests.
_RESPONSES: dict[type[Message], type[Message]] = {}


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """Return a whole request frame as buffers, its size first. Record buffers are passed through.

    Raises:
        ValueError: a value does not fit its field.
    """
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    tags = b"\0" if version >= request.flexible_since else b""
    buffers = request.encode(version)
    size = CLIENT_ID_START + len(client) + len(tags) + sum(map(len, buffers))
    head = _REQUEST_FRAME.pack(size, request.api_key, version, correlation_id, length) + client + tags
    return _joined(head, buffers)


def encode_response(api_key: int, version: int, correlation_id: int, response: Message) -> list[Buffer]:
    """Return a whole response frame as buffers, its size first. Record buffers are passed through.

    Raises:
        ValueError: a value does not fit its field.
    """
    return response_frame(api_key, version, correlation_id, type(response), response.encode(version))


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, response: Message
) -> Generator[None, None, list[Buffer]]:
    """Encode as `encode_response`, in pieces of a millisecond or two: yields in between, and returns the buffers."""
    buffers = yield from response.encode_in_steps(version)
    return response_frame(api_key, version, correlation_id, type(response), buffers)


def response_frame(
    api_key: int, version: int, correlation_id: int, response: type[Message], buffers: list[Buffer]
) -> list[Buffer]:
    """Return a whole response frame around a body that is encoded already."""
    assert api_key == response.api_key, f"{response.__name__} in answer to {api_key}"
    size = sum(map(len, buffers))
    if version >= response.flexible_since and api_key != ApiVersionsResponse.api_key:
        return _joined(_RESPONSE_FRAME_FLEXIBLE.pack(size + 5, correlation_id), buffers)
    return _joined(_RESPONSE_FRAME.pack(size + 4, correlation_id), buffers)


def decode_response(request_type: type[Message], frame: Buffer, version: int) -> Message:
    """Decode a response frame, without its size, to a request of `request_type` in `version`.

    The caller compares the correlation id. If a broker does not know the version of an ApiVersions request, its answer
    has a version 0 body, and is decoded so.

    Raises:
        MalformedMessageError: the bytes are not exactly one such response.
    """
    response_type = _RESPONSES.get(request_type) or response_to(request_type)
    position = _CORRELATION_ID.size
    is_of_versions = request_type is ApiVersionsRequest
    if version >= response_type.flexible_since and not is_of_versions:
        try:
            tags, position = read_uvarint(frame, position)
            if tags:
                position = skip_tags(frame, position, tags, len(frame))
        except IndexError as error:
            raise MalformedMessageError(f"response header: {error}") from error
    elif is_of_versions:
        error_code = int.from_bytes(frame[position : position + 2], "big", signed=True)
        version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version
    return response_type.decode(frame, version, position)


def response_to(request_type: type[Message]) -> type[Message]:
    """Return the response to a request, which is declared beside it: `HeartbeatResponse` to `HeartbeatRequest`."""
    name = request_type.__name__.removesuffix("Request") + "Response"
    found: type[Message] = getattr(sys.modules[request_type.__module__], name)
    _RESPONSES[request_type] = found
    return found


def _joined(head: bytes, buffers: list[Buffer]) -> list[Buffer]:
    """Put `head` in front. A body in one piece is joined to it, so that one write needs no vector."""
    if len(buffers) == 1:
        return [b"".join((head, buffers[0]))]
    return [head, *buffers]
