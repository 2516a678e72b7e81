"""The lag of a group and what its members read, in the words of `barnabas group describe`."""

import pytest

from barnabas_broker.cli.commands.group.description import lag_text, partitions_text
from barnabas_clients import OffsetAndMetadata, TopicPartition
from barnabas_clients.admin.client import PartitionLag, TotalLag, total_lag

AT_5 = OffsetAndMetadata(5)


@pytest.mark.parametrize(
    ("rows", "total", "said"),
    [
        ([], TotalLag(None, 0, 0), "lag unknown (nothing is committed, and nobody reads anything)"),
        ([(AT_5, 5), (AT_5, 1_239)], TotalLag(1_234, 1_234, 0), "lag 1,234"),
        ([(None, 104), (None, 0)], TotalLag(None, 0, 2), "lag unknown (2 of 2 partitions have no commit)"),
        ([(AT_5, 9), (None, 104)], TotalLag(None, 4, 1), "lag 4 and more (1 of 2 partitions have no commit)"),
        # Of a partition that does not exist any more nothing is left to be read.
        ([(AT_5, 9), (AT_5, None)], TotalLag(4, 4, 0), "lag 4"),
    ],
)
def test_a_lag_that_is_not_known_is_not_0(
    rows: list[tuple[OffsetAndMetadata | None, int | None]], total: TotalLag, said: str
) -> None:
    lags = {TopicPartition("t", number): PartitionLag(*row, None) for number, row in enumerate(rows)}
    assert total_lag(lags) == total
    assert lag_text(lags) == said


def test_consecutive_partitions_are_shown_as_a_range() -> None:
    numbers = (7, 0, 1, 2, 3, 9, 10)
    partitions = [TopicPartition("t", number) for number in numbers] + [TopicPartition("a", 5)]
    assert partitions_text(partitions) == "a:5 t:0-3,7,9-10"
    assert partitions_text([]) == ""
