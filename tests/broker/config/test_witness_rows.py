"""Witnesses of a topic cross the protocol as text; plans ask for missing ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli.commands.reassignment_plan import lacks_witness
from barnabas_broker.config.witness_rows import WITNESSES, decode_witnesses, encode_witnesses
from barnabas_metadata_quorum.image.image import PartitionPlacement
from barnabas_metadata_quorum.image.records import NOBODY


@given(st.lists(st.integers(3, 9) | st.just(NOBODY), max_size=9))
def test_rows_say_who_is_the_witness_of_which_partition(witnesses: list[int]) -> None:
    rows = encode_witnesses([PartitionPlacement((1, 2), witness=witness) for witness in witnesses])
    assert decode_witnesses(rows) == {index: witness for index, witness in enumerate(witnesses) if witness != NOBODY}
    assert (not rows) == all(witness == NOBODY for witness in witnesses)


def test_ten_thousand_rows_fit_into_strings_of_the_protocol() -> None:
    rows = encode_witnesses([PartitionPlacement((1, 2), witness=12_345_678)] * 10_000)
    assert list(rows) == [WITNESSES, *(f"{WITNESSES}.{number}" for number in range(1, 5))]
    assert max(map(len, rows.values())) <= 32_767
    assert decode_witnesses(rows) == dict.fromkeys(range(10_000), 12_345_678)


def test_no_rows_are_no_witnesses() -> None:
    assert decode_witnesses({}) == decode_witnesses({WITNESSES: None}) == decode_witnesses({WITNESSES: ""}) == {}
    assert decode_witnesses({"replica.observers": "1", f"{WITNESSES}-elsewhere": "0:1"}) == {}


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
