"""Finalized features in whole quorums: at the founding, by command, with nodes of an older version, over a restart."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from barnabas_metadata_quorum import founding, replica
from barnabas_metadata_quorum.controller.commands import (
    FeatureChange,
    FeatureUpdate,
    RefusalReason,
    Refused,
    RegisterBroker,
    UpdateFeatures,
    UpdateFeaturesAnswer,
)
from barnabas_metadata_quorum.controller.features import GROUP_VERSION, TRANSACTION_VERSION, transaction_version
from barnabas_metadata_quorum.founding import METHOD, Founding
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import CONFIGS_LEVEL, FEATURES_LEVEL, GROUPS_LEVEL, SNAPSHOTS_LEVEL
from barnabas_metadata_quorum.pulse import Pulse
from barnabas_metadata_quorum.submission import with_identity
from barnabas_raftlog.links.links import LinkDownError, RemoteError
from barnabas_raftlog.raft.messages import Fact
from barnabas_raftlog.tasks import Tasks

from .harness import PATIENCE_S, Node, Quorum, quorum, run

NEW: dict[str, int] = {TRANSACTION_VERSION: 2}


async def update(
    node: Node, level: int, change: FeatureChange = FeatureChange.UPGRADE, name: str = TRANSACTION_VERSION
) -> None:
    command = UpdateFeatures((FeatureUpdate(name, level, change),))
    assert await node.service.submit(command, PATIENCE_S) == UpdateFeaturesAnswer()


def levels(nodes: Quorum) -> set[int]:
    return {transaction_version(node.service.image) for node in nodes}


async def until_level(nodes: Quorum, level: int) -> None:
    def is_so(image: Image) -> bool:
        return transaction_version(image) == level

    for node in nodes:
        await node.until(is_so)


@pytest.mark.parametrize("voters", [(1,), (1, 2, 3)])
def test_a_new_cluster_begins_with_the_features_before_anything_else(tmp_path: Path, voters: tuple[int, ...]) -> None:
    async def main() -> None:
        async with quorum(tmp_path, voters, founding_features=NEW) as nodes:
            assert levels(nodes) == {2}
            assert min(broker.epoch for broker in nodes.nodes[1].service.image.brokers.values()) == 1
            assert all(len(node.saw("feature finalized")) == 1 for node in nodes)

    run(main())


@pytest.mark.parametrize("old", [1, 2, 3, 4])
def test_with_an_old_node_among_them_the_cluster_begins_without(tmp_path: Path, old: int) -> None:
    """The one that is to be asked, the one that asks, and one that only learns."""

    async def main() -> None:
        old_levels = {old: SNAPSHOTS_LEVEL}
        async with quorum(tmp_path, (1, 2, 3), (4,), record_levels=old_levels, founding_features=NEW) as nodes:
            if 0 in levels(nodes):
                assert levels(nodes) == {0}
                assert len([why for node in nodes for why in node.saw("features not finalized")]) == 1
            else:  # The learner's link came later than the answers of all controllers.
                assert old == 4

    run(main())


def test_an_older_cluster_keeps_its_levels_until_it_is_asked_to_change_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            await nodes.stop(1, 2, 3)
            nodes.plan.config = type(nodes.plan.config)(founding_features=NEW)
            await nodes.start(1, 2, 3)
            await nodes.until_up()
            assert levels(nodes) == {0}
            await update(nodes.nodes[3], 2)
            await until_level(nodes, 2)

    run(main())


def test_levels_survive_a_restart_and_come_to_a_node_that_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "SNAPSHOT_RECORDS", 5)

    async def main() -> None:
        async with quorum(tmp_path, founding_features=NEW) as nodes:
            await nodes.stop(3)
            await update(nodes.nodes[1], 1, FeatureChange.SAFE_DOWNGRADE)
            for number in range(8):
                await nodes.nodes[1].create(f"t{number}")
            await nodes.start(3)
            await until_level(nodes, 1)
            await nodes.stop(1, 2, 3)
            await nodes.start(1, 2, 3)
            await until_level(nodes, 1)
            await nodes.until_up()
            assert levels(nodes) == {1}

    run(main())


def test_a_level_survives_the_controller_that_has_set_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path) as nodes:
            leader = nodes.leader()
            await update(leader, 2)
            await nodes.stop(leader.node_id)
            await until_level(nodes, 2)
            await update(next(iter(nodes)), 0, FeatureChange.SAFE_DOWNGRADE)
            await until_level(nodes, 0)

    run(main())


@pytest.mark.parametrize(
    ("name", "level", "before", "since"),
    [(TRANSACTION_VERSION, 2, SNAPSHOTS_LEVEL, FEATURES_LEVEL), (GROUP_VERSION, 1, CONFIGS_LEVEL, GROUPS_LEVEL)],
)
def test_in_a_rolling_upgrade_no_level_is_finalized_before_the_last_broker_knows_it(
    tmp_path: Path, name: str, level: int, before: int, since: int
) -> None:
    async def main() -> None:
        async with quorum(tmp_path, record_level=before) as nodes:
            nodes.plan.record_level = since
            for node_id in (1, 2, 3):
                with pytest.raises(
                    Refused, match=f"runs, or last ran, a version without {re.escape(name)} {level}"
                ) as caught:
                    await update(nodes.nodes[2], level, name=name)
                assert caught.value.reason is RefusalReason.INVALID_UPDATE_VERSION
                await nodes.stop(node_id)
                await nodes.start(node_id)
                await nodes.until_up()
            await update(nodes.nodes[2], level, name=name)
            for node in nodes:
                await node.until(lambda image: image.features == {name: level})

    run(main())


def test_an_old_broker_is_not_let_into_a_cluster_that_speaks_a_newer_level(tmp_path: Path) -> None:
    async def main() -> None:
        async with quorum(tmp_path, founding_features=NEW) as nodes:
            old = RegisterBroker(9, 1, "host", 9009, record_level=SNAPSHOTS_LEVEL)
            with pytest.raises(
                Refused, match=r"broker 9 .* without transaction\.version 2, which is finalized"
            ) as caught:
                await nodes.nodes[1].service.submit(old, PATIENCE_S)
            assert caught.value.reason is RefusalReason.UNSUPPORTED_VERSION
            await update(nodes.nodes[1], 0, FeatureChange.SAFE_DOWNGRADE)
            await nodes.nodes[1].service.submit(old, PATIENCE_S)

    run(main())


class Others:
    """The links of a first controller. `answers` by node: a level, or an error; one without an answer is not live."""

    def __init__(self, answers: dict[int, int | Exception]) -> None:
        self.answers = answers
        self.slow: dict[int, asyncio.Event] = {}  # nodes that answer when theirs is set
        self.asked = list[int]()
        self.was_refused = asyncio.Event()
        self.serving = dict[str, Any]()

    def is_live(self, node_id: int) -> bool:
        return node_id in self.answers

    def serve(self, method: str, handler: Any) -> None:
        self.serving[method] = handler

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        assert (method, body) == (METHOD, b"")
        self.asked.append(node_id)
        if node_id in self.slow:
            async with asyncio.timeout(timeout_s):
                await self.slow[node_id].wait()
        answer = self.answers[node_id]
        if isinstance(answer, Exception):
            self.was_refused.set()
            raise answer
        return bytes([answer])


class First:
    """A first controller of nodes 1 to 3, and the learner 4."""

    def __init__(self, answers: dict[int, int | Exception], wanted: dict[str, int] | None = None) -> None:
        self.links = Others(answers)
        self.changed = Pulse()
        self.facts = list[Fact]()
        self.known = asyncio.Event()
        self.tasks = Tasks(lambda error: None)
        links: Any = self.links
        self.founding = Founding(
            (2, 3, 4),
            (1, 2, 3),
            links,
            NEW if wanted is None else wanted,
            record_level=FEATURES_LEVEL,
            changed=self.changed,
            spawn=self.tasks.spawn,
            on_known=self.known.set,
            on_fact=self.facts.append,
        )

    async def outcome(self, term: int = 1) -> list[str]:
        assert self.founding.updates(term) is None
        await self.known.wait()
        self.known.clear()
        updates = self.founding.updates(term)
        assert updates is not None
        return [f"{one.name} {one.level}" for one in updates]


ALL = ["transaction.version 2"]


async def test_all_controllers_are_asked_and_the_learners_that_are_there() -> None:
    first = First({2: FEATURES_LEVEL, 3: FEATURES_LEVEL, 4: FEATURES_LEVEL + 1})
    assert await first.outcome() == ALL
    assert sorted(first.links.asked) == [2, 3, 4]
    assert not first.facts


async def test_nobody_is_asked_where_nothing_is_to_be_finalized() -> None:
    first = First({}, wanted={})
    assert first.founding.updates(1) == ()


@pytest.mark.parametrize("old", [SNAPSHOTS_LEVEL, RemoteError("UnknownMethod", METHOD)])
@pytest.mark.parametrize("node_id", [2, 4])
async def test_a_node_that_knows_less_or_not_even_the_question_keeps_the_features_away(
    node_id: int, old: int | Exception
) -> None:
    answers: dict[int, int | Exception] = dict.fromkeys((2, 3, 4), FEATURES_LEVEL)
    first = First(answers | {node_id: old})
    assert await first.outcome() == []
    (fact,) = first.facts
    expected = f"without transaction.version 2: nodes [{node_id}] run a version without them"
    assert fact.kind == "features not finalized"
    assert fact.cause.endswith(expected)


async def test_a_controller_whose_link_comes_late_is_waited_for() -> None:
    first = First({2: FEATURES_LEVEL, 3: LinkDownError("down")})
    assert first.founding.updates(1) is None
    await first.links.was_refused.wait()
    assert first.founding.updates(1) is None
    first.links.answers[3] = FEATURES_LEVEL
    first.changed.fire()
    await first.known.wait()
    assert first.founding.updates(1) is not None
    assert first.links.asked == [2, 3, 3]


async def test_a_controller_that_says_nothing_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(founding, "GONE_S", 0.01)
    first = First({2: FEATURES_LEVEL})
    assert await first.outcome() == []
    assert first.facts[0].cause.endswith("nodes [3] do not say what they know")


async def test_a_slow_controller_is_waited_for_while_its_link_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new cluster on a machine that is busy would else have no transactions until an operator asks for them."""
    monkeypatch.setattr(founding, "GONE_S", 0.001)
    first = First({2: FEATURES_LEVEL, 3: FEATURES_LEVEL, 4: FEATURES_LEVEL})
    first.links.slow = {3: asyncio.Event(), 4: asyncio.Event()}
    assert first.founding.updates(1) is None
    loop = asyncio.get_running_loop()
    loop.call_later(20 * founding.GONE_S, first.links.slow[3].set)
    assert await first.outcome() == ALL, "the learner says nothing, and is not waited for"
    assert sorted(first.links.asked) == [2, 3, 4]


async def test_a_controller_that_never_answers_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(founding, "ASK_S_MAX", 0.01)
    first = First({2: FEATURES_LEVEL, 3: FEATURES_LEVEL})
    first.links.slow = {3: asyncio.Event()}
    assert await first.outcome() == []
    assert first.facts[0].cause.endswith("nodes [3] do not say what they know")


async def test_what_an_older_term_finds_out_late_is_void() -> None:
    first = First({2: FEATURES_LEVEL, 3: LinkDownError("down")})
    assert first.founding.updates(1) is None
    await first.links.was_refused.wait()
    first.links.answers[3] = FEATURES_LEVEL
    assert await first.outcome(2) == ALL
    first.links.answers[3] = SNAPSHOTS_LEVEL
    first.changed.fire()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert first.founding.updates(2) is not None
    assert [one.level for one in first.founding.updates(2) or ()] == [2]
    assert not first.facts


def test_an_update_has_an_identity_by_which_a_retry_is_known() -> None:
    command = with_identity(UpdateFeatures((FeatureUpdate(TRANSACTION_VERSION, 2),)))
    assert isinstance(command, UpdateFeatures)
    assert len(command.command_id) == 16
    assert with_identity(command) == command
