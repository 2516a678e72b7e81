"""Lists of numbers, as they are typed for partitions and brokers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli.limits import PARTITION_MAX, numbers_of

NUMBERS = st.lists(st.integers(0, PARTITION_MAX), min_size=1)


@given(NUMBERS, st.sampled_from([",", " , "]))
def test_what_can_be_sent_is_read(numbers: list[int], comma: str) -> None:
    assert numbers_of(comma.join(map(str, numbers))) == numbers


@given(NUMBERS, st.integers(PARTITION_MAX + 1) | st.integers(max_value=-1), st.data())
def test_one_number_out_of_range_spoils_the_list(numbers: list[int], wrong: int, data: st.DataObject) -> None:
    numbers.insert(data.draw(st.integers(0, len(numbers))), wrong)
    assert numbers_of(",".join(map(str, numbers))) is None


@pytest.mark.parametrize("text", ["", ",", "1,", "x", "1;2", "1_0", "+1", "²", "٣", "1.0", "9" * 5000])
def test_what_is_not_a_list_of_numbers_is_none(text: str) -> None:
    assert numbers_of(text) is None
