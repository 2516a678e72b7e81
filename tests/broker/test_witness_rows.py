"""Who the witnesses of a topic are crosses the protocol as text, and a plan asks for one only where one is missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.reassignment_plan import lacks_witness
from barnabas_broker.witness_rows import decode_witnesses, encode_witnesses
from barnabas_metadata_quorum.image import Partition
from barnabas_metadata_quorum.records import NOBODY


@given(st.lists(st.integers(3, 9) | st.just(NOBODY), max_size=9))
def test_rows_say_who_is_the_witness_of_which_partition(witnesses: list[int]) -> None:
    text = encode_witnesses([Partition((1, 2), witness=witness) for witness in witnesses])
    assert decode_witnesses(text) == {index: witness for index, witness in enumerate(witnesses) if witness != NOBODY}
    assert (text == "") == all(witness == NOBODY for witness in witnesses)


def test_no_rows_are_no_witnesses() -> None:
    assert decode_witnesses(None) == decode_witnesses("") == {}


@pytest.mark.parametrize(
    ("target", "witness", "up", "expected"),
    [
        ((1, 2), 3, (1, 2, 3), False),
        ((1, 2), None, (1, 2, 3), True),
        ((1, 2), None, (1, 2), False),  # There is nobody.
        ((1, 2), 3, (1, 2), False),  # It is down, and there is no other.
        ((1, 2), 3, (1, 2, 4), True),
        ((1, 2), 3, (2, 4), True),
        ((1, 3), 3, (1, 2, 3), True),
        ((1, 2, 3), None, (1, 2, 3, 4), False),
        ((1,), None, (1, 2, 3), False),
    ],
)
def test_a_witness_is_asked_for_where_it_is_missing_and_can_be_had(
    target: tuple[int, ...], witness: int | None, up: tuple[int, ...], *, expected: bool
) -> None:
    assert lacks_witness(target, witness, up) is expected
