"""Says why the last stable offset of a partition stands still: which open transaction holds it, and until when."""

from typing import NamedTuple

from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import say, say_json
from barnabas_broker.cli.times import readable
from barnabas_broker.cli.wording import counted
from barnabas_clients import Admin, OffsetSpec, TopicPartition

from .description import existing
from .standing import OpenTransaction, ago, ask, coordinators_of, open_in, times_out_at_ms

__all__ = ["by_hand", "why"]

LOOKS_MAX = 3
"""Between two questions a transaction may end, and the answers would not fit; then it is asked again."""


class Held(NamedTuple):
    """What readers of committed records of a partition wait for. `transactions` are those that are open, in order."""

    partition: TopicPartition
    last_stable_offset: int
    end_offset: int
    transactions: list[OpenTransaction]

    @property
    def holder(self) -> OpenTransaction | None:
        """The transaction that the last stable offset waits for."""
        first = self.transactions[0] if self.transactions else None
        return first if first is not None and first.start_offset <= self.last_stable_offset else None

    @property
    def is_clear(self) -> bool:
        """Whether the answers fit together."""
        return self.last_stable_offset >= self.end_offset or self.holder is not None


def why(bootstrap: str, topic: str, partition: int, timeout_s: float, *, as_json: bool) -> int:
    """Print what holds readers of committed records back in a partition, or that nothing does."""
    check_topic_names([topic])

    async def run(admin: Admin) -> Held:
        at = await existing(admin, topic, partition)
        held = await _look(admin, at, timeout_s)
        for _ in range(LOOKS_MAX - 1):
            if not held.is_clear:
                held = await _look(admin, at, timeout_s)
        return held

    held = ask(bootstrap, timeout_s, run)
    if as_json:
        say_json(
            {
                **held.partition._asdict(),
                "last_stable_offset": held.last_stable_offset,
                "end_offset": held.end_offset,
                "held_by": held.holder and held.holder.as_json(),
                "open": [one.as_json() for one in held.transactions],
            }
        )
    else:
        say(*_told(held))
    return 0


def by_hand(transaction: OpenTransaction) -> str:
    """Return the command that ends a transaction that hangs."""
    topic, partition = transaction.partition
    return f"barnabas txn abort {topic} {partition} --start-offset {transaction.start_offset}"


async def _look(admin: Admin, at: TopicPartition, timeout_s: float) -> Held:
    stable = (await admin.list_offsets({at: OffsetSpec.LATEST}, read_committed=True))[at].offset
    producers = await admin.describe_producers([at])
    end = (await admin.list_offsets({at: OffsetSpec.LATEST}))[at].offset
    ids = {one.producer_id for one in producers[at] if one.start_offset is not None}
    return Held(at, stable, end, open_in(producers, await coordinators_of(admin, ids, timeout_s)))


def _told(held: Held) -> list[str]:
    at, holder = held.partition, held.holder
    behind = held.end_offset - held.last_stable_offset
    if behind <= 0:
        lines = [f"{at}: nothing holds readers of committed records back; they read up to its end, {held.end_offset}"]
        if held.transactions:
            lines.append(f"{counted(len(held.transactions), 'transaction')} open, with records that are not committed")
        return lines
    stop = f"stop at offset {held.last_stable_offset}, {counted(behind, 'record')} before its end"
    lines = [f"{at}: readers of committed records {stop}"]
    if holder is None:
        return [*lines, "no transaction is open there any more; the marker of one is on its way to enough replicas"]
    lines.append(
        f"producer {holder.producer.producer_id}, epoch {holder.producer.producer_epoch}, has a transaction open since "
        f"offset {holder.start_offset}; {_last_batch(holder)}"
    )
    lines += _coordinated(holder)
    if more := len(held.transactions) - 1:
        lines.append(f"behind it {counted(more, 'more transaction')} {'is' if more == 1 else 'are'} open")
    return lines


def _last_batch(holder: OpenTransaction) -> str:
    at_ms = holder.producer.last_timestamp_ms
    return f"its last batch there is of {readable(at_ms)}" if at_ms >= 0 else "its last batch there has no time"


def _coordinated(holder: OpenTransaction) -> list[str]:
    known = holder.known
    if holder.hangs is None:
        return [f"whether a coordinator knows it is unknown: {holder.unheard}"]
    if known is None:
        return [f"no coordinator knows that producer: the transaction hangs, and ends by hand: {by_hand(holder)}"]
    name = f"transactional id {known.transactional_id!r} of coordinator {known.coordinator_id} is {known.state}"
    if holder.hangs:
        return [f"{name}, without this partition: the transaction hangs, and ends by hand: {by_hand(holder)}"]
    since = (
        "" if known.started_at_ms is None else f", since {readable(known.started_at_ms)} ({ago(known.started_at_ms)})"
    )
    until_ms = times_out_at_ms(known)
    if until_ms is None:
        return [f"{name}{since}: it is decided, and its marker has yet to be written here"]
    return [f"{name}{since}; unless it ends before, the coordinator aborts it at {readable(until_ms)}"]
