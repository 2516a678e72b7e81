"""Refuses commands whose records a broker of an older version could not read. Pure."""

from barnabas_metadata_quorum.image.image import Image

from .commands import RefusalReason, Refused

__all__ = ["check_level"]


def check_level(image: Image, level: int, lack: str, reason: RefusalReason = RefusalReason.UNSUPPORTED_VERSION) -> None:
    """See that every broker which serves, or holds replicas, understands records of a level.

    `lack`: words for what an older version is missing, to follow "a version".

    Raises:
        Refused: `reason`; the text names the first broker that is to be upgraded.
    """
    if (node_id := image.member_below(level)) is not None:
        raise Refused(reason, f"broker {node_id} runs, or last ran, a version {lack}; upgrade it first")
