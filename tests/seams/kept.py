"""Mistakes that a user would have paid for and that no test noticed once; each with the test that does now.

`scripts/seam-mutants` draws others by chance. These are kept for good: `test_kept` plants them, one at a time, and
runs the test that is named beside it. Those of the producer's sender, of the coordinators and of the log are kept
beside the models that notice them (`tests/clients/producer/test_sender_histories.py`,
`tests/broker/coordinators/runtime/test_mutants.py`, `tests/broker/coordinators/groups/test_mutants.py`,
`tests/raftlog/log/test_mutants.py`).
"""

from typing import NamedTuple

__all__ = ["KEPT", "Kept"]


class Kept(NamedTuple):
    """One mistake: in `file`, `line` (which is there once) is replaced by `instead`; `test` must fail then.

    `what` says in a few words what a user would see.
    """

    what: str
    file: str
    line: str
    instead: str
    test: str


KEPT: list[Kept] = [
    Kept(
        "a call that raises takes with it the records that it has taken, and they are committed",
        "clients/barnabas_clients/consumer/fetcher.py",
        "if not is_first:",
        "if False:",
        "tests/clients/consumer/test_consumer_model.py",
    ),
    Kept(
        "offsets without records finish with records that are in the application's hands",
        "clients/barnabas_clients/consumer/fetcher.py",
        "if queue.finished == queue.position:",
        "if True:",
        "tests/clients/consumer/test_consumer_model.py",
    ),
    Kept(
        "a key goes to another partition than with every other client",
        "clients/barnabas_clients/producer/partitioner.py",
        "return (murmur2(key) & 0x7FFFFFFF) % partition_count",
        "return abs(murmur2(key) - (murmur2(key) >> 31 << 32)) % partition_count",
        "tests/clients/producer/test_partitioner.py",
    ),
    Kept(
        "the latest offset is one that is not committed",
        "broker/barnabas_broker/server/handlers/list_offsets.py",
        "log, end = partition.log, partition.high_watermark",
        "log, end = partition.log, partition.log.log_end_offset",
        "tests/broker/partition/test_uncommitted_tail.py",
    ),
    Kept(
        "what is read from disk is not committed",
        "broker/barnabas_broker/server/handlers/fetch.py",
        "buffers = await partition.log.read_cold(asked.fetch_offset, result.high_watermark, bytes_max)",
        "buffers = await partition.log.read_cold(asked.fetch_offset, partition.log.log_end_offset, bytes_max)",
        "tests/broker/partition/test_uncommitted_tail.py",
    ),
    Kept(
        "a producer is out of order after its last number",
        "broker/barnabas_broker/partition/producer_state.py",
        "if base_sequence == (last.last_sequence + 1) % SEQUENCE_MODULUS:",
        "if base_sequence == last.last_sequence + 1:",
        "tests/broker/partition/test_producer_state.py",
    ),
    Kept(
        "the retention of the brokers does not hold for topics",
        "broker/barnabas_broker/config/topic.py",
        '    "retention.bytes": "log.retention.bytes",\n',
        "",
        "tests/broker/config/test_topic_settings.py",
    ),
    Kept(
        "a linearizable read rests on a round that began before it",
        "raftlog/barnabas_raftlog/multiraft/group.py",
        "if self.readers and self.readers[-1][0] is None:\n            answer =",
        "if self.readers:\n            answer =",
        "tests/raftlog/multiraft/test_groups.py",
    ),
    Kept(
        "heartbeats are dropped beside entries",
        "raftlog/barnabas_raftlog/multiraft/outbox.py",
        "wanted = [item for item in messages if not _is_heavy(item[1])]",
        "wanted = []",
        "tests/raftlog/multiraft/test_outbox.py",
    ),
    Kept(
        "a message of a term leaves before the term is durable",
        "raftlog/barnabas_raftlog/multiraft/promises.py",
        "        group.promise_ticket = UNKNOWN_TICKET\n",
        "",
        "tests/raftlog/multiraft/test_promises.py",
    ),
    Kept(
        "a greeting tells of a term before it is durable",
        "raftlog/barnabas_raftlog/multiraft/greetings.py",
        "if group.promise_ticket > durable_ticket:",
        "if group.promise_ticket > durable_ticket + 1:",
        "tests/raftlog/multiraft/test_greetings.py",
    ),
    Kept(
        "files that a new manifest names are dropped with the old session",
        "raftlog/barnabas_raftlog/catch_up/sending.py",
        "        log.pin(segments)\n        if key in self._sessions:\n            self._end(key)\n",
        "        if key in self._sessions:\n            self._end(key)\n        log.pin(segments)\n",
        "tests/raftlog/catch_up/test_sending.py",
    ),
    Kept(
        "a controller whose log is older than its snapshot does not start",
        "metadata_quorum/barnabas_metadata_quorum/service.py",
        "if self._log.first_index > applied_index + 1 or self._log.last_index < applied_index:",
        "if self._log.first_index > applied_index + 1:",
        "tests/metadata_quorum/test_service.py",
    ),
    Kept(
        "what is appended to a list without a value replaces its default",
        "metadata_quorum/barnabas_metadata_quorum/controller/config_changes.py",
        "items = _items(configs.get(name, known.default))",
        'items = _items(configs.get(name, ""))',
        "tests/metadata_quorum/controller/test_config_changes.py",
    ),
]
