"""Scenes of connections: begun and never finished, idle, opened without end, and speaking something else."""

import socket
import struct
import time
from collections import Counter
from functools import partial

from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.metadata import MetadataRequest
from hostile.frames import connect, frame_of, raw_frame, send_some, take_some

from .scene import Attack, counted, scene

LENGTH = struct.Struct(">i")
LARGEST = 100 << 20  # socket.request.max.bytes
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)
FOREIGN = {
    "TLS": TLS_HELLO,
    "HTTP": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
    "SMTP": b"EHLO localhost\r\n",
    "zero length": LENGTH.pack(0) * 64,
    "negative length": LENGTH.pack(-1),
    "least length": LENGTH.pack(-(1 << 31)),
    "greatest length": LENGTH.pack((1 << 31) - 1),
    "one byte": LENGTH.pack(1) + b"\0",
    "short header": LENGTH.pack(9) + bytes(9),
    "client id beyond the frame": LENGTH.pack(10) + struct.pack(">hhih", 18, 0, 1, 32_767),
    "negative client id": LENGTH.pack(10) + struct.pack(">hhih", 18, 0, 1, -2),
}


def still_open(made: list[socket.socket]) -> int:
    """Return the number of those that the broker has not closed."""
    count = 0
    for one in made:
        one.setblocking(False)
        try:
            count += one.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            count += 1
        except OSError:
            pass
    return count


def _taken(one: socket.socket, data: bytes) -> str:
    return f"{send_some(one, data) >> 20} MiB taken"


def _half_sent(attack: Attack, count: int) -> list[socket.socket]:
    made = attack.open_many(count)
    for one in made:
        send_some(one, LENGTH.pack(LARGEST) + bytes(70_000))
    return made


@scene("A3")
def nine_half_requests(attack: Attack) -> str:
    """To each broker three connections that announce 100 MiB, send 70 KB, and then a byte now and then."""
    made = _half_sent(attack, 9)
    for _ in attack.turns():
        for one in made:
            send_some(one, b"\0")
        time.sleep(0.5)
    return f"{len(made)} half-sent requests that trickle, {still_open(made)} still open"


@scene("A3")
def five_hundred_half_requests(attack: Attack) -> str:
    """500 connections that announce 100 MiB, send 70 KB and stop."""
    made = _half_sent(attack, 500)
    attack.wait()
    return f"{len(made)} half-sent requests, {still_open(made)} still open"


@scene("like A3")
def nearly_whole_requests(attack: Attack) -> str:
    """Twelve connections that send 99 of 100 MiB, as far as it is taken."""
    made = attack.open_many(12, timeout_s=1.0)
    data = LENGTH.pack(LARGEST) + bytes(attack.many(99 << 20))
    counts = attack.at_once([partial(_taken, one, data) for one in made])
    attack.wait(2)
    return f"99 of 100 MiB: {counted(counts)}"


@scene("like A3")
def announced_only(attack: Attack) -> str:
    """A thousand connections that announce 100 MiB and send nothing of it."""
    made = attack.open_many(1_000)
    for one in made:
        send_some(one, LENGTH.pack(LARGEST))
    attack.wait()
    return f"{len(made)} lengths of 100 MiB announced, {still_open(made)} still open"


@scene("like A3")
def byte_by_byte(attack: Attack) -> str:
    """200 connections that send whole requests, a byte at a time, without end."""
    made = attack.open_many(200)
    data = frame_of(MetadataRequest(topics=None), 12) + frame_of(ApiVersionsRequest(), 0)
    sent = 0
    for turn in attack.turns():
        for one in made:
            sent += send_some(one, data[turn % len(data) :][:1])
    return f"{sent} bytes, one at a time over {len(made)} connections"


@scene("A1")
def idle_connections(attack: Attack) -> str:
    """6,000 connections, over all brokers, that say nothing."""
    made = attack.open_many(6_000)
    attack.wait()
    return f"{len(made)} idle connections, {still_open(made)} still open"


@scene("like A1")
def connects_without_end(attack: Attack) -> str:
    """Connect and close, as fast as that goes, from many addresses."""
    counts: Counter[str] = Counter()
    for turn in attack.turns():
        source = f"127.0.{turn % 200 + 1}.{attack.chance.randrange(1, 255)}"
        try:
            connect(attack.brokers[turn % 3 % len(attack.brokers)], source=source).close()
            counts["closed"] += 1
        except OSError as error:
            counts[type(error).__name__] += 1
    return counted(counts)


@scene("like A1")
def resets_with_answers_under_way(attack: Attack) -> str:
    """Ask for much, and reset the connection before the answer."""
    data = frame_of(MetadataRequest(topics=None), 12) * 50
    count = 0
    for turn in attack.turns():
        one = connect(attack.brokers[turn % len(attack.brokers)])
        send_some(one, data)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        count += 1
    return f"{count} connections reset with 50 answers under way each"


@scene("A12")
def foreign_protocols(attack: Attack) -> str:
    """TLS, HTTP and others on the plain port, lengths that none may have, and random bytes."""
    counts: Counter[str] = Counter()
    names = list(FOREIGN)
    for turn in attack.turns():
        name = names[turn % (len(names) + 1)] if turn % (len(names) + 1) < len(names) else "random"
        data = FOREIGN.get(name) or attack.chance.randbytes(attack.chance.randrange(1, 3_000))
        with connect(attack.brokers[turn % len(attack.brokers)], timeout_s=0.02) as one:
            send_some(one, data)
            take_some(one, 100)
        counts[name] += 1
    return f"{counts.total()} connections of {len(counts)} kinds"


@scene("like A12")
def sasl_garbage(attack: Attack) -> str:
    """SaslHandshake and SaslAuthenticate, which nobody offers, with bodies of every kind."""
    count = 0
    for turn in attack.turns():
        key = attack.chance.choice((17, 36))
        version = attack.chance.randrange(-1, 4)
        body = attack.chance.randbytes(attack.chance.choice((0, 2, 30, 70_000)))
        with connect(attack.brokers[turn % len(attack.brokers)], timeout_s=0.02) as one:
            send_some(one, raw_frame(key, version, body))
            take_some(one, 100)
        count += 1
    return f"{count} SASL frames"


@scene("like A4")
def pipelines_read(attack: Attack) -> str:
    """5,000 requests in one write on each of 30 connections, read to the end."""

    def one(number: int) -> str:
        data = frame_of(ApiVersionsRequest(), 0) * attack.many(5_000)
        made = connect(attack.brokers[number % len(attack.brokers)], timeout_s=attack.seconds * 2)
        made.setblocking(True)
        with made:
            made.settimeout(attack.seconds)
            sent = send_some(made, data)
            received = 0
            made.shutdown(socket.SHUT_WR)
            while part := made.recv(1 << 18):
                received += len(part)
        return f"{sent >> 10} KiB sent, {received >> 10} KiB received"

    return counted(attack.at_once([partial(one, number) for number in range(attack.many(30))]))


@scene("like A4")
def pipelines_unread(attack: Attack) -> str:
    """Thousands of Metadata requests in one write on each of 100 connections that read nothing."""
    made = attack.open_many(100, receive_buffer=4096, timeout_s=0.2)
    data = frame_of(MetadataRequest(topics=None), 12) * attack.many(4_000)
    taken = sum(send_some(one, data) for one in made)
    attack.wait()
    return f"{taken >> 10} KiB of requests taken from {len(made)} connections that read nothing"


@scene("like A12")
def long_client_ids(attack: Attack) -> str:
    """Client ids of 32 KB, with line ends and escapes, and client software of that kind."""
    ids = [b"x" * 32_767, b"a\r\n2026-01-01 CRITICAL broken\x1b[2J", b"\xff\xfe", b"", "\u202e".encode() * 9_000, None]
    count = 0
    for turn in attack.turns():
        with connect(attack.brokers[turn % len(attack.brokers)], timeout_s=0.5) as one:
            for name in ids:
                send_some(one, raw_frame(3, 1, LENGTH.pack(0), name))
                count += 1
            software = ApiVersionsRequest(client_software_name="x\n\x1b[2J" * 900, client_software_version="\r\n")
            send_some(one, frame_of(software, 3))
            take_some(one, 1 << 16)
    return f"{count} requests with client ids that are none"
