"""Says in each fetch only what the broker does not know yet: the client's side of fetch sessions (KIP-227). Pure.

A session belongs to one broker and one lane. Its first request names all partitions, with epoch 0, and its answer has
the session's id. From then on a request names those that are new or asked for in another way, and those that are wanted
no more; the broker answers about those that have something new. Where no session is opened, because the broker is too
old or full, the id in the answer is 0, and each request names all.

None is opened for fewer than `PARTITIONS_MIN` partitions: to name so few costs a broker no more than to keep a session.
One that is open stays so when they become fewer.

After a request without an answer nobody knows what the broker has heard: the next one names all again, and ends the old
session.

Not here: ending a session when a client closes. Brokers forget those that nobody uses.
"""

from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

__all__ = ["FetchSession"]

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
_OVER = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

PARTITIONS_MIN = 10
"""Measured with Barnabas: a session costs 12 us a request, and a partition that need not be named spares 1 to 7."""

_Key = tuple[str, bytes, int]


class FetchSession:
    """The session with one broker in one lane, and what the broker knows of the partitions in it."""

    __slots__ = ("_epoch", "_known", "_partitions_min", "_session_id")

    def __init__(self, partitions_min: int = PARTITIONS_MIN) -> None:
        self._partitions_min = partitions_min
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._known: dict[_Key, FetchPartition] = {}

    @property
    def is_open(self) -> bool:
        return self._epoch != INITIAL_EPOCH

    def request(self, full: FetchRequest) -> FetchRequest:
        """Return what to send in place of `full`, which names all partitions; perhaps that itself."""
        wanted = {
            (topic.topic, topic.topic_id, asked.partition): asked for topic in full.topics for asked in topic.partitions
        }
        known, self._known = self._known, wanted
        full.session_id = self._session_id
        full.session_epoch = self._epoch
        if not self.is_open:
            if len(wanted) < self._partitions_min:
                full.session_epoch = FINAL_EPOCH
            return full
        topics = []
        for topic in full.topics:
            place = topic.topic, topic.topic_id
            news = [asked for asked in topic.partitions if known.get((*place, asked.partition)) != asked]
            if news:
                topics.append(FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=news))
        return FetchRequest(
            max_wait_ms=full.max_wait_ms,
            min_bytes=full.min_bytes,
            max_bytes=full.max_bytes,
            isolation_level=full.isolation_level,
            session_id=full.session_id,
            session_epoch=full.session_epoch,
            topics=topics,
            forgotten_topics_data=_forgotten([key for key in known if key not in wanted]),
            rack_id=full.rack_id,
        )

    def take(self, response: FetchResponse) -> bool:
        """Follow an answer; False if it only says that the session is over, and the same is to be asked again."""
        was_open = self.is_open
        if response.error_code:
            is_over = was_open and response.error_code in _OVER
            self.lose()
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            return not is_over
        self._session_id = response.session_id
        if self._session_id == NO_SESSION:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return True

    def lose(self) -> None:
        """Begin again with the next request: this one has no answer, or none that helps."""
        self._epoch = INITIAL_EPOCH


def _forgotten(keys: list[_Key]) -> list[ForgottenTopic]:
    numbers: dict[tuple[str, bytes], list[int]] = {}
    for name, topic_id, number in keys:
        numbers.setdefault((name, topic_id), []).append(number)
    return [
        ForgottenTopic(topic=name, topic_id=topic_id, partitions=gone) for (name, topic_id), gone in numbers.items()
    ]
