"""Lists topics: how large each is, and whether all its replicas and leaders are there.

The numbers cost three requests to each broker, however many topics there are (`Admin.survey_topics`); with names only
there is one request in all. A broker that does not answer costs its own numbers: they are `-`, in JSON null.

*Bytes* are those of the partitions' leaders, so they can be compared with `retention.bytes`, and are known while a
broker is down. JSON has the sum over all replicas beside them, which is what the topic takes on disks. *Records* are
the distances from the start to the end of each log: compaction and transactions leave fewer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_broker.cli.commands.administration.calls import administer, complain_of_silence
from barnabas_broker.cli.commands.administration.names import compiled, matching, missing_topics
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import complain, print_table, say, say_json_lines
from barnabas_broker.cli.wording import said_count
from barnabas_broker.config.quantities import shown_bytes
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import TopicsSurvey
from barnabas_clients.cluster.topic_view import PartitionView, TopicView

__all__ = ["SURVEY_TIMEOUT_S", "TopicRow", "is_under_replicated", "leader_bytes", "list_", "row_of"]

# Numbers that a broker does not tell by then are not worth waiting for: the names are there.
SURVEY_TIMEOUT_S = 3.0
COLUMNS = ("topic", "partitions", "replicas", "records", "bytes", "under-replicated", "no leader")


class TopicRow(NamedTuple):
    """One topic in the list. `replicas` is the largest number that a partition has. None is unknown."""

    name: str
    is_internal: bool
    partitions: int
    replicas: int
    records: int | None
    bytes: int | None
    bytes_on_disk: int | None
    under_replicated: int
    without_leader: int


def list_(
    bootstrap: str,
    timeout_s: float,
    names: Sequence[str],
    patterns: Sequence[str],
    *,
    as_json: bool,
    names_only: bool,
    include_internal: bool,
    under_replicated: bool,
    unavailable: bool,
) -> int:
    """Print the topics that are meant, with their numbers or by name alone."""
    check_topic_names(names)
    wanted = compiled(patterns)

    async def run(admin: Admin) -> tuple[list[TopicView], TopicsSurvey | None]:
        # Who names an internal topic wants to see it.
        listed = await admin.list_topics(include_internal=include_internal or bool(names))
        every = {topic.name: topic for topic in listed}
        if absent := [name for name in names if name not in every]:
            raise await missing_topics(admin, absent)
        shown = [name for name, topic in every.items() if include_internal or not topic.is_internal]
        chosen = {*names, *(matching(shown, wanted) if wanted or not names else ())}
        topics = [every[name] for name in sorted(chosen)]
        if under_replicated or unavailable:
            topics = [topic for topic in topics if _is_troubled(topic, under_replicated, unavailable)]
        if names_only or not topics:
            return topics, None
        return topics, await admin.survey_topics(
            [topic.name for topic in topics], timeout_s=min(timeout_s, SURVEY_TIMEOUT_S)
        )

    topics, survey = administer(bootstrap, timeout_s, run)
    if (under_replicated or unavailable) and not topics:
        wanting = ["with a replica too few"] * under_replicated + ["without a leader"] * unavailable
        complain(f"no topic has a partition {' or '.join(wanting)}")
    if names_only:
        if as_json:
            say_json_lines({"name": topic.name} for topic in topics)
        elif topics:
            say(*(topic.name for topic in topics))
        return 0
    rows = [row_of(topic, survey) for topic in topics if survey is not None]
    if as_json:
        say_json_lines(row._asdict() for row in rows)
    else:
        print_table(COLUMNS, map(_cells, rows))
    seen = {row.bytes_on_disk if as_json else row.bytes for row in rows} | {row.records for row in rows}
    if survey is not None and None in seen:
        complain_of_silence(survey.silent)
    return 0


def row_of(topic: TopicView, survey: TopicsSurvey) -> TopicRow:
    """Return what a topic comes to."""
    keys = [TopicPartition(topic.name, number) for number in topic.partitions]
    replicas = [(node_id, key) for key in keys for node_id in topic.partitions[key.partition].replicas]
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partitions=len(keys),
        replicas=max((len(view.replicas) for view in topic.partitions.values()), default=0),
        records=_total(_length(survey.offsets.get(key)) for key in keys),
        bytes=_total(leader_bytes(topic.partitions[key.partition], key, survey.sizes) for key in keys),
        bytes_on_disk=_total(survey.sizes.get(node_id, {}).get(key) for node_id, key in replicas),
        under_replicated=sum(map(is_under_replicated, topic.partitions.values())),
        without_leader=sum(view.leader_id < 0 for view in topic.partitions.values()),
    )


def _is_troubled(topic: TopicView, under_replicated: bool, unavailable: bool) -> bool:
    views = topic.partitions.values()
    return (under_replicated and any(map(is_under_replicated, views))) or (
        unavailable and any(view.leader_id < 0 for view in views)
    )


def is_under_replicated(view: PartitionView) -> bool:
    """Tell whether a replica is behind, or not there."""
    return len(view.in_sync_replicas) < len(view.replicas)


def leader_bytes(
    view: PartitionView, key: TopicPartition, sizes: Mapping[int, Mapping[TopicPartition, int]]
) -> int | None:
    """Return the bytes of a partition on its leader; None if there is none, or if it did not say."""
    return sizes.get(view.leader_id, {}).get(key)


def _length(ends: tuple[int, int] | None) -> int | None:
    return None if ends is None else ends[1] - ends[0]


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum; unknown if a part of it is."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _cells(row: TopicRow) -> Sequence[Any]:
    return (
        row.name,
        row.partitions,
        row.replicas,
        said_count(row.records),
        None if row.bytes is None else shown_bytes(row.bytes),
        row.under_replicated,
        row.without_leader,
    )
