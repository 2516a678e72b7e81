"""The naive model of one log for `test_crashes`, on lists."""

from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.segments.operations import Gate

Item = tuple[int, bytes]  # term, frame
# In place of tickets: in page-cache mode the journal hears of what was cut when its turn comes in the write queue.
GATED = 1 << 61
NEVER = 1 << 62


class Model:
    """One log as it should be: `items` follow entry `base`, before which nothing was ever, or a snapshot stood.

    `before`: its entries before each truncation or snapshot that is not durable yet. `start`: the entries up to here
    were dropped; `starts`: the same, and the ticket that makes it durable. Nothing up to `committed` is truncated.
    """

    def __init__(self) -> None:
        self.base = 0
        self.base_term = 0
        self.base_offset = 0
        self.items: list[Item] = []
        self.before: list[tuple[int, tuple[int, list[Item], int]]] = []
        self.durable = self.committed = self.start = self.durable_start = 0
        self.starts: list[tuple[int, int]] = []
        self.lacks_state = False

    @property
    def last_index(self) -> int:
        return self.base + len(self.items)

    def note_before(self, log: ReplicaLog, ticket: int) -> None:
        self.before.append((ticket if log.mode == "fsync" else GATED, (self.base, self.items, self.start)))

    def note_durable(self, log: ReplicaLog, ticket: int) -> None:
        self.durable = log.durable_index
        if log.mode == "page-cache":
            ticket = 0 if any(isinstance(operation, Gate) for operation in log.operations) else GATED
        self.before = [item for item in self.before if item[0] > ticket]
        while self.starts and self.starts[0][0] <= ticket:
            self.durable_start = self.starts.pop(0)[1]

    def accepts(self, start: int, found: list[Item], *, at_least: int) -> bool:
        candidates = [(self.base, self.items, self.start), *(version for _, version in self.before)]
        return start + len(found) >= at_least and any(
            base <= start <= dropped and found == items[start - base : start - base + len(found)]
            for base, items, dropped in candidates
        )

    def settle_on(self, log: ReplicaLog, found: list[Item]) -> None:
        self.base = self.start = self.durable_start = log.first_index - 1
        self.base_term = log.term_at(self.base) or 0
        self.base_offset = log.base_offset
        self.items = found
        self.before = []
        self.starts = []
        self.durable = self.last_index
        self.committed = max(self.base, min(self.committed, self.last_index))
