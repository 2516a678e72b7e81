"""A topic that its leader does not know, by name or by id: it may be there soon, or was deleted and will never be."""

from itertools import count

import pytest

from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.reader import Record

from .leaders import Fate
from .virtual import Stage

BY_NAME = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BY_ID = ErrorCode.UNKNOWN_TOPIC_ID
ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("codes", [(BY_ID,), (BY_NAME,), (BY_ID, ELSEWHERE), (BY_NAME, BY_ID, ELSEWHERE)])
def test_w3_a_topic_that_stays_unknown_is_given_up_when_its_time_is_over(codes: tuple[ErrorCode, ...]) -> None:
    """Each of them says "again", in turn, for ever; the time of a record ends all the same, and says what was last."""
    stage = Stage(1)
    asked = count()

    def refuse(_: int, __: list[Record]) -> Fate:
        return Fate(codes[next(asked) % len(codes)], is_taken=False)

    stage.leaders.fate = refuse

    async def main() -> None:
        async with stage.producer(delivery_timeout_s=5, timeout_s=20) as producer:
            with pytest.raises(DeadlineExceededError, match="not acknowledged within 5 s; last: ") as caught:
                await (await producer.send("t", b"value"))
            assert any(code.name in str(caught.value) for code in codes)
            stage.leaders.fate = lambda *_: Fate()
            assert (await producer.send_and_wait("t", b"value")).offset == 0

    stage.run(main())
    assert next(asked) > 5, "it was asked again"
