"""Risk: a repeated batch is answered with the offset of an original that never commits, or is there twice."""

from barnabas_clients.protocol.error_codes import ErrorCode

from .stage import on_stage
from .world import SECOND


def test_a_repetition_is_answered_only_when_its_original_has_committed() -> None:
    with on_stage() as stage:
        first_id = stage.leader_id
        assert stage.do(stage.produce(first_id, sequence=0)) == (ErrorCode.NONE, 0)

        # The leader appends the next batch, and nobody else gets it: neither it nor its repetition is answered.
        stage.cut_followers_off()
        for _ in range(2):
            answer = stage.do(stage.produce(first_id, sequence=1, timeout_ms=200))
            assert answer.error_code in {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert stage.partition_of(first_id).log.log_end_offset == 2

        # The others elect a leader that has never seen it. There it is no repetition.
        stage.wait(5 * SECOND)
        second_id = stage.leader_id
        assert second_id not in {0, first_id}
        assert stage.do(stage.produce(second_id, sequence=1)) == (ErrorCode.NONE, 1)
        assert stage.do(stage.produce(second_id, sequence=1)) == (ErrorCode.NONE, 1)

        # The first one truncates its copy, and with it what it knew of that producer.
        stage.run.network.mend()
        stage.wait(20 * SECOND)
        leader_id = stage.leader_id
        assert stage.do(stage.produce(leader_id, sequence=1)) == (ErrorCode.NONE, 1)
        assert stage.do(stage.produce(leader_id, sequence=2)) == (ErrorCode.NONE, 2)
        stage.wait(SECOND)
        assert {stage.partition_of(node_id).log.log_end_offset for node_id in stage.run.machines} == {3}
