"""Keeps the addresses of clusters under names, in a file of the user's.

A profile holds what a command takes where neither an option nor the environment says anything: `bootstrap-server`,
`timeout` and `data`. The file is `$XDG_CONFIG_HOME/barnabas/profiles.toml` (`~/.config` without that variable), or the
one that `BARNABAS_CONFIG` names. The profile in use is the one that `BARNABAS_PROFILE` names, or else the file's
`current`. A file with an unknown entry is refused as a whole, so that rewriting it loses nothing but comments.

The file is written anew beside the old one and then takes its place, readable by its owner alone. Two commands that
change it at once wait for each other.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import CommandError, UsageError
from .near_names import did_you_mean

__all__ = [
    "CONFIG_VARIABLE",
    "PROFILE_VARIABLE",
    "SETTINGS",
    "Profile",
    "Profiles",
    "changing",
    "file_path",
    "in_use",
    "load",
    "valid_name",
]

CONFIG_VARIABLE = "BARNABAS_CONFIG"
PROFILE_VARIABLE = "BARNABAS_PROFILE"
SETTINGS = ("bootstrap-server", "timeout", "data")
FILE_BYTES_MAX = 1 << 20  # thousands of profiles; anything larger is some other file

Profile = dict[str, str]
"""Some of `SETTINGS`, each as it would be typed."""


class Profiles:
    """What the file says: profiles by name, and the name of the one to use, "" if there is none."""

    def __init__(self, by_name: dict[str, Profile], current: str = "") -> None:
        self.by_name = by_name
        self.current = current

    def named(self, name: str, said_by: str = "") -> Profile:
        """Return a profile.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.by_name:
            hint = did_you_mean(name, self.by_name) or "; barnabas profile list shows all"
            raise UsageError(f"{said_by}there is no profile {name!r}{hint}")
        return self.by_name[name]


def file_path() -> Path:
    """Return where profiles are kept; the file need not exist."""
    if named := os.environ.get(CONFIG_VARIABLE):
        return Path(named)
    # Relative paths are invalid there, says the XDG specification, and to be ignored.
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    home = folder if Path(folder).is_absolute() else os.path.expanduser("~/.config")  # noqa: PTH111 - never raises
    return Path(home, "barnabas", "profiles.toml")


def in_use() -> tuple[str, Profile]:
    """Return the profile in use and its name; an empty one, and "", if none is.

    Raises:
        CommandError: the file cannot be read. UsageError: the profile that is named does not exist.
    """
    chosen = os.environ.get(PROFILE_VARIABLE, "")
    profiles = load(file_path())
    if chosen:
        return chosen, profiles.named(chosen, f"{PROFILE_VARIABLE}: ")
    if profiles.current:
        return profiles.current, profiles.named(profiles.current, f"{file_path()}: current: ")
    return "", {}


def load(path: Path) -> Profiles:
    """Read the file; one that does not exist holds no profiles.

    Raises:
        CommandError: it cannot be read, or says what no profile can say.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return Profiles({})
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    import tomllib  # noqa: PLC0415 - most people have no profiles

    if len(data) > FILE_BYTES_MAX:
        raise CommandError(f"{path} is too large to be a file of profiles")
    try:
        return _profiles(tomllib.loads(data.decode()))
    except (RecursionError, TypeError, ValueError) as error:
        raise CommandError(f"{path}: {error}; correct it, or remove it and set the profiles again") from error


@contextmanager
def changing() -> Iterator[Profiles]:
    """Hand out the profiles to be changed in place, and write them at the end; not if the block raises.

    Raises:
        CommandError: the file cannot be read or written.
    """
    path = Path(os.path.realpath(file_path()))  # a link stays one: dotfiles are often links
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone(path.parent):
            profiles = load(path)
            yield profiles
            _write(path, profiles)
    except OSError as error:
        raise CommandError(f"{error.filename or path}: {error.strerror}") from error


def _profiles(found: Mapping[str, object]) -> Profiles:
    by_name: dict[str, Profile] = {}
    _known(found, ("current", "profiles"), "")
    tables = found.get("profiles", {})
    current = found.get("current", "")
    if not isinstance(tables, dict) or not isinstance(current, str):
        raise TypeError("'profiles' must be a table and 'current' a string")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise TypeError(f"profile {name!r} must be a table")
        _known(table, SETTINGS, f" in profile {name!r}")
        for key, value in table.items():
            if not isinstance(value, str):
                raise TypeError(f"{key} of profile {name!r} must be a string")
        by_name[name] = table
    return Profiles(by_name, current)


def _known(table: Mapping[str, object], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"unknown entry {key!r}{where}{did_you_mean(key, known)}")


def _toml(profiles: Profiles) -> str:
    lines = [f"current = {_quoted(profiles.current)}"] if profiles.current else []
    for name, profile in profiles.by_name.items():
        lines += ["", f"[profiles.{_quoted(name)}]", *(f"{key} = {_quoted(text)}" for key, text in profile.items())]
    return "\n".join([*lines, ""]).lstrip("\n")


def _quoted(text: str) -> str:
    """Return a TOML string. JSON's are that, but for DEL, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(path: Path, profiles: Profiles) -> None:
    try:
        data = _toml(profiles).encode()
    except UnicodeEncodeError as error:
        raise UsageError("names and values of profiles must be text in UTF-8") from error
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # of mode 600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other commands from changing the file meanwhile; where folders cannot be locked, do without."""
    try:
        import fcntl  # noqa: PLC0415 - there is none on Windows
    except ImportError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def valid_name(name: str) -> str:
    """Return the name of a profile.

    Raises:
        UsageError: no profile can have that name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(f"{name!r} is not a valid profile name: write letters, digits, '.', '_' and '-', at most 64")
    return name
