"""Finds transactions that hang: open in a partition for long, while no coordinator is going to end them (KIP-664).

How long is told by the producer's last batch, as in Kafka, where the producer's clock stands in it. A leader here says
when it took the batch; one that has read it from the log, what stands in that, but nothing later. What is suspected is
looked at once more: a transaction may have ended between the answers of its partition and of its coordinator.
"""

from collections.abc import Collection, Sequence
from itertools import islice

from barnabas_broker.cli.admin import parse_topics
from barnabas_broker.cli.commands.administration.calls import usage
from barnabas_broker.cli.commands.administration.names import check_partitions, topics_named
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.output import complain, print_table, say_json_lines
from barnabas_broker.cli.times import duration_ms, readable
from barnabas_broker.cli.wording import counted, listed
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.cluster.topic_view import TopicView

from .standing import OpenTransaction, ask, coordinators_of, now_ms, open_in

__all__ = ["find"]

AT_ONCE = 500
"""Partitions that are asked about with one timeout."""


def find(
    bootstrap: str, words: Sequence[str], broker_id: int | None, longer_than: str, timeout_s: float, *, as_json: bool
) -> int:
    """Print the transactions that hang, of all partitions or of some. Status 1: of some it could not be told."""
    names, places = parse_topics(words)
    with usage("--longer-than"):
        limit_ms = duration_ms(longer_than)

    async def run(admin: Admin) -> tuple[list[OpenTransaction], list[TopicPartition]]:
        if broker_id is not None:
            await _check_broker(admin, broker_id)
        leaders = await _leaders(admin, names, places)
        without = [at for at, leader_id in leaders.items() if leader_id < 0]
        chosen = [at for at, leader_id in leaders.items() if leader_id >= 0 and broker_id in {None, leader_id}]
        suspected = await _suspected(admin, chosen, limit_ms, timeout_s)
        if suspected:
            again = await _suspected(admin, sorted({one.partition for one in suspected}), limit_ms, timeout_s)
            suspected = [one for one in again if _key(one) in {_key(before) for before in suspected}]
        return suspected, without

    suspected, without = ask(bootstrap, timeout_s, run)
    hanging = [one for one in suspected if one.hangs]
    if as_json:
        say_json_lines(one.as_json() for one in hanging)
    else:
        columns = ("topic", "partition", "start offset", "producer", "epoch", "last batch", "transactional id", "state")
        print_table(columns, [_cells(one) for one in hanging])
    status = 0
    if without:
        complain(f"without a leader, and not looked at: {listed(without[:10])}{_more(len(without) - 10)}")
        status = CommandError.status
    if unclear := [one for one in suspected if one.hangs is None]:
        complain(f"whether {counted(len(unclear), 'more transaction')} hang is unknown: {unclear[0].unheard}")
        status = CommandError.status
    return status


async def _leaders(admin: Admin, names: Sequence[str], places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the partitions that are meant, with their leaders; of all topics if none is named."""
    chosen = [*names, *(at.topic for at in places)]
    views: Sequence[TopicView] = (
        await topics_named(admin, chosen) if chosen else await admin.list_topics(include_internal=True)
    )
    by_name = {view.name: view for view in views}
    for at in places:
        check_partitions(by_name[at.topic], [at.partition])
    whole = set(names) if chosen else by_name.keys()
    return {
        TopicPartition(view.name, number): partition.leader_id
        for view in views
        for number, partition in sorted(view.partitions.items())
        if view.name in whole or (view.name, number) in places
    }


async def _suspected(
    admin: Admin, places: Collection[TopicPartition], limit_ms: int, timeout_s: float
) -> list[OpenTransaction]:
    """Return the old transactions of partitions that no coordinator is known to end."""
    rest = iter(places)
    found = []
    while piece := list(islice(rest, AT_ONCE)):
        producers = await admin.describe_producers(piece)
        until_ms = now_ms() - limit_ms
        old = {
            at: [one for one in rows if one.start_offset is not None and one.last_timestamp_ms < until_ms]
            for at, rows in producers.items()
        }
        ids = {one.producer_id for rows in old.values() for one in rows}
        found += open_in(old, await coordinators_of(admin, ids, timeout_s))
    return [one for one in found if not one.is_coordinated]


async def _check_broker(admin: Admin, broker_id: int) -> None:
    there = sorted(broker.node_id for broker in (await admin.describe_cluster()).brokers)
    if broker_id not in there:
        raise CommandError(f"--broker: there is no broker {broker_id}; there are {listed(there)}")


def _key(one: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return one.partition, one.producer.producer_id, one.start_offset


def _cells(one: OpenTransaction) -> tuple[object, ...]:
    producer = one.producer
    last = readable(producer.last_timestamp_ms) if producer.last_timestamp_ms >= 0 else None
    known = (one.known.transactional_id, one.known.state) if one.known else (None, None)
    return (*one.partition, one.start_offset, producer.producer_id, producer.producer_epoch, last, *known)


def _more(count: int) -> str:
    return f" and {count:,} more" if count > 0 else ""
