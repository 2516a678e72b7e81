"""Scenes of the APIs that only Barnabas has, and of values that take long to copy or compare."""

from contextlib import suppress
from functools import partial

from barnabas_clients.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_events import DescribeEventsRequest
from barnabas_clients.protocol.describe_health import DescribeHealthRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.open_challenge import OpenChallengeRequest
from hostile.frames import Address, Wire, frame_of, send_some, take_some

from .scene import Attack, Pool, counted, scene

PARTITIONS = 10_000
LARGE_BYTES = 90 << 20  # of a frame that may have 100 MiB
PROOF_BYTES = 32


def _ask_without_end(attack: Attack, pool: Pool, data: bytes) -> int:
    """Send on each connection in turn, and take what is there; return how often."""
    turn = 0
    for turn in attack.turns():
        pool.say(turn, data)
    return turn + 1


@scene("like A8")
def health_of_many_partitions(attack: Attack) -> str:
    """Ask how the cluster is on 300 connections as fast as it goes, while it has 10,000 partitions more."""
    many = CreatableTopic(name=attack.name, num_partitions=attack.many(PARTITIONS), replication_factor=1)
    try:
        with Wire(attack.brokers[0], 60) as wire:
            code = wire.ask(CreateTopicsRequest(topics=[many], timeout_ms=30_000), 7).topics[0].error_code
        data = frame_of(DescribeHealthRequest(topics_max=1_000), 0) * 3
        asked = _ask_without_end(attack, attack.pool(300, timeout_s=0.01), data)
    finally:
        with Wire(attack.brokers[0], 60) as wire, suppress(OSError):
            wire.ask(DeleteTopicsRequest(topic_names=(attack.name,), timeout_ms=30_000), 5)
    return f"{many.num_partitions} partitions made with error {code}, {asked} times three requests"


@scene("like A8")
def challenges_never_used(attack: Attack) -> str:
    """Open challenges on 1,000 connections, again and again, and answer none."""
    made = attack.open_many(1_000, timeout_s=0.01)
    data = frame_of(OpenChallengeRequest(), 0) * 50
    sent = 0
    for turn in attack.turns():
        one = made[turn % len(made)]
        sent += send_some(one, data)
        take_some(one, 1 << 16)
    return f"{len(made)} connections, {sent >> 10} KiB of requests"


@scene("like A8")
def events_with_wrong_proofs(attack: Attack) -> str:
    """Ask for events with proofs that are none, each to a challenge, on 200 connections."""
    wrong = DescribeEventsRequest(nonce=bytes(16), proof=bytes(PROOF_BYTES), topic="x" * 30_000, kind="y" * 30_000)
    data = (frame_of(OpenChallengeRequest(), 0) + frame_of(wrong, 0)) * 5
    asked = _ask_without_end(attack, attack.pool(200, timeout_s=0.01), data)
    return f"{asked} times five wrong proofs"


@scene("like A8")
def values_that_take_long_to_copy(attack: Attack) -> str:
    """Send a proof and a subscription of 90 MiB each, which is as much as a frame has room for."""
    large = bytes(attack.many(LARGE_BYTES))
    proof = DescribeEventsRequest(nonce=bytes(16), proof=large)
    requests = [(proof, 0), (JoinGroupRequest(protocols=[JoinGroupRequestProtocol(name="range", metadata=large)]), 9)]
    frames = [frame_of(OpenChallengeRequest(), 0) + frame_of(request, version) for request, version in requests]

    def send(address: Address, data: bytes) -> str:
        with Wire(address, 30) as wire:
            sent = 0
            while sent < len(data) and (count := send_some(wire.socket, data[sent : sent + (4 << 20)])):
                sent += count
            wire.receive()
            return f"an answer of {len(wire.receive())} bytes"

    return counted(attack.at_once([partial(send, address, data) for data in frames for address in attack.brokers]))
