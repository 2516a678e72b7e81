"""Checks the settings of a consumer when it is made. Pure.

`Consumer` (consumer.py) explains their meanings.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, cast

from barnabas_clients.arguments import INT32_MAX, flag, one_of, seconds, shown, text, whole_number
from barnabas_clients.assignors.assignor import Assignor
from barnabas_clients.assignors.built_in import ASSIGNORS
from barnabas_clients.place_arguments import several

from .fetch_plan import FetchSettings

__all__ = ["EARLIEST", "LATEST", "RESETS", "ConsumerSettings", "FetchSettings", "assignors_of"]

# The ends of a log, as ListOffsets names them.
LATEST = -1
EARLIEST = -2

RESETS: Final[Mapping[str, int | None]] = {"latest": LATEST, "earliest": EARLIEST, "none": None}
"""The values of `auto_offset_reset`, and the ends that they stand for; None leaves it to the application."""


ASSIGNORS_USUAL: Final = ("range", "cooperative-sticky")
SESSION_TIMEOUT_S: Final = 45.0
HEARTBEAT_INTERVAL_S: Final = 3.0
CLASSIC_ONLY: Final[Mapping[str, object]] = {
    "assignors": tuple(ASSIGNORS[name] for name in ASSIGNORS_USUAL),
    "session_timeout_s": SESSION_TIMEOUT_S,
    "heartbeat_interval_s": HEARTBEAT_INTERVAL_S,
}
"""The settings of classic groups only, and their defaults."""
INSTEAD: Final[Mapping[str, str]] = {
    "assignors": "the coordinator divides the partitions (group_remote_assignor)",
    "session_timeout_s": "brokers set it (group.consumer.session.timeout.ms)",
    "heartbeat_interval_s": "the coordinator says it (group.consumer.heartbeat.interval.ms)",
}


class ConsumerSettings(NamedTuple):
    """See `Consumer`."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    auto_offset_reset: Literal["latest", "earliest", "none"]
    auto_commit: bool
    auto_commit_interval_s: float
    assignors: tuple[Assignor, ...]
    session_timeout_s: float
    heartbeat_interval_s: float
    max_poll_interval_s: float
    metadata_max_age_s: float
    request_timeout_s: float
    timeout_s: float
    outage_timeout_s: float | None
    fetch: FetchSettings

    def check(self) -> "ConsumerSettings":
        """Return these settings, all of them checked.

        Raises:
            TypeError, ValueError: one is impossible; the message names it.
        """
        one_of("auto_offset_reset", self.auto_offset_reset, list(RESETS))
        one_of("group_protocol", self.group_protocol, ["classic", "consumer"])
        flag("auto_commit", self.auto_commit)
        if self.group_id is not None:
            text("group_id", self.group_id)
        if self.group_instance_id is not None:
            text("group_instance_id", self.group_instance_id)
        for name in self._fields:
            value = getattr(self, name)
            may_be_endless = name == "outage_timeout_s" and (
                value is None or (type(value) is float and value == math.inf)
            )
            if name.endswith("_s") and not may_be_endless:
                seconds(name, value, is_positive=True)
        if self.heartbeat_interval_s >= self.session_timeout_s:
            raise ValueError("heartbeat_interval_s must be less than session_timeout_s")
        if self.group_instance_id is not None and self.group_id is None:
            raise ValueError("group_instance_id without a group_id")
        if not self.assignors:
            raise ValueError("assignors is empty")
        self._check_protocol()
        fetch = self.fetch
        checked = FetchSettings(
            max_wait_s=seconds("fetch_max_wait_s", fetch.max_wait_s),
            min_bytes=whole_number("fetch_min_bytes", fetch.min_bytes, 0, INT32_MAX),
            max_bytes=whole_number("fetch_max_bytes", fetch.max_bytes, 1, INT32_MAX),
            partition_bytes=whole_number("partition_fetch_bytes", fetch.partition_bytes, 1, INT32_MAX),
            buffer_bytes=whole_number("buffer_bytes", fetch.buffer_bytes, 1),
            read_committed=flag("read_committed", fetch.read_committed),
            rack=text("client_rack", fetch.rack, may_be_empty=True),
        )
        return self._replace(fetch=checked)

    def _check_protocol(self) -> None:
        """Refuse what has no meaning in the group's protocol, as Kafka's clients do."""
        if self.is_classic:
            if self.group_remote_assignor is not None:
                raise ValueError("group_remote_assignor needs group_protocol='consumer'; classic groups have assignors")
            return
        if self.group_remote_assignor is not None:
            text("group_remote_assignor", self.group_remote_assignor)
        for name, default in CLASSIC_ONLY.items():
            if getattr(self, name) != default:
                raise ValueError(f"{name} has no meaning with group_protocol='consumer', where {INSTEAD[name]}")

    @property
    def is_classic(self) -> bool:
        """True if the members of the group divide the partitions, false if its coordinator does (KIP-848)."""
        return self.group_protocol == "classic"

    @property
    def outage_s(self) -> float:
        """How long nothing may be readable until asking for records raises; infinite if it never raises for that."""
        return self.timeout_s if self.outage_timeout_s is None else self.outage_timeout_s

    @property
    def commits(self) -> bool:
        """True if finished offsets are committed for the application."""
        return self.auto_commit and self.group_id is not None


def assignors_of(given: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """Return assignors; those given by name are looked up.

    Raises:
        TypeError: one is not an assignor. ValueError: a name is not one of ours.
    """
    found: list[Assignor] = []
    for one in several("assignors", given, "assignors"):
        if isinstance(one, str):
            if one not in ASSIGNORS:
                raise ValueError(
                    f"there is no assignor {one[:80]!r}; choose from {', '.join(ASSIGNORS)}, or give an object"
                )
            found.append(ASSIGNORS[one])
        elif isinstance(one, type) or not all(
            hasattr(one, part) for part in ("name", "protocols", "user_data", "assign")
        ):
            raise TypeError(f"an assignor is {shown(one)}; it must be a name, or an object that is an Assignor")
        else:
            found.append(cast("Assignor", one))
    return tuple(found)
