"""Deletes records from the beginning of topics' partitions, or says what would be deleted."""

import time
from collections.abc import Mapping, Sequence

from barnabas_broker.cli.commands.administration.calls import administer, for_each, usage
from barnabas_broker.cli.commands.administration.names import check_partitions, topics_named
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import say, say_json
from barnabas_broker.cli.times import timestamp_ms
from barnabas_broker.cli.wording import counted
from barnabas_clients import Admin, OffsetSpec, TopicPartition
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_clients.protocol.errors import ErrorCode

__all__ = ["delete_records"]

Offsets = dict[TopicPartition, int]


def delete_records(
    bootstrap: str,
    names: Sequence[str],
    partitions: Sequence[int],
    before_offset: int | None,
    before_time: str | None,
    timeout_s: float,
    *,
    everything: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Delete the beginning of some partitions, or of all."""
    if (before_offset is not None) + (before_time is not None) + everything != 1:
        raise UsageError("say which records to delete: --before-offset N, --before-time T, or --all")
    check_topic_names(names)
    if before_offset is not None and before_offset < 0:
        raise UsageError(f"--before-offset must be 0 or more, not {before_offset}")
    with usage("--before-time"):
        at_ms = None if before_time is None else timestamp_ms(before_time, int(time.time() * 1000))

    async def run(admin: Admin) -> int:
        topics = {topic.name: topic for topic in await topics_named(admin, names)}
        for topic in topics.values():
            check_partitions(topic, partitions)

        async def one(name: str) -> None:
            chosen = [TopicPartition(name, number) for number in sorted(set(partitions) or topics[name].partitions)]
            starts, targets = await _targets(admin, topics[name], chosen, before_offset, at_ms)
            ends = targets if dry_run else await admin.delete_records(targets)
            _tell(name, starts, ends, dry_run=dry_run, as_json=as_json)

        return await for_each(topics, one)

    return administer(bootstrap, timeout_s, run)


async def _targets(
    admin: Admin, topic: TopicView, chosen: Sequence[TopicPartition], before_offset: int | None, at_ms: int | None
) -> tuple[Offsets, Offsets]:
    """Return where the logs start, and where they should start."""
    found = await admin.list_offsets(dict.fromkeys(chosen, OffsetSpec.EARLIEST))
    starts = {key: listed.offset for key, listed in found.items()}
    found = await admin.list_offsets(dict.fromkeys(chosen, OffsetSpec.LATEST))
    ends = {key: listed.offset for key, listed in found.items()}
    if before_offset is not None:
        if beyond := [key for key in chosen if before_offset > ends[key]]:
            code = ErrorCode.OFFSET_OUT_OF_RANGE.name
            raise CommandError(
                f"{beyond[0]} ends at {ends[beyond[0]]}, before --before-offset {before_offset} [{code}]"
            )
        return starts, {key: max(before_offset, starts[key]) for key in chosen}
    if at_ms is None:
        return starts, ends
    found = await admin.list_offsets(dict.fromkeys(chosen, at_ms))
    # No record is that late: all there are go.
    return starts, {key: ends[key] if listed.offset < 0 else listed.offset for key, listed in found.items()}


def _tell(name: str, before: Mapping[TopicPartition, int], after: Offsets, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {"partition": key.partition, "start_offset": start, "start_offset_before": before[key]}
            for key, start in after.items()
        ]
        say_json({"name": name, "deleted": not dry_run, "partitions": rows})
        return
    for key, start in after.items():
        gone = max(0, start - before[key])
        said = f"would start at {start}, and lose {counted(gone, 'record')}" if dry_run else f"starts at {start}"
        say(f"{key} {said}")
