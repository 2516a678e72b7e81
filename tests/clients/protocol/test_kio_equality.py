"""Every version of every message, byte for byte as `kio` writes it, and back."""

import random

import pytest

from barnabas_clients.protocol.registry import Api

from .kio_oracle import kio_bytes, known_to_kio
from .samples import EVERY_MESSAGE_OF_KAFKA, sample

SAMPLES = 12


@pytest.mark.parametrize(
    ("api", "side"), EVERY_MESSAGE_OF_KAFKA, ids=lambda each: each if isinstance(each, str) else each.name
)
def test_bytes_are_those_that_kio_writes(api: Api, side: str) -> None:
    message_type = getattr(api, side)
    for version in known_to_kio(api):
        chance = random.Random(f"{api.name} {side} {version}")
        for _ in range(SAMPLES):
            message = sample(message_type, version, chance)
            encoded = message.to_bytes(version)
            assert encoded == kio_bytes(message, version), f"{message} v{version}"
            assert message_type.decode(encoded, version) == message
