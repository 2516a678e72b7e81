"""Hands the cluster's secret to another machine, by a one-time token. Pure.

The secret is split in two: a *pad*, as many random bytes as the secret has, and the *share*, which is secret and pad
combined by exclusive or. Either alone is random and says nothing about the secret, however much is computed; so nothing
here is encrypted (ADR 0016). The pad is in the token, which a person carries to the other machine. The share stays with
one broker, in memory, for a short time, and is given out once, to a newcomer that has proved to have the token's key
(`barnabas_raftlog.links.handshake`); the broker proves the same to the newcomer.

So an eavesdropper on the network sees the share at most. A token that has been used, or is too old, is worthless to its
finder, unless he listened to the network when it was used. A token that somebody else has used first fails where it
should have worked, and the broker has the event `token redeemed`: then the secret must be changed.

The key is derived from the secret and a salt, so that it need not travel to the broker.

Limits: `TOKENS_MAX` for a broker, the oldest goes; `SECRET_BYTES_MAX`; `VALID_S_MAX`. They end with the broker.
"""

import base64
import hmac
from collections.abc import Callable
from typing import NamedTuple, Self

import msgpack

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links.handshake import NEWCOMER_MAX, NEWCOMER_MIN

__all__ = ["ISSUE", "JOIN", "JoinToken", "JoinTokens", "TokenError", "combine", "key_of"]

ISSUE = "issue token"
JOIN = "join"
PREFIX = "barnabas-join."
SALT_BYTES = 16
KEY_BYTES = 32
TOKENS_MAX = 16
SECRET_BYTES_MAX = 1024
VALID_S_MAX = 86_400

UNREADABLE = "--token is not a valid token, or is incomplete; copy all that `barnabas cluster token` printed"


class TokenError(BarnabasError):
    """A token that is none, or cannot be had or used; the text is for an operator."""


def combine(one: bytes, other: bytes) -> bytes:
    """Split a secret by a pad, or put it together again."""
    assert len(one) == len(other)
    return bytes(left ^ right for left, right in zip(one, other, strict=True))


def key_of(secret: bytes, salt: bytes) -> bytes:
    """Return the key of the token with this salt."""
    return hmac.digest(secret, b"join token" + salt, "sha256")


class JoinToken(NamedTuple):
    """A token, as a person carries it. `host` and `port` are the node address of the broker that has the share."""

    cluster_id: str
    host: str
    port: int
    number: int
    key: bytes
    pad: bytes

    def __str__(self) -> str:
        return PREFIX + base64.urlsafe_b64encode(msgpack.packb(tuple(self))).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` gave.

        Raises:
            TokenError: it is something else, or a part of it.
        """
        body = text.strip().removeprefix(PREFIX)
        try:
            token = cls._make(msgpack.unpackb(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
            kinds = [type(field) for field in token]
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise TokenError(UNREADABLE) from error
        if kinds != [str, str, int, int, bytes, bytes] or not _is_right(token):
            raise TokenError(UNREADABLE)
        return token


def _is_right(token: JoinToken) -> bool:
    is_addressed = 0 < token.port < 1 << 16 and NEWCOMER_MIN <= token.number <= NEWCOMER_MAX
    return is_addressed and len(token.key) == KEY_BYTES and 0 < len(token.pad) <= SECRET_BYTES_MAX


class _Issued(NamedTuple):
    key: bytes
    share: bytes
    until_ms: int


class JoinTokens:
    """The tokens of one broker that have not been redeemed. Owned by the node."""

    def __init__(self, secret: bytes | None, now_ms: Callable[[], int], on_event: Callable[[str, str], None]) -> None:
        self._secret = secret
        self._now_ms = now_ms
        self._on_event = on_event
        self._issued: dict[int, _Issued] = {}  # by number, oldest first
        self._next = NEWCOMER_MAX

    def key(self, number: int) -> bytes | None:
        """Return the key by which the bearer of a token is known; None if it is not valid."""
        issued = self._issued.get(number)
        return None if issued is None or issued.until_ms <= self._now_ms() else issued.key

    async def issue(self, _source: int, body: bytes) -> bytes:
        """Keep a share: [salt, share, seconds] to the token's number.

        Raises:
            TokenError: there is no secret to hand on, or the question makes no sense.
        """
        if self._secret is None:
            raise TokenError("this cluster has no secret")
        try:
            salt, share, valid_s = msgpack.unpackb(body)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise TokenError("not a wish for a token") from error
        if not (type(salt) is type(share) is bytes and type(valid_s) is int and 0 < valid_s <= VALID_S_MAX):
            raise TokenError("not a wish for a token")
        if len(salt) != SALT_BYTES or not 0 < len(share) <= SECRET_BYTES_MAX:
            raise TokenError("not a wish for a token")
        if len(self._issued) >= TOKENS_MAX:
            del self._issued[next(iter(self._issued))]
        number, self._next = self._next, self._next - 1
        self._issued[number] = _Issued(key_of(self._secret, salt), share, self._now_ms() + valid_s * 1000)
        self._on_event("token issued", f"token {-number}, for {valid_s} s")
        packed: bytes = msgpack.packb(number)
        return packed

    async def join(self, source: int, _body: bytes) -> bytes:
        """Give the share out to the bearer of its token, once.

        Raises:
            TokenError: it was given out already, or the time is over.
        """
        is_valid = self.key(source) is not None
        issued = self._issued.pop(source, None)
        if issued is None or not is_valid:
            raise TokenError("the token was used already, or is too old")
        self._on_event("token redeemed", f"token {-source}")
        return issued.share
