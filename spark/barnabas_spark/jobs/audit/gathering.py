"""Gathers the evidence of an audit: asks the brokers and the table, and has Spark's executors read all rows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas_clients.admin.configs import describe_configs
from barnabas_clients.admin.groups import group_offsets
from barnabas_clients.admin.values import ConfigResource
from barnabas_clients.topic_partition import TopicPartition
from barnabas_spark.clusters import cluster_for, run
from barnabas_spark.jobs.executors import in_waves
from barnabas_spark.jobs.lakes import Lake, find_lake
from barnabas_spark.lake.logs import ask_epoch_ends, ask_logs
from barnabas_spark.lake.rounds import TopicLogs, epochs_to_ask
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.tasks import named_failure
from barnabas_spark.options.reads import IsolationLevel, ReadOptions
from barnabas_spark.planning.plan import Split

from .commits import claims_of
from .evidence import Evidence, GroupPosition, UnitOfLog
from .files import FileFound, UnitIndex, index_of, scan_file
from .fragments import Fragment, is_in_order, joined_fragments
from .merging import merge_units
from .timeline import joined
from .topics import LogFound, LogPiece, pieces_of, scan_log
from .units import Claims, Unit, check_claims, spans_of_topic, units_of

__all__ = ["Question", "gather"]


class Question(NamedTuple):
    """What is audited. `options` are None if the brokers are not asked; `reads_log`: the log is read again."""

    topic: str
    location: Location | None
    kind: str
    options: ReadOptions | None
    reads_log: bool
    group: str


class _Asked(NamedTuple):
    """What the brokers say, before any row is read."""

    logs: TopicLogs | None = None
    is_compacted: bool = False
    positions: Sequence[GroupPosition] = ()


def gather(spark: Any, question: Question, tell: Callable[[str], None]) -> Evidence:
    """Find out everything.

    Raises:
        TableError: there is no table, or it cannot be trusted.
        KafkaError, ClientError: the topic does not exist, or no broker answers.
        TaskFailedError: a task failed for good.
    """
    # The table first: whatever is archived meanwhile is behind this version, and in the logs.
    lake = None if question.location is None else find_lake(question.location, question.kind)
    asked = _ask(question)
    seen = _known(question, lake, asked)
    if lake is not None:
        seen = _with_files(spark, seen, lake, tell)
    if asked.logs is not None and question.reads_log and question.options is not None:
        seen = _with_log(spark, seen, asked.logs, question.options, tell)
    return seen


def _ask(question: Question) -> _Asked:
    options = question.options
    if options is None:
        return _Asked()
    logs = ask_logs(options, question.topic)
    timeout_s = options.poll_timeout_ms / 1000

    async def ask() -> tuple[bool, list[GroupPosition]]:
        cluster = await cluster_for(options, is_driver=True)
        resource = ConfigResource.topic(question.topic)
        configs = (await describe_configs(cluster, [resource], timeout_s))[resource]
        policy = configs["cleanup.policy"].value if "cleanup.policy" in configs else ""
        positions = []
        if question.group:
            committed = await group_offsets(cluster, question.group, timeout_s)
            for partition in sorted(logs.partitions):
                at = committed.get(TopicPartition(question.topic, partition))
                positions.append(GroupPosition(partition, None if at is None else at.offset))
        return "compact" in (policy or ""), positions

    return _Asked(logs, *run(ask(), timeout_s))


def _known(question: Question, lake: Lake | None, asked: _Asked) -> Evidence:
    """Return what is known before any row is read, and cut it into units."""
    logs = asked.logs
    spans, claims = {}, Claims((), (), ())
    if lake is not None:
        said = claims_of(lake.kind, lake.table)
        spans = spans_of_topic(lake.state.spans, said, question.topic, "" if logs is None else logs.topic_id)
        claims = check_claims([one for one in said if one.said.key in spans], spans)
        units = units_of(spans, claims.kept, logs)
    else:
        assert logs is not None, "there is a lake, or there are brokers"
        ends = [(logs.key(one), log) for one, log in sorted(logs.partitions.items())]
        units = [
            Unit(key, log.start_offset, log.end_offset, is_in_log=True)
            for key, log in ends
            if log.start_offset < log.end_offset
        ]
    epochs = {} if logs is None else epochs_to_ask(spans, logs)
    epoch_ends = ask_epoch_ends(question.options, logs.topic, epochs) if logs and question.options else {}
    return Evidence(
        topic=question.topic,
        location="" if lake is None else lake.location.url,
        kind="" if lake is None else lake.kind,
        version="" if lake is None else str(lake.state.version),
        logs=logs,
        is_compacted=asked.is_compacted,
        spans=spans,
        claims=claims,
        units=units,
        lake={},
        log={},
        files=(),
        expected={},
        epoch_ends=epoch_ends,
        group=question.group,
        positions=asked.positions,
        timeline=joined(()),
    )


def _with_files(spark: Any, seen: Evidence, lake: Lake, tell: Callable[[str], None]) -> Evidence:
    """Read all files, then those again whose rows are mixed."""
    paths = list(lake.table.files(lake.state))
    others = {key.topic_id for key in lake.state.spans} - {key.topic_id for key in seen.spans}
    index = index_of(seen.units, others, seen.topic)
    files: list[FileFound] = []
    for wave in in_waves(spark, paths, partial(scan_file, location=lake.location, index=index)):
        files += wave
        tell(f"{len(files)} of {len(paths)} files: {sum(one.rows for one in files):,} rows")
    expected = {}
    if hasattr(lake.table, "data_files"):
        expected = {one.path: one.rows for one in lake.table.data_files(lake.state)}
    measured = _measured(spark, files, lake.location, index, tell)
    return seen._replace(files=files, lake=measured, expected=expected, timeline=joined(one.timeline for one in files))


def _measured(
    spark: Any, files: Sequence[FileFound], location: Location, index: UnitIndex, tell: Callable[[str], None]
) -> dict[int, Fragment]:
    parts: dict[int, list[tuple[Fragment, str]]] = {}
    for file in files:
        for one in file.fragments:
            parts.setdefault(one.unit, []).append((one, file.path))
    measured: dict[int, Fragment] = {}
    mixed: dict[int, set[str]] = {}
    for unit, found in parts.items():
        fragments = sorted((one for one, _ in found), key=lambda one: (one.first_offset, one.last_offset))
        if is_in_order(fragments):
            whole = joined_fragments(fragments)
            assert whole is not None, "a unit is here because it has a fragment"
            measured[unit] = whole
        else:
            mixed[unit] = {path for _, path in found}
    if mixed:
        paths = sorted(set().union(*mixed.values()))
        tell(f"{len(mixed)} ranges are mixed over {len(paths)} files: sorting them")
        measured |= named_failure(lambda: merge_units(spark, location, paths, set(mixed), index))
    return measured


def _with_log(
    spark: Any, seen: Evidence, logs: TopicLogs, options: ReadOptions, tell: Callable[[str], None]
) -> Evidence:
    """Read what the log still has of the units."""
    pieces: list[LogPiece] = []
    for number, unit in enumerate(seen.units):
        if unit.is_in_log and not _is_accepted_gap(seen, unit):
            epoch = logs.partitions[unit.key.partition].leader_epoch
            place = (unit.key.partition, epoch, unit.start_offset, unit.end_offset)
            split = Split(seen.topic, logs.raw_id, *place)
            pieces += pieces_of(number, split, _level(seen, unit, options))
    found: list[LogFound] = []
    for wave in in_waves(spark, pieces, partial(scan_log, options=options)):
        found += wave
        rows = sum(one.fragment.rows for one in found if one.fragment is not None)
        tell(f"{len(found)} of {len(pieces)} pieces of the log: {rows:,} rows")
    by_unit: dict[int, list[LogFound]] = {}
    for one in found:
        by_unit.setdefault(one.piece.unit, []).append(one)
    in_log = {
        unit: UnitOfLog(
            joined_fragments(one.fragment for one in each if one.fragment is not None),
            "; ".join(one.trouble for one in each if one.trouble),
        )
        for unit, each in by_unit.items()
    }
    timeline = seen.timeline if seen.location else joined(one.timeline for one in found)
    return seen._replace(log=in_log, timeline=timeline)


def _level(seen: Evidence, unit: Unit, options: ReadOptions) -> IsolationLevel:
    """Return which records of a unit its commit has taken; where no commit says that, what is asked for now."""
    if unit.claim < 0:
        return options.isolation_level
    is_committed = seen.claims.kept[unit.claim].said.isolation_level == "read_committed"
    return "read_committed" if is_committed else "read_uncommitted"


def _is_accepted_gap(seen: Evidence, unit: Unit) -> bool:
    return unit.claim >= 0 and seen.claims.kept[unit.claim].purpose == "gap"
