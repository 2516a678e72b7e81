"""`barnabas snapshot`: names for the offsets that topics have at a moment."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from barnabas_broker.cli.errors import CommandError
from barnabas_broker.cli.output import complain, print_table, say, say_json, say_json_lines
from barnabas_broker.cli.times import readable
from barnabas_broker.cli.wording import counted, listed, missing
from barnabas_clients import Admin, ResourceNotFoundError, SnapshotExistsError, TopicPartition
from barnabas_clients.admin.client import Left, NamedSnapshot, RangeCheck, SnapshotTopic
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, InvalidConfigError

from .administration.calls import administer, for_each
from .administration.names import topics_named

__all__ = ["create", "delete", "list_", "show"]

# A snapshot is shown also while a partition has no leader that could say what is left of it.
CHECK_TIMEOUT_S = 5.0
Checks = Mapping[TopicPartition, RangeCheck]


def create(
    bootstrap: str, name: str, topics: Sequence[str], timeout_s: float, *, best_effort: bool, as_json: bool
) -> int:
    """Make a snapshot of what can be read of some topics now."""

    async def run(admin: Admin) -> NamedSnapshot:
        wanted = [topic.name for topic in await topics_named(admin, topics)]
        try:
            return await admin.create_snapshot(name, wanted, best_effort=best_effort)
        except SnapshotExistsError as error:
            raise CommandError(f"there is a snapshot {name!r} already, and it stays; take another name") from error
        except InvalidConfigError as error:
            raise CommandError(f"{_reason(error.reason, name)}; --best-effort takes it [{error.code.name}]") from error

    made = administer(bootstrap, timeout_s, run)
    if as_json:
        say_json(_head(made) | {"topics": [topic.name for topic in made.topics]})
    else:
        say(f"created {made.name}: {_size(made)}")
    return 0


def list_(bootstrap: str, timeout_s: float, *, as_json: bool) -> int:
    """List all snapshots."""
    found = administer(bootstrap, timeout_s, lambda admin: admin.list_snapshots())
    if as_json:
        say_json_lines(_head(one) | {"topics": [topic.name for topic in one.topics]} for one in found)
        return 0
    rows = [(one.name, readable(one.created_at_ms), _topics(one), one.partitions_count, _note(one)) for one in found]
    print_table(("snapshot", "created", "topics", "partitions", "note"), rows)
    return 0


def show(bootstrap: str, name: str, timeout_s: float, *, as_json: bool) -> int:
    """Show one snapshot, and what is left of it."""

    async def run(admin: Admin) -> tuple[NamedSnapshot, Checks]:
        found = await _described(admin, name)
        try:
            return found, await admin.check_snapshot(found, timeout_s=min(timeout_s, CHECK_TIMEOUT_S))
        except ClientError as error:
            complain(f"what is left of it is not known: {error}")
            return found, {}

    found, checks = administer(bootstrap, timeout_s, run)
    if as_json:
        say_json(_as_json(found, checks))
        return 0
    note = _note(found)
    header = f"{found.name}  created {readable(found.created_at_ms)}  {_size(found)}{f'  {note}' if note else ''}"
    print_table(("topic", "partition", "start", "end", "epoch", "left"), list(_rows(found, checks)), [header])
    return 0


def delete(bootstrap: str, names: Sequence[str], timeout_s: float, *, as_json: bool) -> int:
    """Delete snapshots, each for itself."""

    async def run(admin: Admin) -> int:
        async def one(name: str) -> None:
            try:
                await admin.delete_snapshot(name)
            except ResourceNotFoundError as error:
                raise await _missing(admin, name) from error
            if as_json:
                say_json({"name": name, "deleted": True})
            else:
                say(f"deleted {name}")

        return await for_each(dict.fromkeys(names), one)

    return administer(bootstrap, timeout_s, run)


async def _described(admin: Admin, name: str) -> NamedSnapshot:
    try:
        return await admin.describe_snapshot(name)
    except ResourceNotFoundError as error:
        raise await _missing(admin, name) from error


async def _missing(admin: Admin, name: str) -> CommandError:
    known = [one.name for one in await admin.list_snapshots()]
    return CommandError(missing("snapshot", [name], known, ErrorCode.RESOURCE_NOT_FOUND))


def _reason(reason: str, name: str) -> str:
    return reason.removeprefix(f"snapshot {name}: ")


def _note(snapshot: NamedSnapshot) -> str | None:
    return "best effort" if snapshot.best_effort else None


def _size(snapshot: NamedSnapshot) -> str:
    return f"{counted(snapshot.topics_count, 'topic')}, {counted(snapshot.partitions_count, 'partition')}"


def _topics(snapshot: NamedSnapshot) -> str:
    more = snapshot.topics_count - len(snapshot.topics)
    names = listed(topic.name for topic in snapshot.topics)
    return f"{names} and {more:,} more" if more > 0 else names


def _head(snapshot: NamedSnapshot) -> dict[str, Any]:
    return {
        "name": snapshot.name,
        "snapshot_id": snapshot.snapshot_id.hex(),
        "created_at_ms": snapshot.created_at_ms,
        "best_effort": snapshot.best_effort,
        "topics_count": snapshot.topics_count,
        "partitions_count": snapshot.partitions_count,
    }


def _rows(snapshot: NamedSnapshot, checks: Checks) -> Iterator[tuple[object, ...]]:
    for topic in snapshot.topics:
        for number, pinned in sorted(topic.partitions.items()):
            check = checks.get(TopicPartition(topic.name, number))
            yield topic.name, number, pinned.start_offset, pinned.end_offset, pinned.leader_epoch, _left(topic, check)


def _left(topic: SnapshotTopic, check: RangeCheck | None) -> str | None:
    if check is None:
        return None
    if check.left is Left.WHOLE and topic.is_compacted:
        return "what compaction has left"
    return check.reason or check.left.value


def _as_json(snapshot: NamedSnapshot, checks: Checks) -> dict[str, Any]:
    topics = []
    for topic in snapshot.topics:
        rows = []
        for number, pinned in sorted(topic.partitions.items()):
            check = checks.get(TopicPartition(topic.name, number))
            row = {"partition": number, "start_offset": pinned.start_offset, "end_offset": pinned.end_offset}
            row |= {"leader_epoch": pinned.leader_epoch}
            rows.append(row | {"left": check and check.left.value, "reason": check and check.reason})
        topics.append(
            {
                "name": topic.name,
                "topic_id": topic.topic_id.hex(),
                "state": topic.state.name.lower(),
                "is_compacted": topic.is_compacted,
                "partitions": rows,
            }
        )
    return _head(snapshot) | {"topics": topics}
