"""Scenes of groups of KIP-848: expressions that take long, subscriptions to everything, and members without rest."""

from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from hostile.frames import frame_of, send_some

from .groups import coordinator
from .scene import Attack, scene

VERSION = 1
NAMES_MAX = 5_000  # of one member
HOSTILE = ("(a?){300}a{300}", "(?:[a-z0-9-]{0,30}){15}", "(.*)*(.*)*x", "((h|[0-9a-f]){0,9}){15}")


def _join(group: str, member: str, **said: object) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, rebalance_timeout_ms=5_000, topic_partitions=[]
    )
    for name, value in said.items():
        setattr(request, name, value)
    return request


@scene("like A9")
def expressions_that_take_long(attack: Attack) -> str:
    """100 groups with an expression each that is dear on every name, beside topics with long names that come."""
    homes = [coordinator(attack, f"{attack.name}-{k}") for k in range(6)]
    made = attack.pool(12, homes, timeout_s=0.2)
    sent = topics = 0
    for turn in attack.turns():
        expression = f"{HOSTILE[turn % len(HOSTILE)]}{turn}"
        request = _join(f"{attack.name}-{turn % 100}", f"m{turn}", subscribed_topic_regex=expression)
        sent += made.say(turn, frame_of(request, VERSION), 0) > 0
        if not turn % 50 and topics < attack.many(20):
            attack.create(f"{attack.name}-{topics}-{'a' * 200}", partitions=1)
            topics += 1
    return f"{sent} members with dear expressions, {topics} topics meanwhile"


@scene("like A9")
def members_that_name_thousands(attack: Attack) -> str:
    """Members that name 5,000 topics each, or all that there are, and others each time."""
    address = coordinator(attack, attack.name)
    made = attack.pool(4, [address], timeout_s=0.5)
    sent = 0
    for turn in attack.turns():
        names = [f"{attack.name}-nothing-{turn % 7}-{k}" for k in range(attack.many(NAMES_MAX))]
        request = _join(attack.name, f"m{turn % 4}", subscribed_topic_names=names, subscribed_topic_regex=".*")
        sent += made.say(turn, frame_of(request, VERSION), 1 << 18) > 0
    return f"{sent} times {attack.many(NAMES_MAX)} names"


@scene("like A9")
def members_without_rest(attack: Attack) -> str:
    """2,000 members of one group join, say that they have everything, and leave, without end."""
    address = coordinator(attack, attack.name)
    made = attack.open_many(200, [address], timeout_s=0.5)
    owned = [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=k.to_bytes(16, "big"), partitions=range(20)) for k in range(900)
    ]
    sent = 0
    for turn in attack.turns():
        one = made[turn % len(made)]
        member = f"m{turn % attack.many(2_000)}"
        said = (
            _join(attack.name, member, subscribed_topic_names=[attack.topic]),
            _join(attack.name, member, member_epoch=1 + turn % 3, topic_partitions=owned),
            ConsumerGroupHeartbeatRequest(group_id=attack.name, member_id=member, member_epoch=-1),
        )[turn // 2_000 % 3]
        sent += send_some(one, frame_of(said, VERSION)) > 0
    return f"{sent} heartbeats"
