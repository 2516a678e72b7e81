"""The simulator must catch these mistakes of groups, of both protocols.

Each is one line. A seed is named that notices it. If one survives its seed, find another that catches it (`scripts/sim
--groups` with the mistake), or say why it is none any more.
"""

import pytest
from broker.coordinators.mutants import planted

from sim.cluster.scenario import SimulationError, run_choice
from sim.cluster.swarm import grouped

GROUPS = "coordinators.groups"
CONSUMER = f"{GROUPS}.consumer"
CLASSIC = f"{GROUPS}.state_machine"
MUTANTS = {  # what is broken: (a seed that notices, the module, the text, the text instead)
    "what somebody has not given up is given to the next": (
        0,
        f"{CONSUMER}.reconciling",
        " and owners.get(n, step.member_id) == step.member_id]",
        "]",
    ),
    "silence is taken for giving up": (
        2,
        f"{CONSUMER}.reconciling",
        "    if step.owned is None:\n        return True\n    return any(number in revoking",
        "    if step.owned is None:\n        return False\n    return any(number in revoking",
    ),
    "a member that gives up goes on to the target": (
        2,
        f"{CONSUMER}.reconciling",
        "            is_waited_for = _still_has(step, now.revoking)\n",
        "            is_waited_for = False\n",
    ),
    "a static member that goes for a while frees its partitions": (
        1,
        f"{CONSUMER}.group",
        "        after = now._replace(epoch=STATIC_LEAVING_EPOCH, assigned=assigned, revoking=NOTHING)\n",
        "        after = now._replace(epoch=STATIC_LEAVING_EPOCH, assigned=NOTHING, revoking=NOTHING)\n",
    ),
    "who is thrown out keeps its partitions": (
        0,
        f"{CONSUMER}.group",
        "        self._write(Kind.MEMBER_ASSIGNMENT, member_id, None)\n        if member_id in self.targets:\n",
        "        if member_id in self.targets:\n",
    ),
    "any epoch will do": (
        0,
        f"{CONSUMER}.group",
        "        if beat.epoch == now.epoch or (beat.epoch < now.epoch and is_lost_answer):\n",
        "        if beat.epoch == now.epoch or beat.epoch != now.epoch or is_lost_answer:\n",
    ),
    "it is answered before it is committed": (
        0,
        f"{GROUPS}.consumers",
        "            error = self._append(hosted, batch, flight)\n",
        "            error = self._append(hosted, batch, flight)\n            flight.land(ErrorCode.NONE)\n",
    ),
    "the record of a change says what was there before": (
        0,
        f"{GROUPS}.consumer_batches",
        "record_of_consumer(change.key, change.value)",
        "record_of_consumer(change.key, change.old or change.value)",
    ),
    "nobody is thrown out for silence": (
        0,
        f"{CONSUMER}.group",
        "        self._sessions[member_id] = now_ms + self._config.session_timeout_ms\n",
        "        self._sessions[member_id] = now_ms + 1_000 * self._config.session_timeout_ms\n",
    ),
    "sessions do not begin with a coordinator": (
        0,
        f"{CONSUMER}.group",
        "            self.touch(member_id, now_ms)\n        self._revoking.clear()\n",
        "            pass\n        self._revoking.clear()\n",
    ),
    "a commit of any epoch is taken": (
        5,
        f"{CONSUMER}.group",
        "        if epoch > now.epoch:\n            return self.stale(member_id)\n",
        "        if epoch > now.epoch:\n            return ErrorCode.NONE\n",
    ),
    "since when a member has a partition is not looked at": (
        0,
        "server.handlers.consumer_offsets",
        "since_epoch is not None and since_epoch <= self.epoch",
        "True or since_epoch is None",
    ),
    "a commit is answered before it is committed": (
        0,
        f"{GROUPS}.shard",
        "partial(self._put_offsets, batch), last)\n",
        "partial(self._put_offsets, batch), None)\n            _tell(last, error)\n",
    ),
    "new topics are not looked at with patterns": (
        10,
        f"{CONSUMER}.group",
        "        if any(version != topics.version for version in versions):\n",
        "        if False:\n",
    ),
    "any generation will do": (
        9,
        f"{CLASSIC}.group",
        "        if generation_id is not None and (generation_id != self.generation_id or member.is_new):\n",
        "        if generation_id is not None and member.is_new:\n",
    ),
    "an instance that comes back finds its place taken by itself": (
        1,
        f"{CONSUMER}.group",
        "        self._remove(old_id)\n        self._write(Kind.MEMBER_METADATA, new_id, metadata)\n",
        "        self._write(Kind.MEMBER_METADATA, new_id, metadata)\n",
    ),
    "what is being given up is not saved": (
        30,
        f"{CONSUMER}.records",
        "partitions_pending_revocation=_current(value.revoking)",
        "partitions_pending_revocation=_current({})",
    ),
    "a generation forms without those who have not joined": (
        9,
        f"{CLASSIC}.phases",
        "_count < len(self._members):\n            self._pending_wait_at_ms = None\n",
        "_count < min(1, len(self._members)):\n            self._pending_wait_at_ms = None\n",
    ),
    "sessions of classic members do not end": (
        9,
        f"{CLASSIC}.phases",
        "        expired = (one for one in self._members if one.expires_at_ms <= now_ms and not one.waits)\n",
        "        expired = (one for one in self._members if one.expires_at_ms <= now_ms and one.waits)\n",
    ),
    "what classic members have is nobody's when their group goes over": (
        9,
        f"{CONSUMER}.conversion",
        "MemberAssignment(epoch, epoch, assigned=has)",
        "MemberAssignment(epoch, epoch)",
    ),
    "a classic member that died before its group went over stays": (
        4,
        f"{GROUPS}.consumers",
        "            hosted.group.restart_sessions(self._host.now_ms())\n        if self._runtime",
        "            pass\n        if self._runtime",
    ),
    "the record of the classic group stays when it goes over": (
        4,
        f"{GROUPS}.consumers",
        "            first.put_classic(hosted.group_id, None, None)\n",
        "            pass\n",
    ),
    "who was thrown out finds no group when it has gone back": (
        9,
        f"{GROUPS}.consumers",
        "            ticket.on_answer(refusal or _missing(group_id, hosted))\n        else:",
        "            ticket.on_answer(_missing(group_id, hosted))\n        else:",
    ),
    "an instance of KIP-848 need not go before its place is taken over": (
        4,
        f"{CONSUMER}.group",
        "        is_classic = beat.classic is not None or self.members[holder].classic is not None\n",
        "        is_classic = True\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_seed_notices(name: str) -> None:
    seed, module, text, instead = MUTANTS[name]
    with planted(module, text, instead), pytest.raises(SimulationError):
        run_choice(grouped(seed))
