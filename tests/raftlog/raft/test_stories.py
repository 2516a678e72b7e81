"""Golden stories: each file is one situation, its commands and all their effects.

A needless save is as plain to see here as a wrong message. To accept new output after reading it:
UPDATE_STORIES=1 pytest tests/raftlog/raft/test_stories.py, then git diff.
"""

import os
import shlex
from pathlib import Path

import pytest
from raftlog.messages import peer_digest
from sim.disk import Disk

from barnabas_raftlog.errors import ChangeInProgressError
from barnabas_raftlog.raft.core import RaftCore, Role, Timing
from barnabas_raftlog.raft.messages import (
    Campaign,
    Entry,
    HardState,
    PeerDigest,
    PeerLive,
    PeerSilent,
    Stalled,
    StartRound,
    Tick,
    TransferLeadership,
)

from .group import Group

STORIES = sorted(Path(__file__).with_name("stories").rglob("*.txt"))


class Narrator:
    """Runs commands; every method is one."""

    group: Group

    def group_of(self, *words: str) -> None:
        """Make a group: `group_of 1 2 3 learners 4`, `group_of 1 2 3w` with 3 a witness. Node 1 is preferred.

        `disks`: they can be told apart. `small`: an append has room for one entry.
        """
        timing = Timing(bytes_per_append=1, bytes_in_flight_max=1) if "small" in words else None
        roles = _roles([word for word in words if word not in {"disks", "small"}])
        self.group = Group(roles[0], roles[1], known_disks="disks" in words, timing=timing, witnesses=roles[2])

    def holding(self, node: str, *entries: str) -> None:
        """Begin with this log, synced and not committed: `holding 2 1:a 1:b 4:c` (term:value)."""
        group = self.group
        disk = group.disks[int(node)]
        for text in entries:
            term, value = text.split(":")
            disk.log.append([Entry(disk.log.last_index + 1, int(term), value.encode())])
        disk.sync()
        disk.hard_state = HardState(disk.log.last_term, None)
        group.cores[int(node)] = group.boot(int(node))

    def join(self, node: str) -> None:
        """Start a node that belongs to nothing; if there was one, it comes back with an empty disk."""
        self.group.join(int(node))

    def change(self, node: str, *words: str) -> None:
        """Have a leader propose other members: `change 1 1 2 3 learners 4`."""
        try:
            self.group.change(int(node), self.group.configuration(*_roles(list(words))))
        except (ValueError, ChangeInProgressError) as error:
            self.group.lines.append(f"refused: {error}")

    def has_caught_up(self, node: str, peer: str) -> None:
        core = self.group.cores[int(node)]
        progress = core.progress[int(peer)]
        caught_up = progress.has_caught_up(self.group.now_ms, core.timing.election_timeout_ms)
        self.group.lines.append(f"n{peer} {'has' if caught_up else 'has not'} caught up")

    def connect(self) -> None:
        self.group.connect()

    def elect(self, node: str) -> None:
        """Leave out the lines that the story is not about."""
        self.group.elect(int(node))
        self.group.lines.clear()

    def quietly(self, *words: str) -> None:
        """Run a command without its effects."""
        self.run(words)
        self.group.lines.clear()

    def wait(self, ms: str) -> None:
        self.group.now_ms += int(ms)

    def deadline(self, node: str) -> None:
        """Let time pass until the node's deadline, and tick it."""
        self.group.to_deadline(int(node))

    def tick(self, node: str) -> None:
        self.group.step(int(node), Tick())

    def propose(self, node: str, *values: str) -> None:
        self.group.propose(int(node), *values)

    def deliver(self, source: str = "", target: str = "") -> None:
        if not self.group.deliver(int(source) if source else None, int(target) if target else None):
            self.group.lines.append("nothing to deliver")

    def lose(self, source: str = "", target: str = "") -> None:
        count = self.group.lose(int(source) if source else None, int(target) if target else None)
        self.group.lines.append(f"lost {count}")

    def settle(self) -> None:
        self.group.settle()

    def without(self, node: str, count: str) -> None:
        """So many deadlines of leader 1 pass; nothing reaches `node`, everybody else answers."""
        for _ in range(int(count)):
            self.group.to_deadline(1)
            self.group.lose(target=int(node))
            self.group.settle()

    def silent(self, node: str, peer: str) -> None:
        self.group.step(int(node), PeerSilent(int(peer)))

    def live(self, node: str, peer: str) -> None:
        self.group.step(int(node), PeerLive(int(peer)))

    def meet(self, one: str, other: str) -> None:
        """The link of two nodes is live again: each tells the other where it stands."""
        cores = {int(node): self.group.cores[int(node)] for node in (one, other)}
        digests = {node: _digest_of(core) for node, core in cores.items()}
        for node, digest in digests.items():
            text = f"term={digest.term} leader={digest.leader_id} last={digest.last_index}"
            self.group.lines.append(f"n{node} says where it stands: {text}{' at rest' * digest.at_rest}")
        for node in cores:
            for peer in cores.keys() - {node}:
                self.group.step(node, digests[peer])

    def campaign(self, node: str) -> None:
        self.group.step(int(node), Campaign())

    def stalled(self, node: str) -> None:
        self.group.step(int(node), Stalled())

    def round(self, node: str) -> None:
        self.group.step(int(node), StartRound())

    def transfer(self, node: str, target: str) -> None:
        self.group.step(int(node), TransferLeadership(int(target)))

    def slow(self, node: str) -> None:
        """From now on the node's writes wait for `sync`."""
        self.group.slow.add(int(node))

    def sync(self, node: str) -> None:
        self.group.sync(int(node))

    def restart(self, node: str) -> None:
        """Crash, losing what was not synced, and come back."""
        self.group.restart_as_after_a_crash(int(node))

    def dies(self, node: str) -> None:
        """Crash until it is restarted (or joins with an empty disk); the others are told."""
        self.group.die(int(node))

    def back(self, node: str) -> None:
        """Restart it, and tell everybody that the links work."""
        self.group.restart_as_after_a_crash(int(node))
        self.introduce(node)

    def introduce(self, node: str) -> None:
        """Tell it and all the others that their links work."""
        for other in sorted(self.group.cores.keys() - self.group.dead - {int(node)}):
            self.group.step(int(node), PeerLive(other))
            self.group.step(other, PeerLive(int(node)))

    def power(self, node: str, kept_count: str) -> None:
        """Cut its power; its log was in page-cache mode, and comes back with so many entries."""
        self.group.lose_power(int(node), int(kept_count))

    def begin_again(self, node: str, source: str, count: str) -> None:
        """Its log was deleted, and it has begun another one: it has got so many entries of `source`'s, and restarts."""
        group = self.group
        disk = Disk()
        disk.hard_state = group.disks[int(node)].hard_state
        disk.log.append(group.disks[int(source)].log.held[: int(count)])
        disk.sync()
        disk.is_uncertain = True
        disk.is_blank = True
        group.disks[int(node)] = disk
        group.cores[int(node)] = group.boot(int(node))

    def page_cache(self) -> None:
        self.group.set_page_cache()

    def compact(self, node: str) -> None:
        """Forget the committed part of the log, as after a snapshot."""
        self.group.disks[int(node)].log.drop_prefix(self.group.cores[int(node)].commit_index)

    def logs(self) -> None:
        for n in self.group.cores:
            terms = "".join(f" {entry.term}" for entry in self.group.disks[n].log.held)
            self.group.lines.append(f"n{n} terms{terms}")

    def swallow(self, ms: str, *links: str) -> None:
        """Let time pass in which nothing gets through `links` (`1>2`) and nobody is told; all else arrives at once."""
        ends = [tuple(map(int, link.split(">"))) for link in links]
        group = self.group
        end_ms = self.group.now_ms + int(ms)
        while True:
            for source, target in ends:
                group.lose(source, target)
            if group.inbox:
                group.deliver()
                continue
            due = [(core.deadline_ms, n) for n, core in group.cores.items() if core.deadline_ms is not None]
            if not due or min(due)[0] > end_ms:
                break
            group.to_deadline(min(due)[1])
        group.now_ms = max(group.now_ms, end_ms)

    def status(self) -> None:
        for n, core in self.group.cores.items():
            if n in self.group.dead:
                self.group.lines.append(f"n{n} is dead")
                continue
            words = [core.role.name.lower(), f"term={core.term}", f"leader={core.leader_id}"]
            words += [f"commit={core.commit_index}", f"log={core.log.first_index}..{core.log.last_index}"]
            words += ["confirmed"] * core.confirmed + ["quiescent"] * core.quiescent + ["outside"] * core.is_outside
            words += ["uncertain"] * (core.uncertain > 0) + ["blank"] * core.is_blank
            self.group.lines.append(f"n{n} {' '.join(words)}")

    def run(self, words: tuple[str, ...]) -> None:
        getattr(self, words[0])(*words[1:])


def _digest_of(core: RaftCore) -> PeerDigest:
    log = core.log
    at_rest = core.quiescent if core.role is Role.LEADER else log.durable_index == log.last_index
    return peer_digest(
        peer=core.node_id,
        term=core.term,
        leader_id=core.leader_id,
        last_index=log.last_index,
        last_term=log.last_term,
        round=core.round,
        at_rest=at_rest,
    )


def _roles(words: list[str]) -> tuple[list[int], list[int], list[int]]:
    """Return voters, learners and witnesses, which are among the voters."""
    voter_count = words.index("learners") if "learners" in words else len(words)
    voters = words[:voter_count]
    witnesses = [int(word[:-1]) for word in voters if word.endswith("w")]
    return [int(word.rstrip("w")) for word in voters], [int(word) for word in words[voter_count + 1 :]], witnesses


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    narrator = Narrator()
    actual = list[str]()
    for block in path.read_text().strip().split("\n\n"):
        head = block.split("\n---\n")[0].removesuffix("\n---")
        for line in head.splitlines():
            if not line.startswith("#"):
                narrator.run(tuple(shlex.split(line)))
        lines, narrator.group.lines = narrator.group.lines, []
        actual.append("\n".join([head, "---", *lines] if lines else [head]))
    text = "\n\n".join(actual) + "\n"
    if os.environ.get("UPDATE_STORIES"):
        path.write_text(text)
    assert path.read_text() == text
