"""Readers who begin anywhere in a compacted log: between records that are left, in a batch, in an emptied one."""

import asyncio

from raftlog.log.node import Node

from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import read_records

from .test_compacting import all_records, compact, fill, filled, sealed_end


def test_w6_a_read_within_a_batch_begins_with_the_whole_batch_also_when_it_is_compacted() -> None:
    """Whoever asks for an offset that is gone is given what follows."""
    node = Node()
    log = filled(node)
    compact(log)
    fill(log, 60, 3)
    node.work()
    left = asyncio.run(all_records(log))
    end = log.log_end_offset
    assert len(left) < sealed_end(log) // 2
    for asked in range(end):
        frames = asyncio.run(log.read_cold(asked, end, 1))
        data = memoryview(b"".join(frames))
        header = parse_header(data)
        assert header.end_offset > asked, "nothing that lies before"
        assert len(frames[0]) >= header.size_bytes, "never a part of a batch"
        seen = [one.offset for one in read_records(data, asked)]
        assert seen[:1] == [one.offset for one in left if one.offset >= asked][:1], "the next one that is left"
        assert set(seen) <= set(range(asked, header.end_offset))
