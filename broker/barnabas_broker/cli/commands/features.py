"""`barnabas features`: what the whole cluster speaks on which level."""

from collections.abc import Sequence

from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.output import print_table, say, say_json
from barnabas_clients import Admin
from barnabas_clients.admin.client import Feature, FeatureChange
from barnabas_clients.errors import UnsupportedVersionError

from .administration.calls import administer

__all__ = ["describe", "downgrade", "upgrade"]

LEVEL_MAX = 2**15 - 1
NONE = "the brokers have no features; they are from before features"


def describe(bootstrap: str, timeout_s: float, *, as_json: bool) -> int:
    """Show the level of each feature, and those that the broker that answers knows."""
    found = administer(bootstrap, timeout_s, lambda admin: admin.describe_features())
    if as_json:
        rows = [{"name": one.name, "level": one.level, "known": one.known} for one in found.features]
        say_json({"epoch": found.epoch, "features": rows})
    elif found.features:
        print_table(("feature", "level", "known"), [(one.name, one.level, _known(one)) for one in found.features])
    else:
        say(NONE)
    return 0


def upgrade(bootstrap: str, levels: Sequence[str], timeout_s: float, *, dry_run: bool) -> int:
    """Raise levels, all or none."""
    return _update(bootstrap, levels, timeout_s, FeatureChange.UPGRADE, dry_run=dry_run)


def downgrade(bootstrap: str, levels: Sequence[str], timeout_s: float, *, unsafe: bool, dry_run: bool) -> int:
    """Lower levels, all or none."""
    change = FeatureChange.LOSSY_DOWNGRADE if unsafe else FeatureChange.SAFE_DOWNGRADE
    return _update(bootstrap, levels, timeout_s, change, dry_run=dry_run)


def _update(bootstrap: str, words: Sequence[str], timeout_s: float, change: FeatureChange, *, dry_run: bool) -> int:
    levels = _levels_in(words)

    async def run(admin: Admin) -> None:
        try:
            await admin.update_features(levels, change=change, validate_only=dry_run)
        except UnsupportedVersionError as error:
            raise CommandError(NONE) from error

    administer(bootstrap, timeout_s, run)
    for name, level in levels.items():
        say(f"{name} {'could be' if dry_run else 'is'} at level {level}")
    return 0


def _levels_in(words: Sequence[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if not name or not (number.isascii() and number.isdigit()) or len(number) > 5 or int(number) > LEVEL_MAX:
            raise UsageError(f"{word!r} is not FEATURE=LEVEL, as in transaction.version=2")
        if levels.setdefault(name, int(number)) != int(number):
            raise UsageError(f"{name} cannot be at level {levels[name]} and at level {number}")
    return levels


def _known(feature: Feature) -> str | None:
    if feature.known is None:
        return None
    lowest, highest = feature.known
    return f"{lowest} to {highest}"
