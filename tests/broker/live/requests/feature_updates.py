"""Updates of one feature in an order, and what comes of each: of a new cluster's, and of Apache Kafka's."""

from typing import NamedTuple

from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from broker.wire_client import Wire

__all__ = ["FEATURE", "GROUPS", "METADATA", "STEPS", "Outcome", "Step", "features_of", "level_of", "taken"]

FEATURE = "transaction.version"
METADATA = "metadata.version"
GROUPS = "group.version"
UP, SAFE, LOSSY = 1, 2, 3
WRONG = ErrorCode.INVALID_UPDATE_VERSION


class Outcome(NamedTuple):
    """The code of the answer, how many results it has, and the level from then on."""

    code: int
    results: int
    level: int


class Step(NamedTuple):
    """A request: (feature, level, upgrade type) of each update, with `allow_downgrade` in version 0; what comes of it.

    `kafka` is None if the same comes of it there.
    """

    versions: range
    updates: tuple[tuple[str, int, int], ...]
    code: ErrorCode
    level: int
    validate_only: bool = False
    kafka: Outcome | None = None


ALL, OLD, NEW = range(3), range(1), range(1, 3)
STEPS = (
    Step(ALL, ((FEATURE, 2, UP),), ErrorCode.NONE, 2),
    Step(ALL, ((FEATURE, 1, UP),), WRONG, 2),
    Step(OLD, ((FEATURE, 1, SAFE),), WRONG, 2),  # Nobody looks at what version 0 allows.
    Step(NEW, ((FEATURE, 1, SAFE),), ErrorCode.NONE, 1),
    Step(NEW, ((FEATURE, 1, UP),), ErrorCode.NONE, 1),
    Step(NEW, ((FEATURE, 2, SAFE),), WRONG, 1),
    Step(NEW, ((FEATURE, 2, LOSSY),), WRONG, 1),
    Step(NEW, ((FEATURE, 2, UP),), ErrorCode.NONE, 1, validate_only=True),
    Step(NEW, ((FEATURE, 2, UP),), ErrorCode.NONE, 2),
    Step(ALL, ((FEATURE, 3, UP),), WRONG, 2),
    Step(ALL, ((FEATURE, -1, SAFE),), WRONG, 2),
    Step(NEW, ((FEATURE, 1, 0),), WRONG, 2),
    Step(NEW, ((FEATURE, 1, 9),), WRONG, 2),
    Step(ALL, (("x", 1, UP),), WRONG, 2),
    Step(ALL, (("x", 0, UP),), WRONG, 2),
    Step(ALL, (("", 1, UP),), WRONG, 2),
    Step(ALL, ((FEATURE, 1, SAFE), ("x", 1, UP)), WRONG, 2),
    Step(NEW, ((FEATURE, 0, LOSSY),), ErrorCode.NONE, 0),
    Step(NEW, ((FEATURE, 0, SAFE),), ErrorCode.NONE, 0),
    Step(ALL, ((FEATURE, 2, UP),), ErrorCode.NONE, 2),
    Step(ALL, ((METADATA, 33, UP),), ErrorCode.NONE, 2),
    Step(ALL, ((METADATA, 34, UP),), WRONG, 2),
    Step(ALL, ((METADATA, 32, UP),), WRONG, 2),
    Step(ALL, ((METADATA, 32, SAFE),), WRONG, 2),
    Step(ALL, ((METADATA, 32, LOSSY),), WRONG, 2),
    Step(ALL, ((METADATA, 6, SAFE),), WRONG, 2),
    Step(ALL, ((METADATA, 0, LOSSY),), WRONG, 2),
    Step(ALL, ((GROUPS, 2, UP),), WRONG, 2),
    Step(ALL, ((GROUPS, 0, UP),), WRONG, 2),
    Step(NEW, ((GROUPS, 0, SAFE),), ErrorCode.NONE, 2),
    Step(ALL, ((GROUPS, 1, UP),), ErrorCode.NONE, 2),
    # Clients send neither: their updates are a map, and one without any is refused before it is sent.
    Step(ALL, (), ErrorCode.INVALID_REQUEST, 2, kafka=Outcome(ErrorCode.NONE, 0, 2)),
    Step(range(2, 3), ((FEATURE, 1, UP), (FEATURE, 2, UP)), ErrorCode.INVALID_REQUEST, 2, kafka=Outcome(0, 0, 2)),
)


def features_of(wire: Wire, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response: ApiVersionsResponse = wire.ask(request, version)
    return response


def taken(wire: Wire, step: Step, version: int) -> Outcome:
    """Take a step and return what came of it."""
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=kind != UP)
        for name, level, kind in step.updates
    ]
    answer = wire.ask(UpdateFeaturesRequest(feature_updates=updates, validate_only=step.validate_only), version)
    return Outcome(answer.error_code, len(answer.results), level_of(wire))


def level_of(wire: Wire) -> int:
    """Return the level of the feature, as a broker tells it now."""
    finalized = {one.name: one.max_version_level for one in features_of(wire).finalized_features}
    return finalized.get(FEATURE, 0)
