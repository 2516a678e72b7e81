"""Watches the tables of transactions in every replica of a run, and the coordinators' own.

`watching` puts itself in front of what happens to a partition and to a coordinator's shard, for the length of a run.
It changes nothing. Held against the naive `model`, whenever an index is committed or truncated:

- *One index, one state.* Open transactions, aborted ones and each producer's last entry are those of the entries up to
  the commit index, and up to the end of the log: whatever was truncated, installed, replayed or repeated. Where a loss
  of power took the saved state of a log that begins in the middle of a transaction, that one is known by what is left.
- *The last stable offset* is the first offset of an open transaction, else the high watermark; it never goes back.
- *Markers.* None is appended of which the coordinator's log has not decided so, in a committed record.
- *Coordinators.* What one has loaded is the last committed record of each id, also after its log was written anew.
- *Witnesses.* One that leads appends no batch of a producer and no marker, and loads no coordinator.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, NamedTuple
from unittest.mock import patch

from barnabas_broker.coordinators.runtime.shard import ShardRuntime
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.shard import TransactionShard
from barnabas_broker.coordinators.transactions.state_machine.location import TRANSACTION_TOPIC
from barnabas_broker.coordinators.transactions.state_machine.messages import SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.records import decode_key, decode_value, encode_value
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.producer_state import ANY_ID
from barnabas_raftlog.raft.messages import Entry, InstallSnapshot
from barnabas_raftlog.records.header import CONTROL, parse_header
from barnabas_raftlog.records.reader import read_batch
from sim.cluster.world import World

from .installed import compare_installed
from .model import Data, End, Model, State, UnknownEntryError, is_left_of
from .struck import Struck

__all__ = ["Watcher", "watching"]

EVERYWHERE = 1 << 62
Said = dict[str, bytes | None]


class _Ids:
    """What the entries of a partition of `__transaction_state` say, and what of it is committed."""

    def __init__(self) -> None:
        self.said = dict[tuple[int, int], Said]()
        self.committed_index = 0
        self.known = dict[str, bytes]()  # the value of each id's last committed record


class _Halves(NamedTuple):
    """Transactions of which a replica knows only what is left in its log: of aborted ones producer and last offset."""

    aborted: frozenset[tuple[int, int]]
    open: frozenset[int]


def _halves(partition: Partition, aborted: Sequence[tuple[int, int, int]], committed: State, end: State) -> _Halves:
    """Return what began before a log whose saved state was lost, as a loss of power may take it: else none."""
    if partition.producers.forgotten_id_max != ANY_ID:
        return _Halves(frozenset(), frozenset())
    start = partition.log.log_start_offset
    begun = {**committed.open, **end.open}
    return _Halves(
        frozenset((producer_id, last) for producer_id, first, last in aborted if first < start),
        frozenset(producer_id for producer_id, (_, offset) in begun.items() if offset < start),
    )


def _without(found: Mapping[int, tuple[int, int]], producer_ids: Container[int]) -> dict[int, tuple[int, int]]:
    return {producer_id: one for producer_id, one in found.items() if producer_id not in producer_ids}


class Watcher:
    """One run's. `topics`: those whose replicas are held against the model, and those of them that are compacted.

    `struck` hears of decisions.
    """

    def __init__(self, world: World, topics: Sequence[str], compacted: Sequence[str], struck: Struck) -> None:
        self._world = world
        self._struck = struck
        self._topics = frozenset(topics)
        self._compacted = frozenset(compacted)
        self._models = defaultdict[bytes, Model](Model)
        self._terms = defaultdict[tuple[int, bytes], dict[int, int]](dict)  # of what a node has appended in its life
        self._ids = defaultdict[bytes, _Ids](_Ids)
        self._decided = defaultdict[tuple[int, int], set[bool]](set)  # by producer id and epoch of its marker
        self._cut = set[tuple[bytes, int, int]]()  # transactions in which a log has begun: group, producer, offset

    # Told of partitions.

    def on_appended(self, partition: Partition, entries: Sequence[Entry]) -> None:
        if partition.topic_name == TRANSACTION_TOPIC:
            ids = self._ids[partition.group.group_id]
            for entry in entries:
                if (entry.index, entry.term) not in ids.said:
                    ids.said[entry.index, entry.term] = _records_of(entry)
                    for name, value in ids.said[entry.index, entry.term].items():
                        self._struck.on_said(name, None if value is None else decode_value(value))
                self._check_witness(partition, entry, is_producers=bool(ids.said[entry.index, entry.term]))
        elif partition.topic_name in self._topics:
            model = self._models[partition.group.group_id]
            terms = self._terms[partition.host.node_id, partition.group.group_id]
            for entry in entries:
                terms[entry.index] = entry.term
                is_new = (entry.index, entry.term) not in model.said
                said = model.append(entry)
                self._check_witness(partition, entry, is_producers=said is not None)
                if is_new and isinstance(said, End):
                    self._on_marker(partition, said)

    def _check_witness(self, partition: Partition, entry: Entry, *, is_producers: bool) -> None:
        group = partition.group
        if is_producers and group.is_witness and group.is_leader and entry.term == group.core.term:
            self._world.violate(f"{partition}: a witness leads, and has appended {entry.index}")

    def _on_marker(self, partition: Partition, marker: End) -> None:
        self._world.counts["markers"] += 1
        if marker.is_commit not in self._decided[marker.producer_id, marker.epoch]:
            self._world.violate(f"{partition}: {marker} was never decided")

    def on_committed(self, partition: Partition, before: tuple[int, int]) -> None:
        """It has been told of a commit; `before`: high watermark and last stable offset until then."""
        if partition.topic_name == TRANSACTION_TOPIC:
            self._on_ids_committed(partition)
            return
        stable = partition.last_stable_offset
        if partition.high_watermark < before[0] or not before[1] <= stable <= partition.high_watermark:
            text = f"({partition.high_watermark}, {stable}) after {before}"
            self._world.violate(f"{partition}: high watermark and last stable offset are {text}")
        self._check(partition)

    def on_truncated(self, partition: Partition, index: int) -> None:
        model = self._models.get(partition.group.group_id)
        if model is None:
            return
        terms = self._terms[partition.host.node_id, partition.group.group_id]
        gone = [model.said[at, terms.pop(at)] for at in sorted(terms) if at >= index]
        counts = self._world.counts
        counts["truncated through data"] += any(isinstance(said, Data) for said in gone)
        counts["truncated through a marker"] += any(isinstance(said, End) for said in gone)
        still_open = {one.producer_id for one in partition.state.transactions.open_transactions()}
        counts["truncated between data and marker"] += any(
            isinstance(said, End) and said.producer_id in still_open for said in gone
        )
        self._check(partition)

    def on_installed(self, partition: Partition, snapshot: InstallSnapshot) -> None:
        # A witness gets no state, and does not know yet that it is one.
        if partition.topic_name in self._topics and len(snapshot.data):
            model = self._models[partition.group.group_id]
            compacts = partition.topic_name in self._compacted
            compare_installed(self._world, partition, model, snapshot, compacts=compacts)

    def _check(self, partition: Partition) -> None:
        state = partition.state
        if partition.topic_name not in self._topics or partition.is_witness or partition.log.partial_since is not None:
            return
        model = self._models[partition.group.group_id]
        index = state.producers.commit_index
        term_at = partition.log.term_at
        try:
            model.commit(index, term_at)
            end_index = max(index, min(state.producers.applied_index, partition.log.last_index))
            end = model.behind(index, end_index, term_at)
        except UnknownEntryError as error:
            self._world.counts["not held against the model"] += 1
            self._world.note("world", f"{partition}: nobody has said what {error} is")
            return
        if not state.is_ahead:
            self._world.counts["held against the model"] += 1
            self._compare(partition, model, model.at(index), end)

    def _compare(self, partition: Partition, model: Model, committed: State, end: State) -> None:
        table = partition.state.transactions
        start = partition.log.log_start_offset
        rows = [(a, b, c) for a, b, c in table.aborted.between(0, EVERYWHERE)]
        wanted = model.aborted[: committed.aborted]
        halves = _halves(partition, wanted, committed, end)
        rows = [row for row in rows if row[::2] not in halves.aborted]
        wanted = [row for row in wanted if row[::2] not in halves.aborted]
        compacts = partition.topic_name in self._compacted
        if not compacts:
            self._equal(partition, "aborted", [row for row in rows if row[2] >= start], _from(start, wanted))
        if not (is_left_of(rows, wanted) if compacts else set(rows) <= set(wanted)):
            self._world.violate(f"{partition}: aborted are {rows}, but {wanted} are")
        self._compare_producers(partition, end)
        if compacts and partition.producers.commit_index < model.committed_index:
            return  # Entries that it commits once more may have been emptied, so that they begin nothing.
        undecided = {one.producer_id: (one.epoch, one.first_offset) for one in table.undecided()}
        is_open = {one.producer_id: (one.epoch, one.first_offset) for one in table.open_transactions()}
        for what, found, due in (("undecided", undecided, committed.open), ("open", is_open, end.open)):
            self._equal(partition, what, _without(found, halves.open), _without(due, halves.open))
        for producer_id, (_, offset) in committed.open.items():
            if offset < start:
                self._cut.add((partition.group.group_id, producer_id, offset))
        self._world.counts["transactions begun before their log"] = len(self._cut)
        if halves.open:
            return  # What is left of them may hold readers up, or not.
        first = min((offset for _, offset in committed.open.values()), default=partition.high_watermark)
        stable = min(partition.high_watermark, max(first, start))
        self._equal(partition, "last stable offset", partition.last_stable_offset, stable)

    def _compare_producers(self, partition: Partition, end: State) -> None:
        producers = partition.producers
        for producer_id, wanted_last in end.last.items():
            batches = producers.batches(producer_id)
            found = (batches[-1].log_index, batches[-1].epoch) if batches else None
            if found != wanted_last and (batches or producer_id > producers.forgotten_id_max):
                self._world.violate(f"{partition}: {found} is last of producer {producer_id}, not {wanted_last}")

    def _equal(self, partition: Partition, what: str, found: object, wanted: object) -> None:
        if isinstance(found, list) and isinstance(wanted, list):
            found, wanted = sorted(found), sorted(wanted)
        if found != wanted:
            where = f"node {partition.host.node_id}, entry {partition.producers.commit_index}"
            self._world.violate(f"{partition}: {what} by its table: {found}, by its log: {wanted} ({where})")

    # Told of coordinators.

    def _on_ids_committed(self, partition: Partition) -> None:
        ids = self._ids[partition.group.group_id]
        index = partition.producers.commit_index
        if partition.is_witness:
            return
        while ids.committed_index < index:
            at = ids.committed_index + 1
            term = partition.log.term_at(at)
            if term is None or (at, term) not in ids.said:
                self._world.counts["not held against the model"] += 1
                return
            for name, value in ids.said[at, term].items():
                if value is None:
                    ids.known.pop(name, None)
                else:
                    ids.known[name] = value
                    self._decide(decode_value(value))
            ids.committed_index = at

    def _decide(self, saved: SavedTransaction) -> None:
        if saved.state.is_prepared:
            is_commit = saved.state is TransactionState.PREPARE_COMMIT
            self._decided[saved.producer.producer_id, saved.producer.epoch].add(is_commit)

    def on_loaded(self, shard: TransactionShard) -> None:
        """A coordinator has read its log, and is about to serve."""
        partition = shard.runtime.partition
        if partition.is_witness:
            self._world.violate(f"{partition}: a witness has loaded a coordinator")
        prepared = [name for name, hosted in shard.open.items() if hosted.transaction.state.is_prepared]
        self._world.counts["transactions prepared over a failover"] += len(prepared)
        self._world.counts["coordinators loaded"] += 1
        self._on_ids_committed(partition)
        ids = self._ids[partition.group.group_id]
        if ids.committed_index != shard.runtime.standby.applied_index:
            self._world.counts["not held against the model"] += 1
            return
        wanted = {name: decode_value(value) for name, value in ids.known.items()}
        saved = {name: hosted.transaction.saved for name, hosted in shard.ids.items()}
        found = {name: decode_value(encode_value(one)) for name, one in saved.items() if one is not None}
        self._equal(partition, "transactional ids", found, wanted)

    def on_told(self, kind: str) -> None:
        self._world.counts[f"event {kind}"] += 1


def _from(start: int, rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [row for row in rows if row[2] >= start]


def _records_of(entry: Entry) -> Said:
    frame = memoryview(entry.frame)
    header = parse_header(frame)
    said: Said = {}
    if not header.is_raft_control and not header.attributes & CONTROL:
        for record in read_batch(header, frame):
            name = decode_key(bytes(record.key or b""))
            if name is not None:
                said[name] = None if record.value is None else bytes(record.value)
    return said


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Let `watcher` see what happens in partitions and coordinators of this thread, until the block ends."""
    here = get_ident()
    commit = Partition.on_committed

    def committed(partition: Partition, commit_index: int) -> None:
        before = partition.high_watermark, partition.last_stable_offset
        commit(partition, commit_index)
        if get_ident() == here:
            watcher.on_committed(partition, before)

    load = ShardRuntime.load

    async def loading(runtime: Any) -> int:
        if runtime.partition.is_witness and get_ident() == here:
            watcher._world.violate(f"{runtime.partition}: a witness loads a coordinator")
        return await load(runtime)

    tell = TransactionCoordinator.tell_transaction
    begin = TransactionShard.begin_in_steps
    with ExitStack() as stack:
        for owner, name, instead in (
            (Partition, "on_appended", _before(Partition.on_appended, watcher.on_appended)),
            (Partition, "on_committed", committed),
            (Partition, "on_truncated", _after(Partition.on_truncated, watcher.on_truncated)),
            (Partition, "install", _after(Partition.install, watcher.on_installed)),
            (ShardRuntime, "load", loading),
            (TransactionShard, "begin_in_steps", _before(begin, watcher.on_loaded)),
            (TransactionCoordinator, "tell_transaction", _before(tell, lambda _, kind, *rest: watcher.on_told(kind))),
        ):
            stack.enter_context(patch.object(owner, name, instead))
        yield


def _before(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    """Return `function`, with a look before it in the thread of now."""
    here = get_ident()

    def both(this: Any, *args: Any) -> Any:
        if get_ident() == here:
            look(this, *args)
        return function(this, *args)

    return both


def _after(function: Callable[..., Any], look: Callable[..., None]) -> Callable[..., Any]:
    """Return `function`, with a look after it in the thread of now."""
    here = get_ident()

    def both(this: Any, *args: Any) -> Any:
        result = function(this, *args)
        if get_ident() == here:
            look(this, *args)
        return result

    return both
