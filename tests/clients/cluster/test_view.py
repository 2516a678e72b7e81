"""A client's view of leaders is right in whatever order the news comes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.bootstrap import parse_bootstrap
from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = b"a" * 16, b"b" * 16


def told(
    leader_id: int, epoch: int, *, name: str = "t", topic_id: bytes = ID, isr: tuple[int, ...] = ()
) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="h", port=9000 + node) for node in range(4)],
        topics=[
            MetadataResponseTopic(
                name=name,
                topic_id=topic_id,
                partitions=[MetadataResponsePartition(leader_id=leader_id, leader_epoch=epoch, isr_nodes=isr)],
            )
        ],
    )


def led_by(view: ClusterView, name: str = "t") -> tuple[int, int]:
    partition = view.topics[name].partitions[0]
    return partition.leader_id, partition.leader_epoch


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=8))
def test_the_newest_epoch_wins_whatever_the_order(statements: list[tuple[int, bool]]) -> None:
    """Each epoch has one leader; answers and hints arrive in any order. The model is a maximum."""
    view = ClusterView().with_metadata(told(0, 0), ["t"])
    for epoch, is_hint in statements:
        leader_id = epoch % 3
        view = (
            view.with_leader("t", 0, leader_id, epoch) if is_hint else view.with_metadata(told(leader_id, epoch), ["t"])
        )
    newest = max(epoch for epoch, _ in statements)
    assert led_by(view) == (newest % 3, newest)
    assert view.leader("t", 0) == BrokerAddress(newest % 3, "h", 9000 + newest % 3)
    assert view.topics_by_id[ID] is view.topics["t"]


def test_at_equal_epochs_the_later_word_counts() -> None:
    view = ClusterView().with_metadata(told(1, 5, isr=(1, 2)), ["t"]).with_metadata(told(1, 5, isr=(1, 2, 3)), ["t"])
    assert view.topics["t"].partitions[0].in_sync_replicas == (1, 2, 3)


def test_w5_an_answer_without_a_leader_takes_no_epoch_back() -> None:
    """A broker that has just started may know neither leader nor epoch. Older news must not win after that."""
    view = ClusterView().with_metadata(told(1, 5), ["t"]).with_metadata(told(-1, -1), ["t"])
    assert led_by(view) == (-1, 5)
    assert view.leader("t", 0) is None
    assert led_by(view.with_metadata(told(2, 4), ["t"])) == (-1, 5)
    assert view.with_leader("t", 0, 2, 4) is view
    for epoch in (5, 6):
        assert led_by(view.with_metadata(told(2, epoch), ["t"])) == (2, epoch)
        assert led_by(view.with_leader("t", 0, 2, epoch)) == (2, epoch)


def test_an_answer_without_epochs_counts_if_it_names_a_leader() -> None:
    """Brokers before version 7 of Metadata tell none."""
    view = ClusterView().with_metadata(told(1, 5), ["t"]).with_metadata(told(2, -1), ["t"])
    assert led_by(view) == (2, -1)
    assert led_by(view.with_metadata(told(1, -1), ["t"])) == (1, -1)


def test_a_recreated_topic_starts_anew() -> None:
    view = ClusterView().with_metadata(told(1, 9), ["t"]).with_metadata(told(2, 1, topic_id=OTHER_ID), ["t"])
    assert led_by(view) == (2, 1)
    assert list(view.topics_by_id) == [OTHER_ID]


def test_an_answer_about_one_topic_leaves_the_others() -> None:
    view = ClusterView().with_metadata(told(1, 1), ["t"])
    view = view.with_metadata(told(2, 1, name="u", topic_id=OTHER_ID), ["u"])
    assert led_by(view) == (1, 1)
    assert led_by(view, "u") == (2, 1)


def test_an_answer_about_all_topics_drops_those_it_does_not_name() -> None:
    view = ClusterView().with_metadata(told(1, 1), ["t"])
    view = view.with_metadata(told(2, 1, name="u", topic_id=OTHER_ID), None)
    assert list(view.topics) == ["u"]


def test_a_topic_that_is_gone_leaves_its_error() -> None:
    gone = MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=3)])
    view = ClusterView().with_metadata(told(1, 1), ["t"]).with_metadata(gone, ["t"])
    assert not view.topics
    assert view.errors == {"t": 3}
    assert view.with_metadata(told(1, 2), ["t"]).errors == {}


def test_a_hint_that_names_a_stranger_needs_its_address() -> None:
    view = ClusterView().with_metadata(told(1, 1), ["t"])
    assert view.with_leader("t", 0, 77, 2) is view
    stranger = BrokerAddress(77, "elsewhere", 1)
    assert view.with_leader("t", 0, 77, 2, stranger).leader("t", 0) == stranger


class Always:
    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_pause_lies_between_half_and_all_of_its_step(attempt: int, chance: float) -> None:
    pause = Backoff(0.1, 5.0).delay_s(attempt, Always(chance))
    step = min(5.0, 0.1 * 2 ** min(attempt, 100))
    assert step / 2 <= pause <= step


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,a:1", [("a", 1), ("b", 2)]),
        ("host", [("host", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers_are_read(text: str, endpoints: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == endpoints


@pytest.mark.parametrize("text", ["", " , ", "a:", ":9092", "a:0", "a:65536", "a:x", "::1", "[::1", "[::1]9", "a:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        parse_bootstrap(text)
