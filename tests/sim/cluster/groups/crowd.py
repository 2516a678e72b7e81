"""The members of one group, and what happens to them: they come and go, die, stand still, and want something else.

It acts from outside, on the world's time. A process that dies is gone without a word, or with its connections closed;
one that stands still finds itself thrown out, or not. A static member comes back in another process: as it said, after
a crash, or while the first one is still there. `calm_down` ends all that: who is there stays.

Where members of both protocols come there is a *tide*: for a time most of those who come are of the one protocol, and
most who go are of the other, so that the group is converted there and back while its members work.
"""

from collections.abc import Callable
from functools import partial

from sim.cluster.clients.client import WireClient
from sim.cluster.machines.network import Network
from sim.cluster.world import MS, SECOND, World

from .classic_member import ClassicMember
from .consumer_member import ConsumerMember
from .model import GroupModel
from .process import Process, Topics

__all__ = ["ASSIGNORS", "REBALANCE_MS", "SESSION_MS", "Crowd"]

SESSION_MS = 3_000
REBALANCE_MS = 3_500
"""Longer than a session: who is silent is thrown out for that."""
ASSIGNORS = (None, "uniform", "range")
STATIC = 0.3  # of those who join
TURNS = 0.2  # of all that happens, so often the tide turns behind it
WITH_TIDE = 0.85
AGAINST_TIDE = 0.7
LAZY = 0.15
PATTERN = 0.4
STALL_US = (300 * MS, 2 * SESSION_MS * MS)
AWAY_US = (50 * MS, SESSION_MS * 1_300)
DOUBLE_US = (500 * MS, 3 * SECOND)

WEIGHTS = {
    "join": 5,
    "leave": 3,
    "die": 3,
    "stall": 2,
    "resubscribe": 4,
    "come_back": 3,
    "double": 1,
    "forge": 2,
}


class Crowd:
    """One group; see the module. `kinds`: the protocols of its members, "consumer" or "classic"."""

    def __init__(
        self,
        world: World,
        network: Network,
        group: str,
        kinds: tuple[str, ...],
        topics: Topics,
        new_client: Callable[[], WireClient],
        *,
        members_max: int,
        pause_ms: int,
    ) -> None:
        self.group = group
        self.kinds = kinds
        is_classic, is_mixed = "consumer" not in kinds, len(kinds) > 1
        self.model = GroupModel(world, group, SESSION_MS * MS, is_classic=is_classic, is_mixed=is_mixed)
        self.processes = list[Process]()
        self._world = world
        self._network = network
        self._topics = topics
        self._new_client = new_client
        self._members_max = members_max
        self._pause_us = pause_ms * MS
        self._rng = world.chance(f"crowd of {group}")
        self._is_calm = False
        self._instances = 0
        self._tide = kinds[0]

    @property
    def living(self) -> list[Process]:
        """Processes that are there, and have not been asked to go."""
        return [one for one in self.processes if not (one.is_over or one.is_asked_to_go)]

    def begin(self) -> None:
        for _ in range(self._rng.randrange(1, self._members_max + 1)):
            self._join()
        self._later()

    def calm_down(self) -> None:
        """Let everybody be. Of an instance that two processes have one ends; a group without anybody gets a member."""
        self._is_calm = True
        seen = set[str]()
        for one in reversed(self.living):
            one.client.loop.resume()
            if isinstance(one, ConsumerMember):
                one.is_lazy = False
            if one.instance_id is not None:
                if one.instance_id in seen:
                    self._kill(one)
                seen.add(one.instance_id)
        self.keep_somebody()

    def keep_somebody(self) -> None:
        """Have a member join if nobody is there: of two with one instance the last may hear late that it is fenced."""
        if not self.living:
            self._join()

    def end(self) -> None:
        """Kill everybody."""
        self._is_calm = True
        for one in self.processes:
            self._kill(one)

    def _later(self) -> None:
        self._world.after(self._rng.randrange(self._pause_us // 4, 2 * self._pause_us), self._act)

    def _act(self) -> None:
        if self._is_calm:
            return
        kind = self._rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        living = self.living
        if kind == "join" or not living:
            if len(living) < self._members_max:
                self._join()
        else:
            one = self._rng.choice(self._who_goes(living) if kind in {"leave", "die"} else living)
            self._world.note("world", f"{self.group}: {kind} {one.client.name}")
            getattr(self, f"_{kind}")(one)
        if self.model.is_mixed and self._rng.random() < TURNS:
            self._tide = next(kind for kind in self.kinds if kind != self._tide)
        self._later()

    def _who_goes(self, living: list[Process]) -> list[Process]:
        """Return those of whom one goes: where both protocols come, mostly of the one that fewer come with now."""
        if not self.model.is_mixed or self._rng.random() >= AGAINST_TIDE:
            return living
        return [one for one in living if one.is_classic != (self._tide == "classic")] or living

    # What happens.

    def _join(self, instance_id: str | None = None, like: Process | None = None) -> None:
        rng = self._rng
        if instance_id is None and rng.random() < STATIC:
            self._instances += 1
            instance_id = f"{self.group}-instance-{self._instances}"
        kind = rng.choice(self.kinds)
        if self.model.is_mixed and rng.random() < WITH_TIDE:
            kind = self._tide
        about = (self._new_client(), self.group, self.model, self._topics, instance_id, REBALANCE_MS)
        process: ConsumerMember | ClassicMember
        if kind == "consumer":
            process = ConsumerMember(*about)
            process.is_lazy = rng.random() < LAZY
            self._subscribe(process)
            if isinstance(like, ConsumerMember):
                process.names, process.pattern, process.assignor = list(like.names), like.pattern, like.assignor
        else:
            process = ClassicMember(*about)
            process.names = self._some_names()
            if isinstance(like, ClassicMember):
                # Another process of an instance goes on in its generation, whatever it subscribes to (KIP-345).
                process.names = list(like.joined or like.names)
        self.processes.append(process)
        process.client.start(process.run())

    def _some_names(self) -> list[str]:
        names = sorted(self._topics.lasting)
        return sorted(self._rng.sample(names, self._rng.randrange(1, len(names) + 1)))

    def _subscribe(self, one: ConsumerMember) -> None:
        rng = self._rng
        one.pattern = None
        if rng.random() < PATTERN:
            one.names = []
            one.pattern = rng.choice(
                ["lasting-.*", f"lasting-[{rng.randrange(3)}]", "(lasting|passing)-.*", "passing-.*"]
            )
        else:
            one.names = self._some_names()
        one.assignor = rng.choice(ASSIGNORS)

    def _leave(self, one: Process) -> None:
        one.is_asked_to_go = True
        one.wake()

    def _die(self, one: Process) -> None:
        self._kill(one)
        self._world.counts["group members dead"] += 1

    def _kill(self, one: Process) -> None:
        if not one.is_over:
            one.is_over = True
            one.client.loop.kill()
            self._network.close_process(one.client.loop, silently=self._rng.random() < 0.5)

    def _stall(self, one: Process) -> None:
        one.client.loop.stall(self._world.now_us + self._rng.randrange(*STALL_US))
        self._world.counts["group members stalled"] += 1

    def _resubscribe(self, one: Process) -> None:
        if isinstance(one, ConsumerMember):
            before = one.pattern
            self._subscribe(one)
            self._world.counts["group patterns changed"] += before != one.pattern
        elif isinstance(one, ClassicMember):
            one.names = self._some_names()
        self._world.counts["group subscriptions changed"] += 1
        one.wake()

    def _come_back(self, one: Process) -> None:
        """A static member restarts: in good order, or as it may be."""
        if one.instance_id is None:
            return
        if isinstance(one, ConsumerMember) and self._rng.random() < 0.7:
            one.comes_back = True
            self._leave(one)
        else:
            self._die(one)
        self._world.after(self._rng.randrange(*AWAY_US), partial(self._restart, one))

    def _restart(self, one: Process) -> None:
        if not self._is_calm and one.instance_id is not None:
            self._world.counts["group static restarts"] += 1
            self._join(one.instance_id, one)

    def _double(self, one: Process) -> None:
        """A second process begins as the same instance; some time later the first one dies."""
        if one.instance_id is None:
            return
        self._world.counts["group instances doubled"] += 1
        self._join(one.instance_id, one)
        self._world.after(self._rng.randrange(*DOUBLE_US), partial(self._end_double, one))

    def _end_double(self, one: Process) -> None:
        if not self._is_calm:
            self._kill(one)

    def _forge(self, one: Process) -> None:
        one.forges = True
        one.wake()
