"""A node's disk, and the log that lives on it, on virtual time.

Writes queue in order and reach the disk together when a sync completes. A crash keeps any prefix of the queue
and loses the rest. In `page-cache` mode the log's own writes survive a crash at once, and only hard states
queue: so log and hard state can reach the disk in either order, which a core must survive. A loss of power takes any
part of the log behind the newest change of members: that one, and the entries until it is synced, wait for a sync.
"""

from collections import deque
from collections.abc import Sequence

from barnabas_raftlog.raft.membership import NOBODY, Configuration, ConfigurationHistory
from barnabas_raftlog.raft.messages import Entry, HardState, Place

CHANGE = b"membership "  # Before an encoded configuration it makes a frame that changes the members.


class Image:
    """The log as a list. `base_index` and `base_term` stand for the entries that a snapshot covers."""

    def __init__(
        self,
        base_index: int = 0,
        base_term: int = 0,
        entries: Sequence[Entry] = (),
        members: ConfigurationHistory | None = None,
    ) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self.held = list(entries)
        self.members = members or ConfigurationHistory()
        self.partial_since: Place | None = None

    @property
    def configuration(self) -> Configuration:
        return self.members.newest

    @property
    def configuration_index(self) -> int:
        return self.members.newest_index

    def configuration_at(self, index: int) -> Configuration:
        return self.members.at(index)

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.held)

    @property
    def durable_index(self) -> int:
        return self.last_index

    @property
    def may_forget(self) -> bool:
        return False

    @property
    def first_index(self) -> int:
        return self.base_index + 1

    @property
    def last_term(self) -> int:
        return self.held[-1].term if self.held else self.base_term

    def term_at(self, index: int) -> int | None:
        position = index - self.base_index - 1
        if position >= 0:
            return self.held[position].term if position < len(self.held) else None
        return self.base_term if position == -1 else (0 if index == 0 else None)

    def entries(self, start_index: int, bytes_max: int) -> Sequence[Entry] | None:
        position = start_index - self.base_index - 1
        size_bytes = 0
        assert position >= 0
        stop = position
        while stop < len(self.held) and (stop == position or size_bytes < bytes_max):
            size_bytes += len(self.held[stop].frame)
            stop += 1
        return self.held[position:stop]

    def append(self, entries: Sequence[Entry]) -> None:
        assert entries[0].index == self.last_index + 1, f"{entries[0].index} appended after {self.last_index}"
        self.held += entries
        for entry in entries:
            if bytes(entry.frame[: len(CHANGE)]) == CHANGE:
                self.members.assign(entry.index, Configuration.decode(entry.frame[len(CHANGE) :]))

    def truncate_from(self, index: int) -> None:
        assert self.base_index < index <= self.last_index
        del self.held[index - self.base_index - 1 :]
        self.members.truncate_from(index)

    def drop_prefix(self, index: int) -> None:
        """Forget the entries that a snapshot of `index` stands for.

        Of a log as its owner sees it this is only about memory: its disk keeps it all.
        """
        term = self.term_at(index)
        assert term is not None
        self.held = self.held[index - self.base_index :]
        self.base_index = index
        self.base_term = term
        self.members.drop_prefix(index)

    def forget(self, index: int, since: Place) -> None:
        """Forget, as a witness, the entries that others have."""
        Image.drop_prefix(self, index)
        self.partial_since = max(since, self.partial_since or since)

    def install(self, index: int, term: int, configuration: Configuration, since: Place | None = None) -> None:
        """Begin behind `index`, as a witness if `since` is given."""
        self.base_index = index
        self.base_term = term
        self.held = []
        self.partial_since = since
        self.members.restart(index, configuration if configuration.voters else self.configuration)


Operation = tuple[str, tuple[object, ...]]


class MemoryLog(Image):
    """The log as its owner sees it: a `LogReader`, plus the calls of a driver."""

    def __init__(self, disk: "Disk") -> None:
        image = disk.image
        members = ConfigurationHistory.from_rows(image.members.rows())
        super().__init__(image.base_index, image.base_term, image.held, members)
        self.disk = disk
        self.partial_since = image.partial_since
        self.synced_index = self.last_index

    @property
    def durable_index(self) -> int:
        return self.synced_index

    @property
    def may_forget(self) -> bool:
        return self.disk.page_cache

    def append(self, entries: Sequence[Entry]) -> None:
        super().append(entries)
        self.disk.write("append", list(entries))

    def truncate_from(self, index: int) -> None:
        super().truncate_from(index)
        self.disk.write("truncate_from", index)

    def install(self, index: int, term: int, configuration: Configuration, since: Place | None = None) -> None:
        super().install(index, term, configuration, since)
        self.disk.write("install", index, term, configuration, since)

    def forget(self, index: int, since: Place) -> None:
        super().forget(index, since)
        self.disk.write("forget", index, since)


def _has_change(arguments: tuple[object, ...]) -> bool:
    (entries,) = arguments
    assert isinstance(entries, list)
    return any(bytes(entry.frame[: len(CHANGE)]) == CHANGE for entry in entries)


class Disk:
    """The writes that survive a crash, and those still on their way there."""

    syncs_changes = True  # False: what this would be without that rule, for a test of the tests

    def __init__(self, configuration: Configuration = NOBODY, *, page_cache: bool = False) -> None:
        self.page_cache = page_cache
        self.kept_index = 0  # A loss of power takes nothing up to here.
        self.image = Image()
        if configuration.voters:
            self.image.members.assign(0, configuration)
        self.hard_state = HardState(0, None)
        self.queue = deque[Operation]()
        self.queued_count = 0
        self.done_count = 0
        self.log = MemoryLog(self)
        self.is_uncertain = False
        self.is_blank = False

    @property
    def newest_hard_state(self) -> HardState:
        """The hard state that was saved last, durable or not."""
        for kind, arguments in reversed(self.queue):
            if kind == "save":
                (hard_state,) = arguments
                assert isinstance(hard_state, HardState)
                return hard_state
        return self.hard_state

    def write(self, kind: str, *arguments: object) -> None:
        """Queue a write of the log; in `page-cache` mode it is durable by the time this returns, but for changes."""
        waits = self.syncs_changes and (
            any(queued != "save" for queued, _ in self.queue) or (kind == "append" and _has_change(arguments))
        )
        if self.page_cache and not waits:
            self._apply((kind, arguments))
        else:
            self.queue.append((kind, arguments))
            self.queued_count += 1
        self.log.synced_index = self._durable_index()

    def save(self, hard_state: HardState) -> int:
        """Queue a hard state; return the ticket that `done_count` reaches when it is durable."""
        self.queue.append(("save", (hard_state,)))
        self.queued_count += 1
        return self.queued_count

    def sync(self, ticket: int | None = None) -> bool:
        """Complete everything queued up to `ticket`; return True if the log's durable index moved."""
        before = self.log.durable_index
        while self.done_count < (self.queued_count if ticket is None else ticket):
            self._apply(self.queue.popleft())
            self.done_count += 1
        self.log.synced_index = self._durable_index()
        return self.log.durable_index > before

    def crash(self, kept_count: int) -> None:
        """Lose all that is queued but its first `kept_count` writes, and open the log again."""
        for _ in range(min(kept_count, len(self.queue))):
            self._apply(self.queue.popleft())
        self.queue.clear()
        self.done_count = self.queued_count
        self.log = MemoryLog(self)

    def lose_power(self, kept_count: int) -> None:
        """Keep so many entries of a log in `page-cache` mode, or more. To be followed by `crash`."""
        assert self.page_cache
        self.is_uncertain = True
        self.queue = deque(operation for operation in self.queue if operation[0] == "save")
        kept_count = max(kept_count, self.kept_index - self.image.base_index)
        if kept_count < len(self.image.held):
            self.image.truncate_from(self.image.base_index + kept_count + 1)

    def _apply(self, operation: Operation) -> None:
        kind, arguments = operation
        if kind == "save":
            (hard_state,) = arguments
            assert isinstance(hard_state, HardState)
            self.hard_state = hard_state
        else:
            getattr(self.image, kind)(*arguments)
            self.kept_index = min(self.kept_index, self.image.last_index)
            if self.syncs_changes and kind == "append" and _has_change(arguments):
                self.kept_index = self.image.last_index

    def _durable_index(self) -> int:
        """The end up to which disk and log are equal: the lowest truncation that is still queued."""
        index = self.image.last_index
        for kind, arguments in self.queue:
            if kind == "truncate_from":
                (start,) = arguments
                assert isinstance(start, int)
                index = min(index, start - 1)
            elif kind == "install":
                index = 0
        return min(index, self.log.last_index)
