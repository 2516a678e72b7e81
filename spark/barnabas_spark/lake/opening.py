"""Opens the store of a table, and tries out whether commits may rest on it.

The *probe* writes one path twice, each time only if nothing is there. A store that lets the second write through would
let two archivers commit the same version, and one of them would lose its rows: it is refused. Some stores take the
condition and ignore it, so no list of names can tell.
"""

import contextlib
import uuid

from .store import DirectoryStore, Location, PresentError, Store, StoreError

__all__ = ["PROBE", "open_store", "probe"]

PROBE = "_probe-"


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
