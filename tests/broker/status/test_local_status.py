"""The answers of several brokers become one verdict."""

from typing import Any

from barnabas_broker.local_cluster.status import _verdict


def broker(node_id: int, waiting: str = "", controller: int = 1) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "state": "running",
        "controller": controller,
        "quorum": {"waiting": waiting},
        "topics": {"t": 3},
        "leaders_confirmed": 1,
    }


def test_what_the_leading_controller_waits_for_is_lacking() -> None:
    brokers = [broker(1, "brokers [3] are catching up"), broker(2), broker(3)]
    assert str(_verdict(brokers)) == (
        "degraded: the controllers wait: brokers [3] are catching up; 3 of 3 partitions are served"
    )


def test_what_another_controller_believes_is_not() -> None:
    assert str(_verdict([broker(1), broker(2), broker(3, "nodes [1, 2] have metadata")])) == (
        "healthy: 3 brokers, 3 partitions served"
    )
