"""Lets a new cluster begin with levels of features that its nodes can read.

A cluster is new if its first controller finds no record, committed or not: nobody is registered, no topic exists, no
client has been answered. Levels that are finalized now, as the first record of all, are those of every client that will
ever come; an older cluster keeps what it has until an operator asks for more (`controller.features`).

But nodes of an older version may be among those that begin, and a record that they cannot read would stop them. So
before it becomes active the first controller asks every other controller which records it understands, and the learners
that are there. One that cannot read features, or does not say, lets the cluster begin without, and an event tells. All
controllers were there a moment ago (`voters.formation`), so this takes one round trip, once in the life of a cluster;
nothing is asked where nothing is to be finalized. A controller that ends before its record is committed leaves the same
question to the next one.

*How long.* What a cluster begins without, it lacks until an operator asks for it; so a slow controller is waited
for as long as its link holds, `ASK_S_MAX` at most. One without a link is waited for `GONE_S`, and learners that long.

Limits: one question to each node, and one more for each change of a link, within `ASK_S_MAX`; one answer is an int.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import msgpack

from barnabas_metadata_quorum.controller.commands import FeatureUpdate, RefusalReason, Refused
from barnabas_metadata_quorum.controller.features import record_level_of
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.links.links import LinkDownError, RemoteError
from barnabas_raftlog.raft.messages import Fact

from .pulse import Pulse

__all__ = ["Founding"]

METHOD = "metadata.record_level"
ASK_S_MAX = 30.0
GONE_S = 2.0


class Founding:
    """One node's part: it says what it understands, and asks the others if it is to be the first controller.

    `wanted` are the levels that a new cluster should begin with. `changed` fires when a link has changed, and is fired
    when `updates` has something new to say.
    """

    def __init__(
        self,
        others: Collection[int],
        voters: Collection[int],
        links: NodeLinks,
        wanted: Mapping[str, int],
        *,
        record_level: int,
        changed: Pulse,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_known: Callable[[], None],
        on_fact: Callable[[Fact], None],
    ) -> None:
        self._others = sorted(others)
        self._controllers = frozenset(voters).intersection(others)
        self._links = links
        self._wanted = tuple(FeatureUpdate(name, level) for name, level in sorted(wanted.items()))
        self._needed_level = record_level_of(wanted)
        self._record_level = record_level
        self._changed = changed
        self._spawn = spawn
        self._on_known = on_known
        self._on_fact = on_fact
        self._term = 0
        self._updates: tuple[FeatureUpdate, ...] | None = None
        links.serve(METHOD, self._serve)

    async def _serve(self, source: int, _: bytes) -> bytes:
        if source < 0:
            raise Refused(RefusalReason.INVALID_REQUEST, "only nodes found a metadata group")
        level: bytes = msgpack.packb(self._record_level)
        return level

    def updates(self, term: int) -> tuple[FeatureUpdate, ...] | None:
        """Return what the cluster begins with; None while nodes are asked, after which `on_known` is called."""
        if not self._wanted:
            return ()
        if self._term != term:
            self._term = term
            self._updates = None
            self._spawn(self._find_out(term))
        return self._updates

    async def _find_out(self, term: int) -> None:
        levels: dict[int, int] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_S_MAX):
                while True:
                    change = self._changed.wait()
                    unknown = [one for one in self._others if one not in levels and self._links.is_live(one)]
                    await self._ask(unknown, levels)
                    if self._controllers <= levels.keys():
                        break
                    async with asyncio.timeout(GONE_S):
                        await change
        if self._term != term:
            return
        unknown = sorted(self._controllers - levels.keys())
        unable = sorted(node_id for node_id, level in levels.items() if level < self._needed_level)
        if unknown or unable or self._record_level < self._needed_level:
            why = (
                f"nodes {unable} run a version without them" if unable else f"nodes {unknown} do not say what they know"
            )
            names = ", ".join(f"{one.name} {one.level}" for one in self._wanted)
            self._on_fact(Fact("features not finalized", term, f"the cluster begins without {names}: {why}"))
            self._updates = ()
        else:
            self._updates = self._wanted
        self._on_known()

    async def _ask(self, node_ids: Collection[int], levels: dict[int, int]) -> None:
        """Note in `levels` what nodes say while they are asked."""
        async with asyncio.TaskGroup() as tasks:
            for node_id in node_ids:
                tasks.create_task(self._ask_one(node_id, levels))

    async def _ask_one(self, node_id: int, levels: dict[int, int]) -> None:
        """Note what a node understands: nothing if it cannot be asked, and 0 if it does not know the question."""
        limit_s = ASK_S_MAX if node_id in self._controllers else GONE_S
        try:
            levels[node_id] = int(msgpack.unpackb(await self._links.call(node_id, METHOD, b"", limit_s)))
        except (LinkDownError, TimeoutError):
            pass
        except (RemoteError, MalformedMessageError, ValueError, TypeError, msgpack.UnpackException):
            levels[node_id] = 0
