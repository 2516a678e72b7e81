"""Random honest histories of transactions are accepted; each of them, with one thing changed, is not."""

import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.history import Checker, Rule, check
from barnabas_broker.history import events as e

from .honest_transactions import INPUT, honest_history

History = list[e.Event]
Corruption = Callable[[History, random.Random], Rule | None]
Place = tuple[str, str | None, int]


def transaction_of(history: History) -> dict[Place, str]:
    return {
        (event.partition, event.producer, event.sequence): event.transaction
        for event in history
        if isinstance(event, e.Invoked) and event.transaction is not None
    }


def outcomes(history: History) -> dict[str, str]:
    return {event.transaction: event.outcome for event in history if isinstance(event, e.Ended)}


def reads(history: History, consumers: str) -> list[tuple[int, e.Consumed]]:
    names = consumers.split()
    return [
        (at, event) for at, event in enumerate(history) if isinstance(event, e.Consumed) and event.consumer in names
    ]


def place_of(event: e.Consumed) -> Place:
    return event.partition, event.producer, event.sequence


def placed(history: History) -> set[Place]:
    return {
        (event.partition, event.producer, event.sequence)
        for event in history
        if isinstance(event, e.Acknowledged) and event.offset is not None
    }


def lose_a_committed_record(history: History, chance: random.Random) -> Rule | None:
    fates, of, known = outcomes(history), transaction_of(history), placed(history)
    found = [
        at
        for at, event in reads(history, "audit")
        if place_of(event) in known and fates[of[place_of(event)]] == "committed"
    ]
    if not found:
        return None
    del history[chance.choice(found)]
    return Rule.LOST


def tear_one_that_nobody_was_told_of(history: History, chance: random.Random) -> Rule | None:
    """No reader of committed records gets one of its records; the others are there."""
    fates, of, known = outcomes(history), transaction_of(history), placed(history)
    parts: dict[str, list[Place]] = {}
    for _, event in reads(history, "audit"):
        if place_of(event) in known and fates[of[place_of(event)]] != "committed":
            parts.setdefault(of[place_of(event)], []).append(place_of(event))
    torn = [places for places in parts.values() if len(places) > 1]
    if not torn:
        return None
    gone = chance.choice(chance.choice(torn))
    history[:] = [
        event
        for event in history
        if not (isinstance(event, e.Consumed) and event.consumer != "u-audit" and place_of(event) == gone)
    ]
    return Rule.TORN


def lose_it_in_the_log(history: History, chance: random.Random) -> Rule | None:
    known = placed(history)
    found = [at for at, event in reads(history, "u-audit") if place_of(event) in known]
    if not found:
        return None
    del history[chance.choice(found)]
    return Rule.LOST


def show_an_aborted_one(history: History, chance: random.Random) -> Rule | None:
    fates, of = outcomes(history), transaction_of(history)
    found = [event for _, event in reads(history, "u-audit") if fates[of[place_of(event)]] == "aborted"]
    if not found:
        return None
    history.append(msgspec.structs.replace(chance.choice(found), consumer="late"))
    return Rule.ABORTED_READ


def abort_what_was_seen(history: History, chance: random.Random) -> Rule | None:
    of = transaction_of(history)
    seen = {of[place_of(event)] for _, event in reads(history, "c d audit")}
    found = [at for at, event in enumerate(history) if isinstance(event, e.Ended) and event.transaction in seen]
    if not found:
        return None
    at = chance.choice(found)
    history[at] = msgspec.structs.replace(history[at], outcome="aborted")
    return Rule.ABORTED_READ


def show_an_open_one(history: History, chance: random.Random) -> Rule | None:
    of = transaction_of(history)
    found = [event for _, event in reads(history, "audit")]
    if not found:
        return None
    event = chance.choice(found)
    name = of[place_of(event)]
    asked = next(at for at, one in enumerate(history) if isinstance(one, e.Ending) and one.transaction == name)
    history.insert(asked, msgspec.structs.replace(event, consumer="late"))
    return Rule.OPEN_READ


def let_two_read_from_each_other(history: History, chance: random.Random) -> Rule | None:
    """Two that were open at one time, both committed: each reads from the other before the first is committed."""
    fates, of = outcomes(history), transaction_of(history)
    ends = {
        event.transaction: at
        for at, event in enumerate(history)
        if isinstance(event, e.Ending) and event.commit and fates[event.transaction] == "committed"
    }
    sent: dict[Place, int] = {
        (event.partition, event.producer, event.sequence): at
        for at, event in enumerate(history)
        if isinstance(event, e.Invoked)
    }
    found = [event for _, event in reads(history, "audit") if of[place_of(event)] in ends]
    pairs = [
        (one, other)
        for one in found
        for other in found
        if sent[place_of(other)] < ends[of[place_of(one)]] < ends[of[place_of(other)]]
    ]
    if not pairs:
        return None
    first, last = chance.choice(pairs)
    at = ends[of[place_of(first)]]
    history.insert(at, msgspec.structs.replace(first, consumer="late", transaction=of[place_of(last)]))
    history.insert(at, msgspec.structs.replace(last, consumer="later", transaction=of[place_of(first)]))
    return Rule.CYCLE


def _work(history: History, start: int, offset: int) -> None:
    history += [
        e.Begun(transaction="z"),
        e.OffsetSent(transaction="z", group="g", partition=INPUT, start=start, offset=offset),
        e.Ending(transaction="z", commit=True),
        e.Ended(transaction="z", outcome="committed"),
    ]


def _committed_work(history: History) -> list[e.OffsetSent]:
    fates = outcomes(history)
    return [
        event
        for event in history
        if isinstance(event, e.OffsetSent) and fates[event.transaction] == "committed" and event.start != event.offset
    ]


def work_twice(history: History, chance: random.Random) -> Rule | None:
    found = _committed_work(history)
    if not found:
        return None
    event = chance.choice(found)
    assert event.start is not None
    _work(history, event.start, event.offset + 5)
    return Rule.WORKED_TWICE


def skip_input(history: History, chance: random.Random) -> Rule | None:
    if not _committed_work(history):
        return None
    ends = max(event.offset for event in history if isinstance(event, e.OffsetSent))
    _work(history, ends + 1, ends + 5)
    return Rule.SKIPPED


def forget_a_committed_offset(history: History, chance: random.Random) -> Rule | None:
    if not _committed_work(history):
        return None
    history.append(e.CommittedFetched(reader="r", group="g", partition=INPUT))
    return Rule.COMMITTED_BACK


def tell_an_aborted_offset(history: History, chance: random.Random) -> Rule | None:
    history += [
        e.Begun(transaction="z"),
        e.OffsetSent(transaction="z", group="g", partition=INPUT, offset=1_000_000),
        e.Ended(transaction="z", outcome="timed_out"),
        e.CommittedFetched(reader="r", group="g", partition=INPUT, offset=1_000_000),
    ]
    return Rule.ABORTED_READ


CORRUPTIONS: tuple[Corruption, ...] = (
    lose_a_committed_record,
    tear_one_that_nobody_was_told_of,
    lose_it_in_the_log,
    show_an_aborted_one,
    abort_what_was_seen,
    show_an_open_one,
    let_two_read_from_each_other,
    work_twice,
    skip_input,
    forget_a_committed_offset,
    tell_an_aborted_offset,
)


def corrupted(corrupt: Corruption, seed: int) -> tuple[Rule | None, History]:
    history = honest_history(seed)
    # For what shows one record to somebody new.
    history[:0] = [e.DeclaredConsumer(consumer=name, read_committed=True) for name in ("late", "later")]
    return corrupt(history, random.Random(seed)), history


@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 32))
def test_honest_history_is_accepted(seed: int) -> None:
    checker = Checker()
    for event in honest_history(seed):
        checker.feed(event)
    assert checker.violations == []
    assert checker.summary().unread == {}


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_single_corruption_is_rejected(corrupt: Corruption, seed: int) -> None:
    rule, history = corrupted(corrupt, seed)
    if rule is not None:
        assert rule in {violation.rule for violation in check(history)}


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_corruption_is_possible_in_many_histories(corrupt: Corruption) -> None:
    assert sum(corrupted(corrupt, seed)[0] is not None for seed in range(60)) >= 5


def test_honest_histories_have_every_outcome() -> None:
    found = {outcome for seed in range(20) for outcome in outcomes(honest_history(seed)).values()}
    assert found == {"committed", "aborted", "fenced", "timed_out", "unknown"}
