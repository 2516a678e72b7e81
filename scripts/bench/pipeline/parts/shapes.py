"""Shapes of topics: many small partitions, and one partition with nearly everything."""

from collections.abc import Iterator
from functools import partial

from bench.pipeline.lines import Line, at_most, not_above
from bench.pipeline.stage import IMPATIENT, OURS, PARTITIONS, THEIRS, THEIRS_IMPATIENT, Stage

__all__ = ["measure"]

MANY = 256
RECORDS_EACH = 4
SMALL_LIMIT_S = 2.0
SKEWED = [99] + [1] * (PARTITIONS - 1)  # 90 % in the first


def measure(stage: Stage) -> Iterator[Line]:
    with stage.topics.filled([1] * MANY, MANY * RECORDS_EACH) as topic:
        # With its default wait Spark's source takes more than a minute.
        sides = {OURS: (OURS, {}), THEIRS_IMPATIENT: (THEIRS, IMPATIENT)}
        small = stage.timed(
            f"{MANY} partitions",
            {
                side: partial(stage.spark.ask, "read", source=source, options=stage.options(topic, **more))
                for side, (source, more) in sides.items()
            },
        )
    ours, theirs = small[OURS], small[THEIRS_IMPATIENT]
    remark = ours.cost_beside(theirs)
    limit = not_above(SMALL_LIMIT_S)
    what = f"{MANY} partitions"
    yield Line("shapes", what, stage.mode, "s", ours.seconds, theirs.seconds, THEIRS_IMPATIENT, limit, remark)
    rows = stage.sizes.wide_rows
    with stage.topics.filled([1] * PARTITIONS, rows) as even, stage.topics.filled(SKEWED, rows) as skewed:
        found = stage.timed(
            "skew",
            {
                f"{source} {name}": partial(stage.spark.ask, "read", source=source, options=stage.options(one))
                for source in (OURS, THEIRS)
                for name, one in (("skewed", skewed), ("even", even))
            },
        )
    for source, limit_of in ((OURS, at_most(1.3)), (THEIRS, None)):
        what = "90 % in one of 12" + ("" if source == OURS else ", Spark's source")
        ours, theirs = found[f"{source} skewed"], found[f"{source} even"]
        remark = ours.cost_beside(theirs)
        yield Line("shapes", what, stage.mode, "s", ours.seconds, theirs.seconds, "12 even ones", limit_of, remark)
