"""`barnabas quorum`, `cluster unregister`: the nodes that agree on the metadata, and brokers that are gone."""

from collections.abc import Iterable
from typing import Any

from barnabas_broker.cli.commands.administration.calls import administer
from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_clients import Admin
from barnabas_clients.admin.client import QuorumDescription, QuorumReplica
from barnabas_clients.arguments import INT32_MAX
from barnabas_clients.errors import UnsupportedVersionError

__all__ = ["describe", "unregister"]

COLUMNS = ("node", "votes", "end", "lag", "heard", "caught up")


def describe(bootstrap: str, timeout_s: float, *, as_json: bool) -> int:
    """Show the leader of the metadata quorum, and how far its members have come."""

    async def run(admin: Admin) -> QuorumDescription:
        try:
            return await admin.describe_quorum()
        except UnsupportedVersionError as error:
            raise CommandError("the brokers do not tell of their quorum") from error

    found = administer(bootstrap, timeout_s, run)
    if as_json:
        say_json(
            {
                "leader": found.leader_id,
                "leader_epoch": found.leader_epoch,
                "high_watermark": found.high_watermark,
                "voters": _plain(found.voters),
                "observers": _plain(found.observers),
            }
        )
        return 0
    say(f"node {found.leader_id} leads, in epoch {found.leader_epoch}; {found.high_watermark} records are committed")
    leader = next((one for one in found.voters if one.node_id == found.leader_id), None)
    rows = [_row(one, "yes", leader) for one in found.voters] + [_row(one, "no", leader) for one in found.observers]
    print_table(COLUMNS, rows)
    return 0


def unregister(bootstrap: str, node_id: int, timeout_s: float, *, as_json: bool) -> int:
    """Have the cluster forget a broker."""

    async def run(admin: Admin) -> None:
        try:
            await admin.unregister_broker(node_id)
        except UnsupportedVersionError as error:
            raise CommandError("the brokers cannot forget one of them") from error

    if not 0 <= node_id <= INT32_MAX:
        raise UsageError(f"{node_id} is no node id: it must be from 0 to {INT32_MAX}")
    administer(bootstrap, timeout_s, run)
    if as_json:
        say_json({"broker": node_id, "registered": False})
    else:
        say(f"broker {node_id} is forgotten")
    return 0


def _row(one: QuorumReplica, votes: str, leader: QuorumReplica | None) -> tuple[object, ...]:
    if leader is None:
        return one.node_id, votes, one.end_offset, None, None, None
    lag = max(0, leader.end_offset - one.end_offset)
    now_ms = leader.heard_at_ms
    return one.node_id, votes, one.end_offset, lag, _ago(one.heard_at_ms, now_ms), _ago(one.caught_up_at_ms, now_ms)


def _ago(at_ms: int | None, now_ms: int | None) -> str | None:
    if at_ms is None or now_ms is None:
        return None
    return f"{max(0, now_ms - at_ms) / 1_000:.1f} s ago"


def _plain(members: Iterable[QuorumReplica]) -> list[dict[str, Any]]:
    return [
        {
            "node": one.node_id,
            "directory": one.directory_id.hex(),
            "end_offset": one.end_offset,
            "heard_at_ms": one.heard_at_ms,
            "caught_up_at_ms": one.caught_up_at_ms,
        }
        for one in members
    ]
