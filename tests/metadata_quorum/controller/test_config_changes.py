"""Changes of a topic's configurations: what they do, refusals, and a retry that changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_metadata_quorum.controller.commands import (
    AlterConfigs,
    AlterConfigsAnswer,
    AlteredTopic,
    ConfigChange,
    ConfigOperation,
    ConfiguredTopic,
    NewTopic,
    RefusalReason,
)
from barnabas_metadata_quorum.image.image import configured_topics
from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot

from .test_controller import Controller

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def with_topic(**configs: str) -> Controller:
    controller = Controller(1)
    named = {name.replace("_", "."): value for name, value in configs.items()}
    assert controller.create(NewTopic("t", 1, 1, configs=named))[0].error is None
    return controller


def alter(
    controller: Controller, *changes: ConfigChange, topic: str = "t", replace: bool = False, **fields: bytes | bool
) -> AlteredTopic:
    answer = controller.ask(AlterConfigs((ConfiguredTopic(topic, changes, replace),), **fields))  # type: ignore[arg-type]
    assert isinstance(answer, AlterConfigsAnswer)
    return answer.topics[0]


def configs_of(controller: Controller) -> dict[str, str]:
    topic = controller.image.topic_named("t")
    assert topic is not None
    return dict(topic.configs)


def test_what_is_set_is_set_and_the_rest_stays() -> None:
    controller = with_topic(retention_ms="1000", segment_ms="5")
    before = controller.image
    assert alter(controller, ConfigChange("retention.ms", SET, "2000")).error is None
    assert configs_of(controller) == {"retention.ms": "2000", "segment.ms": "5"}
    assert [topic.name for topic in configured_topics(before, controller.image)] == ["t"]
    assert configured_topics(before, before) == ()
    # A snapshot says the same in other records.
    again = decode_snapshot(encode_snapshot(Snapshot(1, 1, controller.image))).image
    assert again.topics == controller.image.topics


def test_what_is_deleted_is_as_if_it_had_never_been_set() -> None:
    controller = with_topic(retention_ms="1000")
    assert alter(controller, ConfigChange("retention.ms", DELETE)).error is None
    assert configs_of(controller) == {}
    assert alter(controller, ConfigChange("retention.ms", DELETE)).error is None


def test_a_replacement_forgets_what_it_does_not_name_but_for_what_is_fixed() -> None:
    controller = with_topic(retention_ms="1000", segment_ms="5", flush_mode="page-cache")
    assert alter(controller, ConfigChange("retention.bytes", SET, "9"), replace=True).error is None
    assert configs_of(controller) == {"flush.mode": "page-cache", "retention.bytes": "9"}


def test_what_nobody_has_set_grows_and_shrinks_from_its_default() -> None:
    """`cleanup.policy` is `delete`: with `compact` appended a topic must not cease to delete by age."""
    controller = with_topic()
    assert alter(controller, ConfigChange("cleanup.policy", APPEND, "compact")).error is None
    assert configs_of(controller) == {"cleanup.policy": "delete,compact"}
    controller = with_topic()
    assert alter(controller, ConfigChange("cleanup.policy", SUBTRACT, "compact")).error is None
    assert configs_of(controller) == {"cleanup.policy": "delete"}


def test_lists_grow_and_shrink_item_by_item() -> None:
    controller = with_topic()
    assert alter(controller, ConfigChange("cleanup.policy", SUBTRACT, "delete")).error is None
    assert configs_of(controller) == {"cleanup.policy": ""}
    assert alter(controller, ConfigChange("cleanup.policy", APPEND, "delete")).error is None
    assert alter(controller, ConfigChange("cleanup.policy", APPEND, "delete")).error is None
    assert configs_of(controller) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([ConfigChange("retention.ms", SET, "soon")], RefusalReason.INVALID_CONFIG),
        ([ConfigChange("retention.ms", SET, None)], RefusalReason.INVALID_REQUEST),
        ([ConfigChange("retention.ms", 4, "1")], RefusalReason.INVALID_REQUEST),
        ([ConfigChange("retention.ms", APPEND, "1")], RefusalReason.INVALID_CONFIG),
        ([ConfigChange("no.such", APPEND, "1")], RefusalReason.INVALID_CONFIG),
        ([ConfigChange("no.such", SET, "1")], RefusalReason.INVALID_CONFIG),
        ([ConfigChange("flush.mode", SET, "page-cache")], RefusalReason.INVALID_CONFIG),
        ([ConfigChange("segment.ms", SET, "1"), ConfigChange("segment.ms", DELETE)], RefusalReason.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(changes: list[ConfigChange], reason: RefusalReason) -> None:
    controller = with_topic(retention_ms="1000")
    before = controller.image
    fate = alter(controller, ConfigChange("segment.bytes", SET, "1048576"), *changes)
    assert (fate.error, bool(fate.message)) == (reason, True)
    assert controller.image is before or controller.image == before


def test_topics_that_are_not_there_and_topics_named_twice_are_refused() -> None:
    controller = with_topic()
    assert alter(controller, topic="nobody").error is RefusalReason.UNKNOWN_TOPIC
    wanted = ConfiguredTopic("t", (ConfigChange("segment.ms", SET, "7"),))
    answer = controller.ask(AlterConfigs((wanted, wanted)))
    assert isinstance(answer, AlterConfigsAnswer)
    assert [fate.error for fate in answer.topics] == [RefusalReason.INVALID_REQUEST] * 2
    assert configs_of(controller) == {}


def test_validation_changes_nothing() -> None:
    controller = with_topic()
    assert alter(controller, ConfigChange("segment.ms", SET, "7"), validate_only=True).error is None
    assert configs_of(controller) == {}


def test_a_retry_gets_the_first_answer() -> None:
    controller = with_topic(cleanup_policy="delete")
    once = ConfigChange("cleanup.policy", SUBTRACT, "delete")
    assert alter(controller, once, command_id=b"x" * 16).error is None
    assert alter(controller, ConfigChange("cleanup.policy", SET, "delete")).error is None
    assert alter(controller, once, command_id=b"x" * 16).error is None
    assert configs_of(controller) == {"cleanup.policy": "delete"}


values = st.sampled_from(["-1", "0", "1", "500", "x", ""])
names = st.sampled_from(["retention.ms", "retention.bytes", "segment.ms", "min.insync.replicas"])
changes = st.lists(
    st.builds(ConfigChange, names, st.sampled_from([SET, DELETE]), values), max_size=4, unique_by=lambda c: c.name
)


@given(st.lists(st.tuples(changes, st.booleans()), max_size=6))
def test_histories_leave_what_a_dictionary_would(history: list[tuple[list[ConfigChange], bool]]) -> None:
    controller = with_topic()
    model = dict[str, str]()
    for several, replace in history:
        wanted = {} if replace else dict(model)
        for change in several:
            wanted.pop(change.name, None)
            if change.operation == SET:
                wanted[change.name] = change.value or ""
        if alter(controller, *several, replace=replace).error is None:
            model = wanted
        assert configs_of(controller) == model
