"""Keeps the garbage collector from what grows: a long list is looked at while it is short, and not again.

A collection of what is young looks at each element of each young list. A request that names a hundred thousand things
makes three or four lists of that length, each of which takes 3 ms, twice, in whichever callback happens to make the
next few objects. So whoever works in slices calls `put_by` after each of them: what there is then is old, and as there
is little of it, that takes some 50 us. The same list, grown since, is never looked at again, but where everything is.

Nor does the interpreter know how much is young: it counts what is made less what is freed, and where each new object
takes the place of an old one (an entry in the cache of a log, what a connection keeps of its last request) that is
nothing. Thousands of clients that each sent one small request a second were followed by one collection in five seconds,
which took 50 ms. So it is time that counts, too: `put_by` comes each time that the loop has used 10 ms of a processor
(`LoopMeter`), in which no more than some thousands can be made.
"""

import gc

__all__ = ["put_by"]


def put_by() -> None:
    """Collect what is young, so that what is left of it is old."""
    gc.collect(1)
