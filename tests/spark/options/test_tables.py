"""The options of a table in a catalog are told from its properties, and kept in a comment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.options.names import OptionError, without_copies
from barnabas_spark.options.tables import comment_for, is_table, with_those_of_table

# As Spark 4.2 hands them over for CREATE TABLE t USING barnabas OPTIONS (Subscribe 't').
CREATED = {"provider": "barnabas", "owner": "root", "option.subscribe": "t", "subscribe": "t"}
OPTIONS = st.dictionaries(st.text(min_size=1, max_size=9).map(str.lower), st.text(max_size=9), min_size=1, max_size=4)


def test_properties_of_a_table_are_no_options() -> None:
    assert is_table(CREATED)
    assert without_copies(CREATED) == {"subscribe": "t"}


def test_without_a_table_every_option_counts() -> None:
    given = {"Subscribe": "t", "owner": "root", "option.else": "1"}
    assert not is_table(given)
    assert without_copies(given) == {"subscribe": "t", "owner": "root", "option.else": "1"}


@given(options=OPTIONS)
def test_options_survive_in_a_comment(options: dict[str, str]) -> None:
    assert with_those_of_table({}, [comment_for(options), None]) == options


def test_options_of_the_query_beat_those_of_the_table() -> None:
    comment = comment_for({"subscribe": "t", "minpartitions": "1"})
    assert with_those_of_table({"minPartitions": "7"}, [comment]) == {"subscribe": "t", "minpartitions": "7"}


def test_a_comment_of_somebody_elses_means_nothing() -> None:
    assert with_those_of_table({"subscribe": "t"}, ["the key", None]) == {"subscribe": "t"}


@pytest.mark.parametrize(
    ("comments", "words"), [([None], "leave them out there"), (["reads with {"], "create it anew")]
)
def test_lost_options_are_explained(comments: list[str | None], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        with_those_of_table({}, comments)
