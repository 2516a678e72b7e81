"""Positions survive Spark's checkpoint, and nothing else is taken for one."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.streaming.offsets import Offsets, OffsetsError, from_json, to_json

TOPICS = st.text("abc.-_", min_size=1, max_size=4)
POSITIONS = st.dictionaries(st.tuples(TOPICS, st.integers(0, 300)), st.integers(0, 2**63 - 1), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("@ids"), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def offsets(draw: st.DrawFn) -> Offsets:
    positions = draw(POSITIONS)
    topics = sorted({topic for topic, _ in positions})
    known = draw(st.lists(st.sampled_from(topics), unique=True)) if topics else []
    return Offsets(positions, {topic: draw(st.binary(min_size=16, max_size=16)) for topic in known})


@given(offsets())
def test_offsets_survive_json(written: Offsets) -> None:
    assert from_json(json.loads(json.dumps(to_json(written)))) == written


@given(offsets(), st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_texts(written: Offsets, order: Random) -> None:
    shuffled = list(written.positions.items())
    order.shuffle(shuffled)
    assert json.dumps(to_json(written._replace(positions=dict(shuffled)))) == json.dumps(to_json(written))


def test_the_checkpoint_of_sparks_own_source_is_understood() -> None:
    assert from_json({"t": {"0": 23, "1": 0}}) == Offsets({("t", 0): 23, ("t", 1): 0}, {})


@given(JSON)
def test_whatever_is_read_only_offsets_errors_come(value: object) -> None:
    try:
        from_json(value)
    except OffsetsError:
        return


@pytest.mark.parametrize(
    "value",
    [[], {"t": 1}, {"t": {"x": 1}}, {"t": {"0": -1}}, {"t": {"0": True}}, {"@ids": 1}, {"@ids": {"t": "x"}, "t": {}}],
)
def test_what_is_no_position_is_refused(value: object) -> None:
    with pytest.raises(OffsetsError, match="did not write"):
        from_json(value)
