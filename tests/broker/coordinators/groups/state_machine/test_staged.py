"""What transactions have staged agrees with a plain list of it, and members may stage when Kafka lets them."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from barnabas_broker.coordinators.groups.state_machine.offsets import in_batches, record_of, size_of
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.coordinators.groups.state_machine.room import STAGED_BYTES, TRANSACTION_BYTES
from barnabas_broker.coordinators.groups.state_machine.staged import StagedOffsets
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import Desk

KEYS = [OffsetKey(group_id, "t", index) for group_id in ("g", "h") for index in range(2)]
keys = st.sampled_from(KEYS)
producers = st.integers(1, 3)
NONE = ErrorCode.NONE


class StagedMachine(RuleBasedStateMachine):
    """`model` has every staged offset in the order of the records; `begun` the first offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.staged = StagedOffsets()
        self.model: dict[tuple[int, OffsetKey], CommittedOffset | None] = {}
        self.begun: dict[int, int] = {}
        self.offset = 0

    @rule(producer_id=producers, key=keys, note=st.text(max_size=3))
    def a_record_is_staged(self, producer_id: int, key: OffsetKey, note: str) -> None:
        self.offset += 1
        value = CommittedOffset(self.offset, metadata=note)
        grown = self.staged.held_bytes + self.staged.growth(producer_id, key, value)
        self.staged.stage(producer_id, key, value, self.offset)
        assert self.staged.held_bytes == grown
        self.model.pop((producer_id, key), None)
        self.model[producer_id, key] = value
        self.begun.setdefault(producer_id, self.offset)

    @rule(key=keys)
    def an_ordinary_commit_comes(self, key: OffsetKey) -> None:
        self.staged.supersede(key)
        self.model = {name: None if name[1] == key else value for name, value in self.model.items()}

    @rule(key=keys)
    def a_tombstone_comes(self, key: OffsetKey) -> None:
        self.staged.drop(key)
        self.model = {name: value for name, value in self.model.items() if name[1] != key}

    @rule(producer_id=producers, count_max=st.integers(1, 3), is_commit=st.booleans())
    def a_transaction_ends(self, producer_id: int, count_max: int, is_commit: bool) -> None:
        popped = self.staged.pop(producer_id, count_max, is_commit=is_commit)
        theirs = {key: value for (owner, key), value in self.model.items() if owner == producer_id}
        assert len(popped) == min(count_max, len(theirs))
        for key, value in popped:
            if is_commit and value is not None:
                names = list(self.model)
                for name in names[: names.index((producer_id, key))]:
                    if name[1] == key:
                        self.model[name] = None
            assert self.model.pop((producer_id, key)) == value

    @invariant()
    def it_says_what_the_model_says(self) -> None:
        staged = self.staged
        for producer_id in [one for one in self.begun if not any(owner == one for owner, _ in self.model)]:
            del self.begun[producer_id]
        assert {
            (producer_id, key): value
            for producer_id in staged.producer_ids()
            for key, value in staged.of_producer(producer_id).items()
        } == self.model
        for key in KEYS:
            assert list(staged.producers_of(key)) == [owner for owner, name in self.model if name == key]
            assert all(staged.get(owner, key) == self.model.get((owner, key)) for owner in range(1, 4))
            places = {(name.topic, name.partition) for _, name in self.model if name.group_id == key.group_id}
            assert set(staged.of_group(key.group_id)) == places
        assert set(staged.group_ids()) == {key.group_id for _, key in self.model}
        assert staged.first_offset == min(self.begun.values(), default=None)
        weights = sum(size_of(key, value) for (_, key), value in self.model.items() if value is not None)
        counted = STAGED_BYTES * len(self.model) + TRANSACTION_BYTES * len({owner for owner, _ in self.model})
        assert staged.held_bytes == counted + weights


def test_what_is_staged_is_what_a_list_would_say() -> None:
    run_state_machine_as_test(StagedMachine, settings=settings(max_examples=60, stateful_step_count=25, deadline=None))


def test_changes_are_cut_into_batches_with_their_records() -> None:
    changes = [(KEYS[0]._replace(partition=index), CommittedOffset(index)) for index in range(5)]
    size_bytes = sum(len(part or b"") for part in record_of(*changes[0]))
    assert [len(batch) for batch, _ in in_batches(changes, 2 * size_bytes)] == [2, 2, 1]
    assert [len(batch) for batch, _ in in_batches(changes, 1)] == [1] * 5, "one that is larger goes alone"
    assert in_batches(changes[:1], 1) == [(changes[:1], [record_of(*changes[0])])]
    assert in_batches([], 1) == []


class TestWhoMayStage:
    """T18: member, generation and instance are looked at only if any of them is given."""

    def pair(self) -> Desk:
        """A stable group of m1, which leads, and m2, the instance b; in generation 1."""
        desk = Desk()
        assert desk.stable(2, (None, "b")) == ["m1", "m2"]
        return desk

    @pytest.mark.parametrize("is_stable", [True, False])
    def test_t18_whoever_names_nothing_may(self, is_stable: bool) -> None:
        desk = self.pair() if is_stable else Desk()
        assert desk.group.check_staging("", None, -1) is NONE

    def test_t18_in_an_empty_group_whoever_names_no_generation_may(self) -> None:
        group = Desk().group
        assert group.check_staging("somebody", None, -1) is NONE
        assert group.check_staging("somebody", None, 0) is ErrorCode.UNKNOWN_MEMBER_ID
        assert group.check_staging("", None, 0) is ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize(
        ("member_id", "instance_id", "generation_id", "code"),
        [
            ("m1", None, 1, NONE),
            ("m2", "b", 1, NONE),
            ("m1", None, 0, ErrorCode.ILLEGAL_GENERATION),
            ("m1", None, 2, ErrorCode.ILLEGAL_GENERATION),
            ("m1", None, -1, ErrorCode.ILLEGAL_GENERATION),
            ("m3", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("m1", "b", 1, ErrorCode.FENCED_INSTANCE_ID),
            ("", "b", -1, ErrorCode.FENCED_INSTANCE_ID),
            ("m1", "c", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ],
    )
    def test_t18_all_is_looked_at_if_anything_is_named(
        self, member_id: str, instance_id: str | None, generation_id: int, code: ErrorCode
    ) -> None:
        assert self.pair().group.check_staging(member_id, instance_id, generation_id) is code

    def test_a_rebalance_does_not_stop_a_member_of_the_present_generation(self) -> None:
        desk = self.pair()
        desk.join()
        assert desk.state() is GroupState.PREPARING_REBALANCE
        assert desk.group.check_staging("m1", None, 1) is NONE

    def test_nobody_counts_as_heard_of(self) -> None:
        desk = self.pair()
        before = [member.expires_at_ms for member in desk.group.members.values()]
        desk.advance(1_000)
        assert desk.group.check_staging("m1", None, 1) is NONE
        assert [member.expires_at_ms for member in desk.group.members.values()] == before

    def test_a_group_that_has_ended_here_refuses(self) -> None:
        desk = self.pair()
        desk.end()
        assert desk.group.check_staging("", None, -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
