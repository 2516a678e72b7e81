"""The start of a replicated log moves through failures, and nothing else is lost."""

from collections.abc import Callable, Generator

import pytest
from raftlog.log.replicas import World

from barnabas_broker.partition import saved_state
from barnabas_broker.partition.log_starts import LogStarts
from barnabas_broker.partition.producer_state import ProducerTable
from barnabas_broker.partition.saved_state import SavedState
from barnabas_broker.partition.transactions import TransactionTable
from barnabas_raftlog.log.recovery.plan import ReplicaPlan
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode

STEPS = 120
Patch = Callable[[pytest.MonkeyPatch], None]


async def live_through(seed: int, mode: Mode) -> None:
    """Let one world happen. A failing seed fails again."""
    world = World(seed, mode)
    for member in world.members.values():
        await member.boot()
    world.connect()
    for _ in range(STEPS):
        await world.step()
    world.check_all(await world.recover())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
@pytest.mark.parametrize("seed", range(12))
async def test_no_acknowledged_record_at_or_above_the_start_is_lost(seed: int, mode: Mode) -> None:
    await live_through(seed, mode)


# The worlds must notice these. If they do not, it is the worlds that are broken.


def segments_go_before_a_state_covers_them(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaLog, "saved_index", 1 << 60)


def dropped_segments_are_not_replayed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaPlan, "prefix_dropped", lambda self, index, term, end_offset: None)


def a_start_counts_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    commit = LogStarts.commit
    patch.setattr(LogStarts, "commit", lambda self, commit_index: commit(self, 1 << 60))


def a_start_is_not_part_of_the_saved_state(patch: pytest.MonkeyPatch) -> None:
    encode = saved_state.encode_replica_state
    patch.setattr("barnabas_broker.partition.replica_state.encode_replica_state", lambda _, *rest: encode(0, *rest))


def a_snapshot_skips_what_is_readable(patch: pytest.MonkeyPatch) -> None:
    sealed_segments = ReplicaLog.sealed_segments
    patch.setattr(ReplicaLog, "sealed_segments", lambda self, index: sealed_segments(self, index)[-1:])


def adopted_segments_are_forgotten_in_a_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaPlan, "adopt", lambda self, row, number: None)


def a_snapshot_forgets_the_producers(patch: pytest.MonkeyPatch) -> None:
    def decode(_: bytes) -> Generator[None, None, SavedState]:
        yield
        return SavedState(0, ProducerTable(), TransactionTable())

    patch.setattr("barnabas_broker.partition.replica_state.decode_replica_state_in_steps", decode)


MUTANTS: list[Patch] = [
    segments_go_before_a_state_covers_them,
    dropped_segments_are_not_replayed,
    a_start_counts_before_it_is_committed,
    a_start_is_not_part_of_the_saved_state,
    a_snapshot_skips_what_is_readable,
    adopted_segments_are_forgotten_in_a_crash,
    a_snapshot_forgets_the_producers,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__.replace("_", " "))
async def test_the_worlds_notice(mutate: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    for seed in range(60):
        try:
            await live_through(seed, "fsync")
        except BaseException:  # noqa: BLE001 - any way of noticing is good
            return
    pytest.fail("60 worlds went well")
