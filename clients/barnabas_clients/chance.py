"""Where the clients' chance comes from: which broker first, how long a pause. Nothing here has to be a secret.

One place, so that a simulation can put a generator there whose seed it knows, and has the same run again.
"""

import random

__all__ = ["new_generator"]


def new_generator() -> random.Random:
    """Return a generator of its own for whoever leaves something to chance."""
    return random.Random()
