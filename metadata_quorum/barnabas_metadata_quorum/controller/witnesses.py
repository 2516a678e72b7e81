"""Chooses the broker that votes beside two replicas. Pure, and without chance: the same image, the same answer.

Two voters are a majority only together, so a partition of two replicas would stop with either of them. A *witness*, a
third voter on another broker, keeps only what one of the two still lacks, and serves nobody: with it the partition
survives the loss of any one broker, for the disk space of two. Other numbers of replicas need none.

A witness is on an available broker that is no replica of the partition and does not observe its topic, because readers
of an observer need all of the data. Of those it is the best by these wishes; the first one that tells two brokers apart
decides:

host, rack -- none of the replicas' hosts, then none of their racks. Brokers without a rack share one, as in
    `placement`.
new partitions -- fewest witnesses of this topic, then of all; fewest replicas of all. A witness is sent everything that
    is written, so it costs the network and the journal what a replica does.
partitions that exist -- the present witness, then the one before the move that is under way; then a broker that is no
    replica, because a replica has to leave the group before it can come back as a witness; then as above.

Ties go to the lower node id. If no broker can be the witness, a new partition has none. A partition that exists then
keeps its witness, even if that broker is down, unless that is to be a replica now.

A witness is chosen when a partition is created and whenever a request says where it should be, even if it is there
already: so a topic that was created on two brokers gets its witness, and a witness on a broker that is lost is
replaced. Not here: doing that unasked, as nothing replaces a replica unasked either.
"""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence

from barnabas_metadata_quorum.image.records import NOBODY

from .placement import PLACED_AT_ONCE, Candidate

__all__ = ["needs_witness", "next_witness", "place_witnesses"]

REPLICAS = 2


def needs_witness(replicas: Collection[int]) -> bool:
    """Tell whether a partition on these brokers is one that a witness helps."""
    return len(replicas) == REPLICAS


def place_witnesses(
    assignments: Sequence[Sequence[int]],
    candidates: Sequence[Candidate],
    observers: Collection[int] = (),
    existing: Iterable[int] = (),
) -> Generator[None, None, tuple[int, ...]]:
    """Return the witness of each new partition, `NOBODY` where there is none; nothing at all if none has one.

    Yields between pieces of the work.

    Args:
        assignments: The replicas of the new partitions.
        candidates: All brokers; their counts include the partitions that the topic has already.
        observers: Brokers that observe the topic.
        existing: The witnesses of those partitions.
    """
    if not any(map(needs_witness, assignments)):
        return ()
    of_topic = Counter(existing)
    added = Counter[int]()
    witnesses = []
    for index, replicas in enumerate(assignments, 1):
        if not index % PLACED_AT_ONCE:
            yield
        able = _able(replicas, candidates, observers)
        if not able:
            witnesses.append(NOBODY)
            continue
        hosts, racks = _places(replicas, candidates)
        witness = min(
            able,
            key=lambda one: (
                one.host in hosts,
                one.rack in racks,
                of_topic[one.node_id],
                one.witnesses + added[one.node_id],
                one.replicas,
                one.node_id,
            ),
        ).node_id
        of_topic[witness] += 1
        added[witness] += 1
        witnesses.append(witness)
    return tuple(witnesses) if set(witnesses) != {NOBODY} else ()


def next_witness(
    target: Sequence[int],
    replicas: Collection[int],
    known: Sequence[int],
    candidates: Sequence[Candidate],
    observers: Collection[int] = (),
) -> int:
    """Return the witness that a partition should have which goes to `target`, or `NOBODY`.

    Args:
        target: Its replicas in the end.
        replicas: Its replicas now, and before the move that is under way.
        known: Its witnesses now and before the move that is under way, the preferred one first.
        candidates: All brokers.
        observers: Brokers that observe the topic.
    """
    if not needs_witness(target):
        return NOBODY
    able = _able(target, candidates, observers)
    if not able:
        return next((one for one in known if one not in target and one not in observers), NOBODY)
    hosts, racks = _places(target, candidates)
    return min(
        able,
        key=lambda one: (
            one.host in hosts,
            one.rack in racks,
            known.index(one.node_id) if one.node_id in known else len(known),
            one.node_id in replicas,
            one.witnesses,
            one.replicas,
            one.node_id,
        ),
    ).node_id


def _able(
    replicas: Collection[int], candidates: Sequence[Candidate], observers: Collection[int]
) -> Sequence[Candidate]:
    if not needs_witness(replicas):
        return ()
    return [one for one in candidates if one.available and one.node_id not in replicas and one.node_id not in observers]


def _places(replicas: Collection[int], candidates: Sequence[Candidate]) -> tuple[frozenset[str], frozenset[str | None]]:
    """Return the hosts and the racks that the replicas are on."""
    chosen = [one for one in candidates if one.node_id in replicas]
    return frozenset([one.host for one in chosen]), frozenset([one.rack for one in chosen])
