"""Drivers die between any two steps, several believe to be the only one, and attempts come late: a batch stays whole.

The world is a coordinator that knows who the driver is, a log of decisions, and transactions that are open, committed
or aborted. Every request to it is a step of its own, so anything may happen between two of them.
"""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_spark.writing.exactly_once.decisions import Decision, Prepared
from barnabas_spark.writing.exactly_once.names import attempt_id
from barnabas_spark.writing.exactly_once.plan import (
    Begun,
    Effect,
    End,
    Fence,
    Fenced,
    OtherQueryError,
    Owner,
    ReadLast,
    Sweep,
    Verify,
    Write,
    begin,
    commit,
    give_up,
)

SINK = "s"
PARTITIONS = 2
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Expired(Exception):  # noqa: N818 - says what happened
    """A transaction is not open any more."""


class World:
    """What the brokers have."""

    def __init__(self) -> None:
        self.owner = Owner(1, 0)
        self.log: list[Decision] = []
        self.state: dict[Prepared, str] = {}

    def carry_out(self, effect: Effect) -> Generator[None, None, Any]:
        """Carry an effect out, one request after each yield."""
        match effect:
            case Fence():
                self.owner = Owner(1, self.owner.epoch + 1)
                return self.owner
            case ReadLast():
                return self.log[-1] if self.log else None
            case Write(owner, decision):
                if owner != self.owner:
                    raise Fenced
                self.log.append(decision)
                self.owner = Owner(1, owner.epoch + 1)
                return self.owner
            case Verify(prepared):
                if any(self.state[one] != OPEN for one in prepared):
                    raise Expired
            case End(prepared):
                yield from self._end(prepared)
            case Sweep(_, owner):
                yield from self._sweep(owner)
        return None

    def _end(self, prepared: tuple[Prepared, ...]) -> Generator[None, None, None]:
        for one in prepared:
            if self.state[one] == ABORTED:
                raise Expired
            self.state[one] = COMMITTED
            yield

    def _sweep(self, owner: Owner) -> Generator[None, None, None]:
        listed = [one for one, state in self.state.items() if state == OPEN]
        yield
        if owner != self.owner:
            return
        for one in listed:
            yield
            # A coordinator aborts what is open, and nothing else.
            if self.state[one] == OPEN:
                self.state[one] = ABORTED


class Driver:
    """A driver and its tasks, from its beginning to its death. `steps` is None while only tasks are to do."""

    def __init__(self, world: World, version: int) -> None:
        self.world = world
        self.version = version
        self.begun: Begun | None = None
        self.reported: dict[int, Prepared] = {}
        self.attempts = 0
        self.committed: bool | None = None
        self.is_dead = False
        self.steps: Generator[None, None, Any] | None = self._run(begin(SINK))

    def _run(self, plan: Generator[Effect, Any, Any]) -> Generator[None, None, Any]:
        try:
            effect = next(plan)
            while True:
                try:
                    found = yield from self.world.carry_out(effect)
                except (Fenced, Expired) as error:
                    effect = plan.throw(error)
                else:
                    yield
                    effect = plan.send(found)
        except StopIteration as end:
            return end.value

    def step(self) -> None:
        assert self.steps is not None
        try:
            next(self.steps)
        except StopIteration as end:
            self.steps = None
            if self.begun is None:
                self.begun = end.value
            else:
                self.committed = end.value
        except (Fenced, Expired, OtherQueryError):
            self.is_dead = True

    def go_on(self, count: int) -> None:
        """Take so many steps, or as many as there are."""
        for _ in range(count):
            if self.steps is None or self.is_dead:
                break
            self.step()

    def attempt(self, partition: int, *, is_reported: bool) -> None:
        """Have one attempt store its rows; it may be the one that counts."""
        assert self.begun is not None
        self.attempts += 1
        one = Prepared(attempt_id(SINK, partition, self.begun.owner, self.attempts), 100, 0)
        self.world.state[one] = OPEN
        if is_reported and self.committed is None:
            self.reported.setdefault(partition, one)

    def end(self) -> None:
        """Commit, as Spark does when every partition has its attempt."""
        assert self.begun is not None
        decision = Decision(SINK, self.version, tuple(self.reported[one] for one in sorted(self.reported)))
        self.steps = self._run(commit(self.begun, decision))

    def fail(self) -> None:
        """Give the batch up, as Spark does when a task has failed for good. Others may still be writing."""
        assert self.begun is not None
        self.steps = self._run(give_up(self.begun, SINK))
        self.version = -100


class Drivers(RuleBasedStateMachine):
    """Any number of drivers on one checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.drivers: list[Driver] = []
        self.done = -1  # by Spark's own log of commits

    @rule(steps=st.integers(0, 12))
    def starts(self, steps: int) -> None:
        self.drivers.append(Driver(self.world, self.done + 1))
        self.goes_on(len(self.drivers) - 1, steps)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 99), count=st.integers(1, 12))
    def is_let_go_on(self, number: int, count: int) -> None:
        self.goes_on(number, count)

    def goes_on(self, number: int, count: int) -> None:
        driver = self.drivers[number % len(self.drivers)]
        driver.go_on(count)
        if driver.committed is not None and driver.version >= 0:
            self.done = max(self.done, driver.version)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 99), partition=st.integers(0, PARTITIONS - 1), is_reported=st.booleans())
    def attempts(self, number: int, partition: int, is_reported: bool) -> None:
        """Tasks outlive their driver."""
        driver = self.drivers[number % len(self.drivers)]
        if driver.begun is not None:
            driver.attempt(partition, is_reported=is_reported)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 99), steps=st.integers(0, 12))
    def commits(self, number: int, steps: int) -> None:
        driver = self.drivers[number % len(self.drivers)]
        is_ready = driver.begun and driver.steps is None and driver.committed is None and not driver.is_dead
        if not is_ready or driver.version < 0:
            return
        for partition in range(PARTITIONS):
            if partition not in driver.reported:
                driver.attempt(partition, is_reported=True)
        driver.end()
        self.goes_on(number, steps)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 99))
    def fails(self, number: int) -> None:
        driver = self.drivers[number % len(self.drivers)]
        if driver.begun and driver.steps is None and driver.committed is None and not driver.is_dead:
            driver.fail()

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 99))
    def dies(self, number: int) -> None:
        self.drivers[number % len(self.drivers)].is_dead = True

    @invariant()
    def what_is_decided_is_never_aborted(self) -> None:
        for decision in self.world.log:
            assert ABORTED not in {self.world.state[one] for one in decision.prepared}

    @invariant()
    def each_batch_is_decided_once_and_in_order(self) -> None:
        versions = [one.version for one in self.world.log if not one.is_done]
        assert versions == sorted(set(versions))

    @invariant()
    def nothing_is_committed_that_was_not_decided(self) -> None:
        named = {one for decision in self.world.log for one in decision.prepared}
        assert {one for one, state in self.world.state.items() if state == COMMITTED} <= named

    @invariant()
    def what_is_said_to_be_done_is_committed(self) -> None:
        for decision, behind in zip(self.world.log, self.world.log[1:], strict=False):
            if behind.is_done:
                assert {self.world.state[one] for one in decision.prepared} <= {COMMITTED}

    def teardown(self) -> None:
        """A driver that is left alone brings everything to its end: all of each batch is there, and nothing is open."""
        driver = Driver(self.world, self.done + 1)
        while driver.steps is not None:
            driver.step()
        assert driver.begun is not None
        assert OPEN not in self.world.state.values()
        named = {one for decision in self.world.log for one in decision.prepared}
        assert {one for one, state in self.world.state.items() if state == COMMITTED} == named
        assert driver.begun.done >= self.done


TestDrivers = Drivers.TestCase
TestDrivers.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)


def run(world: World, plan: Generator[Effect, Any, Any]) -> Any:
    driver = Driver(world, 0)
    driver.steps = driver._run(plan)
    while True:
        try:
            next(driver.steps)
        except StopIteration as end:
            return end.value


def test_a_batch_that_is_done_is_not_written_again() -> None:
    world = World()
    begun = run(world, begin(SINK))
    one = Prepared(attempt_id(SINK, 0, begun.owner, 1), 100, 0)
    world.state[one] = OPEN
    assert run(world, commit(begun, Decision(SINK, 7, (one,))))
    again = run(world, begin(SINK))
    assert again.done == 7
    other = Prepared(attempt_id(SINK, 0, again.owner, 1), 101, 0)
    world.state[other] = OPEN
    assert not run(world, commit(again, Decision(SINK, 7, (other,))))
    assert world.state == {one: COMMITTED, other: ABORTED}


def test_a_transaction_that_has_timed_out_fails_its_batch_before_anything_is_decided() -> None:
    world = World()
    begun = run(world, begin(SINK))
    one, other = (Prepared(attempt_id(SINK, each, begun.owner, each), 100, 0) for each in range(2))
    world.state |= {one: OPEN, other: ABORTED}
    with pytest.raises(Expired):
        run(world, commit(begun, Decision(SINK, 0, (one, other))))
    assert not world.log
    run(world, begin(SINK))
    assert world.state == {one: ABORTED, other: ABORTED}


def test_a_new_checkpoint_under_an_old_name_is_refused() -> None:
    """Its batches begin at 0 again, and would be taken for ones that are done."""
    world = World()
    run(world, commit(run(world, begin(SINK)), Decision(SINK, 7, (), application="query a")))
    with pytest.raises(OtherQueryError, match="new checkpoint is a new sink"):
        run(world, commit(run(world, begin(SINK)), Decision(SINK, 0, (), application="query b")))


@pytest.mark.parametrize("steps", range(1, 20))
def test_a_driver_dies_after_any_step_and_the_next_one_finishes_what_was_decided(steps: int) -> None:
    world = World()
    first = Driver(world, 0)
    first.begun, first.steps = run(world, begin(SINK)), None
    for partition in range(3):
        first.attempt(partition, is_reported=True)
    first.end()
    first.go_on(steps)
    was_decided = bool(world.log)
    second = run(world, begin(SINK))
    states = set(world.state.values())
    assert (second.done, states) == ((0, {COMMITTED}) if was_decided else (-1, {ABORTED}))
