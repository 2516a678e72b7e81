"""Has the garbage collector look at a long list only while it is short.

A collection of young objects looks at each element of each young list. A request that names a hundred thousand things
makes three or four lists of that length, each of which takes 3 ms, twice, in the callback that happens to make the next
few objects. So code that works in slices calls `put_by` after each of them: all that there is then is old, and as it is
little, that takes some 50 us. The same list, grown since, is never looked at again, except when everything is.

Nor does the interpreter know how much is young: it counts objects made less objects freed. If each new object takes the
place of an old one (an entry in the cache of a log, the last request of a connection), that is nothing. Thousands of
clients that each sent one small request a second were followed by one collection in five seconds, which took 50 ms. So
it is time that counts, too: `put_by` comes each time that the loop has used 10 ms of a processor (`LoopMeter`), in
which no more than some thousands can be made.
"""

import gc

__all__ = ["put_by"]


def put_by() -> None:
    """Collect young objects, so that the rest of them is old."""
    gc.collect(1)
