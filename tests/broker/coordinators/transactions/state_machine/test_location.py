"""A transactional id is in the partition in which every tool of Kafka's looks for it."""

from barnabas_broker.coordinators.transactions.state_machine.location import (
    TRANSACTION_TOPIC,
    offsets_place,
    partition_for,
)


def test_an_id_lives_where_its_hash_says() -> None:
    # Java: Math.abs("hello".hashCode()) % 50, and the one hash that has no absolute value.
    assert partition_for("hello", 50) == 99162322 % 50
    assert partition_for("polygenelubricants", 50) == 0
    assert TRANSACTION_TOPIC == "__transaction_state"


def test_a_groups_offsets_are_a_partition_like_any_other() -> None:
    assert offsets_place("test", 50) == ("__consumer_offsets", 48)
