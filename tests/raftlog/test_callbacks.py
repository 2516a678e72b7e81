"""One of many that raises is one of many."""

import logging

import pytest

from barnabas_raftlog.callbacks import call_each


def test_those_behind_one_that_raises_are_called_and_its_owner_is_told(caplog: pytest.LogCaptureFixture) -> None:
    called = []
    told = []

    def call(number: int) -> None:
        called.append(number)
        if number == 2:
            raise ValueError("no")

    with caplog.at_level(logging.ERROR):
        call_each([1, 2, 3], call, lambda number, error: told.append((number, str(error))))
    assert (called, told) == ([1, 2, 3], [(2, "no")])
    (record,) = caplog.records
    assert record.exc_info is not None, "the log has its traceback"


@pytest.mark.parametrize("has_owner", [False, True])
def test_what_nobody_can_be_told_of_is_raised_when_all_were_called(has_owner: bool) -> None:
    called = []

    def call(number: int) -> None:
        called.append(number)
        raise ValueError(number)

    def failed(number: int, error: Exception) -> None:
        if number > 1:
            raise TypeError(number)

    with pytest.raises(TypeError if has_owner else ValueError, match="2" if has_owner else "1"):
        call_each([1, 2, 3], call, failed if has_owner else None)
    assert called == [1, 2, 3]


def test_failed_assertions_are_nobodys_to_answer() -> None:
    called = []
    told = []

    def call(number: int) -> None:
        called.append(number)
        assert number != 1, "an invariant"

    with pytest.raises(AssertionError, match="an invariant"):
        call_each([1, 2], call, lambda number, _: told.append(number))
    assert (called, told) == ([1, 2], [])
