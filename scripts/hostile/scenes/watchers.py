"""Scenes of those who look at a cluster without end, or at what they must not see."""

from collections import Counter

from barnabas_clients.protocol.describe_events import DescribeEventsRequest
from barnabas_clients.protocol.describe_health import DescribeHealthRequest
from barnabas_clients.protocol.open_challenge import OpenChallengeRequest
from hostile.frames import Wire, frame_of

from .scene import Attack, counted, scene
from .topics import delete

NONCE_BYTES = 16
PROOF_BYTES = 32
LONG = "x" * 32_000


@scene("like A8")
def health_without_end(attack: Attack) -> str:
    """The health of a cluster of 3,000 partitions and more, ten times in a piece, asked by 100 connections."""
    attack.create(attack.name, partitions=attack.many(3_000))
    pool = attack.pool(100, timeout_s=0.01)
    data = frame_of(DescribeHealthRequest(topics_max=(1 << 31) - 1), 0) * 10
    sent = sum(pool.say(turn, data) > 0 for turn in attack.turns())
    delete(attack, [attack.name])
    return f"{10 * sent} times, {pool.reopened} connections made anew"


@scene("like A4")
def challenges_that_nobody_answers(attack: Attack) -> str:
    """1,000 connections ask for challenges again and again, and prove nothing."""
    pool = attack.pool(1_000, timeout_s=0.01)
    data = frame_of(OpenChallengeRequest(), 0) * 50
    sent = sum(pool.say(turn, data) > 0 for turn in attack.turns())
    return f"{50 * sent} challenges"


@scene("like A8")
def proofs_that_are_wrong(attack: Attack) -> str:
    """Questions for events with proofs that are wrong, long or none, each after a challenge of its own."""
    ends: Counter[str] = Counter()
    with Wire(attack.brokers[0]) as wire:
        for turn in attack.turns():
            wire.ask(OpenChallengeRequest(), 0)
            asked = DescribeEventsRequest(
                nonce=attack.chance.randbytes((NONCE_BYTES, NONCE_BYTES + 1)[turn % 2]),
                proof=attack.chance.randbytes((0, PROOF_BYTES, 1 << 20)[turn % 3]),
                topic=LONG,
                kind=LONG,
            )
            ends[f"error {wire.ask(asked, 0).error_code}"] += 1
    return counted(ends)
