"""Makes the requests of one member of a group of KIP-848, and interprets the answers. Pure.

The coordinator divides the partitions. A member only says what it is, what it wants and what it owns, all in one
request, the *heartbeat*, and hears in the answer what it may own from now on. It goes through *epochs*: 0 stands for
who joins, and whenever the coordinator gives it something else to do, it gives it a higher epoch, too.

                begin_join        answer
       OUT  ------------> JOINING ------> IN ----+
        ^                    |            |  ^   | answers
        +--- leave, lost ----+------------+  +---+

*Full and sparse.* A full heartbeat says everything. One that follows an answer says only what has changed since the
request that was answered (trap G7). After a failure nobody knows what the coordinator has heard, so the next one is
full (`on_silence`). Joining has its own rules (trap G1): partitions that are none rather than null, and a timeout.

*Reconciling.* `changes` compares what the coordinator has assigned with what is owned: the shell first gives up, then
takes over, and notes both (`given_up`, `taken`). Each of them is news for the next heartbeat, and what is given up
matters to others, so it is said at once. Partitions go by their topic's id: a topic that was made anew under its old
name is another one, and what is owned of the old one goes first. An id without a known name waits until the shell has
found it. A member may have ten thousand partitions, so they are compared as numbers, a topic at a time, and named only
where they change.

*Identity and loss.* The member makes its own id (KIP-1082), and keeps it. FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID end
a membership: the partitions belong to others already. `has_lost` stays true until the shell has told the application
(`lost_is_told`), `lost_because` says why, and then the member joins again. Each membership has its `turn`: an answer to
a request of an earlier one says nothing about the present one.

Not here: time, retries, and the search for the coordinator (consumer_session.py, consumer_heartbeats.py).
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Final, NamedTuple

from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.error_codes import RETRIABLE
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.topic_partition import TopicPartition

from .member import Identity, Situation

__all__ = ["Beat", "Changes", "ConsumerGroupSettings", "ConsumerMember", "Wishes"]

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
# Until the first answer, which says it better. Kafka's default.
HEARTBEAT_INTERVAL_S: Final = 5.0
# Whatever a coordinator says.
HEARTBEAT_INTERVAL_MIN_S: Final = 0.01
NOT_SERVED: Final = "the cluster does not serve groups whose coordinator assigns (KIP-848); take group_protocol=classic"


class ConsumerGroupSettings(NamedTuple):
    """The settings of a membership; see `GroupSettings` for those that classic groups have, too.

    `remote_assignor` is the coordinator's assignor that this member wants; None leaves it to the group. `rack` may be
    empty.
    """

    group_id: str
    group_instance_id: str | None = None
    rebalance_timeout_s: float = 300.0
    remote_assignor: str | None = None
    rack: str = ""


class Wishes(NamedTuple):
    """What a consumer wants to read: topics by name, or those that match a pattern of the coordinator's."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


class Beat(NamedTuple):
    """A heartbeat, in the `turn` of which it was made."""

    request: ConsumerGroupHeartbeatRequest
    turn: int


Shares = Mapping[bytes, Collection[int]]
"""The numbers of partitions by the id of their topic. No topic has none."""


class Changes(NamedTuple):
    """Partitions to give up and to take over, the names of both, and the topics of which no name is known."""

    going: Shares
    coming: Shares
    names: Mapping[bytes, str]
    nameless: frozenset[bytes]

    @property
    def revoked(self) -> frozenset[TopicPartition]:
        return _named(self.going, self.names)

    @property
    def added(self) -> frozenset[TopicPartition]:
        return _named(self.coming, self.names)


class _Said(NamedTuple):
    """What the coordinator was told."""

    wishes: Wishes
    held: Shares


class ConsumerMember:
    """A member and its memory. Owned by one session.

    `epoch` is above 0 in IN, and 0 otherwise. `assigned` is what it may own, `held` what it owns: no two topics of one
    name.
    """

    def __init__(self, settings: ConsumerGroupSettings, member_id: str) -> None:
        """Raise `ValueError` for settings that make no sense. `member_id` is unique."""
        if not settings.group_id:
            raise ValueError("a group needs an id")
        self.settings = settings
        self.member_id = member_id
        self.situation = Situation.OUT
        self.epoch = JOINING_EPOCH
        self.interval_s = HEARTBEAT_INTERVAL_S
        self.assigned: Shares = {}
        self.held: Shares = {}
        self._names: Mapping[bytes, str] = {}
        self.is_reconciled = True
        """False while what is owned may differ from what is assigned."""
        self.turn = 0
        self.has_lost = False
        self.lost_because = ""
        self.failure: KafkaError | None = None
        # Who has asked to join may be a member, whatever it has heard.
        self._may_be_known = False
        self._said: _Said | None = None
        self._saying: _Said | None = None

    @property
    def identity(self) -> Identity:
        """The member as it stores offsets; its generation is -1 before it has an epoch."""
        return Identity(self.epoch or -1, self.member_id, self.settings.group_instance_id)

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it owns."""
        return _named(self.held, self._names)

    @property
    def is_out(self) -> bool:
        """True while there is no membership, and none in the making."""
        return self.situation is Situation.OUT

    # Decisions of the shell.

    def begin_join(self) -> None:
        assert self.situation is Situation.OUT
        self.situation = Situation.JOINING
        self.turn += 1

    def leave(self, *, lost_because: str = "") -> None:
        """Forget the membership: on purpose, or because of something that makes it a loss."""
        self._may_be_known = False
        self._reset(lost_because)

    def fail(self, failure: KafkaError) -> None:
        """Give the membership up, because no retry helps. The first failure stays."""
        self.failure = self.failure or failure
        self._reset(str(failure))

    def lost_is_told(self) -> None:
        """Note that the application was told of the loss."""
        self.has_lost = False

    def changes(self, name_of: Callable[[bytes], str | None]) -> Changes:
        """Return the differences between what is owned and what is assigned. `name_of` knows names of topics by id.

        Without any, it is reconciled, until the next answer.
        """
        held, names = self.held, dict(self._names)
        fresh: dict[str, bytes] = {}
        nameless = set[bytes]()
        for topic_id in self.assigned:
            if topic_id not in held:
                name = name_of(topic_id)
                if name is None:
                    nameless.add(topic_id)
                else:
                    fresh[name] = topic_id
                    names[topic_id] = name
        coming: dict[bytes, Collection[int]] = {topic_id: self.assigned[topic_id] for topic_id in fresh.values()}
        going: dict[bytes, Collection[int]] = {}
        for topic_id, numbers in held.items():
            wanted = self.assigned.get(topic_id, ()) if names[topic_id] not in fresh else ()
            if wanted == numbers:
                continue
            if not wanted:
                going[topic_id] = numbers
                continue
            if gone := set(numbers).difference(wanted):
                going[topic_id] = gone
            if new := set(wanted).difference(numbers):
                coming[topic_id] = new
        self.is_reconciled = not (going or coming or nameless)
        return Changes(going, coming, names, frozenset(nameless))

    def given_up(self, changes: Changes) -> None:
        """Note that what was to go is not owned any more."""
        held = dict(self.held)
        for topic_id in changes.going.keys() & held.keys():
            left = set(held.pop(topic_id)).difference(changes.going[topic_id])
            if left:
                held[topic_id] = tuple(sorted(left))
        self._hold(held, self._names)

    def taken(self, changes: Changes) -> None:
        """Note that what was to come is owned."""
        held = dict(self.held)
        for topic_id, numbers in changes.coming.items():
            held[topic_id] = tuple(sorted({*held[topic_id], *numbers})) if topic_id in held else numbers
        self._hold(held, changes.names)

    # Requests.

    def has_news(self, wishes: Wishes) -> bool:
        """Say whether there is something to tell that cannot wait for the next heartbeat's time."""
        return self.situation is not Situation.OUT and self._said != _Said(wishes, self.held)

    def heartbeat(self, wishes: Wishes) -> Beat:
        """Return the next heartbeat of a member that wants `wishes`: full, or with what is new."""
        assert self.situation is not Situation.OUT
        said = self._said
        is_joining = self.situation is Situation.JOINING
        self._saying = _Said(wishes, self.held)
        self._may_be_known = True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.settings.group_instance_id,
        )
        if said is None or said.wishes != wishes:
            request.subscribed_topic_names = sorted(wishes.topics)
            # The empty pattern takes an earlier one back.
            was_pattern = said is not None and said.wishes.pattern is not None
            request.subscribed_topic_regex = "" if wishes.pattern is None and was_pattern else wishes.pattern
        if said is None:
            request.rack_id = self.settings.rack or None
            request.rebalance_timeout_ms = round(self.settings.rebalance_timeout_s * 1000)
            request.server_assignor = self.settings.remote_assignor
        if is_joining:
            request.topic_partitions = []
        elif said is None or said.held != self.held:
            request.topic_partitions = _rows(self.held, self._names)
        return Beat(request, self.turn)

    def leave_request(self, reason: str) -> ConsumerGroupHeartbeatRequest | None:
        """Return the request to leave, if the coordinator may know this member. The protocol has no place for reasons.

        A static member says that it comes back.
        """
        del reason
        if not self._may_be_known:
            return None
        is_static = self.settings.group_instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVING_EPOCH if is_static else LEAVING_EPOCH,
            instance_id=self.settings.group_instance_id,
        )

    # Answers.

    def on_silence(self) -> None:
        """Note that the coordinator may not have heard what was said: the next heartbeat is full."""
        self._said = None

    def on_answer(self, response: ConsumerGroupHeartbeatResponse, sent: Beat) -> bool:
        """Take the answer to a heartbeat, and return true if the member is in another epoch than before."""
        if sent.turn != self.turn or self.situation is Situation.OUT:
            return False
        if response.error_code:
            self._refused(response)
            return False
        self._said = self._saying
        self.interval_s = max(HEARTBEAT_INTERVAL_MIN_S, response.heartbeat_interval_ms / 1000)
        is_new = response.member_epoch != self.epoch
        self.epoch = response.member_epoch
        self.situation = Situation.IN
        if response.assignment is not None:
            assigned = {row.topic_id: row.partitions for row in response.assignment.topic_partitions if row.partitions}
            self.assigned = assigned
            self.is_reconciled = False
        return is_new

    # Inside.

    def _refused(self, response: ConsumerGroupHeartbeatResponse) -> None:
        code = response.error_code
        self._said = None
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset("the coordinator does not know this member any more")
        elif code == ErrorCode.FENCED_MEMBER_EPOCH:
            self._reset("the group has gone on without this member")
        elif code == ErrorCode.UNSUPPORTED_VERSION:
            self.fail(error_for(code, f"group {self.settings.group_id}: {NOT_SERVED}"))
        elif code not in RETRIABLE:
            said = f": {response.error_message}" if response.error_message else ""
            self.fail(error_for(code, f"group {self.settings.group_id}{said}"))

    def _reset(self, lost_because: str) -> None:
        # Who has no epoch has no partitions to lose.
        if lost_because and self.epoch != JOINING_EPOCH and not self.has_lost:
            self.has_lost = True
            self.lost_because = lost_because
        self.turn += 1
        self.epoch = JOINING_EPOCH
        self.situation = Situation.OUT
        self.assigned = {}
        self._hold({}, {})
        self.is_reconciled = True
        self._said = None

    def _hold(self, held: Shares, names: Mapping[bytes, str]) -> None:
        self.held = held
        self._names = names if names.keys() == held.keys() else {topic_id: names[topic_id] for topic_id in held}


def _named(shares: Shares, names: Mapping[bytes, str]) -> frozenset[TopicPartition]:
    """Return the partitions. They may be many, and are made without a step of Python's for each."""
    by_topic = map(zip, map(repeat, map(names.__getitem__, shares)), shares.values())
    return frozenset(map(partial(tuple.__new__, TopicPartition), chain.from_iterable(by_topic)))


def _rows(shares: Shares, names: Mapping[bytes, str]) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    """Return what a heartbeat says of partitions, in the order of their names."""
    return [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(shares[topic_id]))
        for topic_id in sorted(shares, key=names.__getitem__)
    ]
