"""Names a likely leader while this node is cut off from those who elect one. Pure.

A broker whose links have just gone dead hears of no election: not of the one that took its own leaderships away, nor of
any other. Clients still reach it. If it told them to wait for a leader they would wait for as long as the link is down,
or until chance sends them to a better informed broker: with one of three brokers cut off, every third request for
metadata took a second longer, and the next one might meet the same broker (measured: 2.1 to 2.4 s from the cut to the
first acknowledgement, against 1.2 s for clients that asked another broker).

So it names another replica: the last leader that it knew, if that was not itself, else one that was in sync. A guess
that is wrong costs a round trip, as every broker that is asked tells where to go, or at least is not cut off. The guess
carries the last term that was known, so a client that has heard of a newer one does not believe it.

It does so for as long as silence is news (twice the session timeout). After that the controller's word counts, or,
without a controller, no partition has a leader. A broker that hears a majority never guesses: the majority knows
better.
"""

from collections.abc import Callable, Sequence

__all__ = ["is_cut_off", "somebody_else"]


def is_cut_off(node_id: int, voters: Sequence[int], is_silent: Callable[[int], bool]) -> bool:
    """Tell whether `node_id`, one of `voters`, does not hear enough of the others to be part of a majority."""
    heard = sum(voter == node_id or not is_silent(voter) for voter in voters)
    return node_id in voters and 2 * heard <= len(voters)


def somebody_else(node_id: int, last_leader: int, in_sync: Sequence[int], replicas: Sequence[int]) -> int:
    """Return the likeliest leader that is not `node_id`; -1 if there is no other replica."""
    candidates = ([last_leader] if last_leader in replicas else []) + [*in_sync, *replicas]
    return next((candidate for candidate in candidates if candidate != node_id), -1)
