"""What counts as a time in which a process had no processor."""

import os

import pytest
from machines.processors import Waits, waited_s


def test_a_process_is_starved_from_before_its_long_wait_until_it_ran() -> None:
    waits = Waits()
    for at_s, waited in ((0.0, 0.0), (0.1, 0.05), (1.9, 0.05), (2.0, 1.75), (2.1, 1.75), (4.0, 2.0), (4.1, 2.1)):
        waits.sample(at_s, [(1, waited), (2, 0.0)])
    assert waits.spans == [(pytest.approx(0.3), 2.0), (2.1, 4.0)]


def test_spans_of_several_processes_that_meet_are_one() -> None:
    waits = Waits()
    for at_s, first, second in ((0.0, 0.0, 0.0), (0.1, 0.0, 0.0), (0.5, 0.5, 0.0), (1.0, 0.5, 0.0), (1.1, 0.5, 1.1)):
        waits.sample(at_s, [(1, first), (2, second)])
    assert waits.spans == [(0.0, 1.1)]


def test_waits_that_are_short_are_none() -> None:
    waits = Waits()
    for number in range(20):
        waits.sample(number / 10, [(1, number * 0.9 / 10)])
    assert waits.spans == []


def test_what_a_process_waited_before_it_was_first_seen_counts_for_nothing() -> None:
    waits = Waits()
    waits.sample(0.0, [(1, 100.0)])
    waits.sample(1.0, [(1, 100.0), (2, 50.0)])
    assert waits.spans == []


def test_the_kernel_counts() -> None:
    waited = waited_s(os.getpid())
    assert waited is not None
    assert waited >= 0
    assert waited_s(2**22 + 1) is None  # above the largest process id there is
