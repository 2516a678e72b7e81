"""Tells and changes what a cluster speaks on which level: functions over a `Cluster`.

Any broker tells the levels; the controller changes them, all that are named or none. A change that is repeated because
its answer was lost finds the level that it wants, which is no error.

Cancellation: levels may be changed nevertheless.
"""

from collections.abc import Mapping

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.connection import CLIENT_SOFTWARE_NAME, CLIENT_SOFTWARE_VERSION
from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.errors import error_for
from barnabas_clients.protocol.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from .attempts import raise_for
from .values import Feature, FeatureChange, FeaturesDescription

__all__ = ["describe_features", "update_features"]


async def describe_features(cluster: Cluster, timeout_s: float) -> FeaturesDescription:
    """Ask one broker for the features of the cluster, by name."""

    def check(response: ApiVersionsResponse) -> None:
        raise_for(response.error_code, "describing features", None)

    request = ApiVersionsRequest(
        client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
    )
    found: ApiVersionsResponse = await cluster.request_any(request, timeout_s, check)
    known = {one.name: (one.min_version, one.max_version) for one in found.supported_features}
    epoch = found.finalized_features_epoch if found.finalized_features_epoch >= 0 else None
    levels = {one.name: one.max_version_level for one in found.finalized_features} if epoch is not None else {}
    return FeaturesDescription(
        epoch, tuple(Feature(name, levels.get(name, 0), known.get(name)) for name in sorted({*known, *levels}))
    )


async def update_features(
    cluster: Cluster, levels: Mapping[str, int], change: FeatureChange, timeout_s: float, *, validate_only: bool
) -> None:
    """Change levels of features, all or none.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION, a feature or level is not known, or on the wrong side of the present one.
        UnsupportedVersionError: the brokers change no features.
    """

    def check(response: UpdateFeaturesResponse) -> None:
        if response.error_code:  # A broker's message names the feature.
            raise error_for(response.error_code, response.error_message or "updating features")
        for row in response.results:
            raise_for(row.error_code, row.feature, row.error_message)

    request = UpdateFeaturesRequest(
        timeout_ms=int(timeout_s * 1_000),
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=change)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    await cluster.request_controller(request, timeout_s, check)
