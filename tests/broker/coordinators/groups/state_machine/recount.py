"""Counts what a group holds anew, from everything that can be seen of it."""

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.members import Member
from barnabas_broker.coordinators.groups.state_machine.room import GROUP_BYTES, MEMBER_BYTES, PENDING_ID_BYTES

__all__ = ["recount"]


def text(*names: str | None) -> int:
    return sum(len((name or "").encode()) for name in names)


def member_bytes(member: Member) -> int:
    said = sum(text(name) + len(metadata) for name, metadata in member.protocols)
    names = text(member.member_id, member.group_instance_id, member.client_id, member.client_host)
    return MEMBER_BYTES + names + said + len(member.assignment)


def recount(group: ConsumerGroup) -> int:
    """Return what `ConsumerGroup.held_bytes` must be."""
    members = sum(map(member_bytes, group.members.values()))
    pending = sum(PENDING_ID_BYTES + text(member_id) for member_id in group._pending_ids)
    saving = sum(save.held_bytes for save in group._saves)
    return GROUP_BYTES + text(group.group_id, group.protocol_type) + members + pending + saving
