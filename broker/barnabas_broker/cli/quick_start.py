"""Reads a plain `cluster start` command line without loading typer.

Three brokers and this command share two cores, and the brokers start when this command has read its options. typer
(with what it loads to convert a number) takes 0.2 s of processor time for that. So the options are known here a second
time, as a table, for command lines that are right in every respect; anything else (`--help`, a typo, a number that is
none) is left to typer, which names the mistake. A test holds the two against each other.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.config.plain_lines import plain_words

__all__ = ["FLAGS", "OPTIONS", "read"]

OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--data": ("data", Path),
    "--brokers": ("brokers", int),
    "--port": ("port", int),
    "--peer-port": ("peer_port", int),
    "--host": ("host", str),
    "--hosts": ("hosts", str),
    "--brokers-per-host": ("brokers_per_host", str),
    "--cluster-id": ("cluster_id", str),
    "--token": ("token", str),
    "--set": ("settings", str),
    "--timeout": ("timeout_s", float),
}
FLAGS = {"--detach": "detach", "--json": "as_json"}
TIMEOUT_DEFAULT_S = 60.0
TIMEOUT_MIN_S, TIMEOUT_MAX_S = 0.1, 1_000_000.0


def read(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of `commands.cluster.start`, or None if this is not a plain command line."""
    found: dict[str, Any] = {name: None for name, _ in OPTIONS.values()} | dict.fromkeys(FLAGS.values(), False)
    found |= {"settings": [], "timeout_s": TIMEOUT_DEFAULT_S}
    given = plain_words(words, OPTIONS, FLAGS)
    if given is None:
        return None
    for word, text in given:
        if word in FLAGS:
            found[FLAGS[word]] = True
            continue
        name, convert = OPTIONS[word]
        try:
            converted = convert(text)
        except ValueError:
            return None
        if name == "settings":
            found[name].append(converted)
        else:
            found[name] = converted
    return found if found["data"] is not None and TIMEOUT_MIN_S <= found["timeout_s"] <= TIMEOUT_MAX_S else None
