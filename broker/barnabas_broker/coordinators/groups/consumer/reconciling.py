"""Takes one member a step towards its target. Pure.

A member has partitions (`assigned`) and gives others up (`revoking`). It is told the first; what it does not tell of
any more in its next full or changed report, it has given up. The rules, which are Kafka's:

- *Give up first.* What it has and should not have goes from `assigned` to `revoking`, and it stays in its epoch. While
  it is asked to give something up nothing else changes for it, whatever new targets come: what it is asked for would
  change under its hands, and it would shrink to nothing if each of its answers found another question (trap G5).
- *Then on to the epoch of the target,* by itself: it does not wait for the others (trap G6). It gets what is free at
  once, and what somebody else still has when that one has given it up: until then it is UNRELEASED.
- *A partition is had by one member only,* from the moment that it is told of it until it has said that it has given it
  up, or is thrown out.
- *Its own word counts.* A member that unsubscribes from a topic loses its partitions at once, though the target still
  names them.

A partition's own epoch is that of the target with which it was given. A commit of the member's from then on is sound,
also if it says an older epoch than the member's present one (KIP-1251).
"""

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from .values import NOTHING, MemberAssignment, MemberState, Partitions, Target

__all__ = ["Owned", "Owners", "Step", "is_among", "reconciled"]

Owned: TypeAlias = Mapping[bytes, Collection[int]]
"""What a member says that it has, by topic."""
Owners: TypeAlias = Mapping[bytes, Mapping[int, str]]
"""Which member has a partition, or has not given it up yet."""


NONE_OF_IT: Final[Mapping[int, int]] = {}
NOBODYS: Final[Mapping[int, str]] = {}


class Step(NamedTuple):
    """Everything that decides about one member: `member_id` is at `now`, and hears of `target`, which is of `epoch`.

    `topic_ids` are those that it subscribes to. `owned`: what it says that it has; None: it did not say.
    """

    member_id: str
    now: MemberAssignment
    epoch: int
    target: Target
    topic_ids: Container[bytes]
    owners: Owners
    owned: Owned | None


def reconciled(step: Step, *, has_unsubscribed: bool = False) -> MemberAssignment:
    """Return the member's assignment a step further, the same object if nothing changes.

    `has_unsubscribed`: it may have partitions of topics that it has just unsubscribed from.
    """
    now = step.now
    match now.state:
        case MemberState.STABLE if now.epoch == step.epoch:
            is_waited_for = True
        case MemberState.UNREVOKED:
            is_waited_for = _still_has(step, now.revoking)
        case _:
            is_waited_for = False
    if not is_waited_for:
        return _advanced(step)
    return _without_unsubscribed(step) if has_unsubscribed else now


def _without_unsubscribed(step: Step) -> MemberAssignment:
    now = step.now
    lost = {topic_id: epochs for topic_id, epochs in now.assigned.items() if topic_id not in step.topic_ids}
    if not lost:
        return now
    assigned = {topic_id: epochs for topic_id, epochs in now.assigned.items() if topic_id not in lost}
    # Both may have partitions of one topic.
    revoking = {**now.revoking, **{topic: {**now.revoking.get(topic, {}), **epochs} for topic, epochs in lost.items()}}
    if _still_has(step, revoking):
        return now._replace(state=MemberState.UNREVOKED, assigned=assigned, revoking=revoking)
    return now._replace(assigned=assigned)


def is_among(owned: Owned | None, partitions: Partitions) -> bool:
    """Tell whether all that a member says it has is among these; it must have said so."""
    if owned is None:
        return False
    return all(number in partitions.get(topic_id, ()) for topic_id, numbers in owned.items() for number in numbers)


def _still_has(step: Step, revoking: Partitions) -> bool:
    """Tell whether the member has something of that; while it does not say, it has."""
    if step.owned is None:
        return True
    return any(number in revoking.get(topic_id, ()) for topic_id, numbers in step.owned.items() for number in numbers)


def _advanced(step: Step) -> MemberAssignment:
    now = step.now
    assigned: dict[bytes, dict[int, int]] = {}
    revoking: dict[bytes, dict[int, int]] = {}
    free: dict[bytes, Sequence[int]] = {}
    is_waiting = False
    for topic_id in {**step.target, **now.assigned}:
        wanted = step.target.get(topic_id, ()) if topic_id in step.topic_ids else ()
        has = now.assigned.get(topic_id, NONE_OF_IT)
        kept = {number: has[number] for number in wanted if number in has} if has else {}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(has):
            revoking[topic_id] = {number: epoch for number, epoch in has.items() if number not in kept}
        if len(kept) < len(wanted):
            owners = step.owners.get(topic_id, NOBODYS)
            found: Sequence[int] = wanted
            if owners or kept:
                # What it is giving up itself it may have back: nobody else can have it.
                found = [n for n in wanted if n not in kept and owners.get(n, step.member_id) == step.member_id]
            is_waiting = is_waiting or len(kept) + len(found) < len(wanted)
            if found:
                free[topic_id] = found
    if revoking and _still_has(step, revoking):
        return now._replace(state=MemberState.UNREVOKED, assigned=assigned, revoking=revoking)
    for topic_id, numbers in free.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(numbers, step.epoch))
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    previous_epoch = now.previous_epoch if now.epoch == step.epoch else now.epoch
    after = MemberAssignment(step.epoch, previous_epoch, state, assigned, NOTHING)
    return now if after == now else after
