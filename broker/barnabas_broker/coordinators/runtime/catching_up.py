"""Asks how far the controller is, for whoever must not conclude anything from an image that is behind."""

from typing import Protocol

from barnabas_metadata_quorum.controller.commands import Answer, Command, ReadIndex, ReadIndexAnswer
from barnabas_metadata_quorum.image.image import Image

__all__ = ["Metadata", "catch_up"]

LIMIT_S = 5.0


class Metadata(Protocol):
    """The part of the metadata service that this asks."""

    @property
    def image(self) -> Image: ...

    async def submit(self, command: Command, timeout_s: float) -> Answer: ...


async def catch_up(metadata: Metadata, limit_s: float = LIMIT_S) -> int:
    """Return when the image shows all that the controller had said before this call: the version that it had then.

    Raises:
        BarnabasError: the controller cannot be asked, or not in time.
        TimeoutError: the image is behind yet.
    """
    read = await metadata.submit(ReadIndex(), limit_s)
    assert isinstance(read, ReadIndexAnswer)
    if metadata.image.version < read.version:
        raise TimeoutError(f"the image is at {metadata.image.version}, and the controller's at {read.version}")
    return read.version
