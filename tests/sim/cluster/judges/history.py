"""The answers that clients got, and the facts that may never contradict them.

One history is shared by all clients of a run: it knows more than any of them. Values are unique, so each says of itself
where it belongs and how often it may be there. A value that was sent and never acknowledged may be there or not, and
twice only if it was sent twice without a sequence number.

Everything is also told to `judge`, which is the project's history checker and knows less, as users do. The exception
are the records of a topic that is compacted: it does not know that they may go.
"""

from typing import NamedTuple

from sim.cluster.world import World

from .judge import Judge, Partition, number_of

__all__ = ["ClientHistory", "Partition"]

KEYS = 7


class _Sent(NamedTuple):
    partition: Partition
    producer: str
    is_idempotent: bool
    timestamp_ms: int


class ClientHistory:
    """Acknowledgements, reads and commits; each new one is compared with all before."""

    def __init__(self, world: World, *, compacts: bool = False) -> None:
        self._world = world
        self.compacts = compacts
        self.judge = Judge(world, sees_records=not compacts)
        self.sent = dict[bytes, _Sent]()
        self.acknowledged = dict[bytes, tuple[Partition, int]]()
        self.at = dict[tuple[Partition, int], bytes]()  # the value at an offset, if known
        self.places = dict[bytes, set[tuple[Partition, int]]]()
        self.refused = set[bytes]()
        self.deleted = dict[Partition, int]()  # the most that anybody has asked to be deleted
        self.ends = dict[Partition, int]()  # behind the last acknowledged record
        self.handed_out = dict[tuple[str, Partition], int]()  # behind the last record that a group was handed
        self._delivered = set[bytes]()  # acknowledged, and nobody said where
        self._told_ends = dict[Partition, int]()
        self._told_times = dict[tuple[Partition, int], int]()
        self._last_of = dict[tuple[Partition, str], int]()  # a producer's last acknowledged offset
        self.commits = dict[tuple[str, Partition], int]()  # the newest acknowledged commit of a group
        self._doubtful = dict[tuple[str, Partition], set[int]]()  # sent, and never answered
        self._generations = dict[tuple[str, Partition], int]()
        self.owners = dict[tuple[str, int, Partition], str]()
        self._skipped = dict[tuple[str, Partition], set[int]]()

    def key_of(self, value: bytes) -> bytes | None:
        """Return the key with which this value is sent; producers share a few."""
        return b"k%d" % (number_of(value) % KEYS) if self.compacts else None

    def on_sent(
        self, value: bytes, partition: Partition, producer: str, *, is_idempotent: bool, timestamp_ms: int = 0
    ) -> None:
        self.sent[value] = _Sent(partition, producer, is_idempotent, timestamp_ms)
        self.judge.invoked(value, partition, is_idempotent=is_idempotent)

    def on_unknown(self, values: list[bytes]) -> None:
        """These will not be sent again; they may be there, or come to be there."""
        for value in values:
            self.judge.unknown(value, self.sent[value].partition)

    def on_refused(self, value: bytes) -> None:
        """A producer was told that this one is not there, and will not be."""
        self.refused.add(value)
        self.judge.refused(value, self.sent[value].partition)
        if value in self.places:
            self._world.violate(f"{value!r} is refused, and is at {sorted(self.places[value])}")

    def on_acknowledged(self, values: list[bytes], base_offset: int, *, is_in_order: bool = True) -> None:
        """These values are at `base_offset` and behind it, for ever.

        `is_in_order`: their producer had an answer for everything that it had sent before. One that has several
        batches under way, and no sequence numbers, hears of them in any order.
        """
        sent = self.sent[values[0]]
        partition = sent.partition
        key = (sent.partition, sent.producer)
        if is_in_order and base_offset <= self._last_of.get(key, -1):
            self._world.violate(
                f"{partition}: {values[0]!r} is acknowledged at {base_offset}, but {sent.producer} had written"
                f" {self._last_of[key]} before it"
            )
        self._last_of[key] = max(base_offset + len(values) - 1, self._last_of.get(key, -1))
        for offset, value in enumerate(values, base_offset):
            self.acknowledged[value] = (partition, offset)
            self._put(partition, offset, value)
            self.judge.acknowledged(value, partition, offset)
        self.ends[partition] = max(self.ends.get(partition, 0), base_offset + len(values))
        self._world.counts["acknowledged"] += len(values)

    def on_read(self, reader: str, partition: Partition, offset: int, value: bytes) -> None:
        self._put(partition, offset, value)
        self.judge.consumed(reader, partition, offset, value)
        self._world.counts["read"] += 1

    def on_skipped(self, reader: str, partition: Partition, offsets: range) -> None:
        """A reader was given the records behind these, and not these."""
        self._skipped.setdefault((reader, partition), set()).update(offsets)

    def _put(self, partition: Partition, offset: int, value: bytes) -> None:
        known = self.at.setdefault((partition, offset), value)
        if known != value:
            self._world.violate(f"{partition} at {offset}: {known!r} has become {value!r}")
        places = self.places.setdefault(value, set())
        if (partition, offset) in places:
            return
        places.add((partition, offset))
        sent = self.sent.get(value)
        if sent is None or sent.partition != partition:
            self._world.violate(f"{partition} at {offset}: {value!r} was never sent there")
        elif value in self.refused:
            self._world.violate(f"{partition} at {offset}: {value!r} is there, and was refused")
        elif len(places) > 1 and (sent.is_idempotent or value in self.acknowledged):
            self._world.violate(f"{value!r} is there twice: {sorted(places)}")

    def on_commit_sent(self, group: str, partition: Partition, offset: int) -> None:
        """Until it is answered it may be there or not; unanswered, it may come at any time in its generation."""
        self._doubtful.setdefault((group, partition), set()).add(offset)
        self.judge.commit_invoked(group, partition, offset)

    def on_committed(self, group: str, partition: Partition, offset: int) -> None:
        """A commit was acknowledged. One member owns a partition at a time, so the newest counts."""
        self.commits[group, partition] = offset
        doubtful = self._doubtful[group, partition]
        doubtful.discard(offset)
        self.judge.commit_acknowledged(group, partition, offset, is_doubtful=bool(doubtful))
        self._world.counts["commits"] += 1

    def on_commit_asked(self, reader: str, group: str, partition: Partition) -> int:
        """Return the least offset that a fetch sent now may be told."""
        self.judge.committed_asked(reader, group, partition)
        newest = self.commits.get((group, partition), 0)
        return min(newest, *self._doubtful.get((group, partition), ()), newest)

    def on_fetched_commit(
        self, reader: str, group: str, partition: Partition, offset: int, at_least: int, generation: int
    ) -> None:
        """The first look in a generation ends all doubts about commits of older ones."""
        self.judge.committed(reader, group, partition, offset)
        if offset < at_least:
            self._world.violate(f"group {group}: the commit for {partition} went back from {at_least} to {offset}")
        if generation > self._generations.get((group, partition), -1):
            self._generations[group, partition] = generation
            self.commits[group, partition] = offset
            self._doubtful.pop((group, partition), None)

    def on_assigned(self, group: str, generation: int, partition: Partition, member: str) -> None:
        owner = self.owners.setdefault((group, generation, partition), member)
        self.judge.assigned(group, generation, member, partition)
        if owner != member:
            self._world.violate(f"group {group}: {partition} has owners {owner} and {member} in {generation}")

    def on_delete_sent(self, partition: Partition, offset: int) -> None:
        self.deleted[partition] = max(self.deleted.get(partition, 0), offset)
        self.judge.log_start(partition, offset)

    def on_delivered_somewhere(self, value: bytes) -> None:
        """A producer was told that this one is there, and not where."""
        self._delivered.add(value)
        self.judge.unknown(value, self.sent[value].partition)

    def on_handed_out(self, group: str, partition: Partition, offset: int, due: int | None) -> None:
        """A member of a group of the project's own consumers was handed a record; `due`: which comes next, if known."""
        end = self.handed_out.get((group, partition), 0)
        wanted = end if due is None else due
        # A reader that falls behind the deletions goes on where the log begins; compaction leaves holes.
        is_hole = offset > wanted and not self.compacts and offset > self.deleted.get(partition, 0)
        if is_hole or (due is not None and offset < due):
            self._world.violate(f"group {group}: {partition} goes on at {offset}, and {wanted} was due")
        self.handed_out[group, partition] = max(end, offset + 1)

    def on_group_stored(self, group: str, partition: Partition, offset: int) -> None:
        """The group has stored this offset. Behind what was handed out, compaction may have left offsets empty."""
        end = max(self.handed_out.get((group, partition), 0), self.deleted.get(partition, 0))
        if offset > end and not self.compacts:
            self._world.violate(f"group {group}: {offset} is stored for {partition}, and {end} was handed out")

    def on_told_end(self, partition: Partition, offset: int) -> None:
        """A leader says that all records before `offset` are committed."""
        self._told_ends[partition] = max(offset, self._told_ends.get(partition, 0))

    def on_told_record(self, partition: Partition, offset: int, timestamp_ms: int) -> None:
        """A leader says that a committed record with this time is at `offset`."""
        self.on_told_end(partition, offset + 1)
        self._told_times[partition, offset] = timestamp_ms

    def owed_end(self, partition: Partition) -> int:
        """Return how far a partition must go: to the acknowledged records, and to the end that a leader told."""
        return max(self.ends.get(partition, 0), self._told_ends.get(partition, 0))

    def check_complete(self, reader: str, partition: Partition, end_offset: int) -> None:
        """Everything up to `end_offset` was read at some time: offsets are dense, nothing acknowledged is missing.

        If it is compacted, records may be missing if a newer one of the same key was read.
        """
        self.judge.ended(reader, partition, end_offset)
        if self.compacts:
            self._check_skipped(partition, self._skipped.get((reader, partition), set()))
        else:
            for offset in range(end_offset):
                if (partition, offset) not in self.at:
                    self._world.violate(f"{partition}: there is nothing at {offset}, of {end_offset}")
        if end_offset < self.ends.get(partition, 0):
            self._world.violate(f"{partition} ends at {end_offset}; {self.ends[partition]} were acknowledged")
        if end_offset < self._told_ends.get(partition, 0):
            self._world.violate(f"{partition} ends at {end_offset}; {self._told_ends[partition]} was told")
        for value in self._delivered:
            if self.sent[value].partition == partition and value not in self.places and not self.compacts:
                self._world.violate(f"{partition}: {value!r} was delivered, and is nowhere")
        for (where, offset), timestamp_ms in self._told_times.items():
            told = self.at.get((where, offset))
            if told is not None and self.sent[told].timestamp_ms != timestamp_ms:
                self._world.violate(f"{where} at {offset}: {told!r} was told to be of {timestamp_ms}")

    def _check_skipped(self, partition: Partition, skipped: set[int]) -> None:
        newest = dict[bytes | None, int]()
        known = {offset: value for (where, offset), value in self.at.items() if where == partition}
        for offset, value in known.items():
            if offset not in skipped:
                newest[self.key_of(value)] = max(offset, newest.get(self.key_of(value), 0))
        for offset in sorted(skipped & known.keys()):
            if newest.get(self.key_of(known[offset]), -1) < offset:
                self._world.violate(f"{partition}: {known[offset]!r} at {offset} is gone, and nothing replaces it")
        self._world.counts["compacted away"] += len(skipped & known.keys())
