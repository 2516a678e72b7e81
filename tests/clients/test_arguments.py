"""Arguments are refused with a TypeError or ValueError that names them.

Nothing in a value can prevent that.
"""

import array
from collections.abc import Callable

import numpy as np
import pytest

from barnabas_clients import arguments

from .odd_values import ODD, Odd, refused

CHECKS: dict[str, Callable[[object], object]] = {
    "whole_number": lambda value: arguments.whole_number("it", value, -5, 5),
    "seconds": lambda value: arguments.seconds("it", value),
    "text": lambda value: arguments.text("it", value),
    "topic_name": lambda value: arguments.topic_name("it", value),
    "names": lambda value: arguments.names("it", value),
    "flag": lambda value: arguments.flag("it", value),
    "one_of": lambda value: arguments.one_of("it", value, ("all", 0, 1)),
    "callable_of": lambda value: arguments.callable_of("it", value),
    "record_bytes": lambda value: arguments.record_bytes("it", value),
}


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_every_value_is_taken_or_refused_by_name(odd: Odd) -> None:
    for name, check in CHECKS.items():
        with refused() as refusals:
            check(odd.make())
        if refusals and "released" not in str(refusals[0]):
            assert "it" in str(refusals[0]).split(), (name, refusals[0])


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_any_value_is_shown_in_a_few_characters(odd: Odd) -> None:
    said = arguments.shown(odd.make())
    assert 0 < len(said) <= arguments.SHOWN_CHARACTERS


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_what_is_taken_as_a_record_has_as_many_bytes_as_it_says(odd: Odd) -> None:
    with refused() as refusals:
        taken = arguments.record_bytes("value", odd.make())
    if not refusals and taken is not None:
        assert b"".join([taken]) == bytes(memoryview(odd.make()))
        assert len(taken) == memoryview(taken).nbytes == len(b"".join([taken]))


def test_a_view_of_other_items_is_their_bytes_and_other_buffers_are_refused() -> None:
    numbers = array.array("i", [1, 2, 3])
    assert arguments.record_bytes("value", memoryview(numbers)) == numbers.tobytes()
    with pytest.raises(TypeError, match=r"value is array; it must be bytes, a bytearray, a memoryview or None"):
        arguments.record_bytes("value", numbers)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("text", "write value.encode()"),
        ({"a": 1}, "write json.dumps(value).encode()"),
        ([1], "write json.dumps(value).encode()"),
        (5, "write str(value).encode()"),
        (5.5, "write str(value).encode()"),
        (object(), "or None"),
    ],
)
def test_a_record_of_a_usual_type_is_refused_with_the_way_to_write_it(value: object, advice: str) -> None:
    with pytest.raises(TypeError) as caught:
        arguments.record_bytes("value", value)
    assert str(caught.value).startswith(f"value is {type(value).__name__}; it must be bytes, a bytearray")
    assert str(caught.value).endswith(advice)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (5, "headers is int 5; it must be a mapping such as {'trace': b'7'}, or a list of pairs"),
        ("a=b", "headers is str 'a=b'; it must be a mapping such as {'trace': b'7'}, or a list of pairs"),
        (["ab"], "headers has str 'ab'; each must be a (name, content) pair, such as ('trace', b'7')"),
        ([("a", b"b", 1)], "headers has tuple of 3; each must be a (name, content) pair, such as ('trace', b'7')"),
        ({5: b"b"}, "a header's name is int 5; it must be a str"),
        (
            {"a": "b"},
            "a header's content is str; it must be bytes, a bytearray, a memoryview or None; write content.encode()",
        ),
    ],
)
def test_headers_are_refused_with_the_way_to_write_them(headers: object, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        arguments.headers_of(headers)
    assert str(caught.value) == text


@pytest.mark.parametrize("kind", [tuple, list])
def test_more_headers_than_brokers_take_are_refused(kind: type) -> None:
    pairs = [("a", b"")] * 65_537
    assert arguments.headers_of(kind(pairs[1:])) == tuple(pairs[1:])
    with pytest.raises(ValueError, match="headers has 65,537 pairs; a record may have 65,536"):
        arguments.headers_of(kind(pairs))


def test_a_record_s_content_is_never_in_a_message() -> None:
    with pytest.raises(TypeError) as caught:
        arguments.record_bytes("value", "secret")
    assert "secret" not in str(caught.value)


def test_numbers_of_numpy_are_numbers_and_truths_are_none() -> None:
    number = arguments.whole_number("it", np.int64(5), 0, 5)
    assert (number, type(number)) == (5, int)
    for value in (True, np.bool_(True), 5.0, "5"):
        with pytest.raises(TypeError, match=r"it is .*; it must be an int"):
            arguments.whole_number("it", value, 0, 5)
    with pytest.raises(TypeError, match="it is bool True"):
        arguments.seconds("it", True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.001, 2_147_483.648, 10**400])
def test_a_time_that_no_wire_can_carry_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="it must be from 0 to 2147483 seconds"):
        arguments.seconds("it", value)


def test_no_time_is_a_time_unless_it_must_be_positive() -> None:
    assert arguments.seconds("it", 0) == 0
    with pytest.raises(ValueError, match="more than 0"):
        arguments.seconds("it", 0, is_positive=True)


def test_one_name_is_not_several() -> None:
    assert arguments.names("topics", ("a", "b")) == ["a", "b"]
    with pytest.raises(TypeError, match="topics is str 'ord'; it must be a list of names"):
        arguments.names("topics", "ord")


def test_a_choice_is_of_the_same_type() -> None:
    assert arguments.one_of("acks", 1, ("all", 0, 1)) == 1
    with pytest.raises(TypeError, match="acks is bool True; it must be one of 'all', 0, 1"):
        arguments.one_of("acks", True, ("all", 0, 1))
    with pytest.raises(ValueError, match="acks is int 2"):
        arguments.one_of("acks", 2, ("all", 0, 1))
