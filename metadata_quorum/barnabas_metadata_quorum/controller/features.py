"""Features: what the whole cluster speaks on a level, from the moment at which somebody has said so. Pure.

A broker that is upgraded understands more, but uses nothing of it that others would misunderstand, in their logs or in
their clients, before the feature's level is *finalized* (KIP-584). Clients read finalized levels in the answer to
ApiVersions; `transaction.version` 2 makes them speak the transactions of KIP-890.

A level needs brokers that know it. They say what they know by their `record_level` (`image.records`), so a level here
is bound to one of those. The controller refuses a level that a broker does not know which serves, or holds replicas:
when it came back, it would do the wrong thing.

Features are changed together or not at all, as in Kafka. Levels go up unless a downgrade is asked for by name.

`metadata.version` is what Kafka's tools look for first. Its levels are Kafka's: 33 is that of Kafka 4.4. Nothing that
is stored here depends on it (`image.records` says what does). It goes up as in Kafka, and as there it does not go back
over a level at which metadata was added.

`group.version` 1 is the groups of KIP-848. Before, no broker says that it serves them, and none writes records of them:
the next coordinator of a group may be a broker that passes such records over. Level 0 again, which Kafka grants too,
leaves the groups that there are without their members' heartbeats, so that they end.

A broker that cannot read features, and registers where one is finalized, is refused: it would read the record of that
in a moment and stop, or speak to clients on a level that they do not expect.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import (
    CONFIGS_LEVEL,
    FEATURES_LEVEL,
    GROUPS_LEVEL,
    FeatureFinalized,
    Record,
)

from .commands import FeatureChange, FeatureUpdate, RefusalReason, Refused, UpdateFeatures, UpdateFeaturesAnswer
from .levels import check_level

__all__ = [
    "FEATURES",
    "GROUP_VERSION",
    "METADATA_VERSION",
    "NEWEST",
    "NO_TRANSACTIONS",
    "TRANSACTION_VERSION",
    "check_registration",
    "has_transactions",
    "levels_of",
    "record_level_of",
    "transaction_version",
    "update_features",
]

TRANSACTION_VERSION: Final = "transaction.version"
NO_TRANSACTIONS: Final = "the cluster has no transactions before its transaction.version is 1 or higher"
GROUP_VERSION: Final = "group.version"
METADATA_VERSION: Final = "metadata.version"
METADATA_LEVELS: Final = range(7, 34)  # Kafka's 3.3-IV3, the first that Kafka 4 knows, to 4.4-IV2
METADATA_ADDED: Final = frozenset({8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""The levels of `metadata.version` that came with metadata of their own, by Kafka."""
FEATURES: Final[Mapping[str, tuple[int, ...]]] = {
    GROUP_VERSION: (GROUPS_LEVEL,),
    METADATA_VERSION: (CONFIGS_LEVEL,) * METADATA_LEVELS[-1],
    TRANSACTION_VERSION: (FEATURES_LEVEL, FEATURES_LEVEL),
}
"""The record level that a broker needs for level 1 of a feature, level 2, and so on."""
NEWEST: Final[Mapping[str, int]] = {name: len(needed) for name, needed in FEATURES.items()}
"""The highest level of each feature that this code knows."""


def levels_of(name: str) -> range:
    """Return the levels of a feature that this code knows. Most have a level 0, at which they are off."""
    return METADATA_LEVELS if name == METADATA_VERSION else range(len(FEATURES[name]) + 1)


def transaction_version(image: Image) -> int:
    """Return the level of transactions that the cluster speaks: 2 has those of KIP-890, 1 those of before, 0 none."""
    return image.features.get(TRANSACTION_VERSION, 0)


def has_transactions(image: Image) -> bool:
    """Tell whether the cluster has transactions: from level 1 on, which every broker knows when it is finalized.

    Kafka has them at level 0, too. Here that is the level of clusters whose brokers may be from before transactions:
    those would not know what a marker means.
    """
    return transaction_version(image) > 0


def record_level_of(features: Mapping[str, int]) -> int:
    """Return the record level that a broker needs for these levels, which must be known."""
    return max((FEATURES[name][level - 1] for name, level in features.items() if level), default=0)


def check_registration(image: Image, node_id: int, record_level: int) -> None:
    """Refuse a broker that does not know what is finalized.

    Raises:
        Refused: UNSUPPORTED_VERSION.
    """
    for name, level in sorted(image.features.items()):
        (needed,) = FEATURES.get(name, ())[level - 1 : level] or (0,)  # One that is newer than this code is not judged.
        if record_level < needed:
            text = f"broker {node_id} runs a version without {name} {level}, which is finalized; upgrade it"
            raise Refused(RefusalReason.UNSUPPORTED_VERSION, text)


def update_features(image: Image, command: UpdateFeatures) -> tuple[list[Record], UpdateFeaturesAnswer]:
    """Return the records of the levels that change.

    Raises:
        Refused: INVALID_REQUEST, nothing is named, or something twice; INVALID_UPDATE_VERSION, the feature or the level
            is not known, here or by a broker, or is on the wrong side of the present one.
    """
    names = {update.name for update in command.updates}
    if not names or len(names) < len(command.updates):
        raise Refused(RefusalReason.INVALID_REQUEST, "name at least one feature, and each of them once")
    records: list[Record] = []
    for update in command.updates:
        now = image.features.get(update.name, 0)
        _check(image, update, now)
        if update.level != now:
            records.append(FeatureFinalized(update.name, update.level))
    return records, UpdateFeaturesAnswer()


def _check(image: Image, update: FeatureUpdate, now: int) -> None:
    needed = FEATURES.get(update.name)
    if needed is None:
        raise _wrong(f"there is no feature '{update.name}'; there are: {', '.join(sorted(FEATURES))}")
    levels = levels_of(update.name)
    if update.level not in levels:
        raise _wrong(f"{update.name} has the levels {levels[0]} to {levels[-1]}, not {update.level}")
    if update.level < now and update.change is FeatureChange.UPGRADE:
        raise _wrong(f"{update.name} is at level {now}; ask for a downgrade to get to {update.level}")
    if update.level > now and update.change is not FeatureChange.UPGRADE:
        raise _wrong(f"{update.name} is at level {now}; a downgrade does not get to {update.level}")
    if update.name == METADATA_VERSION and (added := METADATA_ADDED & set(range(update.level + 1, now + 1))):
        raise _wrong(f"{update.name} does not go back to {update.level}: metadata was added at level {max(added)}")
    if update.level <= now:
        return
    lack = f"without {update.name} {update.level}"
    check_level(image, needed[update.level - 1], lack, RefusalReason.INVALID_UPDATE_VERSION)


def _wrong(text: str) -> Refused:
    return Refused(RefusalReason.INVALID_UPDATE_VERSION, text)
