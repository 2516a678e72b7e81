"""Moves and deletes the positions of groups, and groups, as kafka-consumer-groups.sh does."""

import time
from collections.abc import Sequence

from barnabas_broker.cli.admin import parse_topics
from barnabas_broker.cli.commands.administration.calls import administer, for_each, usage
from barnabas_broker.cli.commands.administration.names import (
    check_groups_wanted,
    check_partitions,
    missing_groups,
    some_groups,
    topics_named,
)
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_group_names
from barnabas_broker.cli.output import print_table, say, say_json, say_json_lines
from barnabas_broker.cli.times import duration_ms, timestamp_ms
from barnabas_broker.cli.wording import in_words, listed
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import OffsetChange, ResetTo
from barnabas_clients.protocol.errors import GroupIdNotFoundError, NonEmptyGroupError

__all__ = ["delete", "delete_offsets", "reset_offsets", "target_from"]


def delete(
    bootstrap: str,
    group_ids: Sequence[str],
    patterns: Sequence[str],
    timeout_s: float,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete groups without members, or say which would be; those that are refused do not keep the others."""
    wanted = check_groups_wanted(group_ids, patterns)

    async def run(admin: Admin) -> int:
        async def one(group_id: str) -> None:
            try:
                if dry_run:
                    await _check_deletable(admin, group_id)
                else:
                    await admin.delete_groups([group_id])
            except GroupIdNotFoundError as error:
                raise await missing_groups(admin, [group_id]) from error
            if as_json:
                say_json({"group_id": group_id, "deleted": not dry_run})
            else:
                say(f"would delete {group_id}" if dry_run else f"deleted {group_id}")

        return await for_each(await some_groups(admin, group_ids, wanted), one)

    return administer(bootstrap, timeout_s, run)


async def _check_deletable(admin: Admin, group_id: str) -> None:
    """Refuse what a deletion would refuse.

    Raises:
        CommandError: the group has members. GroupIdNotFoundError: there is no such group.
    """
    found = (await admin.describe_groups([group_id]))[group_id]
    if found.members:
        raise CommandError(in_words(NonEmptyGroupError(group_id)))


def delete_offsets(bootstrap: str, group_id: str, words: Sequence[str], timeout_s: float, *, as_json: bool) -> int:
    """Make a group forget its positions in some topics, which may be gone themselves."""
    check_group_names([group_id])
    topics, partitions = parse_topics(words)

    async def run(admin: Admin) -> list[TopicPartition]:
        chosen = set(partitions)
        if topics:
            chosen |= {key for key in await admin.group_offsets(group_id) if key.topic in topics}
        try:
            await admin.delete_group_offsets(group_id, chosen)
        except GroupIdNotFoundError as error:
            raise await missing_groups(admin, [group_id]) from error
        return sorted(chosen)

    gone = administer(bootstrap, timeout_s, run)
    if as_json:
        say_json_lines(
            {"group_id": group_id, "topic": key.topic, "partition": key.partition, "deleted": True} for key in gone
        )
    elif gone:
        say(*(f"{group_id} has no position in {key} any more" for key in gone))
    else:
        say(f"{group_id} had no position in {listed(words)}")
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
    check_group_names([group_id])
    topics, partitions = parse_topics(words)

    async def run(admin: Admin) -> dict[TopicPartition, OffsetChange]:
        names = sorted({*topics, *(key.topic for key in partitions)})
        for topic in await topics_named(admin, names) if names else ():
            check_partitions(topic, [key.partition for key in partitions if key.topic == topic.name])
        try:
            return await admin.reset_group_offsets(
                group_id,
                target,
                partitions=partitions or None,
                topics=topics or None,
                dry_run=not execute,
            )
        except GroupIdNotFoundError as error:
            advice = "; to give a group its first positions, name topics with --topic"
            raise await missing_groups(admin, [group_id], advice) from error
        except NonEmptyGroupError as error:
            raise CommandError(
                f"the group {group_id!r} has members, whose next commit would undo this; "
                f"stop them first [{error.code.name}]"
            ) from error
        except ValueError as error:
            raise CommandError(str(error)) from error

    plan = administer(bootstrap, timeout_s, run)
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} | change._asdict() for key, change in plan.items()]
        say_json({"group_id": group_id, "executed": execute, "offsets": rows})
        return 0
    print_table(
        ("topic", "partition", "before", "after"),
        [(*key, change.before, change.after) for key, change in plan.items()],
        [] if execute else ["Nothing has been changed: --execute does it"],
    )
    return 0


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
        UsageError: none was, or several, or one that makes no sense.
    """
    named: list[ResetTo] = []
    with usage():
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
                raise UsageError(f"--to-offset must be 0 or more, not {to_offset}")
            named.append(ResetTo.offset(to_offset))
        if shift_by is not None:
            named.append(ResetTo.shift(shift_by))
    if len(named) != 1:
        raise UsageError(
            "say where to, with one of --to-earliest, --to-latest, --to-time, --by-duration, --to-offset and --shift-by"
        )
    return named[0]
