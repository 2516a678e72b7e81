"""How descriptors are divided: files have a part that connections cannot take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.process.descriptors import CONNECTIONS_MIN, RESERVED_MIN, TooFewDescriptorsError, share

LEAST = RESERVED_MIN + CONNECTIONS_MIN


@given(st.integers(LEAST, 1 << 30), st.integers(1, 1_000_000))
def test_connections_never_take_what_is_reserved(limit: int, wanted: int) -> None:
    found = share(limit, wanted)
    assert found.connections + found.reserved <= limit
    assert 1 <= found.connections <= wanted
    assert max(found.segment_files, found.backlog) * 2 <= found.reserved
    assert found.reserved >= RESERVED_MIN


@pytest.mark.parametrize(
    ("limit", "connections"),
    [(LEAST, 32), (200, 72), (1_024, 512), (4_096, 3_072), (20_000, 18_976), (1 << 20, 20_000)],
)
def test_what_is_left_for_connections(limit: int, connections: int) -> None:
    assert share(limit, 20_000).connections == connections


@pytest.mark.parametrize("limit", [0, 64, LEAST - 1])
def test_fewer_than_a_broker_needs_are_refused(limit: int) -> None:
    with pytest.raises(TooFewDescriptorsError, match=f"may open {limit} files"):
        share(limit, 1)
