"""The exceptions that every layer of Barnabas shares. Pure.

Three kinds of failure get three treatments: ours (`assert`, stops the process), an expected answer (an
error with a code, sent to the client), and the world's (`OSError` or one of these: closes that connection
or fails that log).
"""


class BarnabasError(Exception):
    """Base of every exception that this project raises on purpose.

    `reason` is the failure in a few words. `hint` says what can be done about it, and may be empty. `may_be_done` says
    whether the thing that failed may have happened all the same; None means that nobody can know, and the caller should
    expect both.
    """

    reason: str = ""
    hint: str = ""
    may_be_done: bool | None = False

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.reason = str(arguments[0]) if arguments else ""

    @property
    def retriable(self) -> bool:
        """True if the same call may succeed later."""
        return False


class MalformedMessageError(BarnabasError):
    """Bytes from outside that cannot be what they claim to be; names what was wrong and where."""


class ImpossibleMessageError(BarnabasError):
    """A node's message contradicts a certainty of this one; nothing has changed for it. `source` is that node's id."""

    def __init__(self, source: int, text: str) -> None:
        super().__init__(text)
        self.source = source


class TooManyElementsError(MalformedMessageError):
    """A message that names more than its receiver takes in one message."""


class CorruptBatchError(BarnabasError):
    """A record batch whose checksum, sizes or counts contradict each other."""


class StorageFailedError(BarnabasError):
    """A file that failed a write, a sync or a check. Final for that file until it is reopened and verified."""


class ChangeInProgressError(BarnabasError):
    """The members cannot change now: another change, or the leader's first entry, is not committed yet. Ask again."""


class NotLeaderError(BarnabasError):
    """This node does not lead the Raft group, or no longer does; `leader_id` is the node that does, if known."""

    def __init__(self, leader_id: int | None = None) -> None:
        super().__init__(f"led by node {leader_id}" if leader_id is not None else "the leader is not known")
        self.leader_id = leader_id
