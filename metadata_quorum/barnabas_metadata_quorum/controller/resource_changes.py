"""Changes of the configurations of what is no topic: the rules, and the records that carry them out. Pure.

The two ways to ask are those of topics (`config_changes`). Each resource has its own fate.

*Bounds.* Every node holds all of it in memory and writes it into each snapshot of the metadata: so there is a bound for
the number of resources that have configurations, for one value, and for all together. A change that makes nothing
larger is always taken.

*Upgrades.* Brokers of before there were such configurations would stop at the record. The controller refuses to store
one while a broker serves, or holds replicas, that has not said that it understands it.
"""

from collections import Counter
from collections.abc import Mapping

from barnabas_metadata_quorum.controller.client_metrics import (
    CLIENT_METRICS,
    CLIENT_METRICS_LISTS,
    ClientMetricsError,
    check_client_metrics,
)
from barnabas_metadata_quorum.image.image import Image, ImageBuilder, configured_bytes
from barnabas_metadata_quorum.image.records import CONFIGS_LEVEL, Record, ResourceConfigured
from barnabas_metadata_quorum.resource_configs import BROKER, BROKER_LISTS, GROUP, check_group_configs

from .commands import (
    CONFIGS_MAX,
    AlteredResource,
    AlterResources,
    AlterResourcesAnswer,
    ConfiguredResource,
    RefusalReason,
    Refused,
)
from .config_changes import changed
from .levels import check_level

__all__ = [
    "ALL_BYTES_MAX",
    "AT_ONCE_MAX",
    "NAME_CHARACTERS_MAX",
    "RESOURCES_MAX",
    "VALUE_CHARACTERS_MAX",
    "alter_resources",
]

AT_ONCE_MAX = 100
"""Resources of one command: their effects are one entry of the log."""
NAME_CHARACTERS_MAX = 1_000
RESOURCES_MAX = 10_000
ALL_BYTES_MAX = 4 << 20
VALUE_CHARACTERS_MAX = 2**15 - 1  # Kafka's
SUBSCRIPTIONS_MAX = 100
"""Every client is compared with all of them."""
LISTS: Mapping[int, Mapping[str, str]] = {BROKER: BROKER_LISTS, CLIENT_METRICS: CLIENT_METRICS_LISTS}


def alter_resources(image: Image, command: AlterResources) -> tuple[list[Record], AlterResourcesAnswer]:
    """Return the records of all resources that may be changed, and the fate of each, in order.

    Raises:
        Refused: POLICY_VIOLATION, too many resources in one command; UNSUPPORTED_VERSION, a broker is too old.
    """
    if len(command.resources) > AT_ONCE_MAX:
        text = f"{len(command.resources)} resources in one request; {AT_ONCE_MAX} is the maximum"
        raise Refused(RefusalReason.POLICY_VIOLATION, text)
    check_level(image, CONFIGS_LEVEL, "that cannot read configurations of brokers and groups")
    draft = ImageBuilder(image)
    times = Counter((wanted.kind, wanted.name) for wanted in command.resources)
    subscriptions = _subscriptions_in(draft, command)
    records: list[Record] = []
    fates: list[AlteredResource] = []
    for wanted in command.resources:
        try:
            if times[wanted.kind, wanted.name] > 1:
                raise Refused(RefusalReason.INVALID_REQUEST, "the request names this resource more than once")
            record = _configured(draft, wanted)
            if record is not None and wanted.kind == CLIENT_METRICS:
                subscriptions = _counted(draft, wanted.name, subscriptions)
        except Refused as refused:
            fates.append(AlteredResource(refused.reason, refused.message[:NAME_CHARACTERS_MAX]))
            continue
        if record is not None:
            draft.apply(record)
            records.append(record)
        fates.append(AlteredResource())
    return records, AlterResourcesAnswer(tuple(fates))


def _configured(draft: ImageBuilder, wanted: ConfiguredResource) -> ResourceConfigured | None:
    """Return the record of one resource; None if nothing changes."""
    _check_name(wanted)
    before = draft.resource_configs.get((wanted.kind, wanted.name), {})
    configs = changed(wanted.changes, before, LISTS.get(wanted.kind, {}), kept=() if wanted.replace else before.keys())
    if configs == before:
        return None
    if wanted.kind == GROUP and (complaint := check_group_configs(wanted.name, configs)):
        raise Refused(RefusalReason.INVALID_CONFIG, complaint)
    if wanted.kind == CLIENT_METRICS:
        _check_subscription(wanted.name, configs)
    if len(configs) > CONFIGS_MAX:
        text = f"{len(configs)} configurations of one resource; {CONFIGS_MAX} are the maximum"
        raise Refused(RefusalReason.INVALID_REQUEST, text)
    if long := [name for name, value in configs.items() if max(len(name), len(value)) > VALUE_CHARACTERS_MAX]:
        text = f"The value of {long[0][:100]} has more than {VALUE_CHARACTERS_MAX} characters"
        raise Refused(RefusalReason.INVALID_CONFIG, text)
    _check_room(draft, wanted, before, configs)
    return ResourceConfigured(wanted.kind, wanted.name, configs)


def _check_subscription(name: str, configs: Mapping[str, str]) -> None:
    try:
        check_client_metrics(name, configs)
    except ClientMetricsError as error:
        reason = RefusalReason.INVALID_CONFIG if error.is_config else RefusalReason.INVALID_REQUEST
        raise Refused(reason, str(error)) from error


def _subscriptions_in(draft: ImageBuilder, command: AlterResources) -> int:
    """Return how many subscriptions there are, if the command is about any: they are among thousands of resources."""
    if all(wanted.kind != CLIENT_METRICS for wanted in command.resources):
        return 0
    return sum(kind == CLIENT_METRICS for kind, _ in draft.resource_configs)


def _counted(draft: ImageBuilder, name: str, subscriptions: int) -> int:
    """Return the number of subscriptions, of which the one of this name is about to change; or refuse one more.

    One that is deleted counts until the end of the command.
    """
    if (CLIENT_METRICS, name) in draft.resource_configs:
        return subscriptions
    if subscriptions >= SUBSCRIPTIONS_MAX:
        text = f"{SUBSCRIPTIONS_MAX} subscriptions to clients' metrics are the maximum; delete one first"
        raise Refused(RefusalReason.POLICY_VIOLATION, text)
    return subscriptions + 1


def _check_name(wanted: ConfiguredResource) -> None:
    name = wanted.name
    if len(name) > NAME_CHARACTERS_MAX:
        text = f"A name of {len(name)} characters; {NAME_CHARACTERS_MAX} are the maximum"
        raise Refused(RefusalReason.INVALID_REQUEST, text)
    if wanted.kind == BROKER:
        if name and not (name.isascii() and name.isdecimal() and int(name[:20]) < 2**31):
            raise Refused(RefusalReason.INVALID_REQUEST, f"A broker's id is a number, not {name[:100]}")
    elif wanted.kind not in {GROUP, CLIENT_METRICS}:
        raise Refused(RefusalReason.INVALID_REQUEST, f"Resources of type {wanted.kind} have no configuration here")
    elif not name:
        what = "Default group resources are not allowed." if wanted.kind == GROUP else "A subscription has a name."
        raise Refused(RefusalReason.INVALID_REQUEST, what)


def _check_room(
    draft: ImageBuilder, wanted: ConfiguredResource, before: Mapping[str, str], configs: Mapping[str, str]
) -> None:
    had = configured_bytes(wanted.name, before) if before else 0
    grows_by = (configured_bytes(wanted.name, configs) if configs else 0) - had
    if grows_by <= 0:
        return
    if not before and len(draft.resource_configs) >= RESOURCES_MAX:
        text = f"{RESOURCES_MAX} brokers and groups have configurations, which is the maximum; take some back first"
    elif (total := draft.resource_configs_bytes + grows_by) > ALL_BYTES_MAX:
        text = f"the configurations of brokers and groups would take {total} bytes; {ALL_BYTES_MAX} is the maximum"
    else:
        return
    raise Refused(RefusalReason.POLICY_VIOLATION, text)
