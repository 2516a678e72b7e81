"""UpdateFeatures: have the controller change what the whole cluster speaks, all that is named or nothing.

Any broker takes the request, the active controller decides. As in Kafka the first refusal is that of all; requests
before version 2 get a result for each feature only if all is done; and in version 0, whose `allow_downgrade` Kafka 4
does not look at, levels only go up.
"""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas_metadata_quorum.controller.commands import FeatureChange, FeatureUpdate, Refused, UpdateFeatures

from .create_topics import code_of, limit_s

__all__ = ["FEATURES_MAX", "handle", "refuse"]

FEATURES_MAX = 100
"""Of one request: many times what there are."""
KINDS = {change.value: change for change in FeatureChange}


async def handle(broker: BrokerContext, exchange: Exchange, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Ask the controller."""
    updates = request.feature_updates
    if len(updates) > FEATURES_MAX:
        text = f"{len(updates)} features: at most {FEATURES_MAX} at a time"
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    unknown = next((one for one in updates if exchange.version >= 1 and one.upgrade_type not in KINDS), None)
    if unknown is not None:
        text = f"{unknown.feature}: there is no kind of update {unknown.upgrade_type}"
        return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=in_words(text))
    command = UpdateFeatures(tuple(_update(one, exchange.version) for one in updates), request.validate_only)
    try:
        await broker.metadata.submit(command, limit_s(request.timeout_ms))
    except Refused as refused:
        return UpdateFeaturesResponse(error_code=code_of(refused.reason), error_message=in_words(refused.message))
    return UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=one.feature) for one in updates])


def refuse(_: UpdateFeaturesRequest, code: ErrorCode) -> UpdateFeaturesResponse:
    """Answer with `code`."""
    return UpdateFeaturesResponse(error_code=code)


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    change = KINDS[asked.upgrade_type] if version else FeatureChange.UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, change)
