"""Notes the newest offset of each key, and says which records stay, in Python. Pure."""

from hashlib import blake2b

from barnabas_raftlog.records.walker.arrow_parts import Part
from barnabas_raftlog.records.walker.key_parts import SECRET_BYTES, Kept

from .steps import steps
from .walk import Buffer, Cursor, FaultError

__all__ = ["KEY_BYTES", "KeyTable", "squeeze"]

KEY_BYTES = 192
"""Of memory for each key: digest, offset and their share of the dictionary, rounded up from 176 measured."""
_DIGEST_BYTES = 16
_UNCHECKED = "a batch that was not checked"


class KeyTable:
    """The newest offset of each key. One thread at a time.

    Keys are noted by a digest of 128 bits, so memory depends on their number, `keys_max`, and not on their size. Who
    chooses keys cannot choose two with one digest, since nobody knows `secret`.
    """

    def __init__(self, keys_max: int, secret: bytes) -> None:
        """`secret`: `SECRET_BYTES` of chance.

        Raises:
            ValueError: `secret` has another size.
            OSError: the compiled one: no memory for so many keys. It is taken as it is used.
        """
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self._secret = secret

    def __len__(self) -> int:
        return len(self._offsets)

    def newest(self, key: Buffer) -> int:
        """Return the offset of the newest record with this key, -1 if it is not known."""
        return self._offsets.get(self._digest(key), -1)

    def note(self, part: Part) -> bool:
        """Note the keys of a batch, which is newer than those noted before; False if there was no room for one of them.

        The keys before that one were noted, those behind it were not.

        Args:
            part: A batch that `check` has found to be sound.

        Raises:
            ValueError: the batch is not sound; then what was noted so far says nothing.
        """
        offsets = self._offsets
        view = memoryview(part.body)
        try:
            for seen in steps(part):
                if seen.key_size < 0:
                    continue
                digest = self._digest(view[seen.key_start : seen.key_start + seen.key_size])
                if digest not in offsets and len(offsets) >= self._keys_max:
                    return False
                offsets[digest] = part.base_offset + seen.offset_delta
        except FaultError as error:
            raise ValueError(_UNCHECKED) from error
        return True

    def kept(self, part: Part, *, drop_tombstones: bool) -> Kept:
        """Return which records of a batch stay.

        Those do not for whose key a newer one is known, and tombstones, if that is asked for.

        Raises:
            ValueError: the batch is not sound.
        """
        view = memoryview(part.body)
        marks = bytearray((part.record_count + 7) // 8)
        count = 0
        max_timestamp = -1
        try:
            for number, seen in enumerate(steps(part)):
                if seen.key_size >= 0:
                    key = view[seen.key_start : seen.key_start + seen.key_size]
                    is_replaced = self.newest(key) > part.base_offset + seen.offset_delta
                    if is_replaced or (drop_tombstones and seen.value_size < 0):
                        continue
                marks[number >> 3] |= 1 << (number & 7)
                count += 1
                max_timestamp = max(max_timestamp, seen.timestamp)
        except FaultError as error:
            raise ValueError(_UNCHECKED) from error
        return Kept(count, max_timestamp, marks)

    def _digest(self, key: Buffer) -> bytes:
        return blake2b(key, digest_size=_DIGEST_BYTES, key=self._secret).digest()


def squeeze(body: bytearray | memoryview, marks: Buffer, records: int) -> int:
    """Move the records that stay to the beginning of a body, in place; return their bytes.

    Args:
        body: The plain records of a sound batch; behind the bytes that are returned it means nothing any more.
        marks: Which of them stay, as in `Kept`.
        records: How many there are.

    Raises:
        ValueError: the batch is not sound.
    """
    size = 0
    cursor = Cursor(body)
    with memoryview(body) as view:
        for number in range(records):
            start = cursor.position
            try:
                length = cursor.varint(32)
            except FaultError as error:
                raise ValueError(_UNCHECKED) from error
            if not 0 <= length <= cursor.end - cursor.position:
                raise ValueError(_UNCHECKED)
            end = cursor.position = cursor.position + length
            if marks[number >> 3] >> (number & 7) & 1:
                view[size : size + end - start] = view[start:end]
                size += end - start
    return size
