"""No message leaves before the term or vote that it rests on is on disk."""

from types import SimpleNamespace
from typing import Any

import pytest
from raftlog.messages import acknowledgement, vote_request

from barnabas_raftlog.multiraft import promises as promises_module
from barnabas_raftlog.multiraft.promises import Promises
from barnabas_raftlog.raft.messages import HardState, LeadershipEnded, Message

from .fakes import MemoryStorage, group_id

TERM = HardState(5, 1)
VOTE = vote_request(term=5, source=1, target=2, last_index=7, last_term=4)
ENDED = LeadershipEnded(4, 1, 2)
ANSWER = acknowledgement(term=5, source=1, target=2, match_index=7, round=3)


class Out:
    """An outbox that notes the messages that are given to it."""

    def __init__(self) -> None:
        self.said: list[tuple[object, Message]] = []

    def add(self, group: object, messages: Any) -> None:
        self.said += [(group, message) for message in messages]

    def take(self) -> list[Message]:
        said, self.said = self.said, []
        return [message for _, message in said]


class Drives:
    """Promises on a disk that a test moves on, and one group."""

    def __init__(self) -> None:
        self.storage = MemoryStorage(is_lazy=True)
        self.out = Out()
        self.promises = Promises(self.storage, self.out)  # type: ignore[arg-type]
        self.group = self.make_group(1)

    def make_group(self, number: int) -> Any:
        return SimpleNamespace(group_id=group_id(number), promise_ticket=0, is_removed=False)

    def end(self) -> list[Message]:
        """End a drive as the driver does; return the messages that left in it."""
        self.promises.seal()
        self.storage.flush()
        if self.promises:
            self.promises.release()
        return self.out.take()


def test_what_is_said_in_the_drive_that_saves_a_term_waits_for_the_disk() -> None:
    drives = Drives()
    drives.promises.make(drives.group, TERM)
    drives.promises.say(drives.group, [VOTE])
    assert drives.end() == []
    assert drives.end() == [], "the disk has not spoken"
    drives.storage.sync()
    assert drives.end() == [VOTE]
    assert len(drives.promises) == 0


def test_what_rests_on_the_save_waits_for_it_wherever_it_was_said() -> None:
    drives = Drives()
    drives.promises.say_after(drives.group, [VOTE])
    drives.promises.make(drives.group, TERM)
    assert drives.end() == []
    drives.promises.say(drives.group, [ENDED])
    assert drives.end() == [], "a later message rests on the same promise"
    drives.storage.sync()
    assert drives.end() == [VOTE, ENDED], "in the order in which they were said"


def test_a_group_without_a_promise_under_way_speaks_at_once() -> None:
    drives = Drives()
    other = drives.make_group(2)
    drives.promises.make(drives.group, TERM)
    drives.promises.say(other, [ENDED])
    assert drives.end() == [ENDED]
    drives.storage.sync()
    drives.promises.say(drives.group, [VOTE])
    assert drives.end() == [VOTE]


def test_a_save_on_which_nothing_rests_is_over_when_the_disk_has_it() -> None:
    """Greetings, which ask the group itself, must not find a promise under way for ever."""
    drives = Drives()
    drives.promises.make(drives.group, TERM)
    assert drives.end() == []
    assert drives.group.promise_ticket == drives.storage.durable_ticket + 1
    drives.storage.sync()
    assert drives.group.promise_ticket == drives.storage.durable_ticket


def test_each_save_is_waited_for_by_what_rests_on_it_and_by_nothing_else() -> None:
    drives = Drives()
    other = drives.make_group(2)
    drives.promises.make(drives.group, TERM)
    drives.promises.say(drives.group, [VOTE])
    drives.end()
    first = drives.storage.queued
    drives.promises.make(other, TERM)
    drives.promises.say(other, [ENDED])
    drives.end()
    drives.storage.durable_ticket = first
    assert drives.end() == [VOTE]
    assert len(drives.promises) == 1
    drives.storage.sync()
    assert drives.end() == [ENDED]


def test_answers_to_a_leader_do_not_wait_for_a_term() -> None:
    """A disk that takes a second for a sync would else depose every leader that has just been elected."""
    drives = Drives()
    drives.promises.make(drives.group, TERM)
    drives.promises.say(drives.group, [VOTE, ANSWER, ENDED])
    assert drives.end() == [ANSWER]
    drives.storage.sync()
    assert drives.end() == [VOTE, ENDED]
    drives.promises.make(drives.group, TERM)
    drives.promises.say(drives.group, [ANSWER])
    assert drives.end() == [ANSWER]
    assert len(drives.promises) == 0, "nothing is held for it"


def test_a_removed_group_says_nothing_more() -> None:
    drives = Drives()
    drives.promises.make(drives.group, TERM)
    drives.promises.say(drives.group, [VOTE])
    drives.end()
    drives.group.is_removed = True
    drives.storage.sync()
    assert drives.end() == []
    assert len(drives.promises) == 0


def test_on_a_disk_that_has_stopped_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises_module, "HELD_MAX", 3)
    drives = Drives()
    for term in range(1, 6):
        drives.promises.make(drives.group, HardState(term, 1))
        drives.promises.say(drives.group, [vote_request(term=term, source=1, target=2, last_index=7, last_term=4)])
        assert drives.end() == []
        assert len(drives.promises) == min(term, 3)
    drives.storage.sync()
    left = drives.end()
    assert [message.term for message in left] == [3, 4, 5]
    assert len(drives.promises) == 0
