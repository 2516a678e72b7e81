"""Describes topics: leaders, replicas, offsets and sizes of their partitions, and what is configured.

A partition that is not as it should be says so in words, in a column that is there only then. Offsets and sizes that no
broker tells are left out; the rest is worth showing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas_broker.cli.commands.administration.calls import administer, complain_of_silence
from barnabas_broker.cli.commands.administration.names import compiled, some_topics
from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_broker.cli.wording import counted, listed
from barnabas_broker.config.quantities import shown_bytes
from barnabas_broker.config.witness_rows import decode_witnesses
from barnabas_clients import Admin, TopicPartition
from barnabas_clients.admin.client import ConfigEntry, ConfigResource, TopicsSurvey
from barnabas_clients.admin.values import ConfigSource
from barnabas_clients.cluster.topic_view import PartitionView, TopicView
from barnabas_clients.errors import ClientError

from .listing import SURVEY_TIMEOUT_S, TopicRow, is_under_replicated, leader_bytes, row_of

__all__ = ["Configs", "configs_of", "describe", "trouble", "witnesses_in"]

# Time for configurations: they are worth less than the rest of the description.
DETAILS_TIMEOUT_S = 2.0

Configs = dict[str, ConfigEntry]


class Described(NamedTuple):
    """Some topics, and what the brokers say of them."""

    topics: Sequence[TopicView]
    survey: TopicsSurvey
    configs: Mapping[str, Configs]


def describe(bootstrap: str, names: Sequence[str], patterns: Sequence[str], timeout_s: float, *, as_json: bool) -> int:
    """Print the leader, replicas, offsets and size of each partition, and the configurations."""
    check_topic_names(names)
    wanted = compiled(patterns)
    if not names and not wanted:
        raise UsageError("say which topics: TOPIC... or --regex PATTERN")

    async def run(admin: Admin) -> Described:
        topics = await some_topics(admin, names, wanted, include_internal=True)
        found = [topic.name for topic in topics]
        survey, configs = await asyncio.gather(
            admin.survey_topics(found, timeout_s=min(timeout_s, SURVEY_TIMEOUT_S)),
            configs_of(admin, found, min(timeout_s, DETAILS_TIMEOUT_S)),
        )
        return Described(topics, survey, configs)

    found = administer(bootstrap, timeout_s, run)
    for number, topic in enumerate(found.topics):
        configs = found.configs.get(topic.name, {})
        if as_json:
            rows = {entry.name: {"value": entry.value, "source": entry.source.name} for entry in configs.values()}
            say_json(_as_json(topic, found.survey, witnesses_in(configs)) | {"configs": rows})
        else:
            if number:
                say("")
            _show(topic, found.survey, configs)
    rows_ = [row_of(topic, found.survey) for topic in found.topics]
    if any(None in {row.records, row.bytes} for row in rows_):
        complain_of_silence(found.survey.silent)
    return 0


async def configs_of(admin: Admin, names: Sequence[str], timeout_s: float) -> dict[str, Configs]:
    """Return the topics' configurations; nothing from a broker that cannot say."""
    resources = [ConfigResource.topic(name) for name in names]
    try:
        found = await admin.describe_configs(resources, timeout_s=timeout_s)
    except ClientError:
        return {}
    return {resource.name: configs for resource, configs in found.items()}


def witnesses_in(configs: Configs) -> dict[int, int]:
    """Return the witness of each partition that has one, as far as the cluster says."""
    return decode_witnesses({name: entry.value for name, entry in configs.items()})


def trouble(view: PartitionView) -> str | None:
    """Say in words what a partition lacks; None if nothing."""
    said = ["no leader"] if view.leader_id < 0 else []
    if is_under_replicated(view):
        behind = [node_id for node_id in view.replicas if node_id not in view.in_sync_replicas]
        said.append(f"not in sync: {listed(behind)}")
    return ", ".join(said) or None


def _as_json(topic: TopicView, survey: TopicsSurvey, witnesses: Mapping[int, int]) -> dict[str, Any]:
    rows = []
    for number, view in sorted(topic.partitions.items()):
        key = TopicPartition(topic.name, number)
        row: dict[str, Any] = {
            "partition": number,
            "leader": view.leader_id,
            "leader_epoch": view.leader_epoch,
            "replicas": list(view.replicas),
            "isr": list(view.in_sync_replicas),
            "offline_replicas": list(view.offline_replicas),
        }
        if number in witnesses:
            row["witness"] = witnesses[number]
        if key in survey.offsets:
            row |= dict(zip(("start_offset", "end_offset"), survey.offsets[key], strict=True))
        if (size := leader_bytes(view, key, survey.sizes)) is not None:
            row["bytes"] = size
        rows.append(row)
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex() if topic.topic_id else None,
        "is_internal": topic.is_internal,
        "partitions": rows,
    }


def _show(topic: TopicView, survey: TopicsSurvey, configs: Configs) -> None:
    own = [f"{entry.name}={entry.value}" for entry in configs.values() if entry.source is ConfigSource.TOPIC]
    witnesses = witnesses_in(configs)
    is_troubled = any(map(trouble, topic.partitions.values()))
    rows = []
    for number, view in sorted(topic.partitions.items()):
        key = TopicPartition(topic.name, number)
        size = leader_bytes(view, key, survey.sizes)
        row: list[object] = [
            number,
            view.leader_id if view.leader_id >= 0 else _red("none"),
            view.leader_epoch,
            ",".join(map(str, view.replicas)),
            ",".join(map(str, view.in_sync_replicas)),
            "{} to {}".format(*survey.offsets[key]) if key in survey.offsets else None,
            None if size is None else shown_bytes(size),
        ]
        row += [witnesses.get(number)] if witnesses else []
        row += [_red(trouble(view) or "")] if is_troubled else []
        rows.append(row)
    columns = ["partition", "leader", "epoch", "replicas", "in sync", "offsets", "bytes"]
    columns += ["witness"] if witnesses else []
    columns += ["trouble"] if is_troubled else []
    print_table(columns, rows, [_header(topic, row_of(topic, survey)), *own])


def _red(text: str) -> object:
    from rich.text import Text  # noqa: PLC0415 - slow to load, and only needed where something is wrong

    return Text(text, "red")


def _header(topic: TopicView, row: TopicRow) -> str:
    said = [counted(row.partitions, "partition"), counted(row.replicas, "replica")]
    said += [] if row.records is None else [counted(row.records, "record")]
    said += [] if row.bytes is None else [shown_bytes(row.bytes)]
    said += [f"{row.under_replicated} under-replicated"] if row.under_replicated else []
    said += [f"{row.without_leader} without a leader"] if row.without_leader else []
    return f"{topic.name}  id {topic.topic_id.hex() if topic.topic_id else 'none'}  {', '.join(said)}"
