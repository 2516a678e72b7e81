"""The figures of the torture: times by phase, frequency of faults, and the 99th percentile."""

import random
from collections import Counter
from datetime import datetime
from pathlib import Path

from trials import faults as torture_faults
from trials.times import LogReader, Pause, Phases, medians, percentile, phases_of

STRUCK = datetime(2026, 3, 1, 12, 0, 0)  # noqa: DTZ001 - brokers log local time
LINES = """\
2026-03-01 11:59:59,900 INFO barnabas_broker.status.events: torture-1: leader elected: votes of [1, 2] (term 1)
2026-03-01 12:00:00,950 INFO barnabas_broker.status.events: links: peer silent: node 3: no fresh datagram
2026-03-01 12:00:01,000 INFO barnabas_broker.status.events: torture-1: leader lost: node 3 fell silent (term 1)
2026-03-01 12:00:01,050 INFO barnabas_broker.status.events: torture-2: leader elected: votes of [1, 2] (term 4)
2026-03-01 12:00:01,100 INFO barnabas_broker.status.events: torture-1: campaign: no leader known (term 1)
2026-03-01 12:00:01,200 INFO barnabas_broker.status.events: torture-1: leader elected: votes of [1, 2] (term 2)
2026-03-01 12:00:01,300 INFO barnabas_broker.status.events: torture-1: leadership confirmed: entry 9 committed (term 2)
2026-03-01 12:00:05,000 INFO barnabas_broker.status.events: torture-1: leadership confirmed: entry 9 committed (term 2)
Traceback (most recent call last):
"""


def phases(partition: str, seconds: float) -> Phases | None:
    return phases_of(LINES.splitlines(), partition, STRUCK.timestamp(), seconds)


def test_the_way_to_an_acknowledgement_leads_through_the_election_before_it() -> None:
    found = phases("torture-1", 1.5)
    assert found is not None
    assert [round(seconds, 3) for seconds in found] == [1.0, 1.2, 1.3, 1.5]
    assert str(found) == "missed 1.00, elected 1.20, confirmed 1.30, acknowledged 1.50"


def test_a_partition_without_an_election_has_no_way() -> None:
    assert phases("torture-0", 1.5) is None
    assert phases("torture-1", 0.9) is None


def test_medians_are_of_the_rounds_that_had_an_election() -> None:
    pauses = [Pause("t-0", 9.0, None), *(Pause("t-1", at, Phases(at, at, at, at)) for at in (1.0, 2.0, 6.0))]
    assert medians(pauses) == Phases(2.0, 2.0, 2.0, 2.0)
    assert medians(pauses[:1]) is None


def test_a_log_reader_gives_what_was_added_since(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text("before\n")
    reader = LogReader([log])
    reader.skip()
    with log.open("a") as file:
        file.write("after\n")
    assert reader.lines() == ["after\n"]


def test_a_hundred_rounds_have_every_fault_and_many_under_each_promise() -> None:
    dealt = torture_faults.deck(random.Random(1), list(torture_faults.FAULTS), 100)
    assert len(dealt) == 100
    counts = Counter(fault.name for fault in dealt)
    assert counts.keys() == torture_faults.BY_NAME.keys()
    under = Counter(fault.promise for fault in dealt)
    assert all(under[promise] >= 25 for promise in torture_faults.PROMISES)


def test_a_percentile_is_a_value_that_so_many_do_not_exceed() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([float(i) for i in range(1, 201)], 0.99) == 198.0
    assert percentile([5.0], 0.5) == 5.0
