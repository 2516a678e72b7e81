"""Describes groups: who reads what, where each position stands, and how much is still to be read."""

from collections.abc import Collection, Sequence
from typing import Any

from barnabas_broker.cli.commands.administration.calls import administer
from barnabas_broker.cli.commands.administration.names import check_groups_wanted, missing_groups, some_groups
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_broker.cli.wording import counted
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import GroupDescription, GroupMember, PartitionLag, total_lag
from barnabas_clients.protocol.errors import GroupIdNotFoundError

__all__ = ["Lags", "describe", "lag_text", "partitions_text"]

Lags = dict[TopicPartition, PartitionLag]


def describe(
    bootstrap: str,
    group_ids: Sequence[str],
    patterns: Sequence[str],
    timeout_s: float,
    *,
    as_json: bool,
    with_members: bool,
) -> int:
    """Print where groups stand, who reads what, and how much is still to be read; or their members."""
    wanted = check_groups_wanted(group_ids, patterns)

    async def run(admin: Admin) -> None:
        chosen = await some_groups(admin, group_ids, wanted)
        try:
            groups = await admin.describe_groups(chosen)
        except GroupIdNotFoundError as error:
            raise await missing_groups(admin, chosen) from error
        for number, group in enumerate(groups.values()):
            lags = await admin.group_lag(group.group_id)
            if as_json:
                say_json(_as_json(group, lags))
            else:
                if number:
                    say("")
                (_show_members if with_members else _show)(group, lags)

    administer(bootstrap, timeout_s, run)
    return 0


def _as_json(group: GroupDescription, lags: Lags) -> dict[str, Any]:
    total = total_lag(lags)
    return {
        "group_id": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "type": group.type,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "coordinator_id": group.coordinator_id,
        "lag": total.lag,
        "known_lag": total.known,
        "partitions_without_commit": total.without_commit,
        "members": [_member_as_json(member) for member in group.members],
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


def _member_as_json(member: GroupMember) -> dict[str, Any]:
    return member._asdict() | {
        "assignment": [key._asdict() for key in sorted(member.assignment or ())],
        "target": None if member.target is None else [key._asdict() for key in sorted(member.target)],
        "topics": None if member.topics is None else sorted(member.topics),
    }


def _header(group: GroupDescription, lags: Lags) -> str:
    members = counted(len(group.members), "member")
    header = f"{group.group_id}  {group.state}  {members}  coordinator {group.coordinator_id}"
    if group.assignor:
        header += f"  assignor {group.assignor}"
    if group.epoch is not None:
        header += f"  epoch {group.epoch}"
    return f"{header}  {lag_text(lags)}"


def _show_members(group: GroupDescription, lags: Lags) -> None:
    columns = ("member", "instance", "client", "host", "protocol", "epoch", "reads", "target")
    rows: list[Sequence[object]] = [
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.type or group.type,
            member.epoch,
            partitions_text(member.assignment or ()) or None,
            None if member.target in (None, member.assignment) else partitions_text(member.target or ()) or "nothing",
        )
        for member in group.members
    ]
    print_table(columns, rows, [_header(group, lags)])


def partitions_text(partitions: Collection[TopicPartition]) -> str:
    """Return partitions by topic: `orders:0-3,7 bills:0`."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return " ".join(f"{topic}:{','.join(_runs(numbers))}" for topic, numbers in by_topic.items())


def _runs(numbers: Sequence[int]) -> list[str]:
    """Return sorted numbers with `first-last` in place of consecutive ones."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ["-".join(map(str, run)) for run in runs]


def _show(group: GroupDescription, lags: Lags) -> None:
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
    print_table(columns, rows, [_header(group, lags)])


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
