"""Levels of features, claim by claim: up unless a downgrade is asked for, all or none, never over an old broker."""

import pytest

from barnabas_metadata_quorum.controller import features
from barnabas_metadata_quorum.controller.commands import (
    BrokerHeartbeat,
    CheckSessions,
    Command,
    CreateTopics,
    FeatureChange,
    FeatureUpdate,
    NewTopic,
    Refused,
    RegisterBroker,
    UpdateFeatures,
    UpdateFeaturesAnswer,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)
from barnabas_metadata_quorum.controller.controller import ControllerConfig, decide
from barnabas_metadata_quorum.controller.features import (
    FEATURES,
    GROUP_VERSION,
    METADATA_VERSION,
    NEWEST,
    TRANSACTION_VERSION,
    levels_of,
)
from barnabas_metadata_quorum.controller.sessions import Sessions
from barnabas_metadata_quorum.image.image import Image, apply_all
from barnabas_metadata_quorum.image.records import (
    CONFIGS_LEVEL,
    FEATURES_LEVEL,
    RECORD_LEVEL,
    SNAPSHOTS_LEVEL,
    FeatureFinalized,
)

OTHER = "other.version"
UP, SAFE, LOSSY = FeatureChange


class Controller:
    """Decides and applies at once; brokers that it has understand `levels`. Commands and answers cross the wire."""

    def __init__(self, *levels: int) -> None:
        self.image = Image("cluster")
        self.sessions = Sessions(100)
        self.now_ms = 0
        for node_id, level in enumerate(levels, 1):
            self.ask(RegisterBroker(node_id, 1, "host", 9000 + node_id, record_level=level))
            self.beat(node_id, level)

    def ask(self, command: Command) -> object:
        sent = decode_command(encode_command(command))
        decision = decide(self.image, self.sessions, sent, ControllerConfig(), self.now_ms)
        self.image = apply_all(self.image, decision.records)
        return decode_answer(encode_answer(decision.answer))

    def beat(self, node_id: int, level: int) -> None:
        self.ask(BrokerHeartbeat(node_id, self.image.brokers[node_id].epoch, self.image.version, level))

    def update(self, *updates: FeatureUpdate, validate_only: bool = False) -> None:
        answer = self.ask(UpdateFeatures(updates, validate_only=validate_only))
        assert answer == UpdateFeaturesAnswer()

    def refuses(self, *updates: FeatureUpdate) -> str:
        before = self.image
        with pytest.raises(Refused) as caught:
            self.ask(UpdateFeatures(updates))
        assert self.image is before
        return f"{caught.value.reason.name}: {caught.value.message}"


def to(level: int, change: FeatureChange = UP, name: str = TRANSACTION_VERSION) -> FeatureUpdate:
    return FeatureUpdate(name, level, change)


def test_a_level_goes_up_and_comes_down_when_asked_to() -> None:
    controller = Controller(RECORD_LEVEL, RECORD_LEVEL)
    assert not controller.image.features
    controller.update(to(2))
    assert controller.image.features == {TRANSACTION_VERSION: 2}
    wrong = "INVALID_UPDATE_VERSION: transaction.version is at level 2; "
    assert controller.refuses(to(1)) == f"{wrong}ask for a downgrade to get to 1"
    controller.update(to(1, SAFE))
    assert controller.image.features == {TRANSACTION_VERSION: 1}
    assert controller.refuses(to(2, LOSSY)).endswith("is at level 1; a downgrade does not get to 2")
    controller.update(to(0, LOSSY))
    assert not controller.image.features


@pytest.mark.parametrize("change", FeatureChange)
def test_the_level_that_is_there_changes_nothing(change: FeatureChange) -> None:
    controller = Controller(RECORD_LEVEL)
    controller.update(to(2))
    version = controller.image.version
    controller.update(to(2, change))
    assert controller.image.version == version


def test_what_nobody_knows_is_refused_and_says_what_there_is() -> None:
    controller = Controller(RECORD_LEVEL)
    unknown = "INVALID_UPDATE_VERSION: there is no feature 'x'; there are: "
    unknown += "group.version, metadata.version, transaction.version"
    assert controller.refuses(to(1, name="x")) == unknown
    for level in (3, -1):
        range_text = f"INVALID_UPDATE_VERSION: transaction.version has the levels 0 to 2, not {level}"
        assert controller.refuses(to(level)) == range_text


def test_the_version_of_the_metadata_has_kafkas_levels_and_does_not_go_back() -> None:
    controller = Controller(RECORD_LEVEL)
    levels = levels_of(METADATA_VERSION)
    assert (levels[0], levels[-1], NEWEST[METADATA_VERSION]) == (7, 33, 33)
    for level in (6, 34, 0):
        assert "has the levels 7 to 33" in controller.refuses(to(level, name=METADATA_VERSION))
    controller.update(to(31, name=METADATA_VERSION))
    assert "ask for a downgrade" in controller.refuses(to(30, name=METADATA_VERSION))
    controller.update(to(30, SAFE, METADATA_VERSION))
    for change in (SAFE, LOSSY):
        refused = controller.refuses(to(29, change, METADATA_VERSION))
        assert refused.endswith("metadata.version does not go back to 29: metadata was added at level 30")
    controller.update(to(33, name=METADATA_VERSION))
    assert controller.image.features == {METADATA_VERSION: 33}


def test_the_version_of_the_metadata_needs_brokers_that_know_it() -> None:
    controller = Controller(RECORD_LEVEL, FEATURES_LEVEL)
    assert "broker 2 runs, or last ran, a version without" in controller.refuses(to(33, name=METADATA_VERSION))


def test_groups_of_the_new_protocol_need_brokers_that_read_their_records() -> None:
    controller = Controller(RECORD_LEVEL, CONFIGS_LEVEL)
    refused = "broker 2 runs, or last ran, a version without group.version 1; upgrade it first"
    assert controller.refuses(to(1, name=GROUP_VERSION)).endswith(refused)
    controller.beat(2, RECORD_LEVEL)
    controller.update(to(1, name=GROUP_VERSION))
    assert "has the levels 0 to 1, not 2" in controller.refuses(to(2, name=GROUP_VERSION))
    assert "ask for a downgrade" in controller.refuses(to(0, name=GROUP_VERSION))
    controller.update(to(0, SAFE, GROUP_VERSION))
    assert not controller.image.features


def test_a_request_names_each_feature_once() -> None:
    controller = Controller(RECORD_LEVEL)
    for updates in ((), (to(1), to(2))):
        assert controller.refuses(*updates) == "INVALID_REQUEST: name at least one feature, and each of them once"


def test_all_are_changed_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "FEATURES", {**FEATURES, OTHER: (RECORD_LEVEL + 1,)})
    controller = Controller(RECORD_LEVEL)
    assert "other.version 1" in controller.refuses(to(2), to(1, name=OTHER))
    controller.beat(1, RECORD_LEVEL + 1)
    controller.update(to(2), to(1, name=OTHER))
    assert controller.image.features == {TRANSACTION_VERSION: 2, OTHER: 1}


def test_a_validation_changes_nothing() -> None:
    controller = Controller(RECORD_LEVEL)
    controller.update(to(2), validate_only=True)
    assert not controller.image.features


def test_a_retry_is_answered_as_the_first_attempt_was() -> None:
    controller = Controller(RECORD_LEVEL)
    command = UpdateFeatures((to(2),), command_id=b"a" * 16)
    controller.ask(command)
    controller.update(to(0, SAFE))
    assert controller.ask(command) == UpdateFeaturesAnswer()
    assert not controller.image.features


def test_no_level_goes_up_while_a_broker_serves_that_does_not_know_it() -> None:
    controller = Controller(RECORD_LEVEL, SNAPSHOTS_LEVEL)
    old = (
        "INVALID_UPDATE_VERSION: broker 2 runs, or last ran, a version without transaction.version 2; upgrade it first"
    )
    assert controller.refuses(to(2)) == old
    controller.beat(2, FEATURES_LEVEL)
    controller.update(to(2))


def test_a_broker_that_is_gone_counts_as_long_as_it_holds_replicas() -> None:
    controller = Controller(SNAPSHOTS_LEVEL)
    controller.ask(CreateTopics((NewTopic("orders", topic_id=b"o" * 16),)))
    controller.ask(RegisterBroker(2, 1, "host", 9002, record_level=RECORD_LEVEL))
    controller.beat(2, RECORD_LEVEL)
    for _ in range(4):
        controller.now_ms += 40
        controller.ask(CheckSessions())
        controller.beat(2, RECORD_LEVEL)
    assert controller.image.brokers[1].fenced
    assert "broker 1" in controller.refuses(to(2))


def test_a_downgrade_asks_no_broker() -> None:
    """Or a cluster could not get out of a level for which it lacks brokers."""
    controller = Controller(SNAPSHOTS_LEVEL)
    controller.image = apply_all(controller.image, [FeatureFinalized(TRANSACTION_VERSION, 2)])
    controller.update(to(1, SAFE))
