"""AlterConfigs and IncrementalAlterConfigs: have the controller change what is set for topics and other resources.

Any broker takes the request for topics, groups and all brokers (the empty name); a broker alone takes what is for it,
because it alone knows the settings that it was started with. It checks what is to be set for brokers, and the active
controller decides about all resources, each for itself: the topics in one command, all others in another one. The
answer comes when this broker goes by the change; the others do as soon as they have read the metadata that far.

Most settings of a broker are read when it starts; to alter one of those is refused, as Kafka refuses it. Subscriptions
are those to clients' metrics; the expressions in them are looked at here, because it is brokers who match with them.
Loggers have no configuration, and are answered likewise.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import compress, repeat

from barnabas_broker.config.dynamic import complaint_about, settle
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.server.telemetry.subscriptions import check_patterns
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
from barnabas_metadata_quorum.controller.client_metrics import CLIENT_METRICS, CLIENT_METRICS_LISTS
from barnabas_metadata_quorum.controller.commands import (
    CONFIGS_MAX,
    AlterConfigs,
    AlterConfigsAnswer,
    AlteredResource,
    AlteredTopic,
    AlterResources,
    AlterResourcesAnswer,
    ConfigChange,
    ConfiguredResource,
    ConfiguredTopic,
    Refused,
    check_named,
)
from barnabas_metadata_quorum.controller.config_changes import changed
from barnabas_metadata_quorum.controller.resource_changes import AT_ONCE_MAX
from barnabas_metadata_quorum.resource_configs import BROKER, BROKER_LISTS, GROUP
from barnabas_metadata_quorum.topic_names import name_complaint

from .create_topics import NO_SUCH_NAME, code_of

__all__ = ["handle", "refuse"]

TOPIC = 2  # Kafka's ConfigResource.Type
TIMEOUT_S = 30.0  # The request names none; this is what Kafka's brokers take for it.

CHARACTERS_MAX = 1 << 20
"""Of what a request sets for brokers and groups: they go to the controller in one command."""

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
    refusals = await taken(_refusals(broker, resources))
    asked = list(compress(resources, map(_is_none, refusals)))
    wanted = await made(_wanted, filter(_is_topic, asked))
    others = [_other(resource) for resource in asked if not _is_topic(resource)]
    altered = await _altered(broker, wanted, request.validate_only)
    others_altered = await _others_altered(broker, others, request.validate_only)
    fates = await made(
        lambda row: row[1] or next(altered if _is_topic(row[0]) else others_altered),
        zip(resources, refusals, strict=True),
    )
    await taken(emptied(wanted))
    return await _answered(request, fates)


def _refusals(broker: BrokerContext, resources: Sequence[Resource]) -> Generator[None, None, list[Fate | None]]:
    """Return the answer of each that need not go to the controller; None: it has to."""
    times = yield from times_of((resource.resource_type, resource.resource_name) for resource in resources)
    refusals = []
    others = characters = 0
    for number, resource in enumerate(resources, 1):
        refusal = _refusal(broker, resource, times[resource.resource_type, resource.resource_name])
        if refusal is None and resource.resource_type == CLIENT_METRICS:
            refusal = yield from _refusal_of_subscription(broker, resource)
        if refusal is None and not _is_topic(resource):
            others += 1
            characters += _characters_of(resource)
            if others > AT_ONCE_MAX or characters > CHARACTERS_MAX:
                most = f"{AT_ONCE_MAX} brokers and groups, and {CHARACTERS_MAX} characters of them"
                refusal = ErrorCode.POLICY_VIOLATION, f"In one request there may be {most}"
        refusals.append(refusal)
        if not number % PIECE:
            yield
    return refusals


def _refusal(broker: BrokerContext, resource: Resource, times: int) -> Fate | None:
    if times > 1:
        return ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
    if len(resource.configs) > CONFIGS_MAX:
        text = f"{len(resource.configs)} configurations of one resource; {CONFIGS_MAX} are the maximum"
        return ErrorCode.INVALID_REQUEST, text
    if resource.resource_type == BROKER:
        return _refusal_of_broker(broker, resource)
    if resource.resource_type in {GROUP, CLIENT_METRICS}:
        return None
    if resource.resource_type != TOPIC:
        text = (
            f"Resources of type {resource.resource_type} have no configuration here; "
            "topics (2), brokers (4), subscriptions to clients' metrics (16) and groups (32) have"
        )
        return ErrorCode.INVALID_REQUEST, text
    if name_complaint(resource.resource_name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_NAME
    return None


def _characters_of(resource: Resource) -> int:
    named = sum(len(config.name) + len(config.value or "") for config in resource.configs)
    return len(resource.resource_name) + named


def _refusal_of_broker(broker: BrokerContext, resource: Resource) -> Fate | None:
    """Return why what is asked for cannot be set for this broker, or for all; None: it can."""
    name = resource.resource_name
    if name and name != str(broker.node_id):
        digits = name.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()):
            return ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
        return ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker.node_id}, but received {name}"
    wanted = _other(resource)
    before = broker.image.resource_configs.get((BROKER, name), {})
    try:
        after = changed(wanted.changes, before, BROKER_LISTS, kept=() if wanted.replace else before.keys())
    except Refused as refused:
        return code_of(refused.reason), refused.message
    started = broker.settings.started
    of_all = broker.image.resource_configs.get((BROKER, ""), {})
    complaint = complaint_about(settle(started, {}, of_all).now if name else started, after)
    return None if complaint is None else (ErrorCode.INVALID_REQUEST, complaint)


def _refusal_of_subscription(broker: BrokerContext, resource: Resource) -> Generator[None, None, Fate | None]:
    """Return why the expressions of a subscription would be refused; all else the controller looks at."""
    wanted = _other(resource)
    before = broker.image.resource_configs.get((CLIENT_METRICS, resource.resource_name), {})
    try:
        kept = () if wanted.replace else before.keys()
        error = yield from check_patterns(changed(wanted.changes, before, CLIENT_METRICS_LISTS, kept=kept))
    except Refused as refused:
        return code_of(refused.reason), refused.message
    return None if error is None else (ErrorCode.INVALID_CONFIG, str(error))


def _is_none(refusal: Fate | None) -> bool:
    return refusal is None


def _is_topic(resource: Resource) -> bool:
    return resource.resource_type == TOPIC


async def _altered(broker: BrokerContext, wanted: Sequence[ConfiguredTopic], validate_only: bool) -> Iterator[Fate]:
    """Return what the controller says of each of the topics."""
    if not wanted:
        return iter(())
    try:
        answer = await broker.metadata.submit(AlterConfigs(tuple(wanted), validate_only), TIMEOUT_S)
    except Refused as refused:
        return repeat((code_of(refused.reason), refused.message), len(wanted))
    assert isinstance(answer, AlterConfigsAnswer)
    return map(_fate, answer.topics)


async def _others_altered(
    broker: BrokerContext, wanted: Sequence[ConfiguredResource], validate_only: bool
) -> Iterator[Fate]:
    """Return what the controller says of each of the brokers and groups."""
    if not wanted:
        return iter(())
    try:
        answer = await broker.metadata.submit(AlterResources(tuple(wanted), validate_only), TIMEOUT_S)
    except Refused as refused:
        return repeat((code_of(refused.reason), refused.message), len(wanted))
    assert isinstance(answer, AlterResourcesAnswer)
    await broker.partitions.configured()
    return map(_fate, answer.resources)


def refuse(request: Request, code: ErrorCode) -> Response:
    """Answer every resource with `code`."""
    return _response(request, [(code, None)] * len(request.resources))


def _fate(altered: AlteredTopic | AlteredResource) -> Fate:
    return code_of(altered.error), altered.message or None


def _resources(request: Request) -> list[Resource]:
    if isinstance(request, AlterConfigsRequest):
        return [*request.resources]
    return [*request.resources]


def _wanted(resource: Resource) -> ConfiguredTopic:
    return ConfiguredTopic(resource.resource_name, _changes(resource), replace=_is_replaced(resource))


def _other(resource: Resource) -> ConfiguredResource:
    is_replaced = _is_replaced(resource)
    return ConfiguredResource(resource.resource_type, resource.resource_name, _changes(resource), replace=is_replaced)


def _is_replaced(resource: Resource) -> bool:
    return isinstance(resource, AlterConfigsResource)


def _changes(resource: Resource) -> tuple[ConfigChange, ...]:
    if isinstance(resource, AlterConfigsResource):
        return tuple(ConfigChange(config.name, value=config.value) for config in resource.configs)
    return tuple(ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs)


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
