"""What one group owes its members, by what they have said and heard alone.

*One owner.* A member has a partition from the moment that it hears of it until it stops using it, which is before it
says so. Nobody else may be given it in between, unless the member may have been thrown out: it was not heard for as
long as a session, or did not give up in time what it was asked for. The coordinator heard it when its last request
that was answered had been sent, or later; so its stay is *firm* for a session from then on, whatever happens to
coordinators.

*Positions stay.* A commit that was acknowledged is there, or a newer one. One without an answer may come yet, for as
long as its member has the partition or its epoch; the first look of the next owner ends the doubt.

*Epochs rise.* A member that joins is told no epoch below one that anybody was told before it asked. But a group that
is empty may become one of the other kind, whose epochs begin anew: where members of both protocols come, it is no epoch
below that of a member that was there before, and is still.

*An instance* of the classic protocol, or whose successor speaks that, goes over at once. Else its first process says
that it goes.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from sim.cluster.world import World

__all__ = ["CLOCKS_APART", "Asked", "Commit", "GroupModel", "Known", "Place", "Stay"]

Place = tuple[bytes, int]
"""The id of a topic, and a partition's number."""

CLOCKS_APART = 0.96
"""Clocks of machines differ by up to two percent in rate."""


class Stay:
    """One membership of one process, from a join until it ends. `heard_us`: when its last answered request was sent.

    `asked_us`: since when it is asked to give something up. `is_removed`: it is certain that the group has it no more.
    `is_classic`: it speaks the classic protocol.
    """

    def __init__(self, name: str, instance_id: str | None, rebalance_us: int, *, is_classic: bool = False) -> None:
        self.name = name
        self.instance_id = instance_id
        self.rebalance_us = rebalance_us
        self.is_classic = is_classic
        self.has = set[Place]()
        self.epoch = 0
        self.heard_us = 0
        self.asked_us: int | None = None
        self.is_removed = False

    @property
    def process(self) -> str:
        return self.name.partition(".")[0]

    def firm_until_us(self, session_us: int) -> int:
        until_us = self.heard_us + int(session_us * CLOCKS_APART)
        if self.asked_us is not None:
            until_us = min(until_us, self.asked_us + int(self.rebalance_us * CLOCKS_APART))
        return until_us


class Commit:
    """A commit on its way."""

    def __init__(self, stay: Stay, place: Place, offset: int, epoch: int) -> None:
        self.stay = stay
        self.place = place
        self.offset = offset
        self.epoch = epoch


class Asked:
    """A look at a position on its way: the least that may be told, and the commits that cannot come any more."""

    def __init__(self, place: Place, at_least: int, over: list[Commit]) -> None:
        self.place = place
        self.at_least = at_least
        self.over = over


class Known(NamedTuple):
    """What is known when a request is sent: the highest epoch, and that of each who is certainly a member."""

    epoch: int
    members: tuple[tuple[Stay, int], ...]


class GroupModel:
    """One group; see the module. `is_classic`: a commit counts as long as its generation is the group's.

    `is_mixed`: members of both protocols come.
    """

    def __init__(self, world: World, group: str, session_us: int, *, is_classic: bool, is_mixed: bool = False) -> None:
        self.group = group
        self.session_us = session_us
        self.is_classic = is_classic
        self.is_mixed = is_mixed
        self.epoch = 0  # the highest that anybody was told
        self._world = world
        self._holders = dict[Place, Stay]()
        self._kept = dict[Place, tuple[str, int]]()  # for which instance, and until when
        self._processes = defaultdict[str, list[tuple[str, bool]]](list)  # that joined as an instance, by its protocol
        self._stays = dict[Stay, None]()
        self._owners = dict[tuple[int, Place], str]()
        self._floors = defaultdict[Place, int](int)
        self._doubts = defaultdict[Place, list[Commit]](list)
        self._sent = defaultdict[Place, set[int]](set)

    # Who has what.

    def know(self) -> Known:
        """Return what is known of the group, before it is asked for something."""
        self._stays = {one: None for one in self._stays if self._is_firm(one)}
        return Known(self.epoch, tuple((one, one.epoch) for one in self._stays))

    def is_there(self, known: Known) -> bool:
        """Tell whether the group must have been found that was known so."""
        return any(map(self._is_still_there, known.members)) if self.is_mixed else bool(known.epoch)

    def _least_epoch(self, known: Known) -> int:
        if not self.is_mixed:
            return known.epoch
        return max((one[1] for one in known.members if self._is_still_there(one)), default=0)

    def _is_still_there(self, member: tuple[Stay, int]) -> bool:
        return member[0] in self._stays and self._is_firm(member[0])

    def heard(self, stay: Stay, epoch: int, sent_us: int, known: Known | None) -> None:
        """A request was answered. `known`: what was known when it was sent, if it was a join."""
        least = max(stay.epoch, 0 if known is None else self._least_epoch(known))
        if epoch < least:
            self._violate(f"{stay.name} is told epoch {epoch}, and {least} was there before")
        stay.heard_us = max(stay.heard_us, sent_us)
        self._stays[stay] = None
        stay.epoch = epoch
        self.epoch = max(self.epoch, epoch)

    def give(self, stay: Stay, places: Iterable[Place]) -> None:
        """A member hears that it may use these."""
        now_us = self._world.now_us
        is_firm = self._is_firm(stay)
        for place in sorted(places):
            holder = self._holders.get(place)
            if holder is not None and holder is not stay and is_firm:
                if self._is_firm(holder):
                    self._violate(f"{_name(place)} is given to {stay.name}, and {holder.name} has it")
                holder.is_removed = True
            instance_id, until_us = self._kept.pop(place, (None, 0))
            if is_firm and now_us < until_us and instance_id != stay.instance_id:
                self._violate(f"{_name(place)} is given to {stay.name}, and {instance_id} comes back for it")
            if self.is_classic:
                # An instance goes on in its generation, in another process; and a member that asks once more.
                who = stay.instance_id or stay.process
                owner = self._owners.setdefault((stay.epoch, place), who)
                if owner != who:
                    self._violate(f"{_name(place)} has owners {owner} and {who} in generation {stay.epoch}")
            stay.has.add(place)
            if holder is not None and holder is not stay:
                if not is_firm and (stay.epoch < holder.epoch or self._is_firm(holder)):
                    # An answer that was under way for longer than a session, or for an instance that has another
                    # process by now: so the partition has another owner.
                    continue
                holder.has.discard(place)
            self._holders[place] = stay

    def drop(self, stay: Stay, places: Iterable[Place]) -> None:
        """A member uses these no more."""
        for place in list(places):
            stay.has.discard(place)
            if self._holders.get(place) is stay:
                del self._holders[place]

    def end(self, stay: Stay, *, is_removed: bool = False) -> None:
        """A member uses nothing any more. `is_removed`: the group has said that it has no such member."""
        self.drop(stay, stay.has)
        self._stays.pop(stay, None)
        stay.is_removed = stay.is_removed or is_removed

    def keep(self, stay: Stay, places: Iterable[Place]) -> None:
        """A static member was told that it may go for a while: what it had is kept for it, until it comes back.

        That may be before it hears so: its answer was under way for longer than its successor took to come.
        """
        assert stay.instance_id is not None
        if any(process != stay.process for process, _ in self._processes[stay.instance_id][-1:]):
            return
        until_us = stay.firm_until_us(self.session_us)
        for place in places:
            self._kept[place] = stay.instance_id, until_us

    def come_back(self, instance_id: str, process: str, *, is_classic: bool) -> None:
        """A process joins as this instance: what is kept may be divided anew, and a classic one takes over at once."""
        self._kept = {place: kept for place, kept in self._kept.items() if kept[0] != instance_id}
        self._processes[instance_id].append((process, is_classic))

    def _is_firm(self, stay: Stay) -> bool:
        return not self._is_replaced(stay) and self._world.now_us < stay.firm_until_us(self.session_us)

    def _is_replaced(self, stay: Stay) -> bool:
        """Tell whether another process has joined as the same instance since, and need not wait for it."""
        for process, is_classic in reversed(self._processes[stay.instance_id] if stay.instance_id is not None else ()):
            if process == stay.process:
                return False
            if is_classic or stay.is_classic:
                return True
        return False

    # Positions.

    def send_commit(self, stay: Stay, place: Place, offset: int) -> Commit:
        """A member sends a commit."""
        commit = Commit(stay, place, offset, stay.epoch)
        self._doubts[place].append(commit)
        self._sent[place].add(offset)
        return commit

    def refuse_commit(self, commit: Commit) -> None:
        """The group has said that it does not take this one."""
        if commit in self._doubts[commit.place]:
            self._doubts[commit.place].remove(commit)

    def acknowledge(self, commit: Commit) -> None:
        """The group has taken it. If somebody else has the partition by now, that one's commits are newer."""
        self.refuse_commit(commit)
        floor = self._floors[commit.place]
        is_owner = self._holders.get(commit.place) in {commit.stay, None}
        self._floors[commit.place] = commit.offset if is_owner else max(floor, commit.offset)
        self._world.counts["group commits"] += 1

    def ask(self, stay: Stay | None, place: Place) -> Asked:
        """Somebody asks for a position; None: who is no member."""
        doubts = self._doubts[place]
        floor = self._floors[place]
        over = [] if stay is None else [one for one in doubts if one.stay is not stay and self._is_over(one)]
        return Asked(place, min([floor, *(one.offset for one in doubts)]), over)

    def _is_over(self, commit: Commit) -> bool:
        """Tell whether a commit that was not answered cannot be taken any more."""
        if self._holders.get(commit.place) is commit.stay:
            return False
        epoch = self.epoch if self.is_classic else commit.stay.epoch
        return commit.stay.is_removed or epoch > commit.epoch

    def tell(self, stay: Stay | None, asked: Asked, offset: int) -> None:
        """The answer; 0 is none."""
        place = asked.place
        if offset < asked.at_least:
            self._violate(f"the position of {_name(place)} is {offset}, and was {asked.at_least}")
        if offset and offset not in self._sent[place]:
            self._violate(f"the position of {_name(place)} is {offset}, which nobody has committed")
        self._world.counts["group positions asked"] += 1
        if stay is not None and asked.over and self._holders.get(place) is stay:
            for one in asked.over:
                self.refuse_commit(one)
            self._floors[place] = offset

    # What tools are told.

    def look(self, epoch: int, known: Known, shares: dict[str, set[Place]]) -> None:
        """Hold a description of the group, asked for when that was `known`, against what must be so."""
        least = self._least_epoch(known)
        if epoch < least:
            self._violate(f"is described in epoch {epoch}, and {least} was there before")
        seen = dict[Place, str]()
        for member_id, places in shares.items():
            for place in sorted(places):
                if seen.setdefault(place, member_id) != member_id:
                    self._violate(f"{_name(place)} is {seen[place]}'s and {member_id}'s, as it is described")
        self.epoch = max(self.epoch, epoch)
        self._world.counts["groups described"] += 1

    def _violate(self, claim: str) -> Any:
        self._world.violate(f"group {self.group}: {claim}")


def _name(place: Place) -> str:
    return f"{place[0].hex()[:6]}-{place[1]}"
