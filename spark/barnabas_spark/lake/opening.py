"""Opens the store of a table, and tries out whether commits may rest on it.

The *probe* writes one path twice, each time only if nothing is there. A store that lets the second write through would
let two archivers commit the same version, and one of them would lose its rows: it is refused. Some stores take the
condition and ignore it, so no list of names can tell.

Others look first and write later: of two writes one after the other they refuse the second, and of several at the same
time they take several (OpenStack Swift took 26 of 40 paths more than once). So a bucket is raced for, too.
"""

import contextlib
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

from .store import DirectoryStore, Location, PresentError, Store, StoreError

__all__ = ["PROBE", "open_store", "probe"]

PROBE = "_probe-"
# At the same time, of one path; and so many paths. Swift is found out by two of three.
RACERS = 8
RACES = 6


def open_store(location: Location) -> Store:
    """Return the store at a location. Nothing is contacted yet, and no directory is made.

    Raises:
        StoreError: the location or its options make no sense.
    """
    if location.is_local:
        return DirectoryStore(location.directory)
    from .object_store import ObjectStore  # noqa: PLC0415 - directories need no obstore

    return ObjectStore(location)


def probe(store: Store, location: Location) -> None:
    """Check that the store keeps what it has when it is told to write only where nothing is. Leaves nothing behind.

    Raises:
        StoreError: it does not, or cannot be written at all.
    """
    path = f"{PROBE}{uuid.uuid4().hex}"
    try:
        store.put_if_absent(path, b"first")
        try:
            store.put_if_absent(path, b"second")
        except PresentError:
            found = store.get(path)
            if found == b"first":
                if not location.is_local:
                    _race(store, location)
                return
        else:
            found = store.get(path)
    except OSError as error:
        raise StoreError(f"{location.url} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(StoreError, OSError):
            store.delete(path)
    raise StoreError(
        f"{location.url} overwrites a file that it was told to create (If-None-Match: *), and has {found!r} now: "
        "two archivers could commit one version. Use a store with conditional writes"
    )


def _race(store: Store, location: Location) -> None:
    """Let several writers create one path at the same time, and the next, and see that one of them succeeds each time.

    Raises:
        StoreError: several did.
    """
    together = threading.Barrier(RACERS)
    paths = [f"{PROBE}{uuid.uuid4().hex}" for _ in range(RACES)]

    def create(number: int) -> list[bool]:
        return [_is_created(store, path, b"%d" % number, together) for path in paths]

    try:
        with ThreadPoolExecutor(RACERS) as pool:
            told = [*pool.map(create, range(RACERS))]
    finally:
        for path in paths:
            with contextlib.suppress(StoreError, OSError):
                store.delete(path)
    if (most := max(sum(each) for each in zip(*told, strict=True))) > 1:
        raise StoreError(
            f"{location.url} told {most} of {RACERS} writers at the same time that they had created one file"
            " (If-None-Match: *): two archivers could commit one version. Use a store that creates a file once"
        )


def _is_created(store: Store, path: str, data: bytes, together: threading.Barrier) -> bool:
    try:
        together.wait(60)
        store.put_if_absent(path, data)
    except PresentError:
        return False
    except BaseException:
        together.abort()
        raise
    return True
