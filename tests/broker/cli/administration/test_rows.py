"""The numbers of a list are the sums of what brokers said, and unknown where one did not say its part."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.cli.commands.administration.names import compiled, matching
from barnabas_broker.cli.commands.group.listing import lag_cell
from barnabas_broker.cli.commands.topic.description import trouble
from barnabas_broker.cli.commands.topic.listing import row_of
from barnabas_broker.cli.errors import UsageError
from barnabas_clients import OffsetAndMetadata, TopicPartition
from barnabas_clients.admin.client import GroupSurvey, PartitionLag, TopicsSurvey
from barnabas_clients.cluster.topic_view import PartitionView, TopicView

NODES = (1, 2, 3)
SIZE = st.none() | st.integers(0, 1000)
PARTITION = st.tuples(
    st.sampled_from((-1, *NODES)),
    st.sets(st.sampled_from(NODES), min_size=1),
    st.sets(st.sampled_from(NODES)),
    st.none() | st.tuples(st.integers(0, 50), st.integers(50, 100)),
    st.tuples(SIZE, SIZE, SIZE),
)


def view_of(number: int, leader: int, replicas: set[int], behind: set[int]) -> PartitionView:
    return PartitionView(number, leader, 0, tuple(replicas), tuple(replicas - behind), (), 0)


@settings(max_examples=50)
@given(st.lists(PARTITION, min_size=1, max_size=5))
def test_a_row_adds_up_what_is_known_and_is_unknown_where_a_part_is(
    drawn: list[tuple[int, set[int], set[int], tuple[int, int] | None, tuple[int | None, ...]]],
) -> None:
    views = {number: view_of(number, *one[:3]) for number, one in enumerate(drawn)}
    offsets = {TopicPartition("t", number): one[3] for number, one in enumerate(drawn) if one[3] is not None}
    sizes = {
        node_id: {
            TopicPartition("t", number): size
            for number, one in enumerate(drawn)
            if (size := one[4][node_id - 1]) is not None
        }
        for node_id in NODES
    }
    row = row_of(TopicView("t", None, False, views), TopicsSurvey(offsets, sizes, {}))

    said = [one[3] for one in drawn]
    assert row.records == (None if None in said else sum(one[1] - one[0] for one in said if one is not None))
    of_leaders = [None if one[0] < 0 else one[4][one[0] - 1] for one in drawn]
    assert row.bytes == (None if None in of_leaders else sum(size or 0 for size in of_leaders))
    of_replicas = [one[4][node_id - 1] for one in drawn for node_id in one[1]]
    assert row.bytes_on_disk == (None if None in of_replicas else sum(size or 0 for size in of_replicas))
    assert (row.partitions, row.replicas) == (len(drawn), max(len(one[1]) for one in drawn))
    assert row.without_leader == sum(one[0] < 0 for one in drawn)
    assert row.under_replicated == sum(bool(one[1] & one[2]) for one in drawn)
    troubled = [number for number, view in views.items() if trouble(view)]
    assert troubled == [number for number, one in enumerate(drawn) if one[0] < 0 or one[1] & one[2]]


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (view_of(0, 1, {1, 2}, set()), None),
        (view_of(0, -1, {2}, set()), "no leader"),
        (view_of(0, 1, {1, 2, 3}, {2, 3}), "not in sync: 2, 3"),
        (view_of(0, -1, {1, 2}, {2}), "no leader, not in sync: 2"),
    ],
)
def test_what_a_partition_lacks_is_said_in_words(view: PartitionView, said: str | None) -> None:
    assert trouble(view) == said


@given(st.lists(st.text("ab.", min_size=1), unique=True), st.text("ab.", min_size=1))
def test_a_pattern_chooses_the_names_that_it_matches_as_a_whole(names: list[str], pattern: str) -> None:
    assert matching(names, compiled([pattern])) == [name for name in names if re.match(f"(?:{pattern})\\Z", name)]
    assert matching(names, []) == names


def test_what_is_no_pattern_is_a_mistake_of_the_command_line() -> None:
    with pytest.raises(UsageError, match=r"--regex '\(' is not a regular expression: "):
        compiled(["a", "("])


@pytest.mark.parametrize(
    ("lags", "said"),
    [
        (None, None),
        ([], None),
        ([0, 0], "0"),
        ([1000, 200], "1,200"),
        ([104, None], "104+"),
        ([None, None], None),
    ],
)
def test_a_lag_in_a_list_is_a_number_a_part_of_one_or_unknown(lags: list[int | None] | None, said: str | None) -> None:
    found = None
    if lags is not None:
        found = {
            TopicPartition("t", number): PartitionLag(None if lag is None else OffsetAndMetadata(0), lag or 5, None)
            for number, lag in enumerate(lags)
        }
        for key, lag in zip(list(found), lags, strict=True):
            if lag == 0:
                found[key] = PartitionLag(OffsetAndMetadata(5), 5, None)
    assert lag_cell(GroupSurvey(None, found)) == said
