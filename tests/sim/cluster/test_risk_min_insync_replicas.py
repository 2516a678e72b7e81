"""Risk: fewer replicas stand behind an acknowledgement than `min.insync.replicas` says."""

from barnabas_clients.protocol.error_codes import ErrorCode

from .stage import on_stage
from .world import MS, SECOND


def test_below_it_nothing_is_appended_and_what_loses_its_replicas_meanwhile_is_not_acknowledged() -> None:
    with on_stage(min_insync_replicas="3") as stage:
        leader_id = stage.leader_id
        assert stage.do(stage.produce(leader_id)) == (ErrorCode.NONE, 0)

        # A follower is lost while a batch is under way: a majority has it, but not three.
        lost = stage.followers[0]
        for machine in stage.run.machines.values():
            if machine is not lost:
                stage.run.network.cut(machine.name, lost.name)
                stage.run.network.cut(lost.name, machine.name)
        answer = stage.do(stage.produce(leader_id, timeout_ms=3_000))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        partition = stage.partition_of(leader_id)
        assert (partition.log.log_end_offset, partition.high_watermark) == (2, 2)

        # From now on it is refused before anything is appended.
        for _ in range(3):
            assert stage.do(stage.produce(leader_id)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            stage.wait(200 * MS)
        assert partition.log.log_end_offset == 2

        # The follower is back, and so is the service; offsets are dense.
        stage.run.network.mend()
        stage.wait(10 * SECOND)
        assert stage.do(stage.produce(stage.leader_id)) == (ErrorCode.NONE, 2)
