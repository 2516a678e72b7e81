"""Tells which replicas are in sync, which could serve reads, and how many copies exist.

Raft's members and a partition's replicas are not the same. Learners are members, too: they count for nothing as long as
they are on their way in, and observers count for nothing at all. A witness is a member, too: it votes, and keeps no
copy to rely on. A replica that counts is a voter and no witness.

Everything here is read from the core's `Progress` at the moment of asking; nothing is kept. But no replica has
everything at that moment: under load a follower that keeps up perfectly lacks the entries that are on their way to it.
A replica is in sync if it has everything that there was `lag_ms_max` ago (`barnabas_raftlog.raft.log_ends`). Whether it
holds a certain entry is asked of that entry.
"""

from barnabas_raftlog.multiraft.group import RaftGroup
from barnabas_raftlog.raft.membership import Configuration

from .contracts import PartitionLog

__all__ = [
    "copied_index",
    "copies_of_committed",
    "electable",
    "in_sync",
    "is_held_without",
    "lacks_something",
    "readable_elsewhere",
]


def electable(configuration: Configuration, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of `replicas` that may lead now, in their order."""
    able = configuration.voter_ids.difference(configuration.witnesses)
    return tuple(replica for replica in replicas if replica in able)


def in_sync(
    group: RaftGroup,
    replicas: tuple[int, ...],
    observers: tuple[int, ...],
    node_id: int,
    now_ms: int,
    lag_ms_max: int,
) -> tuple[int, ...]:
    """Return those of `replicas` in sync, the leader `node_id` included, in their order; behind them the observers."""
    progress = group.core.progress
    watching = (one for one in observers if one not in replicas and one in group.configuration.learner_ids)
    return tuple(
        replica
        for replica in (*electable(group.configuration, replicas), *watching)
        if replica == node_id
        or (
            (follower := progress.get(replica)) is not None
            and follower.live
            and follower.is_in_sync(now_ms, lag_ms_max)
        )
    )


def lacks_something(group: RaftGroup, node_ids: tuple[int, ...]) -> bool:
    """Tell whether one of these followers could fall out of sync though nothing more is appended."""
    progress = group.core.progress
    return any((follower := progress.get(node_id)) is not None and follower.lacks_something for node_id in node_ids)


def copies_of_committed(configuration: Configuration) -> int:
    """Return on how many replicas at least a committed entry is: a majority, of which a witness is none."""
    return len(configuration.voters) // 2 + 1 - len(configuration.witnesses)


def copied_index(group: RaftGroup, log: PartitionLog, replicas: tuple[int, ...], node_id: int, count: int) -> int:
    """Return up to which index `count` replicas, from 1, have made all durable, as far as the leader `node_id` knows.

    0 if there are not so many.
    """
    progress = group.core.progress
    indexes = [
        log.durable_index if replica == node_id else progress[replica].match_index
        for replica in electable(group.configuration, replicas)
        if replica == node_id or replica in progress
    ]
    return sorted(indexes, reverse=True)[count - 1] if count <= len(indexes) else 0


def is_held_without(group: RaftGroup, log: PartitionLog, node_id: int) -> bool:
    """Tell whether, as this leader knows, all that is committed can do without the replica on `node_id`.

    It is held by a majority of the voters, or, if there are not so many others, by all that keep copies. Under load
    that becomes true once this leader does not count that replica any more (`RaftGroup.discount`): from then on nothing
    is committed that the others do not hold.
    """
    core = group.core
    configuration = group.configuration
    others = configuration.voter_ids.difference(configuration.witnesses, {node_id})
    held = [log.durable_index] + [
        progress.match_index for peer, progress in core.progress.items() if peer in others and not progress.uncertain
    ]
    enough = min(len(configuration.voter_ids) // 2 + 1, len(others))
    return sum(index >= core.commit_index for index in held) >= enough


def readable_elsewhere(group: RaftGroup, log: PartitionLog, now_ms: int, lag_ms_max: int) -> list[tuple[int, int]]:
    """Return which members besides the leader could serve reads now, observers too, and the end of each one's log."""
    witnesses = group.configuration.witnesses
    return [
        (node_id, log.offset_after(follower.match_index))
        for node_id, follower in group.core.progress.items()
        if node_id not in witnesses and follower.live and follower.is_in_sync(now_ms, lag_ms_max)
    ]
