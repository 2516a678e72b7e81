"""Chooses the replica that a consumer should read from, by its rack (KIP-392). Pure.

As Kafka's rack-aware selector: the leader if it is in the consumer's rack, else the replica of that rack that is most
caught up, else the leader. Only replicas that are in sync and already hold what the consumer asks for are offered, so
that nobody is sent to where it would have to wait. The same question gets the same answer.

Not here: balancing readers over several replicas of one rack; other selectors than this one.
"""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["ReadReplica", "preferred_replica"]


class ReadReplica(NamedTuple):
    """A replica that may serve reads besides the leader; `end_offset` is how far it surely is."""

    node_id: int
    rack: str | None
    end_offset: int


def preferred_replica(
    rack: str, leader_rack: str | None, fetch_offset: int, replicas: Iterable[ReadReplica]
) -> int | None:
    """Return the node to read from; None: stay with the leader."""
    if not rack or rack == leader_rack:
        return None
    able = [one for one in replicas if one.rack == rack and one.end_offset >= fetch_offset]
    return min(able, key=lambda one: (-one.end_offset, one.node_id)).node_id if able else None
