"""JSON: `valueFormat=json` beside `from_json`, over our source and over Spark's."""

from collections.abc import Iterator

from bench.pipeline.lines import Line, at_least
from bench.pipeline.stage import IMPATIENT, OURS, PARTITIONS, THEIRS, THEIRS_IMPATIENT, Stage

__all__ = ["measure"]

SCHEMA = "order_id long, customer string, amount double, paid boolean, note string"
OURS_AND_FROM_JSON = "ours and from_json"
THEIRS_AND_FROM_JSON = "Spark's and from_json"


def measure(stage: Stage) -> Iterator[Line]:
    """Read five fields of seven of orders of 300 bytes."""
    rows = stage.sizes.rows
    with stage.topics.filled([1] * PARTITIONS, rows, kind="orders") as topic:
        value = stage.options(topic, columns="value")
        decoded = value | {"valueFormat": "json", "valueSchema": SCHEMA}
        plain = stage.options(topic)
        found = stage.timed(
            "json",
            {
                OURS: lambda: stage.spark.ask("read_json", source=OURS, options=decoded, schema=SCHEMA),
                OURS_AND_FROM_JSON: lambda: stage.spark.ask("read_json", source=OURS, options=value, schema=SCHEMA),
                THEIRS_AND_FROM_JSON: lambda: stage.spark.ask("read_json", source=THEIRS, options=plain, schema=SCHEMA),
                THEIRS_IMPATIENT: lambda: stage.spark.ask(
                    "read_json", source=THEIRS, options=plain | IMPATIENT, schema=SCHEMA
                ),
            },
        )
        limits = {OURS_AND_FROM_JSON: None, THEIRS_AND_FROM_JSON: at_least(2.0), THEIRS_IMPATIENT: None}
        for side, limit in limits.items():
            ours, theirs = found[OURS].rates(rows), found[side].rates(rows)
            remark = found[OURS].cost_beside(found[side])
            yield Line("json", "valueFormat=json", stage.mode, "rows/s", ours, theirs, side, limit, remark)
