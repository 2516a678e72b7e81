"""What is set for brokers and groups while they run: changes, refusals, bounds, upgrades, and retries."""

import pytest

from barnabas_metadata_quorum.controller import resource_changes
from barnabas_metadata_quorum.controller.client_metrics import CLIENT_METRICS
from barnabas_metadata_quorum.controller.commands import (
    AlteredResource,
    AlterResources,
    AlterResourcesAnswer,
    ConfigChange,
    ConfigOperation,
    ConfiguredResource,
    RefusalReason,
    Refused,
)
from barnabas_metadata_quorum.descriptions import fact_of
from barnabas_metadata_quorum.image.records import FEATURES_LEVEL, RECORD_LEVEL, ResourceConfigured
from barnabas_metadata_quorum.resource_configs import BROKER, GROUP, GROUP_CONFIGS, check_group_configs, group_key

from .test_features import Controller

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
ALL = BROKER, ""
SESSION = "consumer.session.timeout.ms"


def setting(name: str, value: str | None, operation: int = SET) -> ConfigChange:
    return ConfigChange(name, operation, value)


def alter(
    controller: Controller, key: tuple[int, str], *changes: ConfigChange, replace: bool = False, **fields: bytes | bool
) -> AlteredResource:
    wanted = ConfiguredResource(*key, changes, replace)
    answer = controller.ask(AlterResources((wanted,), **fields))  # type: ignore[arg-type]
    assert isinstance(answer, AlterResourcesAnswer)
    return answer.resources[0]


def test_what_is_set_is_there_until_it_is_taken_back() -> None:
    controller = Controller(RECORD_LEVEL)
    assert alter(controller, ALL, setting("a", "1"), setting("b", "2")).error is None
    assert alter(controller, (BROKER, "1"), setting("a", "3")).error is None
    assert controller.image.resource_configs == {ALL: {"a": "1", "b": "2"}, (BROKER, "1"): {"a": "3"}}
    assert alter(controller, ALL, setting("a", None, DELETE)).error is None
    assert alter(controller, (BROKER, "1"), setting("a", None, DELETE)).error is None
    assert controller.image.resource_configs == {ALL: {"b": "2"}}
    assert alter(controller, ALL, setting("c", "4"), replace=True).error is None
    assert controller.image.resource_configs == {ALL: {"c": "4"}}


def test_a_change_without_effect_is_no_record() -> None:
    controller = Controller(RECORD_LEVEL)
    alter(controller, ALL, setting("a", "1"))
    before = controller.image.version
    assert alter(controller, ALL, setting("a", "1"), setting("b", None, DELETE)).error is None
    assert alter(controller, ALL, setting("a", "2"), validate_only=True).error is None
    assert controller.image.version == before


def test_lists_grow_and_shrink() -> None:
    controller = Controller(RECORD_LEVEL)
    assert alter(controller, ALL, setting("log.cleanup.policy", "compact", APPEND)).error is None
    assert controller.image.resource_configs[ALL] == {"log.cleanup.policy": "delete,compact"}
    assert alter(controller, ALL, setting("log.cleanup.policy", "delete", SUBTRACT)).error is None
    assert controller.image.resource_configs[ALL] == {"log.cleanup.policy": "compact"}
    assert alter(controller, ALL, setting("message.max.bytes", "1", APPEND)).error is RefusalReason.INVALID_CONFIG


@pytest.mark.parametrize(
    ("key", "change", "reason"),
    [
        (ALL, setting("a", None), RefusalReason.INVALID_REQUEST),
        (ALL, setting("a", "1", 9), RefusalReason.INVALID_REQUEST),
        (ALL, setting("a", "x" * 32_768), RefusalReason.INVALID_CONFIG),
        ((BROKER, "x"), setting("a", "1"), RefusalReason.INVALID_REQUEST),
        ((BROKER, "-1"), setting("a", "1"), RefusalReason.INVALID_REQUEST),
        ((16, "metrics"), setting("a", "1"), RefusalReason.INVALID_REQUEST),
        ((GROUP, ""), setting(SESSION, "45000"), RefusalReason.INVALID_REQUEST),
        ((GROUP, "g" * 1_001), setting(SESSION, "45000"), RefusalReason.INVALID_REQUEST),
        ((GROUP, "g"), setting(SESSION, "44999"), RefusalReason.INVALID_CONFIG),
        ((GROUP, "g"), setting("share.session.timeout.ms", "45000"), RefusalReason.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    key: tuple[int, str], change: ConfigChange, reason: RefusalReason
) -> None:
    controller = Controller(RECORD_LEVEL)
    before = controller.image.version
    refused = alter(controller, key, setting("b", "2"), change) if key[0] == BROKER else alter(controller, key, change)
    assert refused.error is reason
    assert refused.message
    assert controller.image.version == before


def test_each_resource_has_its_own_fate() -> None:
    controller = Controller(RECORD_LEVEL)
    rows = [(GROUP, "g"), (GROUP, ""), (BROKER, ""), (BROKER, "")]
    wanted = tuple(ConfiguredResource(*key, (setting(SESSION, "50000"),)) for key in rows)
    answer = controller.ask(AlterResources(wanted))
    assert isinstance(answer, AlterResourcesAnswer)
    wrong = RefusalReason.INVALID_REQUEST
    assert [one.error for one in answer.resources] == [None, wrong, wrong, wrong]
    assert controller.image.resource_configs == {group_key("g"): {SESSION: "50000"}}


def test_a_group_has_a_longer_session_than_interval() -> None:
    assert check_group_configs("g", {}) is None
    assert all(check_group_configs("g", {name: known.default}) is None for name, known in GROUP_CONFIGS.items())
    assert check_group_configs("g", {"consumer.heartbeat.interval.ms": "15001"}) is not None


def test_the_first_answer_is_that_of_a_retry() -> None:
    controller = Controller(RECORD_LEVEL)
    assert alter(controller, ALL, setting("a", "1"), command_id=b"c" * 16).error is None
    alter(controller, ALL, setting("a", "2"))
    assert alter(controller, ALL, setting("a", "1"), command_id=b"c" * 16).error is None
    assert controller.image.resource_configs[ALL] == {"a": "2"}


def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(RECORD_LEVEL)
    alter(controller, (GROUP, "g1"), setting(SESSION, "50000"))
    monkeypatch.setattr(resource_changes, "RESOURCES_MAX", 1)
    assert alter(controller, (GROUP, "g2"), setting(SESSION, "50000")).error is RefusalReason.POLICY_VIOLATION
    assert alter(controller, (GROUP, "g1"), setting(SESSION, "50001")).error is None
    monkeypatch.setattr(resource_changes, "ALL_BYTES_MAX", controller.image.resource_configs_bytes)
    wider = setting("consumer.heartbeat.interval.ms", "6000")
    assert alter(controller, (GROUP, "g1"), wider).error is RefusalReason.POLICY_VIOLATION
    assert alter(controller, (GROUP, "g1"), setting(SESSION, "50002")).error is None
    assert alter(controller, (GROUP, "g1"), setting(SESSION, None, DELETE)).error is None
    wanted = tuple(ConfiguredResource(GROUP, str(number), ()) for number in range(101))
    with pytest.raises(Refused, match="101 resources") as caught:
        controller.ask(AlterResources(wanted))
    assert caught.value.reason is RefusalReason.POLICY_VIOLATION


def test_nothing_is_stored_that_a_member_cannot_read() -> None:
    controller = Controller(RECORD_LEVEL, FEATURES_LEVEL)
    with pytest.raises(Refused, match="broker 2 runs, or last ran") as caught:
        alter(controller, ALL, setting("a", "1"))
    assert caught.value.reason is RefusalReason.UNSUPPORTED_VERSION
    controller.beat(2, RECORD_LEVEL)
    assert alter(controller, ALL, setting("a", "1")).error is None


def test_an_event_tells_an_operator() -> None:
    fact = fact_of(ResourceConfigured(BROKER, "", {"a": "1", "b": "2"}), 3)
    assert fact is not None
    assert (fact.kind, fact.cause) == ("broker configured", "all brokers: a=1, b=2")
    long = fact_of(ResourceConfigured(BROKER, "1", {"a": "x" * 9_999}), 3)
    assert long is not None
    assert len(long.cause) == 1_000
    fact = fact_of(ResourceConfigured(GROUP, "g", {}), 3)
    assert fact is not None
    assert (fact.kind, fact.cause) == ("group configured", "group g: nothing is set")


def test_subscriptions_to_metrics_of_clients_are_checked_counted_and_told_of() -> None:
    controller = Controller(RECORD_LEVEL)
    first = CLIENT_METRICS, "s0"
    assert alter(controller, first, setting("metrics", "a"), setting("interval.ms", "1000")).error is None
    assert alter(controller, first, setting("metrics", "b,a", APPEND)).error is None
    assert controller.image.resource_configs == {first: {"metrics": "a,b", "interval.ms": "1000"}}
    for name, wrong, reason in (
        ("s0", setting("interval.ms", "99"), RefusalReason.INVALID_REQUEST),
        ("s0", setting("interval.ms", "x"), RefusalReason.INVALID_CONFIG),
        ("s0", setting("interval.ms", "1", APPEND), RefusalReason.INVALID_CONFIG),
        ("s0", setting("match", "rack=1"), RefusalReason.INVALID_CONFIG),
        ("s0", setting("x", "1"), RefusalReason.INVALID_REQUEST),
        ("", setting("metrics", "a"), RefusalReason.INVALID_REQUEST),
    ):
        assert alter(controller, (CLIENT_METRICS, name), wrong).error is reason, wrong
    new = [ConfiguredResource(CLIENT_METRICS, f"s{number}", (setting("metrics", "a"),)) for number in range(1, 99)]
    assert {fate.error for fate in asked(controller, *new)} == {None}
    more = [ConfiguredResource(CLIENT_METRICS, name, (setting("metrics", "c"),)) for name in ("s5", "x", "y", "s6")]
    fates = [fate.error for fate in asked(controller, *more)]
    assert fates == [None, None, RefusalReason.POLICY_VIOLATION, None]
    assert alter(controller, (CLIENT_METRICS, "x"), setting("metrics", None, DELETE)).error is None
    assert alter(controller, (CLIENT_METRICS, "y"), setting("metrics", "a")).error is None
    fact = fact_of(ResourceConfigured(CLIENT_METRICS, "y", {"metrics": "a"}), 1)
    assert fact is not None
    assert "subscription y: metrics=a" in fact.cause


def asked(controller: Controller, *wanted: ConfiguredResource) -> tuple[AlteredResource, ...]:
    answer = controller.ask(AlterResources(wanted))
    assert isinstance(answer, AlterResourcesAnswer)
    return answer.resources
