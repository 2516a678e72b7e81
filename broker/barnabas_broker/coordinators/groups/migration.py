"""What a classic group and one of KIP-848 know of each other when one becomes the other (`consumer.conversion`).

Not here: anything that is written (`consumers`), and the groups that there are (`shard`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .consumer.conversion import ClassicGroup, ClassicMember
from .consumer.embedded import CONSUMER
from .state_machine.group import ConsumerGroup
from .state_machine.messages import SavedGroup, SavedMembers

__all__ = ["Way", "generation_of", "saved_of"]


class Way(NamedTuple):
    """A name may become a group of KIP-848.

    `classic` is the generation that it is now; None: nobody is there. `hold` has the classic group stand still while it
    is read, `let_go` has it go on because nothing came of it, and `leave` is called when the name is the other's.
    `is_new`: the name is no group, and has no offsets.
    """

    classic: ClassicGroup | None
    hold: Callable[[], None]
    let_go: Callable[[], None]
    leave: Callable[[], None]
    is_new: bool = False


def generation_of(group_id: str, group: ConsumerGroup) -> ClassicGroup:
    """Return the present generation, without those who wait for the next one.

    In a generation that has not got its assignments yet members are taken to have those of the one before: nobody else
    has been given their partitions.
    """
    before = {one.member_id: one.assignment for one in group.to_saved(0).members}
    members = [
        ClassicMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.protocols,
            member.metadata(group.protocol_name or member.protocols[0][0]),
            member.assignment or before.get(member.member_id, b""),
        )
        for member in group.members.values()
        if not member.is_new
    ]
    return ClassicGroup(
        group_id, group.protocol_type, group.generation_id, members, group.is_settled, group.protocol_name
    )


def saved_of(
    generation_id: int, protocol: str, members: Sequence[ClassicMember], timestamp_ms: int, *, is_whole: bool
) -> SavedGroup:
    """Return the record of a classic group of these, of which the first leads.

    Nobody does if they have not got all that there is: whoever coordinates the group has them join again then.
    """
    return SavedGroup(
        protocol_type=CONSUMER,
        generation_id=generation_id,
        protocol_name=protocol,
        leader=members[0].member_id if is_whole else None,
        current_state_timestamp_ms=timestamp_ms,
        members=SavedMembers(
            member_id=[one.member_id for one in members],
            group_instance_id=[one.instance_id for one in members],
            client_id=[one.client_id for one in members],
            client_host=[one.client_host for one in members],
            rebalance_timeout_ms=[one.rebalance_timeout_ms for one in members],
            session_timeout_ms=[one.session_timeout_ms for one in members],
            subscription=[one.subscription for one in members],
            assignment=[one.assignment for one in members],
        ),
    )
