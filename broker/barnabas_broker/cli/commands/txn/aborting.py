"""Aborts one transaction in one partition, by a marker from the operator's hand.

A coordinator that knows the transaction knows nothing of such a marker, and may commit the other partitions. So what it
has yet to end is refused without `--force`, and so is what it may have, if not every coordinator could be asked.
"""

from collections.abc import Sequence

from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import say, say_json
from barnabas_broker.cli.times import readable
from barnabas_broker.cli.wording import listed
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.protocol.errors import ErrorCode

from .description import existing
from .standing import OpenTransaction, ask, coordinators_of, open_in, times_out_at_ms

__all__ = ["abort"]

SHOWN_MAX = 5


def abort(
    bootstrap: str,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    timeout_s: float,
    *,
    force: bool,
    as_json: bool,
) -> int:
    """Abort the transaction that begins at an offset, or that of a producer."""
    check_topic_names([topic])
    if start_offset is None and producer_id is None:
        raise UsageError("say which transaction: --start-offset N, or --producer ID")

    async def run(admin: Admin) -> OpenTransaction:
        at = await existing(admin, topic, partition)
        producers = await admin.describe_producers([at])
        ids = {one.producer_id for one in producers[at] if one.start_offset is not None}
        every = open_in(producers, await coordinators_of(admin, ids, timeout_s))
        found = _chosen(at, every, start_offset, producer_id)
        if not force:
            _check_hangs(found)
        await admin.abort_transaction(at, found.start_offset)
        return found

    found = ask(bootstrap, timeout_s, run)
    if as_json:
        say_json({**found.as_json(), "aborted": True})
    else:
        say(
            f"aborted in {found.partition}: the transaction of producer {found.producer.producer_id} from offset "
            f"{found.start_offset} on"
        )
    return 0


def _chosen(
    at: TopicPartition, every: Sequence[OpenTransaction], start_offset: int | None, producer_id: int | None
) -> OpenTransaction:
    for one in every:
        if start_offset in {None, one.start_offset} and producer_id in {None, one.producer.producer_id}:
            return one
    wanted = [f"of producer {producer_id}"] if producer_id is not None else []
    wanted += [f"from offset {start_offset} on"] if start_offset is not None else []
    shown = [f"{one.start_offset} (producer {one.producer.producer_id})" for one in every[:SHOWN_MAX]]
    there = f"; there are those from {listed(shown)}" if shown else "; none is open"
    more = f" and {len(every) - SHOWN_MAX:,} more" if len(every) > SHOWN_MAX else ""
    code = ErrorCode.INVALID_TXN_STATE.name
    raise CommandError(f"{at} has no open transaction {' '.join(wanted)}{there}{more} [{code}]")


def _check_hangs(found: OpenTransaction) -> None:
    known = found.known
    if found.hangs is None:
        raise CommandError(
            f"whether a coordinator knows the transaction is unknown: {found.unheard}; --force aborts it"
        )
    if found.hangs or known is None:
        return
    until_ms = times_out_at_ms(known)
    ends = "its marker is on its way" if until_ms is None else f"it ends by {readable(until_ms)}"
    raise CommandError(
        f"the transaction does not hang: transactional id {known.transactional_id!r} is {known.state}, and {ends}; "
        f"--force aborts it in {found.partition} alone, while the rest of it may commit"
    )
