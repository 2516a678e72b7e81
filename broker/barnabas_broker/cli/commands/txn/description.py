"""Describes transactional ids as their coordinators know them, and producers as a partition remembers them."""

from collections.abc import Sequence
from typing import Any

from barnabas_broker.cli.commands.administration.calls import for_each
from barnabas_broker.cli.commands.administration.names import check_partitions, topics_named
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import print_table, say, say_json, say_json_lines
from barnabas_broker.cli.times import readable
from barnabas_broker.cli.wording import missing
from barnabas_broker.config.quantities import shown_duration_ms
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import PartitionProducer, TransactionDescription
from barnabas_clients.arguments import TEXT_CHARACTERS_MAX
from barnabas_clients.protocol.errors import ErrorCode, KafkaError

from .standing import SURVEY_TIMEOUT_S, ago, ask, times_out_at_ms

__all__ = ["describe", "existing", "producers"]

_UNKNOWN = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,  # so brokers of Barnabas say that they have no transactions
}


def describe(bootstrap: str, names: Sequence[str], timeout_s: float, *, as_json: bool) -> int:
    """Print what the coordinators know of ids, each for itself."""
    for name in names:
        if not 0 < len(name) <= TEXT_CHARACTERS_MAX:
            raise UsageError(
                f"{name[:80]!r} is not a valid transactional id: use 1 to {TEXT_CHARACTERS_MAX:,} characters"
            )

    async def run(admin: Admin) -> int:
        shown = 0

        async def one(name: str) -> None:
            nonlocal shown
            found = await _described(admin, name)
            if as_json:
                say_json(_as_json(found))
                return
            if shown:
                say("")
            shown += 1
            _show(found)

        return await for_each(dict.fromkeys(names), one)

    return ask(bootstrap, timeout_s, run)


def producers(bootstrap: str, topic: str, partition: int, timeout_s: float, *, as_json: bool) -> int:
    """Print the producers that the leader of a partition remembers."""
    check_topic_names([topic])

    async def run(admin: Admin) -> list[PartitionProducer]:
        at = await existing(admin, topic, partition)
        return (await admin.describe_producers([at]))[at]

    found = ask(bootstrap, timeout_s, run)
    if as_json:
        say_json_lines(row._asdict() for row in found)
        return 0
    columns = ("producer", "epoch", "last sequence", "last batch", "coordinator epoch", "open since offset")
    print_table(columns, [_cells(row) for row in found])
    return 0


async def existing(admin: Admin, topic: str, partition: int) -> TopicPartition:
    """Return a partition.

    Raises:
        CommandError: it does not exist; it says what does.
    """
    (view,) = await topics_named(admin, [topic])
    check_partitions(view, [partition])
    return TopicPartition(topic, partition)


async def _described(admin: Admin, name: str) -> TransactionDescription:
    try:
        return (await admin.describe_transactions([name]))[name]
    except KafkaError as error:
        if error.code not in _UNKNOWN:
            raise
        known = (await admin.reachable_transactions(timeout_s=SURVEY_TIMEOUT_S)).transactions
        names = [row.transactional_id for row in known]
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise CommandError(missing("transactional id", [name], names, error.code)) from error


def _show(found: TransactionDescription) -> None:
    parts = [
        found.transactional_id,
        found.state,
        f"coordinator {found.coordinator_id}",
        f"producer {found.producer_id}",
        f"epoch {found.producer_epoch}",
        f"timeout {shown_duration_ms(round(found.timeout_s * 1000))}",
    ]
    if found.partitions and found.started_at_ms is not None:
        parts.append(f"open for {ago(found.started_at_ms)}, since {readable(found.started_at_ms)}")
    if (until_ms := times_out_at_ms(found)) is not None:
        parts.append(f"until {readable(until_ms)} at the latest")
    if found.partitions:
        print_table(("topic", "partition"), sorted(found.partitions), ["  ".join(parts)])
    else:
        say("  ".join(parts))


def _as_json(found: TransactionDescription) -> dict[str, Any]:
    partitions = [at._asdict() for at in sorted(found.partitions)]
    return found._asdict() | {"times_out_at_ms": times_out_at_ms(found), "partitions": partitions}


def _cells(row: PartitionProducer) -> tuple[object, ...]:
    return (
        row.producer_id,
        row.producer_epoch,
        row.last_sequence if row.last_sequence >= 0 else None,
        readable(row.last_timestamp_ms) if row.last_timestamp_ms >= 0 else None,
        row.coordinator_epoch if row.coordinator_epoch >= 0 else None,
        row.start_offset,
    )
