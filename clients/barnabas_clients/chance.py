"""Makes the clients' random generators, for the order of brokers and the pauses.

None of these numbers has to be secret. A simulation replaces `new_generator` by one whose seed it knows, and so repeats
a run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

__all__ = ["new_generator"]


def new_generator() -> "random.Random":
    """Return a generator that is shared with nobody."""
    import random  # noqa: PLC0415 - it takes a millisecond to load, and the first client comes later

    return random.Random()
