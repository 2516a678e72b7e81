"""For each rule a history that breaks it, beside one that just keeps it."""

import pytest

from barnabas_broker.history import HistoryError, Rule, check, decode, encode

from .short import history
from .test_transactions import REJECTED as REJECTED_TRANSACTIONS

TWO = "invoke p 0\ninvoke p 1\nack p 0 @0\nack p 1 @1\n"

ACCEPTED = {
    "nothing at all": "invoke p 0",
    "acknowledged and read": TWO + "position c 0\nread c 0 p 0\nread c 1 p 1\nend c 2",
    "read before it is acknowledged": "invoke p 0\nposition c 0\nread c 0 p 0\nack p 0 @0",
    "unknown and there": "invoke p 0\nunknown p 0\nposition c 0\nread c 0 p 0\nend c 1",
    "unknown and not there": "invoke p 0\nunknown p 0\nposition c 0\nend c 0",
    "refused and not there": "invoke p 0\nfailed p 0\nposition c 0\nend c 0",
    "acknowledged while a reader is on its way": "invoke p 0\nposition c 0\nack p 0 @0\nend c 0",
    "acknowledged without an offset": "invoke p 0\nack p 0\nposition c 0\nread c 0 p 0\nend c 1",
    "a second session further back": TWO + "position c 1\nread c 1 p 1\nposition c 0\nread c 0 p 0",
    "deleted records": TWO + "start 1\nposition c 0\nread c 1 p 1\nend c 2",
    "holes where they are allowed": "promise dense no\ninvoke p 0\nack p 0 @0\nposition c 0\nread c 0 p 0\nend c 3",
    "compacted away": "promise compacted yes\n" + TWO + "position c 0\nread c 1 p 1\nend c 2",
    "a producer that retries, twice": "retries p\ninvoke p 0\nposition c 0\nread c 0 p 0\nread c 1 p 0\nend c 2",
    "a producer that retries, reordered": (
        "retries p\ninvoke p 0\ninvoke p 1\nposition c 0\nread c 0 p 1\nread c 1 p 0"
    ),
    "two producers interleaved": "invoke p 0\ninvoke q 0\nack q 0 @0\nack p 0 @1",
    "same content": "invoke p 0 a\nposition c 0\nread c 0 p 0 a",
    "content nobody looked at": "invoke p 0 a\nposition c 0\nread c 0 p 0",
    "two observers, one behind": "high a 9\nhigh b 4\nhigh a 9",
    "commit while the question is under way": "ask r\ncommit_invoked 5\ncommit_acknowledged 5\ntold r none",
    "a commit that was only tried": "commit_invoked 5\ntold r 5",
    "a reset": "commit_invoked 5\ncommit_acknowledged 5\ncommit_reset 2\ntold r 2\ntold q 5",
    "one owner after another": "assign 1 a\nassign 1 a\nassign 2 b",
}

REJECTED = {
    "lost at the end": (Rule.LOST, TWO + "position c 0\nread c 0 p 0\nend c 1"),
    "lost where offsets may have holes": (
        Rule.LOST,
        "promise dense no\n" + TWO + "position c 0\nread c 1 p 1",
    ),
    "another in its place": (
        Rule.LOST,
        "invoke p 0\ninvoke q 0\nack p 0 @0\nposition c 0\nread c 0 q 0",
    ),
    "lost without an offset": (Rule.LOST, "invoke p 0\nack p 0\nposition c 0\nend c 0"),
    "stepped over": (Rule.HOLE, "invoke p 0\nposition c 0\nread c 1 p 0"),
    "an end beyond what was read": (Rule.HOLE, "invoke p 0\nposition c 0\nread c 0 p 0\nend c 2"),
    "read in another order": (
        Rule.REORDERED,
        "invoke p 0\ninvoke p 1\nposition c 0\nread c 0 p 1\nread c 1 p 0",
    ),
    "acknowledged in another order": (Rule.REORDERED, "invoke p 0\ninvoke p 1\nack p 0 @1\nack p 1 @0"),
    "an older one acknowledged behind": (Rule.REORDERED, "invoke p 0\ninvoke p 1\nack p 1 @0\nack p 0 @1"),
    "read twice": (Rule.DUPLICATED, "invoke p 0\nposition c 0\nread c 0 p 0\nread c 1 p 0"),
    "acknowledged elsewhere": (Rule.DUPLICATED, "invoke p 0\nposition c 0\nread c 0 p 0\nack p 0 @4"),
    "nobody's": (Rule.NEVER_SENT, "position c 0\nread c 0 - 0"),
    "not sent yet": (Rule.NEVER_SENT, "invoke p 0\nposition c 0\nread c 0 p 1"),
    "refused, then found": (Rule.REFUSED_YET_THERE, "invoke p 0\nfailed p 0\nposition c 0\nread c 0 p 0"),
    "found, then refused": (Rule.REFUSED_YET_THERE, "invoke p 0\nposition c 0\nread c 0 p 0\nfailed p 0"),
    "other content": (Rule.CHANGED, "invoke p 0 a\nposition c 0\nread c 0 p 0 b"),
    "consumers disagree": (
        Rule.OFFSET_REUSED,
        "invoke p 0\ninvoke q 0\nposition c 0\nread c 0 p 0\nposition d 0\nread d 0 q 0",
    ),
    "acknowledged twice at one offset": (Rule.OFFSET_REUSED, "invoke p 0\ninvoke q 0\nack p 0 @0\nack q 0 @0"),
    "again": (Rule.POSITION_BACK, "invoke p 0\nposition c 0\nread c 0 p 0\nread c 0 p 0"),
    "before where it began": (Rule.POSITION_BACK, "invoke p 0\nposition c 3\nread c 2 p 0"),
    "an end that went back": (Rule.POSITION_BACK, "invoke p 0\nposition c 0\nread c 0 p 0\nend c 0"),
    "high watermark": (Rule.HIGH_WATERMARK_BACK, "high a 9\nhigh a 8"),
    "commit forgotten": (Rule.COMMITTED_BACK, "commit_invoked 5\ncommit_acknowledged 5\ntold r none"),
    "commit taken back": (
        Rule.COMMITTED_BACK,
        "commit_invoked 4\ncommit_invoked 5\ncommit_acknowledged 5\nask r\ntold r 4",
    ),
    "commit invented": (Rule.COMMITTED_BY_NOBODY, "commit_invoked 5\ntold r 6"),
    "two owners": (Rule.TWO_OWNERS, "assign 1 a\nassign 1 b"),
}

CONTRADICTIONS = {
    "invoked twice": "invoke p 0\ninvoke p 0",
    "acknowledged out of nowhere": "invoke p 0\nack p 1 @0",
    "two fates": "invoke p 0\nack p 0 @0\nunknown p 0",
    "an end without a beginning": "end c 0",
    "a commit that nobody tried": "commit_acknowledged 4",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_honest_history_is_accepted(name: str) -> None:
    assert check(history(ACCEPTED[name])) == []


@pytest.mark.parametrize("name", REJECTED)
def test_broken_promise_is_named_where_it_shows(name: str) -> None:
    rule, text = REJECTED[name]
    events = history(text)
    found = check(events)
    assert rule in {violation.rule for violation in found}
    assert {violation.line for violation in found} == {len(events)}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_history_that_contradicts_itself_is_refused_with_its_line(name: str) -> None:
    events = history(CONTRADICTIONS[name])
    with pytest.raises(HistoryError) as caught:
        check(events)
    assert caught.value.line == len(events)


def test_every_rule_has_a_history_that_breaks_it() -> None:
    broken = [*REJECTED.values(), *REJECTED_TRANSACTIONS.values()]
    assert {rule for rule, *_ in broken} == set(Rule)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"type":"acked"}',
        b'{"type":"invoked","producer":"p","partition":"t-0"}',
        b'{"type":"invoked","producer":"p","partition":"t-0","sequence":-1}',
        b'{"type":"invoked","producer":"p","partition":"t-0","sequence":0,"ofset":1}',
        b'{"type":"invoked","producer":"p","partition":"t-0","sequence":0,"digest":"zz"}',
        b'{"type":"high_watermark","observer":"p","partition":"t-0","offset":99999999999999999999}',
        b"\xff\xfe",
    ],
)
def test_line_that_is_no_event_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(HistoryError, match="line 7: "):
        decode(line, 7)


def test_events_come_back_as_they_were_written() -> None:
    for text in ACCEPTED.values():
        events = history(text)
        assert [decode(encode(event), 1) for event in events] == events
