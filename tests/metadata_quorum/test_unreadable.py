"""Bytes between nodes that are no text, or nest without end, are malformed like others."""

from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from barnabas_metadata_quorum.controller.commands import decode_answer, decode_command, decode_reply
from barnabas_metadata_quorum.image.records import decode_record
from barnabas_metadata_quorum.leaders.table import decode_announcements
from barnabas_raftlog.catch_up import messages as catch_up
from barnabas_raftlog.errors import MalformedMessageError

DEEP = b"\x91" * 5_000 + b"\xc0"  # arrays of one element each
NO_TEXT = b"\xa1\x88"


def tagged(kind: str, rest: bytes) -> bytes:
    """Return a map with a type and one unknown field."""
    return b"\x82" + msgspec.msgpack.encode("type") + msgspec.msgpack.encode(kind) + msgspec.msgpack.encode("x") + rest


DECODERS: dict[str, tuple[Callable[[bytes], object], tuple[bytes, ...]]] = {
    "command": (decode_command, (tagged("read_index", DEEP),)),
    "command's type": (decode_command, (b"\x81" + msgspec.msgpack.encode("type") + NO_TEXT,)),
    "answer": (decode_answer, (b"\x81" + msgspec.msgpack.encode("type") + NO_TEXT,)),
    "reply": (decode_reply, (b"\x81" + msgspec.msgpack.encode("type") + NO_TEXT,)),
    "record": (decode_record, (tagged("broker_fenced", DEEP), b"\x81" + msgspec.msgpack.encode("type") + NO_TEXT)),
    "announcements": (decode_announcements, (DEEP,)),
    "manifest": (
        partial(catch_up.decode, kind=catch_up.ManifestRequest),
        (b"\x94\xc4\x01x\x00\x00" + DEEP, NO_TEXT),
    ),
}


@pytest.mark.parametrize("name", DECODERS)
def test_what_cannot_be_read_is_malformed(name: str) -> None:
    decode, bodies = DECODERS[name]
    for body in bodies:
        with pytest.raises(MalformedMessageError):
            decode(body)
