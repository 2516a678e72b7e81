"""Who is asked for what: matching, sets that are put together, their numbers, and when a client may ask and push."""

from collections.abc import Generator, Mapping
from typing import TypeVar

import pytest

from barnabas_broker.server.telemetry.instances import INSTANCES_MAX, Instance, Instances
from barnabas_broker.server.telemetry.subscriptions import Client, Wanted, check_patterns, read_subscription, wanted_of
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.client_metrics import ClientMetricsError, check_client_metrics

T = TypeVar("T")
ME = Client("orders-7", "00000000-0000-0000-0000-000000000001", "apache-kafka-java", "4.4.0", "127.0.0.1", "9")
ID = bytes(range(16))
NONE = ErrorCode.NONE
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def done(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def asked_for(*configs: Mapping[str, str]) -> Wanted:
    return done(wanted_of(ME, [done(read_subscription(one)) for one in configs]))


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=orders-7", True),
        ("client_id=orders-.*", True),
        ("client_id=orders", False),  # the whole name
        ("client_software_name=apache-kafka-java, client_software_version=4\\..*", True),
        ("client_software_name=apache-kafka-java,client_software_version=3.*", False),
        ("client_source_address=127.*,client_source_port=9", True),
        ("client_instance_id=.*1", True),
    ],
)
def test_a_client_is_matched_by_all_that_is_named(match: str, matches: bool) -> None:
    wanted = asked_for({"match": match, "metrics": "a.", "interval.ms": "1000"})
    assert wanted == (Wanted(("a.",), 1_000) if matches else Wanted((), 300_000))


def test_what_several_want_is_put_together() -> None:
    both = asked_for({"metrics": "b,a", "interval.ms": "5000"}, {"metrics": "c,a", "interval.ms": "60000"})
    assert both == Wanted(("a", "b", "c"), 5_000)
    assert asked_for({"metrics": "a"}, {"metrics": "*"}) == Wanted(("*",), 300_000)
    assert -(2**31) <= both.number_for(ID) < 2**31
    assert both.number_for(ID) != both._replace(interval_ms=5_001).number_for(ID)
    assert both.number_for(ID) != both.number_for(bytes(16))


@pytest.mark.parametrize("name", ["(", "a{2001}", "(?=x)", "x" * 201, "\\1"])
def test_expressions_that_nobody_can_match_with_are_refused(name: str) -> None:
    error = done(check_patterns({"match": f"client_id={name}", "interval.ms": "looked at elsewhere"}))
    assert error is not None
    assert error.is_config


@pytest.mark.parametrize(
    ("name", "configs", "is_config"),
    [
        ("", {}, False),
        ("s", {"x": "1"}, False),
        ("s", {"interval.ms": "99"}, False),
        ("s", {"interval.ms": "3600001"}, False),
        ("s", {"interval.ms": "x"}, True),
        ("s", {"interval.ms": ""}, True),
        ("s", {"match": "client_id"}, True),
        ("s", {"match": "client_id="}, True),
        ("s", {"match": "client_id=a=b"}, True),
        ("s", {"match": "rack=a"}, True),
        ("s", {"metrics": "a,,b"}, True),
        ("s", {"metrics": "a,b,a"}, True),
        ("s", {"metrics": ",".join(f"m{number}" for number in range(101))}, True),
        ("s", {"match": ",".join(f"client_id=m{number}" for number in range(101))}, True),
    ],
)
def test_subscriptions_are_checked_as_kafka_checks_them(name: str, configs: dict[str, str], is_config: bool) -> None:
    with pytest.raises(ClientMetricsError) as caught:
        check_client_metrics(name, configs)
    assert caught.value.is_config is is_config


def fresh(interval_ms: int = 1_000) -> Instance:
    return Instance(ID, "127.0.0.1:9", 1, Wanted(("*",), interval_ms))


def push(instance: Instance, now_ms: int, **fields: bool | int) -> ErrorCode:
    words = {"number": instance.number, "codec_is_known": True, "fits": True, "is_ending": False, **fields}
    return instance.push(now_ms, **words)  # type: ignore[arg-type]


def test_a_client_asks_and_pushes_once_in_an_interval() -> None:
    instance = fresh()
    assert instance.ask(5) == NONE
    assert instance.ask(1_004) == THROTTLED
    assert push(instance, 6) == NONE  # at once behind the answer
    assert push(instance, 1_005) == THROTTLED
    assert push(instance, 1_006) == NONE
    assert instance.ask(2_005) == THROTTLED
    assert instance.ask(2_006) == NONE


def test_what_is_wrong_with_a_push_is_said_in_kafkas_order_and_may_be_followed_by_a_question() -> None:
    instance = fresh()
    instance.ask(0)
    assert push(instance, 1, number=instance.number + 1, fits=False) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert instance.ask(2) == NONE
    assert push(instance, 1_001, codec_is_known=False, fits=False) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert instance.ask(1_002) == NONE
    assert instance.ask(1_003) == THROTTLED
    assert push(instance, 2_001, fits=False) == ErrorCode.TELEMETRY_TOO_LARGE
    assert instance.ask(2_002) == THROTTLED


def test_a_client_that_ends_may_push_once_more_whenever_it_is() -> None:
    instance = fresh()
    assert push(instance, 0) == NONE
    assert push(instance, 1) == THROTTLED
    assert push(instance, 2, is_ending=True) == NONE
    assert push(instance, 5_000) == ErrorCode.INVALID_REQUEST


def test_clients_beyond_the_limit_push_out_those_heard_longest_ago() -> None:
    instances = Instances()
    for number in range(INSTANCES_MAX):
        instances.keep(number.to_bytes(16, "big"), fresh())
    first, second = bytes(16), (1).to_bytes(16, "big")
    assert instances.find(first, "127.0.0.1:9", 1) is not None
    instances.keep(b"n" * 16, fresh())
    assert len(instances) == INSTANCES_MAX
    assert instances.find(second, "127.0.0.1:9", 1) is None
    assert instances.find(first, "127.0.0.1:9", 1) is not None
    assert instances.find(first, "127.0.0.1:9", 2) is None  # subscriptions have changed
    instances.keep(first, fresh())
    assert instances.find(first, "127.0.0.1:10", 1) is None  # it has connected anew
