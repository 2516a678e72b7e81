"""All assignors that come with the clients. Pure."""

from typing import Final

from .assignor import Assignor
from .cooperative_sticky import COOPERATIVE_STICKY
from .ranges import RANGE
from .round_robin import ROUND_ROBIN
from .sticky import STICKY

__all__ = ["ASSIGNORS", "COOPERATIVE_STICKY", "RANGE", "ROUND_ROBIN", "STICKY"]

ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)
}
"""The assignors by name."""
