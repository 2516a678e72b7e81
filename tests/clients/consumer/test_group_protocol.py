"""Settings and subscriptions that the protocol of the group has no use for are refused, with what to take instead."""

from typing import Any

import pytest

from barnabas_clients import Consumer


def consumer(**settings: Any) -> Consumer:
    return Consumer("127.0.0.1:9001", group_id="g", **settings)


@pytest.mark.parametrize(
    ("settings", "instead"),
    [
        ({"assignors": ["range"]}, "group_remote_assignor"),
        ({"session_timeout_s": 10.0}, "group.consumer.session.timeout.ms"),
        ({"heartbeat_interval_s": 1.0}, "group.consumer.heartbeat.interval.ms"),
    ],
)
def test_what_the_coordinator_decides_is_not_for_the_client_to_set(settings: dict[str, Any], instead: str) -> None:
    (name,) = settings
    consumer(topics=["t"], **settings)
    with pytest.raises(ValueError, match=f"{name} has no meaning.*{instead}"):
        consumer(topics=["t"], group_protocol="consumer", **settings)


def test_classic_groups_have_no_assignor_and_no_pattern_on_the_server() -> None:
    with pytest.raises(ValueError, match="group_remote_assignor needs group_protocol='consumer'"):
        consumer(topics=["t"], group_remote_assignor="uniform")
    with pytest.raises(ValueError, match="server_pattern needs"):
        consumer(server_pattern="t.*")
    with pytest.raises(ValueError, match="server_pattern needs a group_id"):
        Consumer("127.0.0.1:9001", server_pattern="t.*", group_protocol="consumer")
    with pytest.raises(ValueError, match="group_protocol"):
        consumer(topics=["t"], group_protocol="newer")


@pytest.mark.parametrize("others", [{"topics": ["t"]}, {"pattern": "t.*"}])
def test_a_pattern_for_the_server_stands_alone(others: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="subscribe to topics or to a pattern"):
        consumer(server_pattern="t.*", group_protocol="consumer", **others)
