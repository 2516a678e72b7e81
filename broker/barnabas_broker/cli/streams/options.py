"""Reads the options that `produce`, `consume` and `bench` share; what makes no sense is a UsageError."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from barnabas_broker.cli.errors import CommandError, UsageError
from barnabas_broker.cli.near_names import did_you_mean
from barnabas_broker.cli.times import duration_ms

from .lines import TEMPLATE_FIELDS, LineError

__all__ = [
    "ACKS",
    "COMPRESSIONS",
    "FormKind",
    "acks_of",
    "as_usage",
    "check_compression",
    "chosen_form",
    "form_kind",
    "seconds_of",
]

FormKind = Literal["raw", "json", "percent", "template"]

ACKS: dict[str, Any] = {"all": "all", "-1": "all", "1": 1, "0": 0}
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
SECONDS_MAX = 1_000_000
FIELD_OF_A_TEMPLATE = re.compile("{(" + "|".join(TEMPLATE_FIELDS) + ")}")


@contextmanager
def as_usage(option: str) -> Iterator[None]:
    """Say of what goes wrong within that it was asked for wrongly, by the option's name."""
    try:
        yield
    except (LineError, CommandError) as error:
        raise UsageError(f"{option}: {error}") from error


def form_kind(form: str, more: Sequence[str]) -> FormKind:
    r"""Return what kind of format somebody typed. A template has fields in braces, and may have a percent sign.

    Args:
        form: what was typed.
        more: kinds there are beside raw, json and percent.

    Raises:
        UsageError: it is none.
    """
    if form == "raw":
        return "raw"
    if form == "json":
        return "json"
    is_template = FIELD_OF_A_TEMPLATE.search(form) is not None or ("{" in form and "%" not in form)
    if is_template and "template" in more:
        return "template"
    if "%" in form:
        return "percent"
    known = r"raw, json, or a format as '%k %v\n'" + (" or '{key} {value}'" if "template" in more else "")
    raise UsageError(
        f"--format {form or repr(form)}: unknown format{did_you_mean(form, ('raw', 'json'))}; write {known}"
    )


def chosen_form(form: str, *, as_json: bool) -> str:
    """Return the format that `--format` and `--json` ask for together; "" is none."""
    if as_json and form not in {"", "json"}:
        raise UsageError("--json is --format json; say one of them")
    return "json" if as_json else form or "raw"


def check_compression(name: str) -> None:
    """Refuse a compression that there is not."""
    if name not in COMPRESSIONS:
        near = did_you_mean(name, COMPRESSIONS)
        raise UsageError(
            f"--compression {name or repr(name)}: unknown compression{near}; there are {', '.join(COMPRESSIONS)}"
        )


def acks_of(text: str) -> Any:
    """Return the producer's `acks` for what somebody typed."""
    if text not in ACKS:
        raise UsageError(f"--acks {text!r} is not valid; write all, 1 or 0")
    return ACKS[text]


def seconds_of(option: str, text: str, least_s: float) -> float:
    """Return a duration in seconds: a plain number is seconds, and `500ms`, `5s`, `1h30m` are what they say.

    Raises:
        UsageError: it is neither, less than `least_s`, or more than `SECONDS_MAX`.
    """
    try:
        found = float(text)
    except ValueError:
        with as_usage(option):
            found = duration_ms(text) / 1000
    # Written so that what is not a number is out of range.
    if not least_s <= found <= SECONDS_MAX:
        raise UsageError(f"{option} {text}: it must be at least {least_s:g} s and at most {SECONDS_MAX} s")
    return found
