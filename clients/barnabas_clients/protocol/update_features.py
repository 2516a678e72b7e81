"""UpdateFeatures, API key 57: change the levels of features that the whole cluster speaks (KIP-584). Pure.

Versions: 0 flexible already; 1 kinds of downgrades, and validation only; 2 all or none are changed, so there are no
results for each.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int8, Int16, Int32, Message, String, Struct, field, message, wire

__all__ = [
    "FeatureUpdateKey",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
]


class FeatureUpdateKey(Struct):
    """The level that a feature should have; below 1 it is switched off.

    `upgrade_type`: 1 goes up only, 2 also down if nothing is lost by it, 3 down in any case.
    """

    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, wire(until=0)] = False
    upgrade_type: Annotated[Int8, wire(since=1)] = 1


@message(api_key=57, versions=range(3), flexible_since=0)
class UpdateFeaturesRequest(Message):
    """The features to change."""

    timeout_ms: Int32 = 60_000
    feature_updates: list[FeatureUpdateKey] = field(default_factory=list)
    validate_only: Annotated[Bool, wire(since=1)] = False


class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=57, versions=range(3), flexible_since=0)
class UpdateFeaturesResponse(Message):
    """From version 2 on the top-level error is that of all."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: Annotated[list[UpdatableFeatureResult], wire(until=1)] = field(default_factory=list)
