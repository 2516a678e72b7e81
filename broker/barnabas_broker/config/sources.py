"""Gathers a broker's settings from a file, the environment and the command line. Pure.

What is said closer to the start counts: `--set` before the environment, the environment before the file, the file
before the default. A setting in one unit (`log.retention.hours`) takes the place of the same one in another unit from
further away; within one source the finest counts. A source that gives `cluster.nodes` as a whole takes the place of all
nodes that others name; one node alone (`cluster.nodes.2`) takes the place of that node.

A variable is the setting's name in capitals, with underscores for dots, behind `BARNABAS_`: `BARNABAS_LOG_DIR`. A name
that is nearly one is an error, as in a file; variables of our other commands are known, and so are those that
Kubernetes gives to every container beside a service called "barnabas".
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from .addresses import AssignmentError, ConfigError
from .broker import BrokerConfig, SettingValue, accepted_names, read_settings, read_toml
from .near_names import closest

__all__ = ["OTHER_VARIABLES", "PREFIX", "gather", "variable_of"]

PREFIX = "BARNABAS_"
NODES = "cluster.nodes"
# What commands of `barnabas` and our own scripts and tests read, in environments in which brokers are started too.
OTHER_VARIABLES = frozenset(
    {
        "BARNABAS_BENCH_CACHE",
        "BARNABAS_BOOTSTRAP_SERVER",
        "BARNABAS_CONFIG",
        "BARNABAS_DATA",
        "BARNABAS_INTEROP_BOOTSTRAP",
        "BARNABAS_PROFILE",
        "BARNABAS_TEST_BOOTSTRAP",
    }
)
_is_a_services = re.compile(
    r"BARNABAS(?:_[A-Z0-9_]+)?_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP)(?:_(?:PROTO|PORT|ADDR))?)?)"
    r"|BARNABAS_PORT(?:_\d+_(?:TCP|UDP)(?:_(?:PROTO|PORT|ADDR))?)?"
).fullmatch


def variable_of(setting: str) -> str:
    """Return the environment variable that gives a setting."""
    return PREFIX + setting.upper().replace(".", "_")


def gather(
    file: str | bytes | None, environment: Mapping[str, str], assignments: Sequence[str], *, file_name: str = ""
) -> BrokerConfig:
    """Return the configuration that a file's contents, variables and `--set NAME=VALUE` make together.

    Raises:
        ConfigError: one of them is wrong, and the text says which; or a required setting is in none.
        AssignmentError: it is one of the assignments that is wrong.
    """
    values: dict[str, SettingValue] = {}
    if file is not None:
        try:
            values = read_toml(file)
        except ConfigError as error:
            raise ConfigError(f"{file_name}: {error}" if file_name else str(error)) from error
    named = _of_environment(environment)
    values = _over(values, named)
    values = _over(values, _of_assignments(assignments))
    try:
        return BrokerConfig.from_settings(values)
    except ConfigError as error:
        has_one_source = file_name and not named and not assignments
        hint = (
            "" if file is not None or values else " (give --config FILE, --set NAME=VALUE, or variables: BARNABAS_...)"
        )
        raise ConfigError(f"{file_name}: {error}" if has_one_source else f"{error}{hint}") from error


def _over(further: Mapping[str, SettingValue], closer: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """Return what both say; where they disagree, the closer one counts."""
    has_all_nodes = NODES in closer
    kept = {name: value for name, value in further.items() if not (has_all_nodes and name.startswith(NODES))}
    return kept | dict(closer)


def _of_environment(environment: Mapping[str, str]) -> dict[str, SettingValue]:
    settings = {variable_of(name): name for name in accepted_names()}
    found: dict[str, str] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES or _is_a_services(variable):
            continue
        node = re.fullmatch(r"BARNABAS_CLUSTER_NODES_(\d+)", variable)
        name = f"{NODES}.{node[1]}" if node else settings.get(variable)
        if name is None:
            # Without the prefix, which would make all of them alike.
            known = [one.removeprefix(PREFIX) for one in (*settings, *OTHER_VARIABLES)]
            near = closest(variable.removeprefix(PREFIX), known)
            hint = f" (did you mean {PREFIX}{near}?)" if near else ""
            raise ConfigError(f"unknown environment variable: {variable}{hint}")
        try:
            read_settings({name: value})
        except ConfigError as error:
            raise ConfigError(f"environment variable {variable}: {error}") from error
        found[name] = value
    return dict(read_settings(found))


def _of_assignments(assignments: Iterable[str]) -> dict[str, SettingValue]:
    found: dict[str, str] = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not name:
            raise AssignmentError(f"--set {text!r}: write NAME=VALUE")
        if name in found:
            raise AssignmentError(f"--set {name} is given twice")
        found[name] = value.strip()
    try:
        return dict(read_settings(found))
    except ConfigError as error:
        raise AssignmentError(f"--set: {error}") from error
