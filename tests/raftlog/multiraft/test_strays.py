"""Messages for groups that are not here (yet): kept a moment, within limits."""

import pytest
from raftlog.messages import acknowledgement, append_entries, vote_request

from barnabas_raftlog.multiraft import strays as strays_module
from barnabas_raftlog.multiraft.strays import Strays
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    Entry,
    LeadershipEnded,
)

from .fakes import data_frame, group_id

VOTE = vote_request(term=1, source=1, target=2, pre=True)
BULK = append_entries(term=1, source=1, target=2, entries=[Entry(1, 1, data_frame(bytes(1000)))])


def test_questions_wait_for_their_group_and_answers_do_not() -> None:
    strays = Strays()
    strays.keep(group_id(1), VOTE, 0)
    strays.keep(group_id(1), acknowledgement(term=1, source=1, target=2, match_index=0), 0)
    strays.keep(group_id(1), LeadershipEnded(1, 1, 2), 0)
    strays.keep(group_id(1), BULK, 5)
    assert strays.claim(group_id(1), 10) == [VOTE, BULK]
    assert strays.claim(group_id(1), 10) == []
    assert strays.dropped == 2


def test_they_grow_old() -> None:
    strays = Strays()
    strays.keep(group_id(1), VOTE, 0)
    strays.keep(group_id(2), VOTE, 1_500)
    strays.expire(2_000)
    assert strays.dropped == 1
    assert strays.claim(group_id(1), 2_000) == []
    assert strays.claim(group_id(2), 3_499) == [VOTE]
    strays.keep(group_id(3), VOTE, 0)
    assert strays.claim(group_id(3), 2_000) == [], "too old even if nobody swept"


def test_of_heartbeats_the_newest_is_kept_behind_what_came_before() -> None:
    def heartbeat(round_: int, source: int = 1) -> AppendEntries:
        return append_entries(term=1, source=source, target=2, round=round_, entries=[])

    strays = Strays()
    for message in (heartbeat(1), heartbeat(2), VOTE, heartbeat(3), heartbeat(4), heartbeat(5, source=3)):
        strays.keep(group_id(1), message, 0)
    assert strays.claim(group_id(1), 0) == [heartbeat(2), VOTE, heartbeat(4), heartbeat(5, source=3)]
    assert strays.dropped == 0


def test_a_removed_group_gets_nothing_until_it_is_added_again() -> None:
    strays = Strays()
    strays.remove(group_id(1))
    strays.keep(group_id(1), VOTE, 0)
    assert strays.claim(group_id(1), 1) == []
    strays.keep(group_id(1), VOTE, 2)
    assert strays.claim(group_id(1), 3) == [VOTE]


@pytest.mark.parametrize("limit", ["MESSAGES_MAX", "BYTES_MAX"])
def test_limits_hold_and_are_given_back(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays_module, limit, 2 if limit == "MESSAGES_MAX" else 2_200)
    strays = Strays()
    for number in range(3):
        strays.keep(group_id(number), BULK, 0)
    assert strays.dropped == 1
    assert strays.claim(group_id(0), 1) == [BULK]
    strays.keep(group_id(3), BULK, 1)
    assert strays.claim(group_id(3), 1) == [BULK]
    strays.expire(5_000)
    strays.keep(group_id(4), BULK, 5_000)
    strays.keep(group_id(5), BULK, 5_000)
    assert strays.claim(group_id(5), 5_000) == [BULK]


def test_few_removed_groups_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays_module, "REMOVED_MAX", 2)
    strays = Strays()
    for number in range(3):
        strays.remove(group_id(number))
    strays.keep(group_id(0), VOTE, 0)
    assert strays.claim(group_id(0), 0) == [VOTE]
