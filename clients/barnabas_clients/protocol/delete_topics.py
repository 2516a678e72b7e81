"""DeleteTopics, API key 20: delete topics by name, since version 6 also by id. Pure.

Versions: 4 flexible; 5 error messages; 6 `topics` in place of `topic_names`.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import NO_UUID, Int16, Int32, Message, String, Struct, Uuid, field, message, wire

__all__ = [
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
]


class DeleteTopicState(Struct):
    """A topic by name, or by id with a null name."""

    name: String | None = None
    topic_id: Uuid = NO_UUID


@message(api_key=20, versions=range(1, 7), flexible_since=4)
class DeleteTopicsRequest(Message):
    """Versions to 5 use `topic_names`, later ones `topics`."""

    topics: Annotated[list[DeleteTopicState], wire(since=6)] = field(default_factory=list)
    topic_names: Annotated[Sequence[String], wire(until=5)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    """The result for one topic."""

    name: Annotated[String | None, wire(nullable_since=6)] = ""
    topic_id: Annotated[Uuid, wire(since=6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, wire(since=5)] = None


@message(api_key=20, versions=range(1, 7), flexible_since=4)
class DeleteTopicsResponse(Message):
    """One result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)
