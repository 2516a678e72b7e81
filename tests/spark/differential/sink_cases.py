"""What is written through both sinks: columns of every kind, options, and what must be refused.

In columns and options, `FIRST` and `SECOND` stand for topics of the case, and `MADE` for one that is not there yet.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["CASES_OF", "FIRST", "MADE", "PARTITIONS", "SECOND", "SinkCase", "all_cases"]

FIRST, SECOND, MADE = "FIRST", "SECOND", "MADE"
PARTITIONS = 3
KEY = "cast(id as string) as key"
VALUE = "concat('value ', id) as value"
TO_FIRST = {"topic": FIRST}
HEADER = "named_struct('key', {}, 'value', {})"


class SinkCase(NamedTuple):
    """A frame of `rows` rows with columns over `id`, and options. Without words and a difference, both write the same.

    `is_spread`: no key and no column decides about partitions, so each sink chooses by itself.
    """

    name: str
    columns: Sequence[str] = (KEY, VALUE)
    options: Mapping[str, str] = TO_FIRST
    kafkas_words: str = ""
    our_words: str = ""
    difference: str = ""
    mode: str = "append"
    rows: int = 12
    is_spread: bool = False


def all_cases() -> list[SinkCase]:
    return [case for cases in CASES_OF.values() for case in cases()]


def headers(*pairs: tuple[str, str]) -> str:
    return "array(" + ", ".join(HEADER.format(*pair) for pair in pairs) + ") as headers"


def of_columns() -> Iterator[SinkCase]:
    yield SinkCase("text")
    yield SinkCase(
        "text beyond ASCII", ("concat('schlüssel ', id) as key", "concat('grün ', id, ' \U0001f680') as value")
    )
    yield SinkCase(
        "bytes", ("unhex(lpad(hex(id), 8, '0')) as key", "encode(repeat('v', cast(id as int)), 'utf-8') as value")
    )
    yield SinkCase("a key of text and a value of bytes", (KEY, "X'00FF' as value"))
    yield SinkCase("no key", (VALUE,), is_spread=True)
    yield SinkCase("null keys", ("cast(null as string) as key", VALUE), is_spread=True)
    yield SinkCase("some null keys", ("if(id % 2 = 0, null, string(id)) as key", VALUE), is_spread=True)
    yield SinkCase("null values", (KEY, "if(id % 3 = 0, null, 'v') as value"))
    yield SinkCase(
        "neither key nor value", ("cast(null as binary) as key", "cast(null as binary) as value"), is_spread=True
    )
    yield SinkCase("empty keys and values", ("'' as key", "X'' as value"))
    yield SinkCase("columns in another order", (VALUE, "cast(id % 3 as int) as partition", "'FIRST' as topic", KEY), {})
    yield SinkCase("other columns", ("id", KEY, "array(id) as offset", VALUE, "now() as timestamp"))
    yield SinkCase("a column twice", ("'1' as value", KEY, "'2' as value", "'k' as key"), difference="a column twice")
    yield SinkCase("names in capitals beside it", (KEY, VALUE, "'x' as Value", "'x' as KEY"))
    yield SinkCase(
        "a value in capitals", (KEY, "'x' as VALUE"), TO_FIRST, "attribute 'value' not found", "'value' not found"
    )
    yield SinkCase("no value", (KEY,), TO_FIRST, "attribute 'value' not found", "attribute 'value' not found")
    for name, column in {
        "a key of a number": "id as key",
        "a key of no type": "null as key",
        "a key of a struct": "struct(id) as key",
        "a value of a number": "1.5 as value",
        "a value of no type": "null as value",
        "a value of an array": "array('v') as value",
        "headers of text": "'h' as headers",
        "headers with text as values": headers(("'a'", "'b'")),
        "headers with bytes as names": headers(("X'00'", "X'00'")),
        "headers with other fields": "array(struct('a' as name, X'00' as value)) as headers",
        "headers in a map": "map('a', X'00') as headers",
        "a partition of text": "'1' as partition",
        "a partition of a long": "id as partition",
        "a partition of a short": "1S as partition",
    }.items():
        what = column.rpartition(" ")[2]
        columns = [VALUE, column] if what != "value" else [column]
        yield SinkCase(
            name, columns, TO_FIRST, f"{what} attribute unsupported type", f"{what} attribute unsupported type"
        )


def of_headers() -> Iterator[SinkCase]:
    yield SinkCase("headers", (KEY, VALUE, headers(("'a'", "X'01'"), ("'b'", "encode(string(id), 'utf-8')"))))
    yield SinkCase(
        "a header twice, in its order", (KEY, VALUE, headers(("'a'", "X'02'"), ("'b'", "X''"), ("'a'", "X'01'")))
    )
    yield SinkCase("headers without a value", (KEY, VALUE, headers(("'a'", "cast(null as binary)"), ("'b'", "X''"))))
    yield SinkCase(
        "headers beyond ASCII, and without letters", (KEY, VALUE, headers(("'ü'", "X'FF'"), ("''", "X'00'")))
    )
    some = "if(id % 2 = 0, null, array(named_struct('key', 'a', 'value', X'01'))) as headers"
    yield SinkCase("some rows with headers", (KEY, VALUE, some))
    yield SinkCase(
        "no headers in an array", (KEY, VALUE, "cast(array() as array<struct<key:string,value:binary>>) as headers")
    )
    for told in ("true", "false"):
        yield SinkCase(f"includeHeaders={told}", (KEY, VALUE, some), {**TO_FIRST, "includeHeaders": told})
    yield SinkCase("includeHeaders without headers", options={**TO_FIRST, "includeHeaders": "true"})
    for name, column in {
        "a header without a name": headers(("if(id = 5, null, 'a')", "X'01'")),
        "a header that is null": "array(if(id = 5, null, named_struct('key', 'a', 'value', X'01'))) as headers",
    }.items():
        yield SinkCase(
            name, (KEY, VALUE, column), TO_FIRST, "NullPointerException", "row 5 of the task: a header without"
        )


def of_destinations() -> Iterator[SinkCase]:
    either = "if(id % 2 = 0, 'FIRST', 'SECOND') as topic"
    yield SinkCase("topics of a column", (KEY, VALUE, either), {})
    yield SinkCase("the option beats the column", (KEY, VALUE, either))
    yield SinkCase("the option beats a column of nulls", (KEY, VALUE, "cast(null as string) as topic"))
    yield SinkCase("the option beats a column of numbers", (KEY, VALUE, "id as topic"))
    yield SinkCase("the option with spaces", options={"topic": " FIRST "})
    yield SinkCase("TOPIC as an option", options={"TOPIC": FIRST})
    yield SinkCase("a topic that is made at its first use", options={"topic": MADE})
    no_topic = "topic option required when no 'topic' attribute is present"
    yield SinkCase("no topic", (KEY, VALUE), {}, no_topic, no_topic)
    yield SinkCase("a topic in capitals", (KEY, VALUE, "'FIRST' as Topic"), {}, no_topic, no_topic)
    for name, column in {"a number": "id as topic", "bytes": "X'00' as topic", "no type": "null as topic"}.items():
        words = "topic attribute unsupported type"
        yield SinkCase(f"a topic of {name}", (KEY, VALUE, column), {}, words, words)
    null = "if(id = 3, null, 'FIRST') as topic"
    yield SinkCase(
        "a topic that is null",
        (KEY, VALUE, null),
        {},
        "contains a null topic",
        "row 3 of the task: it has a null topic",
    )
    by_column = "cast(id % 3 as int) as partition"
    yield SinkCase("partitions of a column", (KEY, VALUE, by_column))
    yield SinkCase("partitions of a column, no key", (VALUE, by_column))
    yield SinkCase("some partitions of a column", (KEY, VALUE, "cast(if(id % 2 = 0, 2, null) as int) as partition"))
    yield SinkCase("no partition in the column", (KEY, VALUE, "cast(null as int) as partition"))
    negative = "Partition number should always be non-negative or null"
    for number in (-1, -7):
        column = f"if(id = 2, {number}, 0) as partition"
        yield SinkCase(
            f"partition {number}", (KEY, VALUE, column), TO_FIRST, f"{number}. {negative}", f"{number}. {negative}"
        )
    yield SinkCase(
        "a partition that is not there",
        (KEY, VALUE, "if(id = 4, 3, 0) as partition"),
        # Spark's sink waits so long for it.
        {**TO_FIRST, "kafka.max.block.ms": "1500"},
        "is not present in metadata",
        "row 4 of the task: FIRST has no partition 3",
    )


def of_empty_frames() -> Iterator[SinkCase]:
    yield SinkCase("no rows", rows=0)
    yield SinkCase("no rows, a column of topics", (KEY, VALUE, "'FIRST' as topic"), {}, rows=0)
    yield SinkCase("no rows for a topic that cannot be", options={"topic": "a/b"}, rows=0)
    yield SinkCase(
        "no rows, and no value", (KEY,), TO_FIRST, "attribute 'value' not found", "attribute 'value' not found", rows=0
    )
    yield SinkCase(
        "no rows of no type",
        ("id as value",),
        TO_FIRST,
        "value attribute unsupported",
        "value attribute unsupported",
        rows=0,
    )
    yield SinkCase("no rows and no topic", (VALUE,), {}, "topic option required", "topic option required", rows=0)


def of_options() -> Iterator[SinkCase]:
    for name, options in {
        "acks of the leader": {"kafka.acks": "1"},
        "acks of all": {"kafka.acks": "-1"},
        "no idempotence": {"kafka.enable.idempotence": "false"},
        "settings of the Java client": {
            "kafka.linger.ms": "5",
            "kafka.client.id": "somebody",
            "kafka.batch.size": "100",
            "kafka.retries": "7",
            "kafka.send.buffer.bytes": "65536",
            "kafka.security.protocol": "PLAINTEXT",
        },
        **{f"{codec}": {"kafka.compression.type": codec} for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    }.items():
        yield SinkCase(name, options={**TO_FIRST, **options})
    yield SinkCase("keys ignored", options={**TO_FIRST, "kafka.partitioner.ignore.keys": "true"}, is_spread=True)
    for option, value, kafkas, ours in (
        ("kafka.bootstrap.servers", "left out", "bootstrap.servers is not set", "kafka.bootstrap.servers: is required"),
        ("kafka.bootstrap.servers", "localhost:0x", "Failed to construct", "is not a valid address"),
        ("kafka.key.serializer", "x", "key.serializer' is not supported", "key.serializer: may not"),
        ("kafka.value.serializer", "x", "value.serializer' is not supported", "value.serializer: may not"),
        ("kafka.acks", "2", "configuration acks", "kafka.acks: '2'"),
        ("kafka.compression.type", "zip", "configuration compression.type", "kafka.compression.type: 'zip'"),
        ("kafka.max.request.size", "300", "larger than 300", "row 0 of the task: a record of"),
        ("kafka.interceptor.classes", "x", "Failed to construct", "kafka.interceptor.classes: may not be set"),
    ):
        columns = (KEY, "repeat('v', 400) as value")
        yield SinkCase(f"{option}={value}", columns, {**TO_FIRST, option: value}, kafkas, ours)
    yield SinkCase("a misspelt option", options={**TO_FIRST, "includeHeader": "true"}, difference="an unknown option")
    yield SinkCase(
        "a setting that nobody knows", options={**TO_FIRST, "kafka.nonsense": "1"}, difference="an unknown option"
    )
    yield SinkCase(
        "an option for reading", options={**TO_FIRST, "subscribe": FIRST}, difference="an option for reading"
    )
    six = {"kafka.max.in.flight.requests.per.connection": "6"}
    yield SinkCase("six requests in flight", options=TO_FIRST | six, difference="six requests in flight")
    yield SinkCase("six, told", options=TO_FIRST | six | {"kafka.enable.idempotence": "false"})


def of_modes() -> Iterator[SinkCase]:
    yield SinkCase("errorifexists", mode="errorifexists", difference="the save mode if none is given")
    for mode, words in {"overwrite": "cannot be overwritten", "ignore": "UNSUPPORTED_DATA_SOURCE_SAVE_MODE"}.items():
        yield SinkCase(mode, mode=mode, kafkas_words="not allowed for Kafka", our_words=words)


CASES_OF = {
    "columns": of_columns,
    "headers": of_headers,
    "destinations": of_destinations,
    "empty frames": of_empty_frames,
    "options": of_options,
    "modes": of_modes,
}
