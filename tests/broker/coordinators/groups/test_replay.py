"""Reading a log whose beginning went."""

from typing import Any, cast

from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.coordinators.groups.table import GroupTable
from barnabas_broker.coordinators.runtime.standby import Standby

from .shard_world import Log

KEY = OffsetKey("g", "t", 0)


async def test_a_replaced_log_is_read_even_while_it_is_empty() -> None:
    """A snapshot has come, and nothing behind it: else whoever reads ahead would try for ever."""
    log = Log()
    standby = Standby(GroupTable)
    standby.table.offsets.put(KEY, CommittedOffset(5))
    log.first_index, log.last_index = 14_486, 14_485
    await standby.advance(cast("Any", log), 14_485, lambda: True)
    assert standby.applied_index == 14_485
    assert standby.table.offsets.get(KEY) is None
