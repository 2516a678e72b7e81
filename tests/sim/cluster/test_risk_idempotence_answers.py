"""Risk: a producer is told a falsehood.

That is: the offset of an original that never commits, or a gap that is none.
"""

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

        # The first one truncates its copy, and with it its memory of that producer.
        stage.run.network.mend()
        stage.wait(20 * SECOND)
        leader_id = stage.leader_id
        assert stage.do(stage.produce(leader_id, sequence=1)) == (ErrorCode.NONE, 1)
        assert stage.do(stage.produce(leader_id, sequence=2)) == (ErrorCode.NONE, 2)
        stage.wait(SECOND)
        assert {stage.partition_of(node_id).log.log_end_offset for node_id in stage.run.machines} == {3}


def test_a_leader_that_stood_still_calls_nothing_out_of_order_before_it_knows_that_it_leads() -> None:
    with on_stage() as stage:
        first_id = stage.leader_id
        assert stage.do(stage.produce(first_id, sequence=0)) == (ErrorCode.NONE, 0)

        # The leader stands still, the others elect another one, and that one stores the next batch.
        stage.run.machines[first_id].stall(4 * SECOND)
        stage.wait(2 * SECOND)
        second_id = next(
            one.node_id for one in stage.run.machines.values() if one.node_id != first_id and stage.leads(one)
        )
        assert stage.do(stage.produce(second_id, sequence=1)) == (ErrorCode.NONE, 1)

        # A request that reaches the first one meanwhile is the first that it reads when it wakes. It lacks that batch.
        assert stage.partition_of(first_id).is_leader
        answer = stage.do(stage.produce(first_id, sequence=2, timeout_ms=5_000))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader_id = stage.leader_id
        assert stage.do(stage.produce(leader_id, sequence=2)) == (ErrorCode.NONE, 2)

        # A young leader takes a gap for a batch that is on its way; one that is certain says what it is.
        answer = stage.do(stage.produce(leader_id, sequence=9))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        stage.wait(5 * SECOND)
        assert stage.leader_id == leader_id
        answer = stage.do(stage.produce(leader_id, sequence=9))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
