"""For each rule about transactions histories that break it, each beside one that nearly does and is allowed.

`c` and `d` read committed records, `u` reads all. The partition is t-0 unless a line names another one.
"""

import pytest

from barnabas_broker.history import Checker, HistoryError, Rule, check, decode, encode

from .short import history

READERS = "consumer c yes\nconsumer d yes\n"
# A transaction of two records, at 0 of t-0 and of t-1.
OPEN = (
    "begun x\ninvoke p 0 transaction=x\ninvoke p 0 transaction=x partition=t-1\nack p 0 @0\nack p 0 @0 partition=t-1\n"
)
ASKED = OPEN + "ending x yes\n"
COMMITTED = ASKED + "ended x committed\n"
ABORTED = OPEN + "ending x no\nended x aborted\n"
SEEN = "position c 0\nread c 0 p 0\n"
SEEN_THERE = "position d 0 partition=t-1\nread d 0 p 0 partition=t-1\n"
MISSED = "position c 0\nend c 2\n"
MISSED_THERE = "position d 0 partition=t-1\nend d 2 partition=t-1\n"
# Two transactions that have worked off 0 to 5 and 5 to 9.
WORKED = (
    "begun x\noffset x 0 5\nending x yes\nended x committed\nbegun y\noffset y 5 9\nending y yes\nended y committed\n"
)

# By name: the rule, the history that breaks it, and the one beside it that does not.
REJECTED: dict[str, tuple[Rule, str, str]] = {
    "an aborted record, read": (Rule.ABORTED_READ, ABORTED + SEEN, ABORTED + MISSED),
    "a record that was read, and then aborted": (
        Rule.ABORTED_READ,
        ASKED + SEEN + "ended x aborted",
        ASKED + SEEN + "ended x unknown",
    ),
    "an aborted record, read by one of two": (
        Rule.ABORTED_READ,
        ABORTED + "position u 0\nread u 0 p 0\n" + SEEN,
        ABORTED + "position u 0\nread u 0 p 0\n" + MISSED,
    ),
    "a record whose client gave up without a commit": (
        Rule.ABORTED_READ,
        OPEN + "ended x fenced\n" + SEEN,
        ASKED + "ended x fenced\n" + SEEN + SEEN_THERE,
    ),
    "a record whose time was over": (
        Rule.ABORTED_READ,
        OPEN + "ended x timed_out\n" + SEEN,
        OPEN + "ended x timed_out\n" + MISSED,
    ),
    "an aborted offset": (
        Rule.ABORTED_READ,
        "begun x\noffset x 0 5\nending x no\nended x aborted\ntold r 5",
        "begun x\noffset x 0 5\nending x no\nended x aborted\nbegun y\noffset y 0 5\nending y yes\ntold r 5",
    ),
    "an offset that was told, and then aborted": (
        Rule.ABORTED_READ,
        "begun x\noffset x 0 5\nending x yes\ntold r 5\nended x aborted",
        "begun x\noffset x 0 5\nending x yes\ntold r none\nended x aborted",
    ),
    "an open transaction's record": (Rule.OPEN_READ, OPEN + SEEN + "ending x yes", ASKED + SEEN),
    "an open transaction's offset": (
        Rule.OPEN_READ,
        "begun x\noffset x 0 5\ntold r 5\nending x yes",
        "begun x\noffset x 0 5\ncommit_invoked 5\ntold r 5\nending x yes",
    ),
    "a committed record, stepped over": (
        Rule.LOST,
        COMMITTED + MISSED,
        COMMITTED + "position c 0\nend c 0",
    ),
    "stepped over, then said to be committed": (
        Rule.LOST,
        ASKED + MISSED + "ended x committed",
        ASKED + MISSED + "ended x unknown",
    ),
    "a committed record that is not in the log": (
        Rule.LOST,
        COMMITTED + "position u 0\nend u 0",
        ABORTED + "position u 0\nread u 0 p 0\nend u 1",
    ),
    "an aborted record that is not in the log": (
        Rule.LOST,
        ABORTED + "position u 0\nend u 0",
        ABORTED + "start 2\nposition u 2\nend u 2",
    ),
    "half of it seen, then the other half missed": (
        Rule.TORN,
        ASKED + SEEN + MISSED_THERE,
        ASKED + SEEN + "position d 0 partition=t-1\nend d 0 partition=t-1",
    ),
    "half of it missed, then the other half seen": (
        Rule.TORN,
        ASKED + "ended x unknown\n" + MISSED_THERE + SEEN,
        ASKED + "ended x unknown\n" + MISSED_THERE + MISSED,
    ),
    "its offset seen, its record missed": (
        Rule.TORN,
        "begun x\ninvoke p 0 transaction=x\nack p 0 @0\noffset x 0 5\nending x yes\nended x unknown\ntold r 5\n"
        + MISSED,
        "begun x\ninvoke p 0 transaction=x\nack p 0 @0\noffset x 0 5\nending x yes\nended x unknown\ntold r none\n"
        + MISSED,
    ),
    "a record of a fenced one, torn": (
        Rule.TORN,
        ASKED + "ended x fenced\n" + SEEN + MISSED_THERE,
        ASKED + "ended x fenced\n" + MISSED + MISSED_THERE,
    ),
    "a committed offset that is not told": (
        Rule.COMMITTED_BACK,
        "begun x\noffset x 0 5\nending x yes\nended x committed\ntold r none",
        "begun x\noffset x 0 5\nending x yes\nended x committed\ntold r none stable=no",
    ),
    "an offset of before": (
        Rule.COMMITTED_BACK,
        WORKED + "ask r\ntold r 5",
        "ask r\n" + WORKED + "told r 5",
    ),
    "the same input in two": (
        Rule.WORKED_TWICE,
        WORKED + "begun z\noffset z 5 8\nending z yes\nended z committed",
        WORKED + "begun z\noffset z 5 8\nending z yes\nended z unknown",
    ),
    "a part of the input in two": (
        Rule.WORKED_TWICE,
        WORKED + "begun z\noffset z 8 12\nending z yes\nended z committed",
        WORKED + "begun z\noffset z 9 12\nending z yes\nended z committed",
    ),
    "the same input, in one that was thought lost": (
        Rule.WORKED_TWICE,
        "begun x\ninvoke p 0 transaction=x\nack p 0 @0\noffset x 0 5\nending x yes\nended x unknown\n"
        "begun y\noffset y 0 6\nending y yes\nended y committed\n" + SEEN,
        "begun x\ninvoke p 0 transaction=x\nack p 0 @0\noffset x 0 5\nending x yes\nended x unknown\n"
        "begun y\noffset y 0 6\nending y yes\nended y committed\n" + MISSED,
    ),
    "input in no transaction": (
        Rule.SKIPPED,
        WORKED + "begun z\noffset z 10 12\nending z yes\nended z committed",
        WORKED + "commit_invoked 10\nbegun z\noffset z 10 12\nending z yes\nended z committed",
    ),
    "input of an aborted transaction": (
        Rule.SKIPPED,
        WORKED + "begun v\noffset v 9 10\nending v no\nended v aborted\n"
        "begun z\noffset z 10 12\nending z yes\nended z committed",
        WORKED + "begun v\noffset v 9 10\nending v yes\nended v unknown\n"
        "begun z\noffset z 10 12\nending z yes\nended z committed",
    ),
    "two that read from each other": (
        Rule.CYCLE,
        (
            "begun x\nbegun y\ninvoke p 0 transaction=x\ninvoke q 0 transaction=y partition=t-1\n"
            "position c 0\nread c 0 p 0 transaction=y\n"
            "position d 0 partition=t-1\nread d 0 q 0 transaction=x partition=t-1\n"
            "ending x yes\nended x committed\nending y yes\nended y committed"
        ),
        # One after the other.
        (
            "begun x\nbegun y\ninvoke p 0 transaction=x\ninvoke q 0 transaction=y partition=t-1\n"
            "ending x yes\nended x committed\n"
            "position c 0\nread c 0 p 0 transaction=y\n"
            "ending y yes\nended y committed\n"
            "position d 0 partition=t-1\nread d 0 q 0 partition=t-1\n"
        ),
    ),
    "three in a circle": (
        Rule.CYCLE,
        (
            "begun x\nbegun y\nbegun z\n"
            "invoke p 0 transaction=x\ninvoke q 0 transaction=y partition=t-1\ninvoke r 0 transaction=z partition=t-2\n"
            "position c 0\nread c 0 p 0 transaction=y\n"
            "position c 0 partition=t-1\nread c 0 q 0 transaction=z partition=t-1\n"
            "ending y yes\nended y committed\nending z yes\nended z committed\n"
            "position c 0 partition=t-2\nread c 0 r 0 transaction=x partition=t-2\nending x yes\nended x committed"
        ),
        # The last reads all, which promises nothing.
        (
            "begun x\nbegun y\nbegun z\n"
            "invoke p 0 transaction=x\ninvoke q 0 transaction=y partition=t-1\ninvoke r 0 transaction=z partition=t-2\n"
            "position u 0\nread u 0 p 0 transaction=y\n"
            "position u 0 partition=t-1\nread u 0 q 0 transaction=z partition=t-1\n"
            "ending y yes\nended y committed\nending z yes\nended z committed\n"
            "position c 0 partition=t-2\nread c 0 r 0 transaction=x partition=t-2\nending x yes\nended x committed"
        ),
    ),
    "read again": (
        Rule.POSITION_BACK,
        COMMITTED + SEEN + "read c 0 p 0",
        COMMITTED + SEEN + SEEN,
    ),
    "there twice": (
        Rule.DUPLICATED,
        COMMITTED + SEEN + "read c 1 p 0",
        COMMITTED
        + "begun y\ninvoke p 1 transaction=y\nack p 1 @2\nending y yes\nended y committed\n"
        + SEEN
        + "read c 2 p 1",
    ),
    "two leaders": (
        Rule.TWO_IN_ONE_EPOCH,
        "own t-0 3 one\nown t-0 3 two",
        "own t-0 3 one\nown t-0 4 two\nown t-0 3 one",
    ),
}

ACCEPTED = {
    "two transactions that lie among each other": (
        "begun x\nbegun y\n"
        "invoke p 0 transaction=x\ninvoke q 0 transaction=y\ninvoke p 1 transaction=x\ninvoke q 1 transaction=y\n"
        "ack p 0 @0\nack q 0 @1\nack p 1 @2\nack q 1 @3\n"
        "ending y yes\nended y committed\nending x yes\nended x committed\n"
        "position c 0\nread c 0 p 0\nread c 1 q 0\nread c 2 p 1\nread c 3 q 1\nend c 6"
    ),
    "one committed, the other aborted": (
        "begun x\nbegun y\ninvoke p 0 transaction=x\ninvoke q 0 transaction=y\n"
        "ack p 0 @0\nack q 0 @1\nending y yes\nended y committed\nending x no\nended x aborted\n"
        "position c 0\nread c 1 q 0\nend c 4\nposition u 0\nread u 0 p 0\nread u 1 q 0\nend u 4"
    ),
    "a read that is not repeated": ASKED + "position c 0\nend c 0\nposition d 0\nread d 0 p 0\nended x committed",
    "committed here before it is there": (
        ASKED + "position c 0\nread c 0 p 0\nposition c 0 partition=t-1\nend c 0 partition=t-1\nended x committed\n"
        "read c 0 p 0 partition=t-1"
    ),
    "all that is in the log, for who reads all": OPEN + "position u 0\nread u 0 p 0\nending x no\nended x aborted",
    "an unknown record in an aborted transaction": (
        "begun x\ninvoke p 0 transaction=x\nunknown p 0\nending x no\nended x aborted\nposition u 0\nread u 0 p 0\n"
        + MISSED
    ),
    "a commit that ends in an abort": ASKED + "ending x no\nended x aborted\n" + MISSED + MISSED_THERE,
    "behind what was deleted": COMMITTED + "start 2\n" + MISSED,
    "a record outside of transactions among others": (
        ABORTED + "invoke q 0\nack q 0 @1\nposition c 0\nread c 1 q 0\nend c 3"
    ),
    "its own record": "begun x\ninvoke p 0 transaction=x\nending x yes\n" + SEEN + "ended x committed",
    "work that is done again after an abort": (
        "begun x\noffset x 0 5\nending x no\nended x aborted\nbegun y\noffset y 0 6\nending y yes\nended y committed\n"
        "told r 6"
    ),
    "no input": WORKED + "begun z\noffset z 9 9\nending z yes\nended z committed\ntold r 9",
    "work that is done again on purpose": (
        WORKED + "commit_reset 0\nbegun z\noffset z 0 5\nending z yes\nended z committed\ntold r 5"
    ),
}

CONTRADICTIONS = {
    "begun twice": "begun x\nbegun x",
    "a record in none": "invoke p 0 transaction=x",
    "a record in one that is over": COMMITTED + "invoke p 1 transaction=x",
    "a record in one whose commit was asked for": ASKED + "invoke p 1 transaction=x",
    "committed without having asked": OPEN + "ended x committed",
    "two ends": COMMITTED + "ended x aborted",
    "input backwards": "begun x\noffset x 5 3",
}


def rules(text: str) -> set[Rule]:
    return {violation.rule for violation in check(history(READERS + text))}


@pytest.mark.parametrize("name", REJECTED)
def test_broken_promise_is_named(name: str) -> None:
    rule, text, _ = REJECTED[name]
    assert rule in rules(text)


@pytest.mark.parametrize("name", REJECTED)
def test_what_is_beside_it_is_allowed(name: str) -> None:
    assert rules(REJECTED[name][2]) == set()


@pytest.mark.parametrize("name", ACCEPTED)
def test_t22_the_protocol_allows(name: str) -> None:
    assert rules(ACCEPTED[name]) == set()


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_history_that_contradicts_itself_is_refused(name: str) -> None:
    events = history(CONTRADICTIONS[name])
    with pytest.raises(HistoryError) as caught:
        check(events)
    assert caught.value.line == len(events)


def test_summary_counts_the_ends_of_transactions_and_what_nobody_has_found() -> None:
    checker = Checker()
    for event in history(READERS + COMMITTED + SEEN + "begun y\nbegun z\nended z timed_out"):
        checker.feed(event)
    found = checker.summary()
    assert found.transactions == {"committed": 1, "timed_out": 1, "open": 1}
    assert found.acknowledged == 2
    assert found.unread == {"t-1": 1}


def test_nobody_is_promised_a_record_before_its_commit() -> None:
    for text, unread in ((OPEN, {}), (ASKED, {}), (ABORTED, {}), (COMMITTED, {"t-0": 1, "t-1": 1})):
        checker = Checker()
        for event in history(text + "position u 0\nread u 0 p 0"):
            checker.feed(event)
        assert checker.summary().unread == unread


def test_events_come_back_as_they_were_written() -> None:
    for text in (*ACCEPTED.values(), *(text for _, text, _ in REJECTED.values())):
        events = history(text)
        assert [decode(encode(event), 1) for event in events] == events
