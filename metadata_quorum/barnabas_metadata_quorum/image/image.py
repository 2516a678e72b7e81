"""The cluster's state at one point of the metadata log: immutable and versioned. Pure.

`Image.version` is the number of records ever applied, which is also the offset of the next one: an image at version
v holds exactly the records below offset v. Two nodes at one version hold equal images, because applying a record
uses nothing but the record and the image before it.

A batch of records is applied through one `ImageBuilder`, which copies each collection when the batch first writes to
it: a fencing copies only the brokers, a new topic a thousandth of the topics (`tables`). If a batch moves many
partitions of a topic, their list is copied once for all of them.

An image never changes, so it may be read from any task or thread, kept for as long as one likes, and compared by
identity: `old.topics is new.topics` says that no topic changed.

Not here: the leaders of partitions. Groups elect their own leaders; see `leaders/table.py`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar, assert_never

import msgspec

from barnabas_metadata_quorum.topic_configs import observers_of
from barnabas_metadata_quorum.topic_names import collision_key

from .records import (
    NOBODY,
    UNKNOWN_DIRECTORY,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    CommandAnswered,
    FeatureFinalized,
    ListenerAddress,
    NamedSnapshot,
    NamedSnapshotCreated,
    NamedSnapshotDeleted,
    PartitionMoved,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    ResourceConfigured,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from .tables import Table, TableDraft, by_last_bytes, differing

__all__ = [
    "ANSWERS_BYTES_MAX",
    "ANSWERS_MAX",
    "Broker",
    "BrokerLoad",
    "Founders",
    "Image",
    "ImageBuilder",
    "Move",
    "PartitionPlacement",
    "Topic",
    "TopicChanges",
    "apply",
    "apply_all",
    "configured_bytes",
    "configured_topics",
    "topic_changes",
]

# The answers to commands that are remembered for retries. A retry follows within the timeout of its request
# (seconds), in which a controller carries out tens of commands. Both limits are part of the format: every node must
# forget the same answers at the same version.
ANSWERS_MAX = 256
ANSWERS_BYTES_MAX = 4 << 20

Key = TypeVar("Key")
Value = TypeVar("Value")


class Broker(msgspec.Struct, frozen=True):
    """One registered broker process. It takes part when it is neither fenced nor shutting down.

    `listeners` is empty if it has one address, for everybody; else `host` and `port` are those of its first listener.
    `has_served`: it was unfenced at some time since it registered, so clients find it where the registration says.
    """

    node_id: int
    incarnation: int
    epoch: int
    host: str
    port: int
    rack: str | None
    directory_id: bytes = UNKNOWN_DIRECTORY
    fenced: bool = True
    shutting_down: bool = False
    has_served: bool = False
    listeners: tuple[ListenerAddress, ...] = ()
    record_level: int = 0

    @property
    def is_available(self) -> bool:
        return not self.fenced and not self.shutting_down

    def address_on(self, listener: str) -> tuple[str, int] | None:
        """Return host and port for clients of the listener of that name; None if this broker does not have it."""
        if not self.listeners:
            return self.host, self.port
        return next(((one.host, one.port) for one in self.listeners if one.name == listener), None)


class Founders(msgspec.Struct, frozen=True):
    """The voters with which a partition's group began.

    `directories` are theirs at that time, shared by all partitions that were created together.
    """

    voters: tuple[int, ...]
    witness: int
    directories: Mapping[int, bytes]


class Move(msgspec.Struct, frozen=True):
    """The replicas that a partition moves to, and those it returns to if that is cancelled: then both are equal."""

    target: tuple[int, ...]
    original: tuple[int, ...]


class PartitionPlacement(msgspec.Struct, frozen=True):
    """The brokers of one partition. `replicas` hold it, or are about to; the first one is the preferred leader.

    `witness` votes beside them, or should. `former_witnesses` did before the move that is under way, or in the course
    of it: they may vote still, so like replicas that are to go they keep their data until it is over. The first of them
    is the witness before the move, if that was another broker.

    A partition that stands still has no `move`. One that is on its way keeps its old replicas in `replicas` until its
    group's leader has reported that none of them is a member any more: until then none of their data may go.

    `founders` tells a replica without data the members with which its group began. They are gone once a move was
    finished: from then on a broker may have been a member, have left and deleted everything, and be a member again. If
    it began anew it would forget its promises.
    """

    replicas: tuple[int, ...]
    move: Move | None = None
    witness: int = NOBODY
    founders: Founders | None = None
    epoch: int = 0
    former_witnesses: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas in the end."""
        return self.replicas if self.move is None else self.move.target

    @property
    def adding(self) -> tuple[int, ...]:
        """The replicas that were none before the move that is under way."""
        if self.move is None:
            return ()
        return tuple(node_id for node_id in self.move.target if node_id not in self.move.original)

    @property
    def removing(self) -> tuple[int, ...]:
        return tuple(node_id for node_id in self.replicas if node_id not in self.target)

    @property
    def voters(self) -> tuple[int, ...]:
        """Replicas and the witness: whose majority decides, when nothing is on its way."""
        if self.witness == NOBODY or self.witness in self.replicas:
            return self.replicas
        return (*self.replicas, self.witness)

    @property
    def hosts(self) -> tuple[int, ...]:
        """All brokers that vote or may still vote; `Topic.hosts_of` knows the observers, too."""
        if not self.former_witnesses:
            return self.voters
        return tuple(dict.fromkeys((*self.voters, *self.former_witnesses)))


class Topic(msgspec.Struct, frozen=True):
    """One topic; `partitions[p]` is partition p. `configs` holds only the configurations that were set for it."""

    topic_id: bytes
    name: str
    partitions: tuple[PartitionPlacement, ...]
    configs: Mapping[str, str]

    @property
    def observers(self) -> tuple[int, ...]:
        """Brokers that keep a copy of every partition of which they are no replica: to be read, never to lead."""
        return observers_of(self.configs)

    def hosts_of(self, index: int) -> tuple[int, ...]:
        """Return every node that must have partition `index` open: replicas, witnesses old and new, and observers."""
        hosts = self.partitions[index].hosts
        observers = self.observers
        return (*hosts, *(node_id for node_id in observers if node_id not in hosts)) if observers else hosts


class BrokerLoad(NamedTuple):
    """The number of replicas that a broker should hold, those it should lead, and partitions it is the witness of."""

    replicas: int
    leaders: int
    witnesses: int = 0


class Image(msgspec.Struct, frozen=True):
    """See the module. `topic_ids` is keyed by `collision_key`, which no two topics share; use `topic_named`.

    `features` are the finalized levels, all above 0; a feature that is not in it is at level 0.

    `resource_configs` are what is set for brokers and groups, by kind and name (`ResourceConfigured`); one for which
    nothing is set has no entry.

    `loads` is derived from `topics`, kept so that placement need not count every partition for every new topic.
    """

    cluster_id: str
    version: int = 0
    brokers: Mapping[int, Broker] = msgspec.field(default_factory=dict[int, Broker])
    topics: Table[bytes, Topic] = msgspec.field(default_factory=lambda: Table(by_last_bytes))
    topic_ids: Table[str, bytes] = msgspec.field(default_factory=lambda: Table(hash))
    loads: Mapping[int, BrokerLoad] = msgspec.field(default_factory=dict[int, BrokerLoad])
    next_producer_id: int = 0
    answers: Mapping[bytes, bytes] = msgspec.field(default_factory=dict[bytes, bytes])
    answers_bytes: int = 0
    named_snapshots: Mapping[str, NamedSnapshot] = msgspec.field(default_factory=dict[str, NamedSnapshot])
    named_snapshots_bytes: int = 0
    features: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    resource_configs: Mapping[tuple[int, str], Mapping[str, str]] = msgspec.field(
        default_factory=dict[tuple[int, str], Mapping[str, str]]
    )
    resource_configs_bytes: int = 0

    def member_below(self, record_level: int) -> int | None:
        """Return the first broker that serves, or holds replicas, and has not said that it reads such records."""
        for node_id, broker in sorted(self.brokers.items()):
            if broker.record_level < record_level and (not broker.fenced or node_id in self.loads):
                return node_id
        return None

    def topic_named(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(collision_key(name))
        if topic_id is None:
            return None
        topic = self.topics[topic_id]
        return topic if topic.name == name else None


def configured_bytes(name: str, configs: Mapping[str, str]) -> int:
    """Return what the configurations of a resource count for: about their encoded size, the same on every node."""
    return 64 + len(name) + sum(16 + len(key) + len(value) for key, value in configs.items())


class _CopyOnWrite(Generic[Key, Value]):
    """A dictionary that belongs to an image until the first write, and is a copy of it from then on."""

    __slots__ = ("_copied", "now")

    def __init__(self, shared: Mapping[Key, Value]) -> None:
        self.now = shared
        self._copied = False

    def own(self) -> dict[Key, Value]:
        """Return a dictionary that may be written to."""
        if not self._copied:
            self.now = dict(self.now)
            self._copied = True
        assert isinstance(self.now, dict)
        return self.now


class ImageBuilder:
    """The next image while records are being applied: readable in between. `build` ends its life.

    Every record was decided against exactly the image it is applied to, so a record that does not fit is our own
    mistake, never bad input: hence assertions.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._version = image.version
        self._brokers = _CopyOnWrite(image.brokers)
        self._topics = TableDraft(image.topics)
        self._moved: dict[bytes, list[PartitionPlacement]] = {}  # all partitions of topics of which some moved
        self._topic_ids = TableDraft(image.topic_ids)
        self._loads = _CopyOnWrite(image.loads)
        self._next_producer_id = image.next_producer_id
        self._answers = _CopyOnWrite(image.answers)
        self._answers_bytes = image.answers_bytes
        self._named_snapshots = _CopyOnWrite(image.named_snapshots)
        self._named_snapshots_bytes = image.named_snapshots_bytes
        self._features = _CopyOnWrite(image.features)
        self._resource_configs = _CopyOnWrite(image.resource_configs)
        self._resource_configs_bytes = image.resource_configs_bytes

    @property
    def brokers(self) -> Mapping[int, Broker]:
        return self._brokers.now

    @property
    def topics(self) -> Mapping[bytes, Topic]:
        self._put_down()
        return self._topics.now

    def partition(self, topic_id: bytes, index: int) -> PartitionPlacement:
        """Return a partition of a topic that there is."""
        moved = self._moved.get(topic_id)
        return self._topics.now[topic_id].partitions[index] if moved is None else moved[index]

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        return self._topic_ids.now

    @property
    def loads(self) -> Mapping[int, BrokerLoad]:
        return self._loads.now

    @property
    def resource_configs(self) -> Mapping[tuple[int, str], Mapping[str, str]]:
        return self._resource_configs.now

    @property
    def resource_configs_bytes(self) -> int:
        return self._resource_configs_bytes

    def apply(self, record: Record) -> None:
        """Make `record` part of the next image."""
        if not isinstance(record, PartitionMoved):
            self._put_down()
        self._apply(record)

    def _apply(self, record: Record) -> None:
        match record:
            case BrokerRegistered():
                self._register(record)
            case BrokerUnfenced() | BrokerFenced() | BrokerShuttingDown() | BrokerUnregistered():
                self._change_broker(record)
            case TopicCreated():
                self._create(record)
            case PartitionsAdded():
                self._grow(record)
            case PartitionMoved():
                self._move(record)
            case TopicConfigured():
                topic = self._topics.now[record.topic_id]
                self._topics.put(record.topic_id, msgspec.structs.replace(topic, configs=record.configs))
            case TopicDeleted():
                self._delete(record)
            case ProducerIdsAllocated():
                assert record.next_producer_id > self._next_producer_id
                self._next_producer_id = record.next_producer_id
            case NamedSnapshotCreated() | NamedSnapshotDeleted() | FeatureFinalized():
                self._keep_or_drop(record)
            case ResourceConfigured():
                self._configure(record)
            case CommandAnswered():
                self._remember(record)
            case _:
                assert_never(record)
        self._version += 1

    def build(self, version: int | None = None) -> Image:
        """Return the image. `version` is for a snapshot, whose records are not the ones that led to it."""
        self._put_down()
        return Image(
            cluster_id=self._image.cluster_id,
            version=self._version if version is None else version,
            brokers=self._brokers.now,
            topics=self._topics.now,
            topic_ids=self._topic_ids.now,
            loads=self._loads.now,
            next_producer_id=self._next_producer_id,
            answers=self._answers.now,
            answers_bytes=self._answers_bytes,
            named_snapshots=self._named_snapshots.now,
            named_snapshots_bytes=self._named_snapshots_bytes,
            features=self._features.now,
            resource_configs=self._resource_configs.now,
            resource_configs_bytes=self._resource_configs_bytes,
        )

    def _broker(self, node_id: int, epoch: int) -> Broker:
        broker = self._brokers.now[node_id]
        assert broker.epoch == epoch, f"record for epoch {epoch} of node {node_id}, which is at {broker.epoch}"
        return broker

    def _register(self, record: BrokerRegistered) -> None:
        previous = self._brokers.now.get(record.node_id)
        assert previous is None or record.epoch > previous.epoch
        self._brokers.own()[record.node_id] = Broker(
            node_id=record.node_id,
            incarnation=record.incarnation,
            epoch=record.epoch,
            host=record.host,
            port=record.port,
            rack=record.rack,
            directory_id=record.directory_id,
            listeners=record.listeners or (),
            record_level=record.record_level or 0,
        )

    def _change_broker(self, record: BrokerUnfenced | BrokerFenced | BrokerShuttingDown | BrokerUnregistered) -> None:
        broker = self._broker(record.node_id, record.epoch)
        replace = msgspec.structs.replace
        match record:
            case BrokerUnfenced():
                level = max(record.record_level or 0, broker.record_level)
                broker = replace(broker, fenced=False, has_served=True, record_level=level)
            case BrokerFenced():
                broker = replace(broker, fenced=True)
            case BrokerShuttingDown():
                broker = replace(broker, shutting_down=True)
            case BrokerUnregistered():
                del self._brokers.own()[record.node_id]
                return
        self._brokers.own()[record.node_id] = broker

    def _keep_or_drop(self, record: NamedSnapshotCreated | NamedSnapshotDeleted | FeatureFinalized) -> None:
        if isinstance(record, FeatureFinalized):
            features = self._features.own()
            features.pop(record.name, None)
            if record.level:
                features[record.name] = record.level
            return
        snapshots = self._named_snapshots.own()
        if isinstance(record, NamedSnapshotCreated):
            snapshot = record.snapshot
            assert snapshot.name not in snapshots, f"snapshot {snapshot.name} exists"
            snapshots[snapshot.name] = snapshot
            self._named_snapshots_bytes += snapshot.size_bytes
        else:
            snapshot = snapshots.pop(record.name)
            assert snapshot.snapshot_id == record.snapshot_id
            self._named_snapshots_bytes -= snapshot.size_bytes

    def _configure(self, record: ResourceConfigured) -> None:
        resources = self._resource_configs.own()
        before = resources.pop((record.kind, record.name), None)
        if before is not None:
            self._resource_configs_bytes -= configured_bytes(record.name, before)
        if record.configs:
            resources[record.kind, record.name] = record.configs
            self._resource_configs_bytes += configured_bytes(record.name, record.configs)

    def _create(self, record: TopicCreated) -> None:
        key = collision_key(record.name)
        assert key not in self._topic_ids.now, f"topic {record.name} exists"
        assert record.topic_id not in self._topics.now, f"topic id {record.topic_id.hex()} is in use"
        partitions = _founded(record)
        self._topics.put(record.topic_id, Topic(record.topic_id, record.name, partitions, record.configs))
        self._topic_ids.put(key, record.topic_id)
        self._count(partitions, 1)

    def _grow(self, record: PartitionsAdded) -> None:
        topic = self._topics.now[record.topic_id]
        added = _founded(record)
        self._topics.put(record.topic_id, msgspec.structs.replace(topic, partitions=topic.partitions + added))
        self._count(added, 1)

    def _move(self, record: PartitionMoved) -> None:
        partitions = self._moved.get(record.topic_id)
        if partitions is None:
            partitions = list(self._topics.now[record.topic_id].partitions)
            self._moved[record.topic_id] = partitions
        before = partitions[record.partition]
        after = PartitionPlacement(
            replicas=record.replicas,
            move=Move(record.target, record.original) if record.target else None,
            witness=record.witness,
            founders=before.founders if record.has_founders else None,
            epoch=record.epoch,
            former_witnesses=record.former_witnesses,
        )
        partitions[record.partition] = after
        self._count((before,), -1)
        self._count((after,), 1)

    def _put_down(self) -> None:
        """Give the topics their moved partitions."""
        moved = self._moved
        self._moved = {}
        for topic_id, partitions in moved.items():
            topic = self._topics.now[topic_id]
            self._topics.put(topic_id, msgspec.structs.replace(topic, partitions=tuple(partitions)))

    def _delete(self, record: TopicDeleted) -> None:
        topic = self._topics.pop(record.topic_id)
        self._topic_ids.pop(collision_key(topic.name))
        self._count(topic.partitions, -1)

    def _count(self, partitions: tuple[PartitionPlacement, ...], step: int) -> None:
        loads = self._loads.own()
        nothing = BrokerLoad(0, 0)
        replicas = Counter[int]()
        leaders = Counter[int]()
        witnesses = Counter[int]()
        # Those that were created together are few different ones (`_founded`).
        times = Counter(map(id, partitions))
        for partition in {id(partition): partition for partition in partitions}.values():
            count = times[id(partition)]
            for node_id in partition.replicas:
                replicas[node_id] += count
            leaders[partition.replicas[0]] += count
            witnesses[partition.witness] += count
        del witnesses[NOBODY]
        for node_id in replicas | witnesses:
            load = loads.get(node_id, nothing)
            now = BrokerLoad(
                load.replicas + step * replicas[node_id],
                load.leaders + step * leaders[node_id],
                load.witnesses + step * witnesses[node_id],
            )
            loads[node_id] = now
            # A broker with nothing has no entry, so that equal states are equal images whatever their history.
            if now == nothing:
                del loads[node_id]

    def _remember(self, record: CommandAnswered) -> None:
        answers = self._answers.own()
        assert record.command_id not in answers
        answers[record.command_id] = record.answer
        self._answers_bytes += len(record.answer)
        # Dictionaries keep their order of insertion: the first key is the oldest answer.
        while len(answers) > 1 and (len(answers) > ANSWERS_MAX or self._answers_bytes > ANSWERS_BYTES_MAX):
            self._answers_bytes -= len(answers.pop(next(iter(answers))))


def _founded(record: TopicCreated | PartitionsAdded) -> tuple[PartitionPlacement, ...]:
    """Return new partitions, each with the voters that it begins with; equal ones are the same one."""
    known: dict[tuple[tuple[int, ...], int], PartitionPlacement] = {}
    partitions = []
    for place in zip(record.assignments, record.witnesses or repeat(NOBODY), strict=False):
        partition = known.get(place)
        if partition is None:
            replicas, witness = place
            voters = replicas if witness == NOBODY else (*replicas, witness)
            founders = Founders(voters, witness, record.directories)
            partition = PartitionPlacement(replicas, None, witness, founders)
            known[place] = partition
        partitions.append(partition)
    return tuple(partitions)


def apply(image: Image, record: Record) -> Image:
    """Return `image` with one more record. For more than one, `apply_all` copies less."""
    return apply_all(image, (record,))


def apply_all(image: Image, records: Iterable[Record]) -> Image:
    """Return `image` with all of `records`, in their order."""
    builder = ImageBuilder(image)
    for record in records:
        builder.apply(record)
    return builder.build()


class TopicChanges(NamedTuple):
    """The differences between two images that a broker must reconcile.

    `changed`: topics that have more partitions, or partitions elsewhere, as they are now.
    """

    created: tuple[Topic, ...]
    deleted: tuple[Topic, ...]
    changed: tuple[Topic, ...]


def topic_changes(old: Image, new: Image) -> TopicChanges:
    """Return the topics that came, went and changed, each in the order of its image; at once if no topic changed."""
    created: list[Topic] = []
    deleted: list[Topic] = []
    changed: list[Topic] = []
    if old.topics is not new.topics:
        for were, are in differing(old.topics, new.topics):
            deleted += [topic for topic_id, topic in were.items() if topic_id not in are]
            for topic_id, topic in are.items():
                before = were.get(topic_id)
                if before is None:
                    created.append(topic)
                elif before.partitions is not topic.partitions and before.partitions != topic.partitions:
                    changed.append(topic)
    return TopicChanges(tuple(created), tuple(deleted), tuple(changed))


def configured_topics(old: Image, new: Image) -> tuple[Topic, ...]:
    """Return the topics, as they are now, that both images have and that are configured differently."""
    if old.topics is new.topics:
        return ()
    return tuple(
        topic
        for were, are in differing(old.topics, new.topics)
        for topic_id, topic in are.items()
        if (before := were.get(topic_id)) is not None and before is not topic and before.configs != topic.configs
    )
