"""`barnabas group …`: administer consumer groups as kafka-consumer-groups.sh does, over `Admin`."""

import time
from collections.abc import Sequence
from typing import Any

from barnabas_broker.cli.admin import parse_topics, with_admin
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_broker.cli.times import duration_ms, timestamp_ms
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import GroupDescription, OffsetChange, PartitionLag, ResetTo, total_lag
from barnabas_clients.place_arguments import group_states

__all__ = ["delete", "delete_offsets", "describe", "lag_text", "list_", "reset_offsets", "target_from"]

Lags = dict[TopicPartition, PartitionLag]


def list_(bootstrap: str, timeout_s: float, states: Sequence[str], *, as_json: bool) -> int:
    """Print the groups: their names, states and coordinators."""
    try:
        wanted = group_states(states)
    except ValueError as error:
        raise CommandError(f"--state: {error}") from error
    groups = with_admin(bootstrap, timeout_s, lambda admin: admin.list_groups(states=wanted))
    if as_json:
        say_json([row._asdict() for row in groups])
    else:
        print_table(
            ("group", "state", "type", "protocol", "coordinator"),
            [
                (row.group_id, row.state or None, row.type or None, row.protocol_type or None, row.coordinator_id)
                for row in groups
            ],
        )
    return 0


def describe(bootstrap: str, group_id: str, timeout_s: float, *, as_json: bool) -> int:
    """Print where a group stands, who reads what, and how much is still to be read."""

    async def run(admin: Admin) -> tuple[GroupDescription, Lags]:
        return (await admin.describe_groups([group_id]))[group_id], await admin.group_lag(group_id)

    group, lags = with_admin(bootstrap, timeout_s, run)
    if as_json:
        say_json(_as_json(group, lags))
    else:
        _show(group, lags)
    return 0


def delete(bootstrap: str, group_ids: Sequence[str], timeout_s: float) -> int:
    """Delete groups without members."""

    async def run(admin: Admin) -> None:
        # One after the other: deletions are told even if a later one is refused.
        for group_id in group_ids:
            await admin.delete_groups([group_id])
            say(f"deleted {group_id}")

    with_admin(bootstrap, timeout_s, run)
    return 0


def delete_offsets(bootstrap: str, group_id: str, words: Sequence[str], timeout_s: float) -> int:
    """Make a group forget its positions in some topics."""
    topics, partitions = parse_topics(words)

    async def run(admin: Admin) -> list[TopicPartition]:
        chosen = set(partitions)
        if topics:
            chosen |= {key for key in await admin.group_offsets(group_id) if key.topic in topics}
        await admin.delete_group_offsets(group_id, chosen)
        return sorted(chosen)

    for key in with_admin(bootstrap, timeout_s, run):
        say(f"{group_id} has no position in {key} any more")
    return 0


def reset_offsets(
    bootstrap: str,
    group_id: str,
    target: ResetTo,
    words: Sequence[str],
    timeout_s: float,
    *,
    execute: bool,
    as_json: bool,
) -> int:
    """Show what a reset comes to, and do it if told to."""
    topics, partitions = parse_topics(words)
    plan = with_admin(
        bootstrap,
        timeout_s,
        lambda admin: _reset(admin, group_id, target, topics, partitions, execute=execute),
    )
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} | change._asdict() for key, change in plan.items()]
        say_json({"executed": execute, "offsets": rows})
        return 0
    print_table(
        ("topic", "partition", "before", "after"),
        [(*key, change.before, change.after) for key, change in plan.items()],
        [] if execute else ["Nothing has been changed: --execute does it"],
    )
    return 0


async def _reset(
    admin: Admin,
    group_id: str,
    target: ResetTo,
    topics: Sequence[str],
    partitions: Sequence[TopicPartition],
    *,
    execute: bool,
) -> dict[TopicPartition, OffsetChange]:
    try:
        return await admin.reset_group_offsets(
            group_id,
            target,
            partitions=partitions or None,
            topics=topics or None,
            dry_run=not execute,
        )
    except ValueError as error:
        raise CommandError(str(error)) from error


def target_from(
    to_time: str | None,
    by_duration: str | None,
    to_offset: int | None,
    shift_by: int | None,
    *,
    to_earliest: bool,
    to_latest: bool,
) -> ResetTo:
    """Return the one target that was named.

    Raises:
        CommandError: none was, or several, or one that makes no sense.
    """
    named: list[ResetTo] = []
    try:
        if to_earliest:
            named.append(ResetTo.earliest())
        if to_latest:
            named.append(ResetTo.latest())
        if to_time is not None:
            named.append(ResetTo.time(timestamp_ms(to_time, int(time.time() * 1000))))
        if by_duration is not None:
            named.append(ResetTo.ago(duration_ms(by_duration)))
        if to_offset is not None:
            if to_offset < 0:
                raise CommandError(f"{to_offset} is no offset: it must be 0 or more")
            named.append(ResetTo.offset(to_offset))
        if shift_by is not None:
            named.append(ResetTo.shift(shift_by))
    except ValueError as error:
        raise CommandError(str(error)) from error
    if len(named) != 1:
        raise CommandError(
            "say where to, with one of --to-earliest, --to-latest, --to-time, --by-duration, --to-offset and --shift-by"
        )
    return named[0]


def _as_json(group: GroupDescription, lags: Lags) -> dict[str, Any]:
    total = total_lag(lags)
    return {
        "group_id": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator_id": group.coordinator_id,
        "lag": total.lag,
        "known_lag": total.known,
        "partitions_without_commit": total.without_commit,
        "members": [
            member._asdict() | {"assignment": [key._asdict() for key in sorted(member.assignment or ())]}
            for member in group.members
        ],
        "partitions": [
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed_offset": found.committed.offset if found.committed else None,
                "metadata": found.committed.metadata if found.committed else None,
                "end_offset": found.end_offset,
                "lag": found.lag,
                "member_id": found.member.member_id if found.member else None,
            }
            for key, found in lags.items()
        ],
    }


def _show(group: GroupDescription, lags: Lags) -> None:
    count = len(group.members)
    header = f"{group.group_id}  {group.state}  {count} member{'s' * (count != 1)}  coordinator {group.coordinator_id}"
    if group.assignor:
        header += f"  assignor {group.assignor}"
    rows: list[Sequence[object]] = [
        (
            *key,
            found.committed.offset if found.committed else None,
            found.end_offset,
            found.lag,
            found.member.member_id if found.member else None,
            found.member.client_host if found.member else None,
        )
        for key, found in lags.items()
    ]
    # A member beyond the number of partitions waits for one; it should be seen, too.
    rows += [
        (None, None, None, None, None, member.member_id, member.client_host)
        for member in group.members
        if not member.assignment
    ]
    columns = ("topic", "partition", "committed", "end", "lag", "member", "host")
    print_table(columns, rows, [f"{header}  {lag_text(lags)}"])


def lag_text(lags: Lags) -> str:
    """Say how much a group has yet to read. Without a commit that is unknown, and not nothing."""
    total = total_lag(lags)
    if total.lag is not None:
        return f"lag {total.lag:,}"
    if not lags:
        return "lag unknown (nothing is committed, and nobody reads anything)"
    missing = f"{total.without_commit} of {len(lags)} partitions have no commit"
    return (
        f"lag {total.known:,} and more ({missing})" if total.without_commit < len(lags) else f"lag unknown ({missing})"
    )
