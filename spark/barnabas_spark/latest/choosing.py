"""Chooses, of rows of a changelog, the latest one of each key. No state, no I/O.

*Latest* means the highest offset within a partition of a topic that is known by its id. Timestamps say nothing: they
are the producers', and may go back. Offsets of two partitions cannot be compared, so a key that stands in two of them
has a row for each, as in the broker's own compaction.

The highest of some offsets does not depend on the order in which they are looked at, nor on how often. So what is
chosen from rows, and from what was chosen of other rows before, is the same whatever was read twice, late, or in
another order. A tombstone (a null value) is a row like any other and stays, marked as `deleted`: if it went, a record
that is older and is read later would bring its key back.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_spark.lake.layout import RECORD_SCHEMA, Layout

__all__ = ["IDENTITY", "LATEST_LAYOUT", "LATEST_SCHEMA", "has_latest", "latest_of", "marked"]

LATEST_SCHEMA = RECORD_SCHEMA.append(pa.field("deleted", pa.bool_()))
LATEST_LAYOUT = Layout(LATEST_SCHEMA)
IDENTITY = ("topicId", "partition", "key")


def has_latest(layout: Layout) -> bool:
    """Tell by its columns whether a table has latest records, and not an archive's: one of values may be `deleted`."""
    return "deleted" in layout.schema.names and "deleted" not in dict(layout.values)


def latest_of(rows: Any, identity: Sequence[str] = IDENTITY) -> Any:
    """Return the rows of an Arrow table that have the highest offset among those with equal `identity`, by offset.

    No key is null. Of rows that are the same record, one stays.
    """
    order = np.argsort(rows.column("offset").to_numpy(), kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    columns = {name: rows.column(name) for name in identity} | {"rank": pa.array(ranks)}
    chosen = pa.table(columns).group_by(list(identity), use_threads=False).aggregate([("rank", "max")])
    return rows.take(pa.array(order[np.sort(chosen.column("rank_max").to_numpy())]))


def marked(batch: Any) -> Any:
    """Return a batch with the columns of a record as one of `LATEST_SCHEMA`."""
    columns = [batch.column(name) for name in RECORD_SCHEMA.names]
    return pa.RecordBatch.from_arrays([*columns, batch.column("value").is_null()], schema=LATEST_SCHEMA)
