"""The handshake between nodes, as two small machines without I/O. Pure.

Four frames: the dialler's HELLO names its cluster, itself and the node it wants; the acceptor's WELCOME answers; the
dialler's PROOF and the acceptor's ACCEPTED end it. REFUSED may take the place of any answer and says why in words, so
that the operators of both sides read the same sentence.

*Keyed* (version 2), when a cluster secret is set: WELCOME is a nonce and nothing else. PROOF is an HMAC over the
content of HELLO and both nonces. Only then the acceptor looks at the identity of the dialler, and ACCEPTED tells its
own, with an HMAC over both identities and both nonces. So neither side can be replayed or impersonated, and a stranger
without the secret learns nothing of a node but that it was refused. *Open* (version 1): WELCOME tells who the acceptor
is, and there is nothing to prove. An end that has a secret and one that has none refuse each other.

An *admin* connection (the command line) has no node id; it may only ask. It need not name the cluster. A *newcomer* has
a one-time token and does not know the secret yet: it has a number from `NEWCOMER_MAX` down, that of its token, and both
ends prove that they know the token's key in place of the secret. The tokens that exist are not told: a proof for a
missing one is answered as a wrong one is.

Not here: encryption. The secret keeps strangers out; it does not hide what is replicated.
"""

import hmac
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError

from .framing import FrameKind

__all__ = [
    "ADMIN",
    "KEYED",
    "NEWCOMER_MAX",
    "NEWCOMER_MIN",
    "NONCE_BYTES",
    "OPEN",
    "Acceptor",
    "Dialler",
    "HandshakeRefusedError",
    "Identity",
    "KeyOf",
]

# Versions of the protocol.
OPEN = 1
KEYED = 2
NONCE_BYTES = 16
ADMIN = -1
NEWCOMER_MAX = -2
NEWCOMER_MIN = -(1 << 31)
NODE_ID_MAX = (1 << 31) - 1
INCARNATION_MAX = (1 << 63) - 1
NAME_CHARACTERS_MAX = 255
WELCOME_LENGTH = 7
CHALLENGE_LENGTH = 3
SECRETS_DIFFER = "the cluster secrets differ"

Header = tuple[object, ...]
KeyOf = Callable[[int], bytes | None]  # of the token with this number, if there is one


class HandshakeRefusedError(BarnabasError):
    """The two ends do not belong together; the text says why. `by_peer`: the other side said so first."""

    def __init__(self, text: str, *, by_peer: bool = False) -> None:
        super().__init__(text)
        self.by_peer = by_peer


class Identity(NamedTuple):
    """One process: which cluster, which node, which of its lives. An admin has `node_id` ADMIN."""

    cluster_id: str
    node_id: int
    incarnation: int


def _proof(secret: bytes, nonces: bytes, dialler: Identity, target: int, acceptor: Identity | None = None) -> bytes:
    """Return the proof of the dialler, or of the acceptor, if there is one, after it."""
    spoken = f"{dialler.cluster_id}\0{dialler.node_id}\0{dialler.incarnation}\0{target}"
    if acceptor is not None:
        spoken += f"\0{acceptor.cluster_id}\0{acceptor.node_id}\0{acceptor.incarnation}"
    label = b"dialler" if acceptor is None else b"acceptor"
    return hmac.digest(secret, label + nonces + spoken.encode(), "sha256")


def _mark(nonces: bytes) -> int:
    """Return the number by which both ends name their connection; never 0."""
    return int.from_bytes(nonces[:4], "big") ^ int.from_bytes(nonces[NONCE_BYTES : NONCE_BYTES + 4], "big") or 1


def _check_proof(expected: bytes, given: object) -> None:
    if type(given) is not bytes:
        raise MalformedMessageError("a proof is bytes")
    if not hmac.compare_digest(expected, given):
        raise HandshakeRefusedError(SECRETS_DIFFER)


def _check_version(version: object, expected: int) -> None:
    if type(version) is not int:
        raise MalformedMessageError("a protocol version is a number")
    if version == expected:
        return
    if version in {OPEN, KEYED}:
        raise HandshakeRefusedError("only one side has a secret (cluster.secret)")
    raise HandshakeRefusedError(f"it speaks protocol version {version!r}, we speak {expected}")


def _check_identity(cluster_id: object, node_id: object, incarnation: object) -> None:
    if type(cluster_id) is not str or len(cluster_id) > NAME_CHARACTERS_MAX:
        raise MalformedMessageError("a cluster id is a short string")
    if type(node_id) is not int or not NEWCOMER_MIN <= node_id <= NODE_ID_MAX:
        raise MalformedMessageError(f"node id {node_id!r}")
    if type(incarnation) is not int or not 0 <= incarnation <= INCARNATION_MAX:
        raise MalformedMessageError(f"incarnation {incarnation!r}")


def _check_nonce(nonce: object) -> bytes:
    if type(nonce) is not bytes or len(nonce) != NONCE_BYTES:
        raise MalformedMessageError(f"a nonce is {NONCE_BYTES} bytes")
    return nonce


def _expect(header: tuple[Any, ...], kind: FrameKind, *lengths: int) -> None:
    if header[0] == FrameKind.REFUSED:
        text = header[1] if len(header) > 1 and type(header[1]) is str else "no reason given"
        raise HandshakeRefusedError(text[:NAME_CHARACTERS_MAX], by_peer=True)
    if header[0] != kind or len(header) not in lengths:
        raise MalformedMessageError(f"frame of kind {header[0]} instead of {kind.name}")


class Dialler:
    """The end that connects. `peer` is known once `done`; `target` ADMIN means that anybody will do."""

    def __init__(self, me: Identity, target: int, secret: bytes | None, nonce: bytes) -> None:
        self._me = me
        self._secret = secret
        self._nonce = nonce
        self._version = OPEN if secret is None else KEYED
        self._nonces = b""  # of both sides, once the other one's is known
        self.target = target
        self.peer: Identity | None = None
        self.done = False
        self.mark = 0

    def first(self) -> Header:
        """Return the HELLO that opens the conversation."""
        return (FrameKind.HELLO, self._version, *self._me, self.target, self._nonce)

    def receive(self, header: tuple[Any, ...]) -> Header | None:
        """Take the acceptor's frame, return ours.

        Raises:
            HandshakeRefusedError: one of the two ends does not want the other.
            MalformedMessageError: this was no frame of a handshake.
        """
        if self._nonces:
            self._on_accepted(header)
            return None
        _expect(header, FrameKind.WELCOME, WELCOME_LENGTH, CHALLENGE_LENGTH)
        _check_version(header[1], self._version)
        _expect(header, FrameKind.WELCOME, WELCOME_LENGTH if self._secret is None else CHALLENGE_LENGTH)
        nonces = self._nonce + _check_nonce(header[2 if self._secret is not None else 5])
        if self._secret is None:
            self._meet(*header[2:5])
            proof = b""
        else:
            proof = _proof(self._secret, nonces, self._me, self.target)
        self._nonces = nonces
        self.mark = _mark(nonces)
        return (FrameKind.PROOF, proof)

    def _on_accepted(self, header: tuple[Any, ...]) -> None:
        if self._secret is None:
            _expect(header, FrameKind.ACCEPTED, 1)
        else:
            _expect(header, FrameKind.ACCEPTED, 5)
            _, cluster_id, node_id, incarnation, proof = header
            _check_identity(cluster_id, node_id, incarnation)
            acceptor = Identity(cluster_id, node_id, incarnation)
            _check_proof(_proof(self._secret, self._nonces, self._me, self.target, acceptor), proof)
            self._meet(*acceptor)
        self.done = True

    def _meet(self, cluster_id: object, node_id: object, incarnation: object) -> None:
        _check_identity(cluster_id, node_id, incarnation)
        peer = Identity._make((cluster_id, node_id, incarnation))
        if self._me.node_id > ADMIN:
            if peer.cluster_id != self._me.cluster_id:
                raise HandshakeRefusedError(f"it belongs to cluster {cluster_id!r}, we to {self._me.cluster_id!r}")
            if peer.node_id != self.target:
                raise HandshakeRefusedError(f"node {node_id} answers where node {self.target} was expected")
        self.peer = peer


class Acceptor:
    """The end that listens. `knows` are the node ids of this cluster other than our own, `key_of` the tokens' keys.

    `peer` is the identity in the dialler's HELLO; with a secret it has proved that once this is `done`.
    """

    def __init__(
        self, me: Identity, knows: frozenset[int], secret: bytes | None, nonce: bytes, key_of: KeyOf = lambda _: None
    ) -> None:
        self._me = me
        self._knows = knows
        self._secret = secret
        self._nonce = nonce
        self._key_of = key_of
        self._target = ADMIN
        self._nonces = b""
        self.peer: Identity | None = None
        self.done = False
        self.mark = 0

    def receive(self, header: tuple[Any, ...]) -> Header:
        """Take the dialler's frame, return ours. Raises as `Dialler.receive` does."""
        if self.peer is not None:
            return self._on_proof(self.peer, header)
        _expect(header, FrameKind.HELLO, 7)
        _, version, cluster_id, node_id, incarnation, target, nonce = header
        _check_version(version, OPEN if self._secret is None else KEYED)
        _check_identity(cluster_id, node_id, incarnation)
        if type(target) is not int:
            raise MalformedMessageError("the node that is wanted is a number")
        peer = Identity(cluster_id, node_id, incarnation)
        nonces = _check_nonce(nonce) + self._nonce
        if self._secret is None:
            self._judge(peer, target)
        self.peer = peer
        self._target = target
        self._nonces = nonces
        self.mark = _mark(nonces)
        if self._secret is None:
            return (FrameKind.WELCOME, OPEN, *self._me, self._nonce, b"")
        return (FrameKind.WELCOME, KEYED, self._nonce)

    def _on_proof(self, peer: Identity, header: tuple[Any, ...]) -> Header:
        _expect(header, FrameKind.PROOF, 2)
        answer: Header = (FrameKind.ACCEPTED,)
        if self._secret is not None:
            key = self._secret if peer.node_id >= ADMIN else self._key_of(peer.node_id)
            if key is None:
                raise HandshakeRefusedError(SECRETS_DIFFER)
            _check_proof(_proof(key, self._nonces, peer, self._target), header[1])
            self._judge(peer, self._target)
            answer = (*answer, *self._me, _proof(key, self._nonces, peer, self._target, self._me))
        self.done = True
        return answer

    def _judge(self, peer: Identity, target: int) -> None:
        """Refuse a peer that is not wanted, in words that tell who this is."""
        me = self._me
        node_id = peer.node_id
        if node_id <= ADMIN:
            return
        if peer.cluster_id != me.cluster_id:
            raise HandshakeRefusedError(
                f"node {node_id} belongs to cluster {peer.cluster_id!r}, node {me.node_id} to {me.cluster_id!r}"
            )
        if target != me.node_id:
            raise HandshakeRefusedError(f"node {node_id} wants node {target}, but this is node {me.node_id}")
        if node_id == me.node_id:
            raise HandshakeRefusedError(f"somebody else claims to be node {node_id}")
        if node_id not in self._knows:
            raise HandshakeRefusedError(f"node {node_id} is not a member of the cluster that node {me.node_id} knows")
