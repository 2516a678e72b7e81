"""Takes the ranges of a read from a named snapshot, and makes the snapshot at the first use of its name.

The brokers decide who uses a name first. Two jobs that use a new name at the same time both resolve their options; one
of them makes the snapshot, the other one is answered with it, and both read it.
"""

import asyncio
from datetime import UTC, datetime
from typing import NamedTuple

from barnabas_clients.admin.snapshots import Made, check_snapshot, create_snapshot, describe_snapshot
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import UnsupportedVersionError
from barnabas_clients.protocol.errors import InvalidConfigError, ResourceNotFoundError
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import Snapshot, ranges_of
from barnabas_spark.reading.snapshot import take_snapshot

from .vector import check_compacted, chosen, left_of, needless_options, pinned_options, vector_of

__all__ = ["Moment", "moment_of"]


class Moment(NamedTuple):
    """What to plan from. The options of a read by name are those of a read of exactly its ranges."""

    options: ReadOptions
    snapshot: Snapshot
    warnings: tuple[str, ...] = ()


async def moment_of(cluster: Cluster, options: ReadOptions) -> Moment:
    """Return what to plan from, of now or of the moment whose name is given, within `options.poll_timeout_ms`.

    Raises:
        OptionError: the cluster has no snapshots, or something is asked for that is not in this one.
        DataLossError: rows of it are gone, and `failOnDataLoss` is true.
        SnapshotDivergedError: a log no longer contains the end of a range.
        OptionError, KafkaError, DeadlineExceededError: as `take_snapshot`.
    """
    if not options.snapshot:
        return Moment(options, await take_snapshot(cluster, options))
    try:
        return await _Reading(cluster, options).moment()
    except UnsupportedVersionError as error:
        raise OptionError("snapshot", str(error)) from None
    except InvalidConfigError as error:
        text = f"{error.reason}; set snapshotCompacted to best-effort to make it all the same"
        raise OptionError("snapshot", text) from None


class _Reading:
    """One read by a name: its deadline, and the warnings so far."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._deadline = asyncio.get_running_loop().time() + options.poll_timeout_ms / 1000
        self._warnings: list[str] = []

    async def moment(self) -> Moment:
        options = self._options
        try:
            stored = await describe_snapshot(self._cluster, options.snapshot, self._left_s())
        except ResourceNotFoundError:
            stored, created = await self._made()
        else:
            created = False
        if not created and (needless := needless_options(options)):
            since = datetime.fromtimestamp(stored.created_at_ms / 1000, UTC).isoformat(timespec="seconds")
            self._warnings.append(f"snapshot {stored.name!r} is of {since}: {' and '.join(needless)} had no effect")
        part = chosen(stored, options.topics)
        check_compacted(part, options)
        checks = await check_snapshot(self._cluster, part, self._left_s())
        vector, lost = left_of(part, checks, options)
        pinned = pinned_options(options, vector)
        now = await take_snapshot(self._cluster, self._in_time(pinned))
        # Tasks look at the id again, because a topic may be created anew at any time.
        partitions = {key: state._replace(topic_id=vector.topic_ids[key[0]]) for key, state in now.partitions.items()}
        return Moment(pinned, Snapshot(partitions), (*self._warnings, *lost))

    async def _made(self) -> Made:
        """Resolve the options as for any other read; have the ranges kept, or get those that somebody else had kept."""
        options = self._options
        now = await take_snapshot(self._cluster, self._in_time(options))
        ranges, lost = ranges_of(options, now)
        if any(one.topic_id is None for one in ranges):
            raise UnsupportedVersionError("topics of this cluster have no ids, so it has no named snapshots")
        kept = vector_of(ranges, {key: state.end_epoch for key, state in now.partitions.items()})
        best_effort = options.snapshot_best_effort
        made = await create_snapshot(self._cluster, options.snapshot, kept, self._left_s(), best_effort=best_effort)
        if made.created:
            self._warnings += lost
        return made

    def _in_time(self, options: ReadOptions) -> ReadOptions:
        return options._replace(poll_timeout_ms=int(self._left_s() * 1000))

    def _left_s(self) -> float:
        return max(0.0, self._deadline - asyncio.get_running_loop().time())
