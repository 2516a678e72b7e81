"""Says of which offsets a table of rejects has spoken already. Pure.

Two tables are two commits, and a driver can die between them. *The rejects are committed first, with the same ranges.*
So wherever the table is, its rejects are there: none is ever missing. A run that finds the rejects ahead writes those
offsets into the table, up to where the rejects are, and no rejects of them. What is a reject depends on the record and
on the schema alone. The schema stands in the table before the first rejects are committed, and changes only where no
rejects are ahead (archiving.py): so a record without fields is one of which there is a reject.
"""

from collections.abc import Mapping, Sequence

from barnabas_spark.lake.ranges import PartitionKey, Span

__all__ = ["Known", "is_ahead", "known_part"]

Known = tuple[int, bool]


def known_part(start_offset: int, end_offset: int, rejects: Sequence[Span]) -> Known:
    """Return the end of the first part of a range, all of which the rejects have or lack, and whether they have it."""
    for span in rejects:
        if span.start_offset <= start_offset < span.end_offset:
            return min(end_offset, span.end_offset), True
        if start_offset < span.start_offset < end_offset:
            return span.start_offset, False
    return end_offset, False


def is_ahead(stored: Mapping[PartitionKey, Sequence[Span]], rejects: Mapping[PartitionKey, Sequence[Span]]) -> bool:
    """Tell whether the rejects have offsets that the table lacks."""
    return any(
        not any(
            one.start_offset <= span.start_offset and span.end_offset <= one.end_offset for one in stored.get(key, ())
        )
        for key, spans in rejects.items()
        for span in spans
    )
