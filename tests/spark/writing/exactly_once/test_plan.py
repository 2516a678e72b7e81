"""Drivers die between any two steps, several believe to be the only one, and attempts come late: a batch stays whole.

The world is a coordinator that knows who the driver is, a log of decisions, and transactions that are open, committed
or aborted. Every request to it is a step of its own, so anything may happen between two of them.
"""

from collections.abc import Generator, Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_spark.writing.exactly_once.decisions import Decision, Prepared, Ticket, encode
from barnabas_spark.writing.exactly_once.names import attempt_id
from barnabas_spark.writing.exactly_once.plan import (
    Begun,
    Effect,
    End,
    EndAny,
    Fence,
    Fenced,
    Look,
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
from barnabas_spark.writing.exactly_once.settling import settle
from barnabas_spark.writing.exactly_once.vacancies import VACANT_MAX, belongs_to, vacant_after, vacant_of

SINK = "s"
PARTITIONS = 2
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


class Expired(Exception):  # noqa: N818 - says what happened
    """A transaction is not open any more."""


class Attempt:
    """One attempt of a task, step by step. It may be anywhere when its batch, its driver, or both are long over."""

    def __init__(self, begun: Begun, partition: int, name: str) -> None:
        self.begun = begun
        self.partition = partition
        self.name = name
        self.ticket: Ticket | None = None
        self.one: Prepared | None = None
        self.is_over = False


class World:
    """What the brokers have. `epochs` has the present one of each id, `writers` who has written in a transaction."""

    def __init__(self) -> None:
        self.owner = Owner(1, 0)
        self.log: list[Decision] = []
        self.state: dict[Prepared, str] = {}
        self.epochs: dict[str, int] = {}
        self.drawn: dict[int, int] = {}
        self.writers: dict[Prepared, set[int]] = {}

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
                if any(self.state_of(one) != OPEN for one in prepared):
                    raise Expired
            case End(_, owner, prepared):
                return (yield from self._end(owner, prepared))
            case EndAny(_, owner, prepared):
                return tuple(each is not None for each in (yield from self._end(owner, prepared)))
            case Sweep(_, owner):
                yield from self._sweep(owner)
            case Look(vacant):
                # What it answers may have changed when that arrives.
                return tuple(one for one in vacant if self.epochs[one.transactional_id] == one.epoch)
        return None

    def state_of(self, one: Prepared) -> str:
        return self.state[_key(one)]

    def end(self, one: Prepared, state: str) -> bool:
        """Do what EndTxn does in the second protocol; False if it is refused."""
        key = _key(one)
        if self.state[key] == OPEN:
            assert self.epochs[key.transactional_id] == key.epoch
            self.state[key] = state
            self.epochs[key.transactional_id] += 1
            return True
        # The end before is told once more, but not behind another one.
        return self.state[key] == state and self.epochs[key.transactional_id] == key.epoch + 1

    def _end(self, owner: Owner, prepared: tuple[Prepared, ...]) -> Generator[None, None, tuple[Owner, ...]]:
        for one in prepared:
            if not self.end(one, COMMITTED):
                yield
                raise Fenced if owner != self.owner else Expired
            yield
        return tuple(Owner(one.producer_id, one.epoch + 1) for one in prepared)

    def _sweep(self, owner: Owner) -> Generator[None, None, None]:
        listed = [one for one, state in self.state.items() if state == OPEN]
        yield
        if owner != self.owner:
            return
        for one in listed:
            yield
            self.end(one, ABORTED)

    def step(self, attempt: Attempt) -> None:
        """Let an attempt take its next step: draw, begin, write, write more."""
        if attempt.ticket is None:
            number = self.drawn[attempt.partition] = self.drawn.get(attempt.partition, 6) + 1
            attempt.ticket = Ticket(5, number)
        elif attempt.one is None:
            vacant = vacant_of(SINK, attempt.begun.vacant, attempt.partition)
            if vacant is not None and belongs_to(vacant, attempt.ticket):
                attempt.one = Prepared(vacant.transactional_id, vacant.producer_id, vacant.epoch, attempt.ticket)
            else:
                assert attempt.name not in self.epochs
                self.epochs[attempt.name] = 0
                attempt.one = Prepared(attempt.name, 100, 0, attempt.ticket)
        else:
            key = _key(attempt.one)
            if self.epochs[key.transactional_id] != key.epoch:
                attempt.is_over = True
                return
            self.state.setdefault(key, OPEN)
            self.writers.setdefault(key, set()).add(id(attempt))


def _key(one: Prepared) -> Prepared:
    return one._replace(ticket=None)


class Driver:
    """A driver and its tasks, from its beginning to its death. `steps` is None while only tasks are to do."""

    def __init__(self, world: World, version: int) -> None:
        self.world = world
        self.version = version
        self.begun: Begun | None = None
        self.attempts: list[Attempt] = []
        self.reported: dict[int, Prepared] = {}
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

    def start(self, partition: int) -> Attempt:
        """Start an attempt. Any number of them may believe to be the first of their partition."""
        assert self.begun is not None
        name = attempt_id(SINK, partition, self.begun.owner, len(self.attempts))
        self.attempts.append(Attempt(self.begun, partition, name))
        return self.attempts[-1]

    def report(self, attempt: Attempt) -> None:
        """Take the report of an attempt whose rows are stored. The first one of a partition counts."""
        if attempt.one is not None and _key(attempt.one) in self.world.writers and not attempt.is_over:
            attempt.is_over = True
            if self.committed is None:
                self.reported.setdefault(attempt.partition, attempt.one)

    def attempt(self, partition: int, *, is_reported: bool = True) -> None:
        """Have one attempt store its rows; it may be the one that counts."""
        attempt = self.start(partition)
        for _ in range(3):
            self.world.step(attempt)
        if is_reported:
            self.report(attempt)

    def end(self) -> None:
        """Commit, as Spark does when every partition has its attempt."""
        assert self.begun is not None
        prepared = tuple(self.reported[one] for one in sorted(self.reported))
        self.steps = self._run(commit(self.begun, Decision(SINK, self.version, prepared, vacant=self.begun.vacant)))

    def fail(self) -> None:
        """Give the batch up, as Spark does when a task has failed for good. Others may still be writing."""
        assert self.begun is not None
        self.steps = self._run(give_up(self.begun, SINK))
        self.version = -100


class Operator(Driver):
    """An operator who brings the sink to rest, whoever writes to it."""

    def __init__(self, world: World) -> None:
        super().__init__(world, -1)
        self.steps = self._run(settle(SINK, None))

    def step(self) -> None:
        super().step()
        if self.steps is None:
            self.begun, self.is_dead = None, True


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

    @rule(steps=st.integers(0, 12))
    def is_settled(self, steps: int) -> None:
        self.drivers.append(Operator(self.world))
        self.drivers[-1].go_on(steps)

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
    @rule(number=st.integers(0, 99), partition=st.integers(0, PARTITIONS - 1), steps=st.integers(0, 3))
    def attempts(self, number: int, partition: int, steps: int) -> None:
        """Tasks outlive their driver."""
        driver = self.drivers[number % len(self.drivers)]
        if driver.begun is not None:
            attempt = driver.start(partition)
            for _ in range(steps):
                self.world.step(attempt)

    @precondition(lambda self: any(driver.attempts for driver in self.drivers))
    @rule(number=st.integers(0, 999), steps=st.integers(0, 3), is_reported=st.booleans())
    def an_attempt_goes_on(self, number: int, steps: int, is_reported: bool) -> None:
        """It does so however late that is."""
        rows = [(driver, attempt) for driver in self.drivers for attempt in driver.attempts if not attempt.is_over]
        if rows:
            driver, attempt = rows[number % len(rows)]
            for _ in range(steps):
                if not attempt.is_over:
                    self.world.step(attempt)
            if is_reported and not driver.steps:
                driver.report(attempt)

    @precondition(lambda self: self.drivers)
    @rule(number=st.integers(0, 99), steps=st.integers(0, 12), partitions=st.integers(0, 2**PARTITIONS - 1))
    def commits(self, number: int, steps: int, partitions: int) -> None:
        driver = self.drivers[number % len(self.drivers)]
        is_ready = driver.begun and driver.steps is None and driver.committed is None and not driver.is_dead
        if not is_ready or driver.version < 0:
            return
        # A partition without rows has no transaction.
        for partition in range(PARTITIONS):
            if partition not in driver.reported and partitions >> partition & 1:
                driver.attempt(partition)
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
            assert ABORTED not in {self.world.state_of(one) for one in decision.prepared}

    @invariant()
    def no_two_attempts_have_written_in_one_transaction(self) -> None:
        assert all(len(writers) == 1 for writers in self.world.writers.values())

    @invariant()
    def each_batch_is_decided_once_and_in_order(self) -> None:
        versions = [one.version for one in self.world.log if not one.is_done]
        assert versions == sorted(set(versions))

    @invariant()
    def nothing_is_committed_that_was_not_decided(self) -> None:
        named = {_key(one) for decision in self.world.log for one in decision.prepared}
        assert {one for one, state in self.world.state.items() if state == COMMITTED} <= named

    @invariant()
    def what_is_said_to_be_done_is_committed(self) -> None:
        for decision, behind in zip(self.world.log, self.world.log[1:], strict=False):
            if behind.is_done:
                assert {self.world.state_of(one) for one in decision.prepared} <= {COMMITTED}

    def teardown(self) -> None:
        """A driver that is left alone brings everything to its end: all of each batch is there, and nothing is open."""
        driver = Driver(self.world, self.done + 1)
        while driver.steps is not None:
            driver.step()
        assert driver.begun is not None
        assert OPEN not in self.world.state.values()
        named = {_key(one) for decision in self.world.log for one in decision.prepared}
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


def opened(world: World, begun: Begun, partition: int = 0) -> Prepared:
    """Have an attempt write, and return its transaction."""
    driver = Driver(world, 0)
    driver.begun = begun
    driver.attempts = [Attempt(begun, 9, "")] * sum(len(each) for each in world.writers.values())
    driver.attempt(partition)
    return driver.reported[partition]


def test_a_batch_that_is_done_is_not_written_again() -> None:
    world = World()
    begun = run(world, begin(SINK))
    one = opened(world, begun)
    assert run(world, commit(begun, Decision(SINK, 7, (one,))))
    again = run(world, begin(SINK))
    assert again.done == 7
    other = opened(world, again)
    assert not run(world, commit(again, Decision(SINK, 7, (other,))))
    assert (world.state_of(one), world.state_of(other)) == (COMMITTED, ABORTED)


def test_a_transaction_that_has_timed_out_fails_its_batch_before_anything_is_decided() -> None:
    world = World()
    begun = run(world, begin(SINK))
    one, other = (opened(world, begun, partition) for partition in range(2))
    world.end(other, ABORTED)
    with pytest.raises(Expired):
        run(world, commit(begun, Decision(SINK, 0, (one, other))))
    assert not world.log
    run(world, begin(SINK))
    assert {world.state_of(each) for each in (one, other)} == {ABORTED}


def batch(world: World, version: int, partitions: Iterable[int]) -> Begun:
    """Write a batch, and return what it began with."""
    begun: Begun = run(world, begin(SINK))
    prepared = tuple(opened(world, begun, partition) for partition in partitions)
    assert run(world, commit(begun, Decision(SINK, version, prepared, vacant=begun.vacant)))
    return begun


def test_batches_go_on_with_the_ids_of_those_before() -> None:
    """Partitions that come and go keep theirs."""
    world = World()
    for version in range(40):
        batch(world, version, range(version % 4, 6, 1 + version % 2))
    assert len(world.epochs) == 6
    assert [one.epoch for one in world.log[-1].vacant] == [
        world.epochs[one.transactional_id] for one in world.log[-1].vacant
    ]


def test_an_attempt_that_was_not_first_has_an_id_of_its_own_which_is_the_next_ones() -> None:
    world = World()
    batch(world, 0, [0])
    begun = run(world, begin(SINK))
    lost, won = opened(world, begun), opened(world, begun)
    assert won.transactional_id != lost.transactional_id
    assert run(world, commit(begun, Decision(SINK, 1, (won,), vacant=begun.vacant)))
    assert world.state_of(lost) == ABORTED
    assert opened(world, run(world, begin(SINK))).transactional_id == won.transactional_id


def test_ids_of_a_batch_that_failed_are_used_by_nobody() -> None:
    """Its attempts may be alive, and may not have begun to write."""
    world = World()
    batch(world, 0, [0])
    begun = run(world, begin(SINK))
    zombie = Attempt(begun, 0, "unused")
    for _ in range(2):
        world.step(zombie)
    again = run(world, begin(SINK))
    assert again.vacant == begun.vacant
    other = opened(world, again)
    world.step(zombie)
    assert zombie.one is not None
    assert zombie.one.transactional_id != other.transactional_id


def test_a_late_abort_of_an_old_driver_does_not_reach_what_was_decided_under_the_same_id() -> None:
    world = World()
    batch(world, 0, [0])
    begun = run(world, begin(SINK))
    opened(world, begun)
    old = Driver(world, 1)
    old.begun = begun
    old.fail()
    old.go_on(2)  # It has listed what is open, and found that it is the driver.
    assert run(world, begin(SINK))
    batch(world, 1, [0])
    one = opened(world, run(world, begin(SINK)))
    old.go_on(9)
    assert world.state_of(one) == OPEN


def test_no_more_ids_are_carried_on_than_fit_into_a_record() -> None:
    prepared = tuple(Prepared(f"{SINK}/{n}/123.45.{n}", 10**6, 100, Ticket(10**6, 100)) for n in range(VACANT_MAX + 9))
    found = vacant_after(Decision(SINK, 0, prepared), [Owner(1, 2)] * len(prepared))
    assert len(found) == VACANT_MAX
    long = [one._replace(transactional_id="x" * 200 + one.transactional_id) for one in found]
    assert len(encode(Decision("x" * 200, 0, (), True, "", tuple(long)))) < 1_000_000


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
        first.attempt(partition)
    first.end()
    first.go_on(steps)
    was_decided = bool(world.log)
    second = run(world, begin(SINK))
    states = set(world.state.values())
    assert (second.done, states) == ((0, {COMMITTED}) if was_decided else (-1, {ABORTED}))
