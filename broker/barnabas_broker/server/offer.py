"""The offer: what a broker tells its clients that it speaks, as answers to ApiVersions. Pure.

From version 3 on an answer has features, too: the levels of each that this broker knows, and those that are finalized
in the cluster, with an epoch by which a client tells newer answers, of any broker, from older ones. As in Kafka that is
the position in the metadata, here the image's version.

An answer to a version that the broker does not speak names ApiVersions alone, as in Kafka (KIP-511): the client asks
again in a version that both speak. If it named all else, some clients would take it for the whole, without features
(franz-go 1.22).

An API that belongs to a feature is named from the level on at which the cluster has it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas_clients.protocol.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.image.image import Image
from barnabas_raftlog.raft.messages import Buffer

__all__ = ["Level", "Offer"]

QUESTION = 18
"""The key of ApiVersions."""
FEATURES_SINCE = 3
LEVEL_0_SINCE = 4
"""Before, a lowest level of 0 is malformed to clients (KAFKA-17011): they are told of such a feature if finalized."""


class Level(NamedTuple):
    """The lowest level of a feature that will do."""

    feature: str
    level: int

    def is_reached(self, image: Image) -> bool:
        return image.features.get(self.feature, 0) >= self.level


class Offer:
    """What one broker says that it speaks: `versions` by the API's key, and levels of `features` by name, none empty.

    `needed`: the levels that APIs wait for, by key.

    Floods of questions must not have the same encoded each time, so an answer is kept for each version and code that
    was asked for, ten at most, until the image is another one.
    """

    def __init__(
        self,
        versions: Mapping[int, range],
        features: Mapping[str, range],
        image: Callable[[], Image],
        needed: Mapping[int, Level] | None = None,
    ) -> None:
        self._all_keys = [
            ApiVersion(api_key=key, min_version=offered[0], max_version=offered[-1])
            for key, offered in sorted(versions.items())
        ]
        self._needed = needed or {}
        self._features = features
        self._image = image
        self._bodies: dict[tuple[int, ErrorCode], Buffer] = {}
        self._image_version = -1

    def body(self, version: int, code: ErrorCode) -> Buffer:
        """Return the encoded response."""
        if (self._features or self._needed) and self._image().version != self._image_version:
            self._image_version = self._image().version
            self._bodies.clear()
        asked = (version, code)
        if asked not in self._bodies:
            (self._bodies[asked],) = self._response(version, code).encode(version)
        return self._bodies[asked]

    def _response(self, version: int, code: ErrorCode) -> ApiVersionsResponse:
        if code is ErrorCode.UNSUPPORTED_VERSION:
            keys = [one for one in self._all_keys if one.api_key == QUESTION]
            return ApiVersionsResponse(error_code=code, api_keys=keys)
        image = self._image()
        needed = self._needed
        keys = [one for one in self._all_keys if one.api_key not in needed or needed[one.api_key].is_reached(image)]
        if version < FEATURES_SINCE or not self._features:
            return ApiVersionsResponse(error_code=code, api_keys=keys)
        known = sorted(self._features.items())
        supported = [(name, levels) for name, levels in known if version >= LEVEL_0_SINCE or levels[0]]
        return ApiVersionsResponse(
            error_code=code,
            api_keys=keys,
            supported_features=[
                SupportedFeatureKey(name=name, min_version=levels[0], max_version=levels[-1])
                for name, levels in supported
            ],
            finalized_features_epoch=image.version,
            finalized_features=[
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(image.features.items())
            ],
        )
