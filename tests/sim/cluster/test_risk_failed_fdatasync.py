"""Risk: after a failed fdatasync a second one succeeds and has written nothing."""

from barnabas_clients.protocol.error_codes import ErrorCode

from .stage import on_stage
from .world import SECOND


def test_what_a_failed_sync_may_have_lost_is_written_again_and_outlives_the_power() -> None:
    """The simulated disk drops the pages of a failed sync, and calls the file clean from then on."""
    with on_stage() as stage:
        leader_id = stage.leader_id
        machines = stage.run.machines
        assert stage.do(stage.produce(leader_id)) == (ErrorCode.NONE, 0)

        # One disk after the other fails a sync; in each case the record is acknowledged, and by the same leader.
        for offset, machine in enumerate(machines.values(), start=1):
            machine.disk.sync_errors = 1
            assert stage.do(stage.produce(leader_id)) == (ErrorCode.NONE, offset)
            stage.wait(SECOND)
            assert machine.node is not None
            assert machine.node.storage.stats.journal_reopened == 1

        # All machines lose their power, and with it all that was not on their disks.
        for machine in machines.values():
            machine.cut_power()
        stage.wait(SECOND)
        for machine in machines.values():
            machine.boot()
        stage.wait(SECOND)
        stage.until_led()
        stage.client = stage.run.client()
        assert stage.partition_of(stage.leader_id).high_watermark == 4
        assert stage.do(stage.produce(stage.leader_id)) == (ErrorCode.NONE, 4)
