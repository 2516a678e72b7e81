"""Lets producers stage offsets and end transactions, beside all that can happen to an offsets partition.

Not among the rules of `shard_machine`: what is rare there would be rarer still.
"""

from typing import Any

from broker.coordinators.groups.shard_machine import GROUPS, KEYS, ShardMachine, Stored
from broker.coordinators.runtime.replica_world import writer_for
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from barnabas_broker.coordinators.groups.staging import StagedName
from barnabas_broker.coordinators.groups.state_machine.records import OffsetKey
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.markers import EndMarker

__all__ = ["TransactionMachine"]

PRODUCERS = (1, 2)
ends = st.sampled_from([None, True, False])


class TransactionMachine(ShardMachine):
    """See the module. `epochs` are those of the producers; each end of version 2 brings another one."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = dict.fromkeys(PRODUCERS, 0)

    @precondition(ShardMachine.serves)
    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        keys=st.lists(st.sampled_from(KEYS[:3]), min_size=1, max_size=3, unique=True),
        in_other=st.booleans(),
    )
    def a_producer_stages(self, producer_id: int, keys: list[OffsetKey], in_other: bool) -> None:
        hosted = self.shard.make_group(GROUPS[in_other])
        assert hosted is not None
        assert self.shard.check_staging(hosted, "", None, -1) is ErrorCode.NONE
        offsets = {(key := one._replace(group_id=hosted.group_id)): self.value(key) for one in keys}
        stored = Stored(self.world, {StagedName(*key, producer_id): value for key, value in offsets.items()})
        with self.world.step():
            writer = writer_for(self.world.partition, producer_id, self.epochs[producer_id])
            self.shard.staging.write(writer, list(offsets.items()), stored)
        stored.appended()

    @precondition(ShardMachine.serves)
    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans(), is_v2=st.booleans())
    def a_transaction_ends(self, producer_id: int, is_commit: bool, is_v2: bool) -> None:
        self.epochs[producer_id] += is_v2
        stored = Stored(self.world, {})
        with self.world.step():
            marker = EndMarker(producer_id, self.epochs[producer_id], is_commit, 0)
            self.shard.staging.end(marker, stored, bumps_epoch=is_v2)
        stored.appended()

    @precondition(ShardMachine.serves)
    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        places=st.permutations(KEYS[:3]),
        ends=st.lists(st.booleans(), min_size=1, max_size=3),
        turns=st.integers(0, 2),
    )
    def transactions_end_while_the_log_is_compacted(
        self, producer_id: int, places: list[OffsetKey], ends: list[bool], turns: int
    ) -> None:
        self.the_log_is_compacted()
        for key, is_commit in zip(places, ends, strict=False):
            self.a_producer_stages(producer_id, [key], in_other=False)
            self.world.breathe(turns)
            self.a_transaction_ends(producer_id, is_commit=is_commit, is_v2=True)
        self.a_producer_stages(producer_id, places[:1], in_other=False)

    # Leaders.

    @rule(
        key=st.sampled_from(KEYS[:3]),
        producer_id=st.sampled_from(PRODUCERS),
        end=ends,
        kept=st.integers(0, 2),
        is_told_late=st.booleans(),
    )
    def a_producer_stages_elsewhere(
        self, key: OffsetKey, producer_id: int, end: bool | None, kept: int, is_told_late: bool
    ) -> None:
        said: list[dict[Any, Any]] = [{StagedName(*key, producer_id): self.value(key)}]
        if end is not None:
            said.append({EndMarker(producer_id, 0, end, 0): None})
        if self.world.raft.leads:
            uncommitted = self.world.log.last_index - self.world.partition.producers.commit_index
            self.world.lose(kept=min(kept, uncommitted), said=said, is_told_late=is_told_late)
        else:
            self.world.follow(said)
