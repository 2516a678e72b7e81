"""The stream of frames that a seed stands for.

Frame number n goes to the n-th pair of API and version, round after round; in every other round bytes are mutated, in
the rest a well-formed request has values that lie. Each frame has a generator of its own, drawn from the seed and the
number, but speaks of names that brokers give out: a frame that fails is kept as bytes.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

from barnabas_broker.server.dispatch import ROUTES
from barnabas_clients.protocol.registry import APIS, encode_request

from .boundaries import Names, lying_request
from .mutations import mutated, with_size

__all__ = ["PAIRS", "Frame", "frames", "name_of"]

PAIRS = tuple(
    (key, version)
    for key, route in sorted(ROUTES.items())
    for version in route.advertised
    if version >= route.served_from
)
"""Every API and version that a broker serves."""
CLIENT_IDS = (None, "", "fuzz", "x" * 300, "\x1b[2J")
SPARED = 8  # API key, version, and correlation id: most mutations should get further
SIZES = (-1, 0, 1, 9, 10, 200, 1 << 16, 1 << 27, 2**31 - 1, -(2**31))


class Frame(NamedTuple):
    """One frame with its size in front. `is_lie`: well-formed; otherwise its bytes are mutated."""

    number: int
    api_key: int
    version: int
    is_lie: bool
    data: bytes

    @property
    def correlation_id(self) -> int:
        return self.number & 0x7FFFFFFF


def name_of(api_key: int, version: int) -> str:
    """Return the name of a version of an API in a broker's status."""
    return f"{APIS[api_key].name} v{version}"


def frames(seed: int, count: int, names: Names) -> Iterator[Frame]:
    """Yield `count` frames."""
    other = b"\0" * 40
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        key, version = PAIRS[number % len(PAIRS)]
        whole = _well_formed(key, version, number, names, chance)
        if number // len(PAIRS) % 2 == 0:
            yield Frame(number=number, api_key=key, version=version, is_lie=True, data=whole)
        else:
            yield Frame(number=number, api_key=key, version=version, is_lie=False, data=_mutated(whole, other, chance))
        other = whole


def _well_formed(key: int, version: int, number: int, names: Names, chance: random.Random) -> bytes:
    client_id = chance.choice(CLIENT_IDS) if chance.random() < 0.1 else "fuzz"
    while True:
        request = lying_request(APIS[key].request, version, names, chance)
        try:
            return b"".join(encode_request(request, version, number & 0x7FFFFFFF, client_id))
        except ValueError:
            continue  # a text that this version has no room for


def _mutated(whole: bytes, other: bytes, chance: random.Random) -> bytes:
    spared = SPARED if chance.random() < 0.95 else 0
    data = with_size(mutated(whole[4:], other[4:], chance, spared))
    if chance.random() < 0.04:
        data = chance.choice(SIZES).to_bytes(4, "big", signed=True) + data[4:]
    return data
