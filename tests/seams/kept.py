"""Mistakes that no test noticed once, each with the test that notices it now.

A user would have paid for each of them. `scripts/simulation/seam-mutants` draws others by chance. These are kept for
good: `test_kept` plants them, one at a time, and runs the test that is named beside it. Those of the producer's sender,
of the coordinators and of the log are kept beside the models that notice them
(`tests/clients/producer/test_sender_histories.py`, `tests/broker/coordinators/runtime/test_mutants.py`,
`tests/broker/coordinators/groups/test_mutants.py`, `tests/raftlog/log/test_mutants.py`).
"""

from typing import NamedTuple

__all__ = ["KEPT", "Kept"]


class Kept(NamedTuple):
    """One mistake: in `file`, `line` (which is there once) is replaced by `instead`; `test` must fail then.

    `what` says in a few words how a user would see it.
    """

    what: str
    file: str
    line: str
    instead: str
    test: str


KEPT: list[Kept] = [
    Kept(
        what="a call that raises takes with it the records that it has taken, and they are committed",
        file="clients/barnabas_clients/consumer/fetcher.py",
        line="if not is_first:",
        instead="if False:",
        test="tests/clients/consumer/test_consumer_model.py",
    ),
    Kept(
        what="offsets without records finish with records that are in the application's hands",
        file="clients/barnabas_clients/consumer/fetcher.py",
        line="if queue.finished == queue.position:",
        instead="if True:",
        test="tests/clients/consumer/test_consumer_model.py",
    ),
    Kept(
        what="a key goes to another partition than with every other client",
        file="raftlog/barnabas_raftlog/records/walker/pure/building.py",
        line="return (murmur2(key) & 0x7FFFFFFF) % partition_count",
        instead="return abs(murmur2(key) - (murmur2(key) >> 31 << 32)) % partition_count",
        test="tests/raftlog/records/test_building_twins.py",
    ),
    Kept(
        what="the latest offset is one that is not committed",
        file="broker/barnabas_broker/server/handlers/list_offsets.py",
        line="end = partition.readable_end(is_committed=is_committed)",
        instead="end = partition.log.log_end_offset",
        test="tests/broker/partition/test_uncommitted_tail.py",
    ),
    Kept(
        what="what is read from disk is not committed",
        file="broker/barnabas_broker/server/handlers/fetch.py",
        line="buffers = await partition.log.read_cold(asked.fetch_offset, end, bytes_max)",
        instead="buffers = await partition.log.read_cold(asked.fetch_offset, partition.log.log_end_offset, bytes_max)",
        test="tests/broker/partition/test_uncommitted_tail.py",
    ),
    Kept(
        what="a producer is out of order after its last number",
        file="broker/barnabas_broker/partition/producer_state.py",
        line="elif base_sequence != (last.last_sequence + 1) % SEQUENCE_MODULUS:",
        instead="elif base_sequence != last.last_sequence + 1:",
        test="tests/broker/partition/test_producer_state.py",
    ),
    Kept(
        what="the retention of the brokers does not hold for topics",
        file="broker/barnabas_broker/config/topic.py",
        line='    "retention.bytes": "log.retention.bytes",\n',
        instead="",
        test="tests/broker/config/test_topic_settings.py",
    ),
    Kept(
        what="a linearizable read rests on a round that began before it",
        file="raftlog/barnabas_raftlog/multiraft/group.py",
        line="if self.readers and self.readers[-1][0] is None:\n            answer =",
        instead="if self.readers:\n            answer =",
        test="tests/raftlog/multiraft/test_groups.py",
    ),
    Kept(
        what="heartbeats are dropped beside entries",
        file="raftlog/barnabas_raftlog/multiraft/outbox.py",
        line="wanted = [item for item in messages if not _is_heavy(item[1])]",
        instead="wanted = []",
        test="tests/raftlog/multiraft/test_outbox.py",
    ),
    Kept(
        what="a message of a term leaves before the term is durable",
        file="raftlog/barnabas_raftlog/multiraft/promises.py",
        line="        group.promise_ticket = UNKNOWN_TICKET\n",
        instead="",
        test="tests/raftlog/multiraft/test_promises.py",
    ),
    Kept(
        what="a greeting tells of a term before it is durable",
        file="raftlog/barnabas_raftlog/multiraft/greetings.py",
        line="if group.promise_ticket > durable_ticket:",
        instead="if group.promise_ticket > durable_ticket + 1:",
        test="tests/raftlog/multiraft/test_greetings.py",
    ),
    Kept(
        what="files that a new manifest names are dropped with the old session",
        file="raftlog/barnabas_raftlog/catch_up/sending.py",
        line="        log.pin(segments)\n        if key in self._sessions:\n            self._end(key)\n",
        instead="        if key in self._sessions:\n            self._end(key)\n        log.pin(segments)\n",
        test="tests/raftlog/catch_up/test_sending.py",
    ),
    Kept(
        what="a controller whose log is older than its snapshot does not start",
        file="metadata_quorum/barnabas_metadata_quorum/service.py",
        line="if self._log.first_index > applied_index + 1 or self._log.last_index < applied_index:",
        instead="if self._log.first_index > applied_index + 1:",
        test="tests/metadata_quorum/test_service.py",
    ),
    Kept(
        what="what is appended to a list without a value replaces its default",
        file="metadata_quorum/barnabas_metadata_quorum/controller/config_changes.py",
        line="items = _items(configs.get(name, default))",
        instead='items = _items(configs.get(name, ""))',
        test="tests/metadata_quorum/controller/test_config_changes.py",
    ),
]
