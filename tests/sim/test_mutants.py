"""The simulator must catch these mistakes; if it does not, the simulator is broken.

Each mutant must fail within `SEEDS` seeds; most fail on one of the first three. One that survives is either no
mistake (say why, and replace it) or shows something that the simulator does not look at. Some need a rare accident, and
are caught by about one seed in fifty: their search starts at `FIRST`, so that the test is quick.

Not here, because they change nothing: granting a learner a pre-vote (it does not stand); taking a node with a new disk
for the voter that it was (its leader ignores it, so its log stays too short to win).
"""

import pytest

from .mutants import mutant
from .scenario import SimulationError, run_seed

SEEDS = 24
FIRST = {
    "half is a majority": 80,
    "an entry does not prove its term": 140,
    "nobody is told that it was removed": 26,
    "one answer is a majority": 450,
    "appends after anything": 45,
    "only members are given pre-votes": 20,
    "learners do not vote": 20,
    "members are not taken in": 35,
    "told by a stale member, believed": 24,
    "a lone voter speaks before its vote is safe": 88,
    "votes for itself though it left": 70,
    "falls silent before it leaves": 10_270,
}

MUTANTS = {  # the claim that is broken: (module, the line, the line instead)
    "half is a majority": ("quorum", "return voter_count // 2 + 1", "return (voter_count + 1) // 2"),
    "half commits": ("quorum", "return values[(len(values) - 1) // 2]", "return values[len(values) // 2]"),
    "old terms are committed by counting": ("quorum", " and index >= term_start_index else", " else"),
    "the window leaks": ("progress", "self.in_flight_bytes -= window.pop(0)[1]", "window.pop(0)"),
    "an entry does not prove its term": ("state", "if self.log.last_term > self.term:", "if self.log.last_term < 0:"),
    "one answer is a majority": ("state", "return majority_value(rounds)", "return max(rounds)"),
    "votes twice": (
        "election",
        "and (raft.voted_for == request.source or (raft.voted_for is None and raft.leader_id is None))",
        "",
    ),
    "votes for any log": (
        "election",
        "log_is_current = (request.last_term, request.last_index) >= (log.last_term, log.last_index)",
        "log_is_current = True",
    ),
    "votes outlive their term": (
        "election",
        "raft.votes = {raft.node_id} if votes_itself else set[int]()",
        "raft.votes = raft.votes | {raft.node_id}",
    ),
    "nobody hears that the leader is gone": (
        "election",
        "raft.stand_in_turn(event.peer, 11, 51, 11)",
        "raft.deadline_ms = None",
    ),
    "the vote is not saved": (
        "core",
        "return self._take_ready(HardState(self.term, self.voted_for))",
        "return self._take_ready(HardState(self.term, None))",
    ),
    "the vote leaves before it is saved": (
        "core",
        "after_persist = messages + after_persist\n            messages = []",
        "messages = messages + after_persist\n            after_persist = []",
    ),
    "acknowledges before it is durable": (
        "follower",
        "match_index = min(raft.log.durable_index, raft.verified_index)",
        "match_index = raft.verified_index",
    ),
    "acknowledges what it did not compare": (
        "follower",
        "match_index = min(raft.log.durable_index, raft.verified_index)",
        "match_index = raft.log.durable_index",
    ),
    "commits what it did not compare": (
        "follower",
        "min(append.commit_index, raft.verified_index)",
        "min(append.commit_index, max(last_index, end_index))",
    ),
    "appends after anything": ("follower", "log.term_at(prev_index) != append.prev_term", "prev_index < 0"),
    "truncates on every duplicate": (
        "follower",
        "if index > commit_index and log.term_at(index) != entry.term:",
        "if index > commit_index:",
    ),
    "the leader counts what it has not on disk": (
        "replication",
        "durable_index = raft.log.durable_index\n",
        "durable_index = raft.log.last_index\n",
    ),
    "a lone voter speaks before its vote is safe": (
        "replication",
        "return not raft.is_lone_voter or raft.log.durable_index >= raft.term_start_index",
        "return True",
    ),
    "refusals are not heeded": (
        "replication",
        "progress.become_probe(min(index, refused_index - 1) + 1)",
        "progress.become_probe(progress.next_index)",
    ),
    "heartbeats do not find holes": (
        "replication",
        "    prev_index = progress.next_index - 1\n    prev_term",
        "    prev_index = progress.match_index\n    prev_term",
    ),
    "a leader does not mind being alone": (
        "leadership",
        "election.become_follower(raft, raft.term, cause)",
        "raft.deadline_ms = now_ms + 100",
    ),
    "two changes at once": (
        "membership_change",
        "if raft.commit_index < index and raft.log.configuration_at(index - 1) != present:",
        "if raft.commit_index < 0:",
    ),
    "a change before an entry of the own term": (
        "membership_change",
        "if raft.commit_index < raft.term_start_index:",
        "if raft.commit_index < 0:",
    ),
    "counts itself though it left": (
        "replication",
        "    if raft.is_voter:\n        durable_indexes.append",
        "    if True:\n        durable_indexes.append",
    ),
    "votes for itself though it left": (
        "uncertainty",
        "if len(certain & voters) >= majority(len(voters)):",
        "if len(certain | {raft.node_id}) >= majority(len(voters)):",
    ),
    "a new disk votes for the lost one": (
        "election",
        "voter = Member(response.source, response.directory_id)",
        "voter = Member(response.source)",
    ),
    "a new disk acknowledges for the lost one": (
        "leadership",
        "if progress.directory_id != response.directory_id and not raft.is_of(response.source, response.directory_id):",
        "if progress.is_lost:",
    ),
    "a learner counts as a voter": (
        "membership_change",
        "progress.is_voter = peer in raft.voters",
        "progress.is_voter = True",
    ),
    "a promoted learner does not count": (
        "membership_change",
        "progress.is_voter = peer in raft.voters",
        "progress.is_voter = progress.is_voter or (peer in raft.voters and progress.match_index == 0)",
    ),
    "a learner stands for election": (
        "state",
        "        self.may_stand = not was_told and (",
        "        self.may_stand = (",
    ),
    "learners do not vote": (
        "election",
        "    granted = (\n        log_is_current\n        and request.term == raft.term",
        "    granted = (\n        raft.is_voter and log_is_current\n        and request.term == raft.term",
    ),
    "only members are given pre-votes": (
        "election",
        "log_is_current and not request.is_learner and",
        "log_is_current and is_member and not request.is_learner and",
    ),
    "nobody is told that it was removed": (
        "election",
        "    if committed.voters and committed.member(source) is None:",
        "    if False:",
    ),
    "told by a stale member, believed": (
        "state",
        "was_told = self.removed_at >= (self.removed_at[0] if term is None else term, index)",
        "was_told = self.removed_at[1] >= 0",
    ),
    "leads on after it was removed": ("membership_change", "    if not raft.is_voter:\n", "    if False:\n"),
    "falls silent before it leaves": (
        "leadership",
        "not raft.is_voter or not _all_have_everything(raft)",
        "not _all_have_everything(raft)",
    ),
    "members are not taken in": (
        "core",
        "if self.log.configuration is not self.configuration:",
        "if self.log.configuration_index > self.configuration_index:",
    ),
    "only a removed voter's last configuration counts": (
        "state",
        "or (index > self.commit_index and self.log.configuration_at(index - 1).has_voter(self.member))",
        "or False",
    ),
    "strangers wait for a leader": ("core", "if self.is_outside:", "if False:"),
    "quiescent with a follower behind": (
        "leadership",
        "if progress.match_index != last_index or progress.uncertain:",
        "if progress.uncertain:",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_simulator_catches(name: str) -> None:
    first = FIRST.get(name, 0)
    with mutant(*MUTANTS[name]):
        for seed in range(first, first + SEEDS):
            try:
                run_seed(seed)
            except SimulationError:
                return
    pytest.fail(f"no seed from {first} to {first + SEEDS - 1} notices: {name}")
