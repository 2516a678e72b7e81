"""AlterConfigs and IncrementalAlterConfigs: have the controller change what is set for topics.

Any broker takes the request; the active controller decides about all topics of it in one command, each for itself. The
answer comes when this broker has the change; the others have it as soon as they have read the metadata that far.

A broker's own settings are read when it starts, so none can be altered, and the answer says so. Loggers, client metrics
and groups have no configuration here, and are answered likewise.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import compress, repeat

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import PIECE, emptied, times_of
from barnabas_broker.timing.slices import made, taken
from barnabas_clients.protocol.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from barnabas_metadata_quorum.controller.commands import (
    CONFIGS_MAX,
    AlterConfigs,
    AlterConfigsAnswer,
    AlteredTopic,
    ConfigChange,
    ConfiguredTopic,
    Refused,
    check_named,
)
from barnabas_metadata_quorum.topic_names import name_complaint

from .create_topics import NO_SUCH_NAME, code_of

__all__ = ["handle", "refuse"]

TOPIC = 2  # Kafka's ConfigResource.Type
BROKER = 4
TIMEOUT_S = 30.0  # The request names none; this is what Kafka's brokers take for it.

Request = AlterConfigsRequest | IncrementalAlterConfigsRequest
Resource = AlterConfigsResource | IncrementalAlterConfigsResource
Response = AlterConfigsResponse | IncrementalAlterConfigsResponse
Fate = tuple[ErrorCode, str | None]


async def handle(broker: BrokerContext, _: Exchange, request: Request) -> Response:
    """Alter what can be altered; cancelled, it may be altered yet."""
    resources = _resources(request)
    try:
        check_named(len(resources), "resources")
    except Refused as refused:
        return await _answered(request, [(code_of(refused.reason), refused.message)] * len(resources))
    refusals = await taken(_refusals(resources))
    wanted = await made(_wanted, compress(resources, map(_is_none, refusals)))
    altered = await _altered(broker, wanted, request.validate_only)
    fates = await made(lambda refusal: refusal or next(altered), refusals)
    await taken(emptied(wanted))
    return await _answered(request, fates)


def _refusals(resources: Sequence[Resource]) -> Generator[None, None, list[Fate | None]]:
    """Return the answer of each that need not go to the controller; None: it has to."""
    times = yield from times_of((resource.resource_type, resource.resource_name) for resource in resources)
    refusals = []
    for number, resource in enumerate(resources, 1):
        refusals.append(_refusal(resource, times[resource.resource_type, resource.resource_name]))
        if not number % PIECE:
            yield
    return refusals


def _refusal(resource: Resource, times: int) -> Fate | None:
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
    if resource.resource_type == BROKER:
        text = "A broker's settings are read when it starts, and none can be altered: change them and restart it"
        return ErrorCode.INVALID_REQUEST, text
    if resource.resource_type != TOPIC:
        text = f"Resources of type {resource.resource_type} have no configuration here; topics (2) have"
        return ErrorCode.INVALID_REQUEST, text
    if name_complaint(resource.resource_name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_NAME
    if len(resource.configs) > CONFIGS_MAX:
        text = f"{len(resource.configs)} configurations of one topic; {CONFIGS_MAX} are the maximum"
        return ErrorCode.INVALID_REQUEST, text
    return None


def _is_none(refusal: Fate | None) -> bool:
    return refusal is None


async def _altered(broker: BrokerContext, wanted: Sequence[ConfiguredTopic], validate_only: bool) -> Iterator[Fate]:
    """Return what the controller says of each of them."""
    if not wanted:
        return iter(())
    try:
        answer = await broker.metadata.submit(AlterConfigs(tuple(wanted), validate_only), TIMEOUT_S)
    except Refused as refused:
        return repeat((code_of(refused.reason), refused.message), len(wanted))
    assert isinstance(answer, AlterConfigsAnswer)
    return map(_fate, answer.topics)


def refuse(request: Request, code: ErrorCode) -> Response:
    """Answer every resource with `code`."""
    return _response(request, [(code, None)] * len(request.resources))


def _fate(altered: AlteredTopic) -> Fate:
    return code_of(altered.error), altered.message or None


def _resources(request: Request) -> list[Resource]:
    if isinstance(request, AlterConfigsRequest):
        return [*request.resources]
    return [*request.resources]


def _wanted(resource: Resource) -> ConfiguredTopic:
    if isinstance(resource, AlterConfigsResource):
        changes = tuple(ConfigChange(config.name, value=config.value) for config in resource.configs)
        return ConfiguredTopic(resource.resource_name, changes, replace=True)
    changes = tuple(ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs)
    return ConfiguredTopic(resource.resource_name, changes)


def _response(request: Request, fates: list[Fate]) -> Response:
    rows = zip(_resources(request), fates, strict=True)
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(responses=list(map(_row, rows)))
    return IncrementalAlterConfigsResponse(responses=list(map(_incremental_row, rows)))


async def _answered(request: Request, fates: list[Fate]) -> Response:
    rows = zip(_resources(request), fates, strict=True)
    if isinstance(request, AlterConfigsRequest):
        return AlterConfigsResponse(responses=await made(_row, rows))
    return IncrementalAlterConfigsResponse(responses=await made(_incremental_row, rows))


def _row(one: tuple[Resource, Fate]) -> AlterConfigsResourceResponse:
    resource, (code, text) = one
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=in_words(text),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _incremental_row(one: tuple[Resource, Fate]) -> IncrementalAlterConfigsResourceResponse:
    resource, (code, text) = one
    return IncrementalAlterConfigsResourceResponse(
        error_code=code,
        error_message=in_words(text),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
