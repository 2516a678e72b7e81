"""`barnabas profile`: the names under which clusters' addresses are kept (profiles.py)."""

import os
from collections.abc import Mapping
from pathlib import Path

from barnabas_broker.cli.addresses import endpoints_of
from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.output import complain, print_table, say, say_json, say_json_lines
from barnabas_broker.cli.profiles import (
    PROFILE_VARIABLE,
    SETTINGS,
    Profile,
    changing,
    file_path,
    in_use,
    load,
    valid_name,
)

__all__ = ["delete", "list_", "set_", "show", "use"]


def set_(name: str, bootstrap: str | None, timeout: str | None, data: Path | None, *, as_json: bool) -> int:
    """Create a profile, or change what is given of one; the first one is used from then on."""
    valid_name(name)
    if bootstrap is not None:
        endpoints_of(bootstrap)  # It raises.
    given = {
        "bootstrap-server": bootstrap,
        "timeout": timeout,
        # Whoever uses the profile stands in another directory.
        "data": None if data is None else str(data.absolute()),
    }
    wanted = {setting: value for setting, value in given.items() if value is not None}
    with changing() as profiles:
        is_new = name not in profiles.by_name
        if not wanted:
            raise UsageError(f"there is nothing to set; write barnabas profile set {name} --bootstrap-server HOST:PORT")
        found = profiles.by_name.get(name, {}) | wanted
        profiles.by_name[name] = {setting: found[setting] for setting in SETTINGS if setting in found}
        profiles.current = profiles.current or name
        is_current = profiles.current == name
    if as_json:
        say_json(_shown(name, found, is_current=is_current))
    else:
        say(f"profile {name} {'created' if is_new else 'changed'}{', and in use' if is_current else ''}")
    if not is_current:
        complain(f"profile {profiles.current} stays in use; barnabas profile use {name} changes that")
    return 0


def use(name: str | None, *, nothing: bool, as_json: bool) -> int:
    """Take the address of a profile from now on, or with `nothing` that of none."""
    if (name is None) != nothing:
        raise UsageError("give the name of a profile, or --none to use none")
    with changing() as profiles:
        if name is not None:
            profiles.named(name)
        profiles.current = name or ""
    if as_json:
        say_json({"current": name})
    else:
        say(f"profile {name} is in use" if name is not None else "no profile is in use")
    if os.environ.get(PROFILE_VARIABLE):
        complain(f"{PROFILE_VARIABLE} is set and wins: {os.environ[PROFILE_VARIABLE]}")
    return 0


def delete(name: str, *, as_json: bool) -> int:
    """Forget a profile; nothing happens to the cluster."""
    with changing() as profiles:
        profiles.named(name)
        del profiles.by_name[name]
        was_current = profiles.current == name
        if was_current:
            profiles.current = ""
    if as_json:
        say_json({"name": name, "deleted": True})
    else:
        say(f"profile {name} deleted{'; no profile is in use now' if was_current else ''}")
    return 0


def list_(*, as_json: bool) -> int:
    """List all profiles; a star stands before the one in use."""
    profiles = load(file_path())
    current = os.environ.get(PROFILE_VARIABLE) or profiles.current
    if as_json:
        say_json_lines(_shown(name, found, is_current=name == current) for name, found in profiles.by_name.items())
        return 0
    rows = [
        (f"{'*' if name == current else ' '} {name}", *(found.get(setting) for setting in SETTINGS))
        for name, found in profiles.by_name.items()
    ]
    print_table(("  NAME", *(setting.upper() for setting in SETTINGS)), rows)
    if not rows:
        complain("there are no profiles; write barnabas profile set NAME --bootstrap-server HOST:PORT")
    return 0


def show(name: str | None, defaults: Mapping[str, str], variables: Mapping[str, str], *, as_json: bool) -> int:
    """Show what commands take where no option says it, and where it comes from; or a profile.

    `defaults` has what counts in the end, by setting, and `variables` which variable of the environment may say it.
    """
    if name is not None:
        profile = load(file_path()).named(name)
        if as_json:
            say_json(_shown(name, profile))
        else:
            print_table(("SETTING", "VALUE"), list(profile.items()))
        return 0
    name, profile = in_use()
    found: dict[str, tuple[str | None, str]] = {}
    for setting in SETTINGS:
        if value := os.environ.get(variables.get(setting, "")):
            found[setting] = (value, variables[setting])
        elif setting in profile:
            found[setting] = (profile[setting], f"profile {name}")
        else:
            found[setting] = (defaults.get(setting), "default" if setting in defaults else "not set")
    if as_json:
        settings = {setting: {"value": value, "from": origin} for setting, (value, origin) in found.items()}
        say_json({"profile": name or None, "file": str(file_path()), **settings})
    else:
        print_table(("SETTING", "VALUE", "FROM"), [(setting, *each) for setting, each in found.items()])
    return 0


def _shown(name: str, profile: Profile, **more: bool) -> dict[str, object]:
    return {"name": name, **{setting: profile.get(setting) for setting in SETTINGS}, **more}
