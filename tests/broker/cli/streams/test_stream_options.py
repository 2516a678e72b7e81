"""`produce` and `consume` with the options of kcat and rpk, against brokers in this process."""

import contextlib
import json
from collections.abc import Callable

import pytest
from broker.wire_client import Wire, garbage

from barnabas_broker.cli.commands import produce
from barnabas_broker.testing import RunningCluster
from barnabas_raftlog.records.builder import NewRecord, build_batch

pytestmark = pytest.mark.slow

Typed = Callable[..., str]


@pytest.fixture
def name(run: Typed, request: pytest.FixtureRequest) -> str:
    """Return the name of a new topic of two partitions."""
    name: str = request.node.originalname.removeprefix("test_")[:60]
    run("topic", "create", name, "--partitions", 2)
    return name


def test_what_consume_writes_by_a_format_produce_reads(run: Typed, name: str) -> None:
    run("produce", name, "-f", "%k %v\\n", "-p", 0, typed=b"a 1\nb 2\nlast 3")
    assert (
        run("consume", name, "-o", ":end", "-f", "%p/%o %k=%s (%S)\\n") == "0/0 a=1 (1)\n0/1 b=2 (1)\n0/2 last=3 (1)\n"
    )
    sized = "%d %K %V %k%v"
    copied = run("consume", name, "-o", ":end", "-f", sized)
    run("produce", name, "-f", sized, "-p", 1, typed=copied.encode())
    both = ("-f", "%d %k %v\\n", "-e", "-o", "start")
    assert run("consume", name, "-p", 1, *both) == run("consume", name, "-p", 0, *both)


def test_a_format_may_name_partitions(run: Typed, name: str) -> None:
    run("produce", name, "-f", "%p %v\\n", "--keep-partitions", typed=b"1 a\n0 b\n1 c\n")
    assert run("consume", name, "-p", 1, "-o", ":end") == "a\nc\n"


def test_records_before_one_that_does_not_fit_are_delivered(run: Typed, name: str) -> None:
    said = run("produce", name, "-f", "%d %v\\n", "-p", 0, typed=b"1 a\n2 b\nx c\n", status=1)
    assert said == "barnabas: record 3: %d must be a number, not 'x'\n"
    assert run("consume", name, "-o", ":end") == "a\nb\n"


def test_receipts_tell_where_each_record_is(run: Typed, name: str) -> None:
    assert run("produce", name, "-p", 1, typed=b"a\n") == ""
    assert run("produce", name, "-p", 1, "--receipts", typed=b"a\nb\n") == (
        f"{name} partition 1 offset 1\n{name} partition 1 offset 2\n"
    )
    lines = run("produce", name, "-p", 0, "--json", "--format", "json", typed=b'{"value":"a","timestamp_ms":7}\n')
    assert [json.loads(line) for line in lines.splitlines()] == [
        {"topic": name, "partition": 0, "offset": 0, "timestamp_ms": 7}
    ]
    assert "offset unknown" in run("produce", name, "-p", 1, "--acks", 0, "--receipts", typed=b"a\n")


def test_receipts_of_what_came_before_a_bad_line_are_printed(run: Typed, name: str) -> None:
    said = run("produce", name, "-p", 0, "-f", "json", "--receipts", typed=b'{"value":"a"}\nx\n', status=1)
    assert said.startswith(f"{name} partition 0 offset 0\nbarnabas: line 2: ")


def test_keys_and_tombstones(run: Typed, name: str) -> None:
    run("produce", name, "-p", 0, "-k", "fixed", "-Z", "-H", "h=1", typed=b"v\n\n")
    run("produce", name, "-p", 0, "-k", "fixed", "-K", ":", typed=b"own:\n")
    rows = [json.loads(line) for line in run("consume", name, "-o", ":end", "--json").splitlines()]
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        ("fixed", "v", [["h", "1"]]),
        ("fixed", None, [["h", "1"]]),
        ("own", "", []),
    ]
    assert run("consume", name, "-o", ":end", "-f", "%k %V %h\\n") == "fixed 1 h=1\nfixed -1 h=1\nown 0 \n"


def test_topics_are_read_by_a_pattern(run: Typed, name: str) -> None:
    run("topic", "create", f"{name}-b")
    run("produce", name, typed=b"a\n")
    run("produce", f"{name}-b", typed=b"b\n")
    assert sorted(run("consume", "-r", f"^{name}", "-o", ":end").split()) == ["a", "b"]
    assert run("consume", "-r", f"(?i){name.upper()}-.$", "nothing-else", "-o", ":end").split() == ["b"]
    assert sorted(run("consume", "-r", name, "-g", name, "-o", "start", "-e").split()) == ["a", "b"]
    assert run("consume", "-r", name, "-g", name, "-o", "start", "--idle-exit", "100ms") == ""


def test_a_group_takes_the_words_start_and_end(run: Typed, name: str) -> None:
    run("produce", name, "-p", 0, typed=b"a\n")
    assert run("consume", name, "-g", f"{name}-1", "-o", "start", "-n", 1) == "a\n"
    assert run("consume", name, "-g", f"{name}-2", "-o", "end", "--idle-exit", "0.1") == ""


def test_a_group_of_kip_848_is_read_and_goes_on_where_it_stands(run: Typed, name: str) -> None:
    run("produce", name, "-p", 0, typed=b"a\nb\n")
    read = ("consume", name, "-g", name, "-o", "start", "-e")
    assert run(*read, "--group-protocol", "consumer") == "a\nb\n"
    assert name in run("group", "list", "--type", "consumer", "--names-only").split()
    run("produce", name, "-p", 0, typed=b"c\n")
    assert run(*read, "--group-protocol", "consumer") == "c\n", "what was written was committed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--group-protocol", "consumer"), "--group-protocol needs a --group"),
        (("-g", "g", "--group-protocol", "consumers"), "(did you mean 'consumer'?); write classic or consumer"),
    ],
)
def test_a_group_protocol_that_makes_no_sense_is_refused(run: Typed, words: tuple[str, ...], said: str) -> None:
    assert said in run("consume", "t", *words, status=2)


def test_a_range_that_ends_behind_the_last_record_waits_for_the_rest(run: Typed, name: str) -> None:
    run("produce", name, "-p", 0, typed=b"a\nb\n")
    assert run("consume", name, "-p", 0, "-o", "1:5", "--idle-exit", "100ms") == "b\n"
    assert run("consume", name, "-p", 0, "-o", "0:1") == "a\n"
    assert run("consume", name, "-p", 0, "-o", "1:1") == ""


def test_a_partition_or_topic_that_is_not_there_is_named_with_what_there_is(run: Typed, name: str) -> None:
    said = run("consume", name, "-p", 5, status=1)
    assert said == f"barnabas: topic {name!r} has no partition 5; it has 2, from 0 on\n"
    said = run("consume", f"{name[:-1]}", status=1)
    assert said == f"barnabas: there is no topic {name[:-1]!r} (did you mean {name!r}?) [UNKNOWN_TOPIC_OR_PARTITION]\n"


def test_records_before_a_corrupt_one_are_printed_and_the_way_past_it_is_told(
    run: Typed, name: str, in_process: RunningCluster
) -> None:
    name += "-t"
    run("topic", "create", name, "-c", "record.validation=none")
    host, port = in_process.bootstrap.split(":")
    with contextlib.closing(Wire(host, int(port))) as wire:
        for value in (b"good", None, b"more"):
            frame = garbage(4) if value is None else build_batch([NewRecord(None, value, 1_000)])
            assert wire.produce(name, bytes(frame)).error_code == 0
    said = run("consume", name, "-o", ":end", status=1)
    assert said.startswith(f"good\nbarnabas: {name}-0 at offset 1: ")
    assert "(--partition 0 --offset 5 goes past it, --skip-corrupt goes past all such)" in said
    assert "(--skip-corrupt goes past all such)" in run("consume", name, "-g", name, "-o", "start", status=1)
    assert run("consume", name, "-p", 0, "-o", 5, "-e") == "more\n"
    assert run("consume", name, "-o", ":end", "--skip-corrupt").startswith("good\nmore\n")


def test_producing_to_a_topic_that_the_brokers_do_not_make_names_the_near_one(
    run: Typed, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "CREATED_WITHIN_S", 0.5)
    said = run("produce", name[:-1], typed=b"a\n", status=1)
    assert said == f"barnabas: there is no topic {name[:-1]!r} (did you mean {name!r}?) [UNKNOWN_TOPIC_OR_PARTITION]\n"
