"""The assignors of consumer groups, which divide partitions, and the bytes that members exchange. Pure.

Read `assignor.py` first, then `subscription.py` for the bytes. `ranges.py` and `round_robin.py` divide by position.
`sticky.py` and `cooperative_sticky.py` go by the partitions that members hold already; `balance.py` has the search that
both share.

Not here: rack-aware assignment (KIP-881). A rack id is read and handed on, and no assignor looks at it.
"""

from typing import Final

from .assignor import NO_GENERATION, Assignment, Assignor, RebalanceProtocol, Subscription
from .cooperative_sticky import COOPERATIVE_STICKY
from .ranges import RANGE
from .round_robin import ROUND_ROBIN
from .sticky import STICKY
from .subscription import decode_assignment, decode_subscription, encode_assignment, encode_subscription

__all__ = [
    "ASSIGNORS",
    "COOPERATIVE_STICKY",
    "NO_GENERATION",
    "RANGE",
    "ROUND_ROBIN",
    "STICKY",
    "Assignment",
    "Assignor",
    "RebalanceProtocol",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE_STICKY)
}
"""The assignors by name."""
