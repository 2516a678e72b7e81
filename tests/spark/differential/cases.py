"""The matrix of options: each alone, in every form, and what must be refused.

A case is options, and what comes of them: the same rows from both sources; an error from both, with the words by which
each gives the same reason; or a difference, by its name in the table of docs/spark/from-kafka.md.
"""

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .topics import MAIN_PARTITIONS, Topics

__all__ = ["CASES_OF", "Case", "all_cases"]

PASSED_ON = {
    "kafka.client.id": "somebody",
    "kafka.check.crcs": "false",
    "kafka.fetch.min.bytes": "1",
    "kafka.fetch.max.bytes": "1000000",
    "kafka.max.partition.fetch.bytes": "20000",
    "kafka.max.poll.records": "7",
    "kafka.receive.buffer.bytes": "65536",
    "kafka.metadata.max.age.ms": "60000",
    "kafka.request.timeout.ms": "20000",
    "kafka.retry.backoff.ms": "50",
    "kafka.security.protocol": "PLAINTEXT",
    "kafka.isolation.level": "read_uncommitted",
}


class Case(NamedTuple):
    """One set of options. Without words and without a difference, the rows are the same."""

    name: str
    options: Mapping[str, str]
    kafkas_words: str = ""
    our_words: str = ""
    difference: str = ""
    only_ours: Mapping[str, str] = {}  # beside `options`, which may not change the rows


def offsets(topic: str, *values: float) -> str:
    return json.dumps({topic: dict(enumerate(values))})


def all_cases(topics: Topics) -> Iterator[Case]:
    for cases in CASES_OF.values():
        yield from cases(topics)


def of_topics(topics: Topics) -> Iterator[Case]:
    main, second = topics.main, topics.second
    yield Case("one topic", {"subscribe": main})
    yield Case("topics twice, with spaces", {"subscribe": f"{main}, {second},,{main}"})
    yield Case("an empty topic", {"subscribe": topics.empty})
    yield Case("no name of a topic", {"subscribe": " , "}, "No topics to subscribe to", "names no topic")
    yield Case(
        "a topic that is not there", {"subscribe": "nobody-made-it"}, "UnknownTopicOrPartition", "UNKNOWN_TOPIC_OR_PART"
    )
    yield Case("assigned", {"assign": json.dumps({main: [0, 2], second: [1]})})
    yield Case("assigned twice", {"assign": json.dumps({main: [1, 1]})})
    yield Case("assigned is no JSON", {"assign": "x"}, "No topicpartitions to assign", "assign: 'x' is not JSON")
    yield Case("nothing assigned", {"assign": "{}"}, difference="`assign` that names no partition")
    yield Case("no partitions assigned", {"assign": f'{{"{main}":[]}}'}, difference="`assign` that names no partition")
    yield Case(
        "a partition that is not there",
        {"assign": json.dumps({main: [0, 9]})},
        difference="`assign` with a partition that does not exist",
    )
    yield Case("a pattern", {"subscribePattern": f"{topics.prefix}.(main|sec.*)"})
    yield Case("a part of names", {"subscribePattern": f"{topics.prefix[3:]}.mai"})
    yield Case("a pattern's anchors", {"subscribePattern": f"^{topics.prefix}[.]main$"})
    yield Case("a pattern for nothing", {"subscribePattern": f"{topics.prefix}.nothing"})
    yield Case("internal topics", {"subscribePattern": f"__consumer_offsets|{second}"})
    yield Case("a blank pattern", {"subscribePattern": " "}, "Pattern to subscribe is empty", "is empty")
    yield Case("half a pattern", {"subscribePattern": "("}, "Unclosed group", "not a valid regular expression")
    yield Case("nothing chosen", {}, "must be specified", "none is given")
    yield Case(
        "chosen twice", {"subscribe": main, "assign": offsets(main)}, "Only one of the following", "exactly one of"
    )


def of_starts(topics: Topics) -> Iterator[Case]:
    main = topics.main
    for name, value in {
        "earliest": "earliest",
        "in capitals": " EARLIEST ",
        "by partition": offsets(main, 10, -2, 199),
        "at the end": offsets(main, 10, 200, 0),
    }.items():
        yield Case(f"start: {name}", {"subscribe": main, "startingOffsets": value})
    for name, value, kafkas, ours in (
        ("latest", "latest", "can't be latest", "latest would be an empty range"),
        ("latest somewhere", offsets(main, 0, -1, 0), "can't be latest", "-1 (latest) of"),
        ("a word", "soon", "got soon", "'soon' is not JSON"),
        ("no word", "", "Expected e.g.", "'' is not JSON"),
        ("a text", f'{{"{main}":{{"0":"1","1":1,"2":1}}}}', "Expected e.g.", "'1' of"),
        ("below earliest", offsets(main, 0, -3, 0), "-3 does not equal -2", "-3 of"),
        ("one of three", offsets(main, 1), "don't match what are assigned", "must name every partition"),
        ("four of three", offsets(main, 1, 1, 1, 1), "don't match what are assigned", "that are not read"),
        ("beyond the end", offsets(main, 0, 500, 0), "start offset 500 is greater", "500 are not there"),
    ):
        yield Case(f"start: {name}", {"subscribe": main, "startingOffsets": value}, kafkas, ours)
    yield Case(
        "start: a fraction",
        {"subscribe": main, "startingOffsets": offsets(main, 1.5, 0, 0)},
        difference="an offset that is not a whole number",
    )
    yield Case(
        "start: beyond the end, data loss allowed",
        {"subscribe": main, "startingOffsets": offsets(main, 0, 500, 0), "failOnDataLoss": "false"},
        difference="a start beyond the end of the log, with `failOnDataLoss=false`",
    )


def of_ends(topics: Topics) -> Iterator[Case]:
    main = topics.main
    for name, value in {
        "latest": "latest",
        "by partition": offsets(main, 10, -1, 1),
        "at the start": offsets(main, 0, 0, 0),
    }.items():
        yield Case(f"end: {name}", {"subscribe": main, "endingOffsets": value})
    for name, value, kafkas, ours in (
        ("earliest", "earliest", "can't be earliest", "earliest would be an empty range"),
        ("earliest somewhere", offsets(main, 10, -2, 1), "can't be earliest", "-2 (earliest) of"),
        ("one of three", offsets(main, 1), "don't match what are assigned", "must name every partition"),
        ("beyond the end", offsets(main, 10, 500, 1), "out of range", "200 to 500 are not there"),
    ):
        yield Case(f"end: {name}", {"subscribe": main, "endingOffsets": value, **SOON}, kafkas, ours)
    yield Case(
        "end: beyond the end, data loss allowed",
        {"subscribe": main, "endingOffsets": offsets(main, 10, 500, 1), "failOnDataLoss": "false", **SOON},
    )
    both = {"subscribe": main, "startingOffsets": offsets(main, 10, 10, 10)}
    yield Case("empty and not", both | {"endingOffsets": offsets(main, 10, 20, 20)})
    for strict in ("true", "false"):
        yield Case(
            f"backwards, failOnDataLoss={strict}",
            both | {"endingOffsets": offsets(main, 5, 20, 20), "failOnDataLoss": strict},
            "start offset 10 is greater than the end offset 5",
            "would be read from 10 (startingOffsets) to 5",
        )


# What is not there makes Spark's source wait: it never comes.
SOON = {"kafkaConsumer.pollTimeoutMs": "1000"}


def of_times(topics: Topics) -> Iterator[Case]:
    main, base = topics.main, topics.base_ms
    late = base + 10_000_000

    def at(*after_ms: int) -> str:
        return offsets(main, *(base + one for one in after_ms))

    latest = {"startingOffsetsByTimestampStrategy": "LATEST"}
    for name, options in {
        "from a time": {"startingTimestamp": str(base + 90)},
        "from 1970": {"startingTimestamp": "0"},
        "from a late time, read nothing": {"startingTimestamp": str(late)} | latest,
        "from a time that is late for some": {"startingTimestamp": str(base + 598)} | latest,
        "to a time": {"endingTimestamp": str(base + 90)},
        "to a late time": {"endingTimestamp": str(late)},
        "to 1970": {"endingTimestamp": "0"},
        "between": {"startingTimestamp": str(base + 90), "endingTimestamp": str(base + 120)},
        "between the same": {"startingTimestamp": str(base + 90), "endingTimestamp": str(base + 90)},
        "from times": {"startingOffsetsByTimestamp": at(5, 100, 500)},
        "from times, one late": {"startingOffsetsByTimestamp": at(5, 100, 5000)} | latest,
        "to times": {"endingOffsetsByTimestamp": at(5, 100, 500)},
        "to times, one late": {"endingOffsetsByTimestamp": at(5, 100, 5000)},
        "between times": {
            "startingOffsetsByTimestamp": at(5, 100, 50),
            "endingOffsetsByTimestamp": at(50, 200, 500),
        },
        "a time beats times beats offsets": {
            "startingTimestamp": str(base + 90),
            "startingOffsetsByTimestamp": at(5, 1, 1),
            "startingOffsets": "latest",
        },
        "times beat offsets": {
            "startingOffsetsByTimestamp": at(5, 100, 500),
            "startingOffsets": "nonsense",
            "endingOffsetsByTimestamp": at(500, 500, 501),
            "endingOffsets": offsets(main, 1, 1, 1),
        },
        "the strategy alone": latest,
    }.items():
        yield Case(name, {"subscribe": main} | options)
    yield Case("an empty topic's end", {"subscribe": topics.empty, "endingTimestamp": str(base)})
    yield Case("an empty topic's start", {"subscribe": topics.empty, "startingTimestamp": str(base)} | latest)
    yield from of_impossible_times(topics)


def of_impossible_times(topics: Topics) -> Iterator[Case]:
    main, base = topics.main, topics.base_ms
    no_match = ("No offset matched", "has no record that late")
    for name, options, kafkas, ours in (
        ("too late", {"startingTimestamp": str(base + 10_000_000)}, *no_match),
        ("too late for one", {"startingOffsetsByTimestamp": offsets(main, base, base, base + 5000)}, *no_match),
        ("too late, told", {"startingTimestamp": str(base + 598), STRATEGY: "Error"}, *no_match),
        ("an unknown strategy", {STRATEGY: "x"}, "No value found for 'X'", "neither error nor latest"),
        ("a time in words", {"startingTimestamp": "x"}, "Expected a single long", "not an integer"),
        ("an end in words", {"endingTimestamp": "x"}, "Expected a single long", "not an integer"),
        ("no JSON of times", {"startingOffsetsByTimestamp": "{"}, "Expected e.g.", "is not JSON"),
        ("no JSON of ends", {"endingOffsetsByTimestamp": "{"}, "Expected e.g.", "is not JSON"),
        (
            "backwards in time",
            {"startingTimestamp": str(base + 120), "endingTimestamp": str(base + 90)},
            "start offset 40 is greater than the resolved end offset 30",
            "would be read from 40 (startingTimestamp) to 30",
        ),
        (
            "a time for one of three",
            {"startingOffsetsByTimestamp": offsets(main, base)},
            "don't match what are assigned",
            "must name every partition",
        ),
        (
            "an end for one of three",
            {"endingOffsetsByTimestamp": offsets(main, base)},
            "don't match what are assigned",
            "must name every partition",
        ),
    ):
        yield Case(name, {"subscribe": main} | options, kafkas, ours)
    yield Case("a time in an empty topic", {"subscribe": topics.empty, "startingTimestamp": str(base)}, *no_match)
    for option, value in (
        ("startingTimestamp", "-1"),
        ("endingTimestamp", "-5"),
        ("startingOffsetsByTimestamp", offsets(main, base, base, -1)),
    ):
        yield Case(f"{option} below 0", {"subscribe": main, option: value}, difference="a time before 1970")


STRATEGY = "startingOffsetsByTimestampStrategy"


def of_rows(topics: Topics) -> Iterator[Case]:
    main = topics.main
    for name, options in {
        "headers": {"includeHeaders": "true"},
        "no headers": {"includeHeaders": "FALSE"},
        "few tasks": {"minPartitions": "1"},
        "many tasks": {"minPartitions": "11"},
        "small tasks": {"maxRecordsPerPartition": "90"},
        "small and many tasks": {"maxRecordsPerPartition": "90", "minPartitions": "9", "includeHeaders": "true"},
        "settings of the Java client": PASSED_ON,
        "a prefix of groups": {"groupIdPrefix": "mine"},
        "a group": {"kafka.group.id": f"{topics.prefix}.group"},
        "patience": {
            "kafkaConsumer.pollTimeoutMs": "9000",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "2",
        },
        "options of streams": {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"},
        "names in capitals": {"INCLUDEHEADERS": "true", "ENDINGOFFSETS": offsets(main, 3, 4, 5)},
    }.items():
        yield Case(name, {"subscribe": main} | options)
    for option, value, kafkas, ours in (
        ("includeHeaders", "yes", 'For input string: "yes"', "neither true nor false"),
        ("failOnDataLoss", "1", 'For input string: "1"', "neither true nor false"),
        ("minPartitions", "0", "minPartitions must be positive", "minPartitions: '0'"),
        ("minPartitions", "x", 'For input string: "x"', "minPartitions: 'x'"),
        ("maxRecordsPerPartition", "0", "must be positive", "maxRecordsPerPartition: '0'"),
        ("maxRecordsPerPartition", "x", 'For input string: "x"', "maxRecordsPerPartition: 'x'"),
        ("kafkaConsumer.pollTimeoutMs", "x", 'For input string: "x"', "pollTimeoutMs: 'x'"),
        (
            "kafka.bootstrap.servers",
            "127.0.0.1:no",
            "Invalid url in bootstrap.servers",
            "'127.0.0.1:no' is not a valid address",
        ),
        ("kafka.fetch.max.wait.ms", "x", "fetch.max.wait.ms", "fetch.max.wait.ms"),
        ("kafka.security.protocol", "NONE", "security.protocol", "security.protocol"),
        ("kafka.isolation.level", "most", "isolation.level", "isolation.level"),
        ("kafka.auto.offset.reset", "latest", "auto.offset.reset' is not supported", "auto.offset.reset: may not"),
        ("kafka.key.deserializer", "x", "key.deserializer' is not supported", "key.deserializer: may not"),
        ("kafka.value.deserializer", "x", "value.deserializer' is not supported", "value.deserializer: may not"),
        ("kafka.enable.auto.commit", "true", "enable.auto.commit' is not supported", "enable.auto.commit: may not"),
        ("kafka.interceptor.classes", "x", "interceptor.classes' is not supported", "interceptor.classes: may not"),
    ):
        yield Case(f"{option}={value}", {"subscribe": main, option: value}, kafkas, ours)
    yield Case("a misspelt option", {"subscribe": main, "includeHeader": "true"}, difference="an unknown option")
    yield Case(
        "a setting that nobody knows", {"subscribe": main, "kafka.nonsense": "1"}, difference="an unknown option"
    )
    yield Case("read_committed", {"subscribe": main, "kafka.isolation.level": "read_committed"})


def of_loss(topics: Topics) -> Iterator[Case]:
    trimmed = topics.trimmed
    yield Case("what is left", {"subscribe": trimmed})
    yield Case("what is left, in parts", {"subscribe": trimmed, "minPartitions": "5"})
    before = {"startingOffsets": offsets(trimmed, 5, 0)}
    before_end = {"endingOffsets": offsets(trimmed, 5, 50)}
    all_before = before | {"endingOffsets": offsets(trimmed, 10, 10)}
    lost = ("out of range", "are gone, the log starts behind them")
    yield Case("from what is gone", {"subscribe": trimmed} | before, *lost)
    yield Case("all of it is gone", {"subscribe": trimmed} | all_before, *lost)
    for name, options in {"from": before, "all": all_before}.items():
        allowed = {"subscribe": trimmed, "failOnDataLoss": "false"} | options
        yield Case(f"{name} gone, data loss allowed", allowed)
        # In parts, Spark's source fails: "KafkaConsumer is not safe for multi-threaded access".
        yield Case(f"{name} gone, data loss allowed, in parts", allowed, only_ours={"minPartitions": "6"})
    for strict in ("true", "false"):
        yield Case(
            f"to what is gone, failOnDataLoss={strict}",
            {"subscribe": trimmed, "failOnDataLoss": strict} | before_end,
            "start offset 20 is greater than the resolved end offset 5",
            "would be read from 20 (startingOffsets) to 5",
        )


CASES_OF = {
    "topics": of_topics,
    "starts": of_starts,
    "ends": of_ends,
    "times": of_times,
    "rows": of_rows,
    "loss": of_loss,
}
assert MAIN_PARTITIONS == 3, "offsets(main, ...) names so many"
