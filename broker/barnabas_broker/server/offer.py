"""The offer: which APIs and versions a broker tells its clients about, as answers to ApiVersions. Pure."""

from collections.abc import Mapping

from barnabas_clients.protocol.api_versions import ApiVersion, ApiVersionsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.raft.messages import Buffer

__all__ = ["Offer"]


class Offer:
    """What one broker says that it speaks: `versions` by the API's key, none of them empty.

    Floods of questions must not have the same encoded each time, so an answer is kept for each version and code that
    was asked for: ten at most.
    """

    def __init__(self, versions: Mapping[int, range]) -> None:
        self._keys = [
            ApiVersion(api_key=key, min_version=offered[0], max_version=offered[-1])
            for key, offered in sorted(versions.items())
        ]
        self._bodies: dict[tuple[int, ErrorCode], Buffer] = {}

    def body(self, version: int, code: ErrorCode) -> Buffer:
        """Return the encoded response. No cluster-wide features exist yet, so none are claimed."""
        asked = (version, code)
        if asked not in self._bodies:
            (self._bodies[asked],) = ApiVersionsResponse(error_code=code, api_keys=self._keys).encode(version)
        return self._bodies[asked]
