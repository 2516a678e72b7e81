"""Says who belongs to a group, which changes are allowed, and what holds where. Pure.

A member is a node *and* the directory that it keeps its data in. A node that comes back with an empty disk has another
directory id: it is another member, which never voted and never acknowledged anything, and must not do either in the
name of the lost one. Such a node is removed and added like any other (KIP-853 does the same). A directory id of zeros
is unknown and taken for any other: that is for tests, and for groups that are older than this. To fill one in changes
no majority, because the members stay the same nodes; it counts as a change of one voter all the same.

Voters decide; learners are sent everything and decide nothing. A *witness* is a voter that serves nobody and keeps
only what another voter still lacks.

**One voter at a time** (Ongaro's thesis, 4.1). Any majority of a set of voters and any majority of a set that differs
by one voter have a member in common, so two leaders cannot be elected by two configurations, and no joint consensus
is needed. Replacing a voter is two changes. Learners count in no majority and may come and go freely.

**A configuration holds from where it stands in the log**, committed or not, and truncation takes it back (4.1).
`ConfigurationHistory` is how a log answers what holds.

Not here: which members are wanted; joint consensus, so no change of several voters at once is ever atomic.
"""

import struct
from bisect import bisect_right
from functools import lru_cache

import msgspec

__all__ = [
    "DIRECTORY_ID_BYTES",
    "NOBODY",
    "UNKNOWN_DIRECTORY",
    "Configuration",
    "ConfigurationHistory",
    "Member",
    "check_change",
    "configuration_of",
    "same_directory",
]

DIRECTORY_ID_BYTES = 16
UNKNOWN_DIRECTORY = bytes(DIRECTORY_ID_BYTES)
FORMAT = 1
_HEADER = struct.Struct(">BH")  # format, how many members
_MEMBER = struct.Struct(">iB16s")  # node id, role, directory id
_LEARNER, _VOTER, _WITNESS = range(3)  # Stored: never renumber.


def same_directory(one: bytes, other: bytes) -> bool:
    """Tell whether two directory ids may name one directory: they are equal, or one is unknown."""
    return one == other or UNKNOWN_DIRECTORY in {one, other}


class Member(msgspec.Struct, frozen=True, order=True):
    """A node as long as it keeps its disk. `directory_id` has 16 bytes; zeros: unknown."""

    node_id: int
    directory_id: bytes = UNKNOWN_DIRECTORY


class Configuration(msgspec.Struct, frozen=True):
    """The members of a group. All three are sorted; no node id twice; `witnesses` are node ids of voters.

    Without voters it is `NOBODY`: all that a node knows of a group that it is only about to hear of.
    """

    voters: tuple[Member, ...]
    learners: tuple[Member, ...] = ()
    witnesses: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        members = self.members
        for name in ("voters", "learners", "witnesses"):
            values = getattr(self, name)
            if list(values) != sorted(values):
                raise ValueError(f"{name} are not sorted: {values}")
        if len({member.node_id for member in members}) != len(members):
            raise ValueError(f"a node is a member twice: {sorted(member.node_id for member in members)}")
        if len(set(self.witnesses)) != len(self.witnesses) or not self.voter_ids.issuperset(self.witnesses):
            raise ValueError(f"witnesses {self.witnesses} are not among the voters {sorted(self.voter_ids)}")
        if self.voters and len(self.witnesses) == len(self.voters):
            raise ValueError("all voters are witnesses: nobody would keep the log")
        if self.learners and not self.voters:
            raise ValueError("learners without a voter")
        for member in members:
            if len(member.directory_id) != DIRECTORY_ID_BYTES:
                raise ValueError(f"the directory id of node {member.node_id} is not {DIRECTORY_ID_BYTES} bytes")
            if not 0 <= member.node_id < 1 << 31:
                raise ValueError(f"node id {member.node_id}")

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset([member.node_id for member in self.voters])

    @property
    def learner_ids(self) -> frozenset[int]:
        return frozenset([member.node_id for member in self.learners])

    @property
    def full_voter_ids(self) -> frozenset[int]:
        """The voters that keep the log, and may serve."""
        return self.voter_ids.difference(self.witnesses)

    @property
    def node_ids(self) -> frozenset[int]:
        return self.voter_ids | self.learner_ids

    def member(self, node_id: int) -> Member | None:
        """Return the voter or learner with this node id."""
        for member in self.members:
            if member.node_id == node_id:
                return member
        return None

    @property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners

    def has_voter(self, member: Member) -> bool:
        """Tell whether `member`, as this very directory, is a voter."""
        return _is_among(member, self.voters)

    def has_learner(self, member: Member) -> bool:
        """Tell whether `member`, as this very directory, is a learner."""
        return _is_among(member, self.learners)

    def encode(self) -> bytes:
        """Return the body of a MEMBERSHIP control frame; docs/log-format.md has the layout."""
        rows = [(member, _WITNESS if member.node_id in self.witnesses else _VOTER) for member in self.voters]
        rows += [(member, _LEARNER) for member in self.learners]
        parts = [_MEMBER.pack(member.node_id, role, member.directory_id) for member, role in sorted(rows)]
        return _HEADER.pack(FORMAT, len(parts)) + b"".join(parts)

    @classmethod
    def decode(cls, body: bytes | bytearray | memoryview) -> "Configuration":
        """Read what `encode` wrote.

        Raises:
            ValueError: it has another format, or contradicts itself.
        """
        if len(body) < _HEADER.size:
            raise ValueError(f"a configuration of {len(body)} bytes")
        version, count = _HEADER.unpack_from(body)
        if version != FORMAT:
            raise ValueError(f"configuration format {version}, this version reads {FORMAT}")
        if len(body) != _HEADER.size + count * _MEMBER.size:
            raise ValueError(f"{count} members in {len(body)} bytes")
        found: tuple[list[Member], list[Member], list[int]] = ([], [], [])
        voters, learners, witnesses = found
        for position in range(_HEADER.size, len(body), _MEMBER.size):
            node_id, role, directory_id = _MEMBER.unpack_from(body, position)
            if role > _WITNESS:
                raise ValueError(f"node {node_id} has the unknown role {role}")
            (learners if role == _LEARNER else voters).append(Member(node_id, directory_id))
            if role == _WITNESS:
                witnesses.append(node_id)
        return cls(tuple(voters), tuple(learners), tuple(witnesses))


def _is_among(member: Member, members: tuple[Member, ...]) -> bool:
    for known in members:
        if known.node_id == member.node_id:
            return same_directory(known.directory_id, member.directory_id)
    return False


NOBODY = Configuration(())
_founding = lru_cache(maxsize=1024)(Configuration.decode)


def configuration_of(voters: frozenset[int], learners: frozenset[int] = frozenset()) -> Configuration:
    """Return a configuration of nodes whose directories are unknown."""
    return Configuration(tuple(map(Member, sorted(voters))), tuple(map(Member, sorted(learners))))


def check_change(old: Configuration, new: Configuration) -> None:
    """Refuse what would not keep majorities overlapping (thesis 4.1), or would make a witness a full voter.

    Raises:
        ValueError: more than one voter differs, none is left, or one that stays becomes a witness or stops being one.
            A learner may become a witness.
    """
    if not new.voters:
        raise ValueError("a group needs a voter")
    gone = set(old.voters) - set(new.voters)
    come = set(new.voters) - set(old.voters)
    identified = {member for member in come if Member(member.node_id) in gone}
    if len(gone | come) - len(identified) > 1:
        raise ValueError(f"one voter at a time, not {sorted({member.node_id for member in gone | come})}")
    staying = old.voter_ids & new.voter_ids
    turned = staying & (set(old.witnesses) ^ set(new.witnesses))
    if turned:
        # A witness may have dropped entries that only it could have given to somebody later.
        raise ValueError(f"node {sorted(turned)} would turn from witness to voter or back: remove and add it instead")
    staying = new.learner_ids.intersection(old.witnesses)
    if staying:
        # It must have heard that it is none before it is sent what it lacks.
        raise ValueError(f"node {sorted(staying)} would turn from witness to learner: remove it first")


class ConfigurationHistory:
    """The configuration that holds at every index of one log, from the one before `first_index` on.

    It has one row for each change in the log. Invariant: indexes strictly increase. `newest` is the object given last,
    so that a reader sees a change by identity; `newest_index` is its entry, or an index that a snapshot covers; 0 for
    the one that a group began with, and for `NOBODY`.
    """

    __slots__ = ("_configurations", "_indexes", "newest", "newest_index")

    def __init__(self) -> None:
        self._indexes: list[int] = []
        self._configurations: list[Configuration] = []
        self.newest = NOBODY
        self.newest_index = 0

    def assign(self, index: int, configuration: Configuration) -> None:
        """Let `configuration` hold from `index` on."""
        assert not self._indexes or index > self._indexes[-1], (index, self._indexes)
        self._indexes.append(index)
        self._configurations.append(configuration)
        self.newest = configuration
        self.newest_index = index

    def at(self, index: int) -> Configuration:
        """Return what holds once entry `index` is in the log."""
        position = bisect_right(self._indexes, index)
        return self._configurations[position - 1] if position else NOBODY

    def truncate_from(self, index: int) -> None:
        """Forget what came with the entries at and after `index`."""
        while self._indexes and self._indexes[-1] >= index:
            self._indexes.pop()
            self._configurations.pop()
        self.newest = self._configurations[-1] if self._configurations else NOBODY
        self.newest_index = self._indexes[-1] if self._indexes else 0

    def drop_prefix(self, index: int) -> None:
        """Forget the rows that nobody asks for when the log starts after `index`; what holds there stays known."""
        drop = bisect_right(self._indexes, index) - 1
        if drop > 0:
            del self._indexes[:drop], self._configurations[:drop]

    def restart(self, index: int, configuration: Configuration) -> None:
        """Begin anew with what a snapshot of `index` says."""
        self._indexes.clear()
        self._configurations.clear()
        self.assign(index, configuration)

    def rows(self) -> list[tuple[int, bytes]]:
        """Return (index, encoded configuration), oldest first."""
        return [(index, known.encode()) for index, known in zip(self._indexes, self._configurations, strict=True)]

    @classmethod
    def from_rows(cls, rows: list[tuple[int, bytes]]) -> "ConfigurationHistory":
        """Return the history that `rows()` described.

        Raises:
            ValueError: a configuration cannot be read.
        """
        history = cls()
        for number, (index, body) in enumerate(rows):
            # Thousands of groups began with a few configurations. Later ones are told apart by identity.
            history.assign(index, Configuration.decode(body) if number else _founding(body))
        return history
