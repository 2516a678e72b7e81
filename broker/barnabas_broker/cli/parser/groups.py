"""The commands of `barnabas group`: names, options, help."""

from typing import Annotated

import typer

from barnabas_broker.cli.limits import OFFSET_MAX

from .options import DEFAULT, PLAIN, Bootstrap, Group, Json, Timeout

__all__ = ["group"]

group = typer.Typer(help="List, describe, reset and delete consumer groups.", **PLAIN)

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", help="Only this topic, or some of its partitions; may be repeated.", metavar="TOPIC[:P,...]"
    ),
]


Regex = Annotated[
    list[str] | None,
    typer.Option("--regex", "-r", help="Groups whose whole name matches this; may be repeated.", metavar="PATTERN"),
]


@group.command("list")
def group_list(
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state (Stable, Empty, ...).", metavar="STATE")
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only groups of this type (classic, consumer, ...).", metavar="TYPE"),
    ] = None,
    lag: Annotated[bool, typer.Option("--lag/--no-lag", help="Look up how much is still to be read.")] = True,
    names_only: Annotated[bool, typer.Option("--names-only", help="Only the names.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """List the groups: their states, members, lags and coordinators."""
    from barnabas_broker.cli.commands.group import listing  # noqa: PLC0415 - loaded by those who use it

    return listing.list_(
        bootstrap,
        timeout,
        state or [],
        type_ or [],
        regex or [],
        as_json=as_json,
        names_only=names_only,
        with_lags=lag,
    )


@group.command("describe")
def group_describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP")] = None,
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members, with their epochs and targets.")
    ] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Show where groups stand: committed offsets, lag, and who reads what."""
    from barnabas_broker.cli.commands.group import description  # noqa: PLC0415 - loaded by those who use it

    return description.describe(bootstrap, names or [], regex or [], timeout, as_json=as_json, with_members=members)


@group.command("reset-offsets")
def group_reset_offsets(  # noqa: PLR0913, PLR0917 - one parameter is one option
    name: Group,
    bootstrap: Bootstrap = DEFAULT,
    topic: Topics = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_time: Annotated[str | None, typer.Option(help="To the first record at or after a time.", metavar="T")] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="To the first record not older than 90s, 1h30m, 2d, ...", metavar="D")
    ] = None,
    to_offset: Annotated[int | None, typer.Option(help="To an offset.", metavar="N", max=OFFSET_MAX)] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(help="So many records on; back, if negative.", metavar="N", min=-OFFSET_MAX, max=OFFSET_MAX),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this only show it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show it, as without --execute.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Move the positions of a group that has no members. Without --topic: in all topics where it has committed."""
    from barnabas_broker.cli.commands.group import changes  # noqa: PLC0415 - loaded by those who use it

    target = changes.target_from(
        to_time, by_duration, to_offset, shift_by, to_earliest=to_earliest, to_latest=to_latest
    )
    return changes.reset_offsets(
        bootstrap, name, target, topic or [], timeout, execute=execute and not dry_run, as_json=as_json
    )


@group.command("delete-offsets")
def group_delete_offsets(
    name: Group,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic", "-t", help="This topic, or some of its partitions; may be repeated.", metavar="TOPIC[:P,...]"
        ),
    ],
    bootstrap: Bootstrap = DEFAULT,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Make a group forget its positions in topics that none of its members reads."""
    from barnabas_broker.cli.commands.group import changes  # noqa: PLC0415 - loaded by those who use it

    return changes.delete_offsets(bootstrap, name, topic, timeout, as_json=as_json)


@group.command("delete")
def group_delete(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP")] = None,
    bootstrap: Bootstrap = DEFAULT,
    regex: Regex = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    as_json: Json = False,
    timeout: Timeout = 30.0,
) -> int:
    """Delete groups that have no members, with all that they have committed."""
    from barnabas_broker.cli.commands.group import changes  # noqa: PLC0415 - loaded by those who use it

    return changes.delete(bootstrap, names or [], regex or [], timeout, dry_run=dry_run, as_json=as_json)
