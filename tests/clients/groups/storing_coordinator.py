"""The naive coordinator, which also stores offsets and hands them out."""

from collections.abc import Callable

from clients.fake_broker import Answer, FakeBroker

from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

from .fake_coordinator import FakeCoordinator, refusal


class StoringCoordinator(FakeCoordinator):
    """`stored` has the offsets of topic "t" by partition; `on_commit` is told each before it is stored.

    Its answer for a partition in `unreadable` is that code, and it leaves out those in `left_out`. Offsets of those in
    `unwritable` are refused. `group_error` is its answer for the whole group.
    """

    def __init__(
        self, broker: FakeBroker, *, partitions: int, on_commit: Callable[[int, int], None] = lambda *_: None
    ) -> None:
        super().__init__(broker, partitions=partitions)
        self.stored: dict[int, int] = {}
        self.unreadable: dict[int, ErrorCode] = {}
        self.left_out: set[int] = set()
        self.unwritable: dict[int, ErrorCode] = {}
        self.group_error = ErrorCode.NONE
        self.on_commit = on_commit
        broker.answers[OffsetFetchRequest] = self.at(broker, self.fetch_offsets, OffsetFetchRequest)

    async def commit(self, request: OffsetCommitRequest) -> Answer:
        # Somebody outside of the group may store while it is empty.
        if request.generation_id_or_member_epoch < 0:
            rows = [(row.partition_index, row.committed_offset) for topic in request.topics for row in topic.partitions]
            self.store(rows)
            return self.without_unwritable(refusal(request, 0))
        before = len(self.commits)
        answer = await super().commit(request)
        self.store([(number, offset) for number, _, offset in self.commits[before:]])
        return self.without_unwritable(answer)

    def store(self, rows: list[tuple[int, int]]) -> None:
        for number, offset in rows:
            if number not in self.unwritable:
                self.on_commit(number, offset)
                self.stored[number] = offset

    def without_unwritable(self, answer: Answer) -> Answer:
        assert isinstance(answer, OffsetCommitResponse)
        for topic in answer.topics:
            for row in topic.partitions:
                row.error_code = row.error_code or self.unwritable.get(row.partition_index, 0)
        return answer

    async def fetch_offsets(self, request: OffsetFetchRequest) -> Answer:
        topics = [
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=self.stored.get(number, -1),
                        error_code=self.unreadable.get(number, 0),
                    )
                    for number in topic.partition_indexes
                    if number not in self.left_out
                ],
            )
            for topic in request.groups[0].topics or ()
        ]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=request.groups[0].group_id, topics=topics, error_code=self.group_error
                )
            ]
        )
