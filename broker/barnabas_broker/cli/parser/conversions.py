"""Converts typed words for the parser's plain types, because pydantic takes long to load.

typer builds a pydantic adapter for every value, also for a `str`, and loading pydantic takes a third of the time of
`barnabas topic list`. typer keeps what it builds in an attribute of the parameter, which is filled here in advance for
the types that our commands have. A typer that has no such attribute, or a type that is not known here, is left alone.
"""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer

__all__ = ["convert_plainly"]

PREPARED = "_runtime_param"
FALSE, TRUE = {"0", "false", "off", "no", "n", "f"}, {"1", "true", "on", "yes", "y", "t"}


def convert_plainly(command: Any, help_names: list[str]) -> None:
    """Prepare the parameters of a command, or of all commands of a group; `help_names` are those of --help."""
    for each in getattr(command, "commands", {}).values():
        convert_plainly(each, help_names)
    # It is made at the first use, for a context of which it takes the names.
    helping = command.get_help_option(SimpleNamespace(help_option_names=help_names))
    for parameter in (*command.params, *filter(None, [helping])):
        if getattr(parameter, PREPARED, parameter) is None and (convert := _converter(parameter.type_descriptor)):
            setattr(parameter, PREPARED, _Conversion(convert))


class _Conversion:
    """Stands where typer keeps what converts the values of one parameter."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_several = param.multiple or param.nargs == -1
        try:
            if is_several:
                return [self._convert(each) for each in value or ()]
            return None if value is None else self._convert(value)
        except typer.BadParameter as error:
            error.ctx, error.param = ctx, param
            raise


def _converter(descriptor: Any) -> Callable[[Any], Any] | None:
    info = descriptor.parameter_info
    annotation = descriptor.annotation
    if annotation in {list[str], list[int], list[float], list[Path]}:
        annotation = annotation.__args__[0]
    if info.parser is not None:
        parser: Callable[[Any], Any] = info.parser
        return parser
    if annotation in {int, float}:
        return lambda value: _number(value, annotation, info.min, info.max)
    plain: dict[Any, Callable[[Any], Any]] = {str: _text, bool: _flag}
    # Nobody asks typer to look whether a path is there: the command says it in its own words.
    if annotation is Path and not (info.exists or info.resolve_path):
        return _path
    return plain.get(annotation)


def _text(value: Any) -> str:
    return str(value)


def _path(value: Any) -> Path:
    text = os.fspath(value)
    if not text:
        # Path would take it for the working directory.
        raise typer.BadParameter("'' is not a path; write . for the working directory")
    return Path(text)


def _flag(value: Any) -> bool:
    word = str(value).strip().lower()
    if word not in TRUE | FALSE:
        raise typer.BadParameter(f"{value!r} is not a valid boolean; write true or false")
    return word in TRUE


def _number(value: Any, kind: type[int] | type[float], least: float | None, most: float | None) -> float:
    try:
        # int() takes underscores, and digits of other scripts, which nobody means.
        if not str(value).isascii() or "_" in str(value):
            raise ValueError
        found = kind(value)
    except (ValueError, OverflowError):
        name = "whole number" if kind is int else "number"
        raise typer.BadParameter(f"{value!r} is not a {name}") from None
    # Written so that what is not a number, in no order to any other, is out of range.
    if not ((least is None or found >= least) and (most is None or found <= most)) or found != found:  # noqa: PLR0124
        least_text = "" if least is None else f"at least {least}"
        most_text = "" if most is None else f"at most {most}"
        limits = " and ".join(filter(None, (least_text, most_text))) or "a number"
        raise typer.BadParameter(f"{value} is out of range; it must be {limits}")
    return found
