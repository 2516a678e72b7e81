"""Finds the topics and groups that somebody names, one by one or with a pattern.

A pattern is a regular expression that must match the whole name, so that `ord` deletes nothing but `ord`. Patterns of
commands that change something leave internal topics out.
"""

import re
from collections.abc import Collection, Sequence

from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.legal_names import check_group_names
from barnabas_broker.cli.wording import missing
from barnabas_clients import Admin
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError

__all__ = [
    "check_groups_wanted",
    "check_partitions",
    "compiled",
    "matching",
    "missing_groups",
    "missing_topics",
    "some_groups",
    "some_topics",
    "topics_named",
]

# Near names are worth that long, and no error if the brokers do not tell them.
HINT_TIMEOUT_S = 2.0


def compiled(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """Return the patterns of `--regex`.

    Raises:
        UsageError: one is not a regular expression.
    """
    found = []
    for pattern in patterns:
        try:
            found.append(re.compile(pattern))
        except re.error as error:
            raise UsageError(f"--regex {pattern!r} is not a regular expression: {error}") from error
    return found


def matching(names: Collection[str], patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return the names that one of the patterns matches as a whole, in their order; all names if there is none."""
    return [name for name in names if not patterns or any(pattern.fullmatch(name) for pattern in patterns)]


def check_groups_wanted(group_ids: Sequence[str], patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """Check names and patterns of `some_groups` before brokers are asked; return the patterns.

    Raises:
        UsageError: there is neither, a name cannot be one, or a pattern is not a regular expression.
    """
    check_group_names(group_ids)
    wanted = compiled(patterns)
    if not group_ids and not wanted:
        raise UsageError("say which groups: GROUP... or --regex PATTERN")
    return wanted


async def some_groups(admin: Admin, group_ids: Sequence[str], patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Return these names, whether there are such groups or not, and the groups that a pattern matches, each once.

    Raises:
        CommandError: nothing at all matches the patterns.
    """
    found: list[str] = []
    if patterns:
        found = matching([row.group_id for row in await admin.list_groups()], patterns)
        if not found:
            raise CommandError(f"no group matches {' or '.join(repr(pattern.pattern) for pattern in patterns)}")
    return list(dict.fromkeys([*group_ids, *found]))


async def some_topics(
    admin: Admin, names: Sequence[str], patterns: Sequence[re.Pattern[str]], *, include_internal: bool
) -> list[TopicView]:
    """Return the topics of these names, which must exist, and those that a pattern matches, each once.

    Raises:
        CommandError: a name does not exist, or nothing at all matches the patterns.
    """
    found = {topic.name: topic for topic in await topics_named(admin, names)} if names else {}
    if patterns:
        every = {topic.name: topic for topic in await admin.list_topics(include_internal=include_internal)}
        found |= {name: every[name] for name in matching(every, patterns)}
        if not found:
            raise CommandError(f"no topic matches {' or '.join(repr(pattern.pattern) for pattern in patterns)}")
    return list(found.values())


async def topics_named(admin: Admin, names: Sequence[str]) -> list[TopicView]:
    """Return topics in the order of their names, each once.

    Raises:
        CommandError: some do not exist; it has the names that are near.
    """
    wanted = list(dict.fromkeys(names))
    try:
        return await admin.describe_topics(wanted)
    except UnknownTopicOrPartitionError as error:
        raise await missing_topics(admin, wanted) from error


async def missing_topics(admin: Admin, names: Collection[str]) -> CommandError:
    """Return the refusal of those names that no topic has."""
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        known = [topic.name for topic in await admin.list_topics(include_internal=True, timeout_s=HINT_TIMEOUT_S)]
    except (ClientError, KafkaError):
        known = []
    # A topic may have come meanwhile; then nothing is missing any more, and the question was too early.
    return CommandError(missing("topic", [name for name in names if name not in known] or list(names), known, code))


async def missing_groups(admin: Admin, group_ids: Collection[str], advice: str = "") -> CommandError:
    """Return the refusal of those names that no group has."""
    known = [row.group_id for row in (await admin.reachable_groups(timeout_s=HINT_TIMEOUT_S)).groups]
    absent = [group_id for group_id in group_ids if group_id not in known] or list(group_ids)
    return CommandError(missing("group", absent, known, ErrorCode.GROUP_ID_NOT_FOUND, advice))


def check_partitions(topic: TopicView, numbers: Collection[int]) -> None:
    """Refuse partitions that a topic does not have.

    Raises:
        CommandError: it has not got one of them.
    """
    for number in sorted(numbers):
        if number not in topic.partitions:
            last = max(topic.partitions, default=-1)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
            has = f"{topic.name} has partitions 0 to {last}" if last > 0 else f"{topic.name} has partition 0 only"
            raise CommandError(f"there is no partition {number} of {topic.name!r}: {has} [{code}]")
