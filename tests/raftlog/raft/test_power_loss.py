"""Page-cache logs after a loss of power: which votes count, and from when on."""

from collections.abc import Set as AbstractSet

import pytest
from raftlog.messages import vote_request

from barnabas_raftlog.errors import ChangeInProgressError
from barnabas_raftlog.raft.core import Role
from barnabas_raftlog.raft.messages import PeerLive, PeerSilent

from .group import Group


def committed_by_two(group: Group) -> None:
    """Let 1 and 2 of three acknowledge a value; 3 knows nothing of it."""
    group.elect(1)
    group.propose(1, "a")
    group.lose(1, 3)
    group.deliver()
    group.deliver()
    assert group.cores[1].commit_index == 2
    group.lose()


def campaigns(group: Group, node: int, without: int) -> None:
    """Let a node stand until nothing moves any more, with one member cut off."""
    group.to_deadline(node)
    for _ in range(10):
        group.lose(target=without)
        group.lose(source=without)
        group.deliver()


def leads(group: Group, node: int) -> bool:
    return group.cores[node].role is Role.LEADER


def test_a_power_cut_and_a_crash_elect_nobody_who_lacks_what_was_acknowledged() -> None:
    group = Group([1, 2, 3])
    committed_by_two(group)
    group.lose_power(2, 1)
    for node in (2, 3):
        campaigns(group, node, without=1)
    assert not leads(group, 2)
    assert not leads(group, 3)
    group.cores[1] = group.boot(1)
    group.elect(1)
    assert group.values(1) == group.values(2) == group.values(3)
    assert "a" in group.values(2)
    assert not any(core.uncertain for core in group.cores.values())


def test_an_uncertain_voter_alone_does_not_stop_two_that_are_certain() -> None:
    group = Group([1, 2, 3])
    committed_by_two(group)
    group.lose_power(3, 0)
    group.cores[2] = group.boot(2)
    group.connect()
    campaigns(group, 2, without=3)
    assert leads(group, 1) or leads(group, 2)


def test_its_acknowledgements_count_for_nothing_until_it_has_caught_up() -> None:
    group = Group([1, 2, 3])
    committed_by_two(group)
    group.lose_power(2, 0)
    group.to_deadline(1)
    group.lose(target=3)
    group.deliver(1, 2)
    group.deliver(2, 1)
    progress = group.cores[1].progress[2]
    assert progress.uncertain == group.cores[2].uncertain != 0
    assert progress.certain_index == group.disks[1].log.last_index
    group.propose(1, "b")
    before = group.cores[1].commit_index
    group.lose(target=3)
    while group.cores[2].uncertain:
        assert group.cores[1].commit_index == before
        group.lose(target=3)
        if not group.deliver():
            group.to_deadline(1)
    for _ in range(4):
        group.lose(target=3)
        if not group.deliver():
            group.to_deadline(1)
    assert group.cores[1].commit_index == before + 1, "then they count"
    assert progress.uncertain == 0


def test_with_fewer_than_a_majority_certain_every_voter_must_take_part_and_the_longest_log_wins() -> None:
    group = Group([1, 2, 3])
    committed_by_two(group)
    group.lose_power(1, 2)
    group.lose_power(2, 1)
    group.connect()
    campaigns(group, 1, without=3)
    assert not leads(group, 1), "two of them say that they may have forgotten"
    group.lines.clear()
    group.connect()
    for _ in range(20):
        if not leads(group, 1):
            group.to_deadline(1)
        group.settle()
    assert leads(group, 1)
    assert any("acknowledged records may be missing" in line for line in group.lines)
    assert "a" in group.values(3)


def test_a_word_that_was_meant_for_an_earlier_return_makes_nobody_certain() -> None:
    group = Group([1, 2, 3])
    committed_by_two(group)
    group.lose_power(2, 0)
    first = group.cores[2].uncertain
    group.lose_power(2, 0)
    assert group.cores[2].uncertain not in {0, first}
    group.to_deadline(1)
    old = next(message for message in group.inbox if message.target == 2)
    old.certain = first  # type: ignore[union-attr]
    group.step(2, old)
    assert group.cores[2].uncertain


def test_a_lone_voter_goes_on_and_says_what_may_be_missing() -> None:
    group = Group([1])
    group.elect(1)
    group.propose(1, "a", "b")
    group.lose_power(1, 2)
    group.to_deadline(1)
    assert leads(group, 1)
    assert any("acknowledged records may be missing" in line for line in group.lines)


def in_page_cache_mode(group: Group) -> Group:
    group.set_page_cache()
    return group


def test_a_configuration_that_was_acknowledged_is_remembered() -> None:
    """One voter grows to two. The first loses power and must not go back to deciding alone."""
    group = in_page_cache_mode(Group([1], [2]))
    group.elect(1)
    group.change(1, group.configuration([1, 2]))
    group.settle()
    group.propose(1, "a")
    group.settle()
    assert group.values(2)[-2:] == ["members[1 2]", "a"]
    assert group.cores[1].commit_index == 4
    group.lose_power(1, 0)
    assert group.cores[1].voters == {1, 2}
    campaigns(group, 1, without=2)
    assert not leads(group, 1)
    group.lose()
    group.elect(2)
    assert leads(group, 2)
    assert "a" in group.values(1)


def test_a_leader_does_not_count_itself_by_a_configuration_that_its_disk_may_forget() -> None:
    """Else 1 and 3 of three would commit an entry that a leader elected by 1 and 2, the voters of before, may lack."""
    group = in_page_cache_mode(Group([1, 2], [3]))
    group.elect(1)
    group.slow.add(1)
    group.propose(1, "a")
    group.change(1, group.configuration([1, 2, 3]))
    for _ in range(3):
        group.lose(target=2)
        group.deliver()
    assert group.values(3)[-2:] == ["a", "members[1 2 3]"]
    assert group.cores[1].progress[3].match_index == 3
    assert group.cores[1].commit_index == 1
    group.sync(1)
    assert group.cores[1].commit_index == 3


def test_two_of_three_do_not_elect_by_a_change_that_the_third_and_the_forgetful_one_have_overruled() -> None:
    group = in_page_cache_mode(Group([1, 2, 3]))
    group.elect(1)
    group.change(1, group.configuration([1, 2]))
    group.lose()  # nobody else hears of it
    for node in (2, 3):
        group.step(node, PeerSilent(1))
    campaigns(group, 3, without=1)
    group.propose(3, "a")
    campaigns(group, 1, without=1)
    assert leads(group, 3)
    assert group.cores[3].commit_index == 3
    group.lose_power(2, 1)
    group.connect()
    for _ in range(20):
        campaigns(group, 1, without=3)
    assert not leads(group, 1) or "a" in group.values(1)


def elect_with(voters: AbstractSet[int], *, blank: AbstractSet[int], forgetful: AbstractSet[int] = frozenset()) -> bool:
    """Boot voters as blank ones, or after a loss of power; return whether anybody is elected by all of them."""
    group = Group(voters, preferred=2)
    for node in blank | forgetful:
        disk = group.disks[node]
        disk.is_uncertain = True
        disk.is_blank = node in blank
        group.cores[node] = group.boot(node)
    group.connect()
    for _ in range(3):
        for node in sorted(voters):
            if not any(leads(group, other) for other in voters):
                group.to_deadline(node)
                group.settle()
    assert not any(core.is_blank and core.role is Role.LEADER for core in group.cores.values())
    return any(leads(group, node) for node in voters)


def test_no_blank_voter_elects_itself() -> None:
    """Its view of the members may be of long ago: a member that was removed, and is back, reads of all there were."""
    assert not elect_with({2}, blank={2})
    assert elect_with({2}, blank=set(), forgetful={2}), "a loss of power takes no change of members"


def test_blank_voters_elect_only_beside_a_majority_that_knows_its_members() -> None:
    assert not elect_with({2, 3}, blank={2})
    assert not elect_with({2, 3}, blank={3})
    assert elect_with({2, 3}, blank=set(), forgetful={2, 3})
    assert not elect_with({1, 2, 3}, blank={1, 2})
    assert not elect_with({1, 2, 3}, blank={1, 2}, forgetful={3})
    assert elect_with({1, 2, 3}, blank={2})
    assert elect_with({1, 2, 3}, blank={2}, forgetful={1, 3})


def test_a_blank_voter_is_one_like_the_others_when_it_has_caught_up() -> None:
    group = Group([1, 2, 3])
    disk = group.disks[2]
    disk.is_uncertain = True
    disk.is_blank = True
    group.cores[2] = group.boot(2)
    group.elect(1)
    assert (group.cores[2].uncertain, group.cores[2].is_blank) == (0, False)
    group.die(1)
    group.elect(2)
    assert leads(group, 2)


def test_no_change_leaves_half_of_the_voters_uncertain() -> None:
    """If the leader failed then, the others could elect nobody, and only a leader makes them certain again."""
    group = Group([1, 2, 3])
    group.elect(1)
    disk = group.disks[2]
    disk.is_uncertain = True
    disk.is_blank = True
    group.cores[2] = group.boot(2)
    group.step(1, PeerLive(2))
    group.deliver(source=1)
    group.deliver(source=2)
    assert group.cores[1].progress[2].uncertain
    with pytest.raises(ChangeInProgressError, match="may have forgotten"):
        group.change(1, group.configuration([1, 2]))
    group.cores[1].check_change(group.configuration([1, 3]))
    group.settle()
    group.change(1, group.configuration([1, 2]))
    group.settle()
    assert group.cores[1].voters == {1, 2}


def test_a_removed_leader_of_an_older_term_says_that_its_removal_is_committed() -> None:
    """Else those that stay would ask it for its vote for ever: its log is longer, and it hears of no terms any more."""
    group = Group([1, 2, 3])
    group.set_page_cache()
    group.elect(1)
    group.change(1, group.configuration([2, 3]))
    group.deliver()
    group.propose(1, "nobody else has this")
    group.lose(source=1)
    group.deliver()
    assert group.cores[1].is_outside
    group.lose()
    group.lose_power(2, 2)
    group.connect()
    group.lose()
    group.step(3, vote_request(term=5, source=2, target=3))
    group.lose()
    campaigns(group, 3, without=0)
    assert (group.cores[1].term, group.cores[1].is_outside) == (1, True)
    assert leads(group, 3)
