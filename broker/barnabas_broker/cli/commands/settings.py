"""`barnabas broker settings`: the table of what can be set for a broker."""

from collections.abc import Sequence
from typing import Any

from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.output import say, say_json_lines
from barnabas_broker.config.broker import Setting, finest_of, settings, unknown_setting
from barnabas_broker.config.quantities import UNLIMITED
from barnabas_broker.config.sources import variable_of

__all__ = ["show"]


def show(names: Sequence[str], *, as_json: bool) -> int:
    """Print the settings that have one of `names` in theirs; all if there are none.

    Raises:
        UsageError: no setting has one of them.
    """
    known = settings()
    found = known
    if names:
        names = [finest_of(name) for name in names]
        for name in names:
            if not any(name in one.name for one in known):
                raise UsageError(str(unknown_setting(name)))
        # Who writes a whole name means that one, though others begin with it.
        whole = {one.name for one in known} & set(names)
        parts = [name for name in names if name not in whole]
        found = [one for one in known if one.name in whole or any(part in one.name for part in parts)]
    if as_json:
        say_json_lines(_for_programs(one) for one in found)
        return 0
    say(*(line for number, one in enumerate(found) for line in ([""] if number else []) + _lines(one)))
    return 0


def _lines(one: Setting) -> list[str]:
    default = "required" if one.required else f"default {_spelled(one.default)}"
    return [
        f"{one.name}  ({', '.join([one.type, default, *_limits(one)])})",
        f"    {one.doc}",
        f"    {variable_of(one.name)}",
    ]


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "''" if value == "" else str(value)


def _limits(one: Setting) -> list[str]:
    if one.choices:
        return [f"one of {', '.join(map(_spelled, one.choices))}"]
    if one.minimum is None:
        return []
    return [f"from {one.minimum}" + ("" if one.maximum in UNLIMITED else f" to {one.maximum}")]


def _for_programs(one: Setting) -> dict[str, Any]:
    return {
        "name": one.name,
        "type": one.type,
        "default": one.default,
        "required": one.required,
        "minimum": one.minimum,
        "maximum": one.maximum,
        "choices": list(one.choices),
        "environment": variable_of(one.name),
        "doc": one.doc,
    }
