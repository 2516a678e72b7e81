"""Keeps the garbage collector from what grows: a long list is looked at while it is short, and not again.

A collection of what is young looks at each element of each young list. A request that names a hundred thousand things
makes three or four lists of that length, each of which takes 3 ms, twice, in whichever callback happens to make the
next few objects. So whoever works in slices calls `put_by` after each of them: what there is then is old, and as there
is little of it, that takes some 50 us. The same list, grown since, is never looked at again, but where everything is.
"""

import gc

__all__ = ["put_by"]


def put_by() -> None:
    """Collect what is young, so that what is left of it is old."""
    gc.collect(1)
