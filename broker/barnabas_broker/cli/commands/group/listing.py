"""Lists groups: their states, members and lags.

Members cost one request to each coordinator for 100 groups, lags one more, and one to each leader of what they read
(`Admin.survey_groups`). A broker that does not answer costs its own numbers: they are `-`, in JSON null. A lag is
`104+` where some partitions have no commit, because nobody knows where a group would begin to read them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas_broker.cli.commands.administration.calls import administer, complain_of_silence
from barnabas_broker.cli.commands.administration.names import compiled, matching
from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.near_names import did_you_mean
from barnabas_broker.cli.output import print_table, say, say_json_lines
from barnabas_clients import Admin
from barnabas_clients.admin.client import GroupListing, GroupsSurvey, GroupSurvey, total_lag
from barnabas_clients.place_arguments import GROUP_STATES, GROUP_TYPES, group_states, group_types

__all__ = ["lag_cell", "list_"]

# Numbers that a broker does not tell by then are not worth waiting for: the names are there.
SURVEY_TIMEOUT_S = 3.0
LAG_COLUMNS = ("group", "state", "members", "lag", "coordinator", "type", "protocol")


def _chosen(
    option: str, words: Sequence[str], choose: Callable[[Sequence[str]], list[str]], names: Sequence[str]
) -> list[str]:
    try:
        return choose(words)
    except ValueError as error:
        known = {name.casefold() for name in names}
        near = "".join(did_you_mean(word, names) for word in words if word.casefold() not in known)
        raise UsageError(f"{option}: {error}{near}") from error


def list_(
    bootstrap: str,
    timeout_s: float,
    states: Sequence[str],
    types: Sequence[str],
    patterns: Sequence[str],
    *,
    as_json: bool,
    names_only: bool,
    with_lags: bool,
) -> int:
    """Print the groups, or only their names."""
    wanted_states = _chosen("--state", states, group_states, GROUP_STATES)
    wanted_types = _chosen("--type", types, group_types, GROUP_TYPES)
    wanted = compiled(patterns)

    limit_s = min(timeout_s, SURVEY_TIMEOUT_S)

    async def run(admin: Admin) -> tuple[list[GroupListing], GroupsSurvey, Mapping[int, str]]:
        found = await admin.reachable_groups(states=wanted_states, types=wanted_types, timeout_s=limit_s)
        every = {row.group_id: row for row in found.groups}
        rows = [every[group_id] for group_id in matching(every, wanted)]
        if names_only or not rows:
            return rows, GroupsSurvey({}, {}), found.silent
        return rows, await admin.survey_groups(rows, with_lags=with_lags, timeout_s=limit_s), found.silent

    rows, survey, unreached = administer(bootstrap, timeout_s, run)
    complain_of_silence({**survey.silent, **unreached})
    if names_only:
        if as_json:
            say_json_lines({"group_id": row.group_id} for row in rows)
        elif rows:
            say(*(row.group_id for row in rows))
        return 0
    groups = survey.groups
    if as_json:
        say_json_lines(_as_json(row, groups[row.group_id], with_lags=with_lags) for row in rows)
    else:
        columns = [name for name in LAG_COLUMNS if with_lags or name != "lag"]
        print_table(columns, [_cells(row, groups[row.group_id], with_lags=with_lags) for row in rows])
    return 0


def lag_cell(found: GroupSurvey) -> str | None:
    """Return the lag of a group in a table: `1,200`, `104+` where some of it is unknown, or None if all of it is."""
    if not found.lags:
        return None
    total = total_lag(found.lags)
    if total.lag is not None:
        return f"{total.lag:,}"
    return f"{total.known:,}+" if total.without_commit < len(found.lags) else None


def _members(found: GroupSurvey) -> int | None:
    return None if found.description is None else len(found.description.members)


def _cells(row: GroupListing, found: GroupSurvey, *, with_lags: bool) -> list[Any]:
    lag = [lag_cell(found)] if with_lags else []
    return [
        row.group_id,
        row.state or None,
        _members(found),
        *lag,
        row.coordinator_id,
        row.type or None,
        row.protocol_type or None,
    ]


def _as_json(row: GroupListing, found: GroupSurvey, *, with_lags: bool) -> dict[str, Any]:
    value: dict[str, Any] = row._asdict() | {"members": _members(found)}
    if with_lags:
        total = None if found.lags is None else total_lag(found.lags)
        value |= {
            "lag": total and total.lag,
            "known_lag": total and total.known,
            "partitions_without_commit": total and total.without_commit,
        }
    return value
