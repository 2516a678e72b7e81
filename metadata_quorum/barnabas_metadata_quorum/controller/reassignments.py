"""Moves of partitions to other brokers: the rules, and the records of each step. Pure.

The record of a move says where the partition should be (`PartitionMoved`); the leader of the partition's group leads it
there and reports, and only then are the replicas that were to go taken out of the image (`FinishMoves`). Until that
moment they keep their data: they may have been voters a moment ago, and a cancelled move may want them back.

A request is checked as Kafka checks it (KIP-455, KIP-860), partition by partition, and with Kafka's words:

* a target names registered brokers, at least one, none twice; they need not be up;
* a partition that is on its way already gets a new target, and cancelling that returns it to where it was *before the
  first*: `original` does not change as long as it moves;
* a target that is where the partition is anyway does nothing; another order only changes the preferred leader.

A partition that is to have two replicas is to have a witness, too (`witnesses`), and any other number of replicas none:
each request chooses the best witness for its target. A request for the present replicas is therefore how a witness is
added or replaced. A change of the witness alone is a move from where the replicas are to where they are; it cannot be
called off, only asked for again.

*Where Barnabas differs.* A move that is called off is a move, too. Kafka drops the replicas that were being added at
once; here one of them may be a voter by then, so the partition goes back step by step, and is listed until it has
arrived. It cannot be called off a second time.

A finished move ends the `PartitionPlacement.founders`, for the reason that is given there.

Not here: choosing targets (the caller does), the steps of a move (`voters.steps`), throttling.
"""

from collections.abc import Sequence

from barnabas_metadata_quorum.image.image import Image, ImageBuilder, Move, PartitionPlacement
from barnabas_metadata_quorum.image.records import NOBODY, PartitionMoved, Record

from .commands import (
    AlterReassignments,
    FinishMoves,
    Reassignment,
    ReassignmentFate,
    RefusalReason,
    Refused,
    check_named,
)
from .placement import candidates_of
from .topics import manual_complaint
from .witnesses import next_witness

__all__ = ["alter_reassignments", "finish_moves"]


def alter_reassignments(image: Image, command: AlterReassignments) -> tuple[list[Record], tuple[ReassignmentFate, ...]]:
    """Return the records of all partitions that may go where they are asked to, and the fate of each, in order.

    Raises:
        Refused: POLICY_VIOLATION, too many partitions in one command.
    """
    check_named(len(command.partitions), "partitions")
    records: list[Record] = []
    fates: list[ReassignmentFate] = []
    draft = ImageBuilder(image)
    for wanted in command.partitions:
        try:
            record = _checked(image, draft, wanted, image.version + len(records), command.may_change_factor)
        except Refused as refused:
            fates.append(ReassignmentFate(wanted.topic, wanted.partition, refused.reason, refused.message))
            continue
        fates.append(ReassignmentFate(wanted.topic, wanted.partition))
        if record is not None:
            draft.apply(record)
            records.append(record)
    return records, tuple(fates)


def finish_moves(image: Image, command: FinishMoves) -> tuple[Record, ...]:
    """Return the records that end those moves which are still under way."""
    records: list[Record] = []
    for topic_id, index, epoch in dict.fromkeys(command.moves):
        topic = image.topics.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        if partition.move is not None and partition.epoch == epoch:
            at = image.version + len(records)
            records.append(
                PartitionMoved(topic_id, index, at, partition.target, witness=partition.witness, has_founders=False)
            )
    return tuple(records)


def _checked(
    image: Image, draft: ImageBuilder, wanted: Reassignment, epoch: int, may_change_factor: bool
) -> PartitionMoved | None:
    """Return the record, or None if there is nothing to do, or raise `Refused`."""
    named = image.topic_named(wanted.topic)
    if named is None:
        raise Refused(RefusalReason.UNKNOWN_TOPIC, f"Unable to find a topic named {wanted.topic}.")
    if not 0 <= wanted.partition < len(named.partitions):
        raise Refused(RefusalReason.UNKNOWN_TOPIC, f"Unable to find partition {wanted.topic}:{wanted.partition}.")
    partition = draft.partition(named.topic_id, wanted.partition)
    original = partition.replicas if partition.move is None else partition.move.original
    if wanted.replicas is None:
        if partition.move is None or partition.move.target == original:
            raise Refused(RefusalReason.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        target = original
        known = (*partition.former_witnesses, partition.witness)
    else:
        target = wanted.replicas
        known = (partition.witness, *partition.former_witnesses)
        _check_target(draft, target, len(original), may_change_factor)
    witnessing = [node_id for node_id in known if node_id != NOBODY]
    candidates = candidates_of(draft.brokers, draft.loads)
    witness = next_witness(target, partition.replicas, witnessing, candidates, named.observers)
    return _on_its_way((named.topic_id, wanted.partition), partition, Move(target, original), witness, epoch)


def _on_its_way(
    place: tuple[bytes, int], partition: PartitionPlacement, move: Move, witness: int, epoch: int
) -> PartitionMoved | None:
    target = move.target
    if (partition.target, partition.witness) == (target, witness):
        return None
    has_founders = partition.founders is not None
    if partition.move is None and partition.witness == witness and set(target) == set(move.original):
        return PartitionMoved(*place, epoch, target, witness=witness, has_founders=has_founders)
    replicas = (*target, *(node_id for node_id in partition.replicas if node_id not in target))
    before = dict.fromkeys((*partition.former_witnesses, partition.witness))
    former = tuple(node_id for node_id in before if node_id not in {witness, NOBODY})
    return PartitionMoved(
        *place,
        epoch,
        replicas,
        target=target,
        original=move.original,
        witness=witness,
        has_founders=has_founders,
        former_witnesses=former,
    )


def _check_target(draft: ImageBuilder, target: Sequence[int], factor: int, may_change_factor: bool) -> None:
    complaint = manual_complaint(draft, target)
    if complaint is not None:
        raise Refused(RefusalReason.INVALID_REPLICA_ASSIGNMENT, complaint)
    if not may_change_factor and len(target) != factor:
        raise Refused(
            RefusalReason.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )
