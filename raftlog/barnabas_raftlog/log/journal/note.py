"""Notes which journal file was begun last, in the name of an empty file.

A journal file that is lost as a whole, or its header with it, looks like one that was never begun, and a node that
started without it would have forgotten votes and entries that others count on. So when the first batch of a file has
been synced, and before anybody is told, that is noted beside the journal: the empty file takes the name
`journal-begun.<sequence>.<file>`, and the directory is synced. That is one synced write in the life of a journal file,
and a crash leaves the old name or the new one. The name comes after the file, so a file that is noted and not there was
lost.

An older version leaves no such name; then nothing is known of lost files.
"""

from typing import NamedTuple

from barnabas_raftlog.log.machine.files import Files

__all__ = ["Begun", "JournalNote", "read_note"]

PREFIX = "journal-begun."


class Begun(NamedTuple):
    """A life of a journal file by its sequence number, and the number in the file's name."""

    sequence: int
    file: str


def read_note(files: Files, directory: str) -> Begun | None:
    """Return the note in the data directory; None if there is none."""
    found = [name.removeprefix(PREFIX) for name in files.list_directory(directory) if name.startswith(PREFIX)]
    notes = [name.partition(".") for name in found]
    return max((Begun(int(sequence), file) for sequence, _, file in notes if sequence.isdecimal()), default=None)


class JournalNote:
    """The note of one data directory. Owned by the `Journal`."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        known = read_note(files, directory)
        self._path = self._path_of(known) if known is not None else ""

    def write(self, sequence: int, file: str) -> None:
        """Make it durable that the life `sequence` of `file` has begun. Blocks.

        Raises:
            OSError: it may be or not. It is to be tried again, and the file must not be given up meanwhile.
        """
        path = self._path_of(Begun(sequence, file))
        if not self._path:
            self._files.close(self._files.open(path, create=True))
        elif self._path != path:
            self._files.rename(self._path, path)
        self._path = path
        self._files.sync_directory(self._directory)

    def _path_of(self, begun: Begun) -> str:
        return f"{self._directory}/{PREFIX}{begun.sequence}.{begun.file}"
