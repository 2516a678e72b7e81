"""Divides the file descriptors that the system grants this process. Pure.

Clients open connections, and enough of those could leave none for segment files, for the journal, or for the links to
the other brokers. So a part is *reserved*, which connections of clients cannot take: `RESERVED_MAX`, or half of all if
there are fewer than twice as many, but not fewer than `RESERVED_MIN`. Half of the reserve is for segment files that are
kept open (`StorageConfig.open_files_max`); the rest is for users with limits of their own: the journal (two a file),
links to the other brokers, strangers and admins at the peer port (128 and 64), listening sockets, directories that are
synced, files that recovery looks at.

Between the moment in which the system accepts a connection and the one in which the listener counts it, up to a
backlog of them may be above the limit; so the backlog is a part of the reserve.
"""

from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["Descriptors", "TooFewDescriptorsError", "share"]

RESERVED_MIN = 128
RESERVED_MAX = 1_024
CONNECTIONS_MIN = 32
SEGMENT_FILES_MAX = 512
BACKLOG_MAX = 1_024


class TooFewDescriptorsError(BarnabasError):
    """The process may not open as many files as a broker needs."""


class Descriptors(NamedTuple):
    """`limit` is what the process may have; the others are parts of it."""

    limit: int
    reserved: int
    connections: int  # of clients, at most
    segment_files: int  # that stay open
    backlog: int  # connections that wait to be accepted


def share(limit: int, connections_wanted: int) -> Descriptors:
    """Divide `limit` descriptors.

    Raises:
        TooFewDescriptorsError: there are not enough for any division.
    """
    if limit < RESERVED_MIN + CONNECTIONS_MIN:
        raise TooFewDescriptorsError(
            f"this process may open {limit} files, a broker needs {RESERVED_MIN + CONNECTIONS_MIN} at least, and"
            " one more for each connection: raise the limit (ulimit -n, LimitNOFILE)"
        )
    reserved = max(RESERVED_MIN, min(RESERVED_MAX, limit // 2))
    connections = min(connections_wanted, limit - reserved)
    return Descriptors(
        limit=limit,
        reserved=reserved,
        connections=connections,
        segment_files=min(SEGMENT_FILES_MAX, reserved // 2),
        backlog=min(BACKLOG_MAX, reserved // 2),
    )
