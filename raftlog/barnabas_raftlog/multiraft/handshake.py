"""Who is at the other end of a connection: the handshake as two small machines without I/O. Pure.

Four frames: the dialler's HELLO names its cluster, itself and whom it wants; the acceptor's WELCOME answers with its
own identity; the dialler's PROOF and the acceptor's ACCEPTED end it. When a cluster secret is set, WELCOME and PROOF
carry an HMAC over both identities and both nonces, so neither side can be replayed or impersonated; without one
they carry an empty proof, and a side that has a secret refuses that. REFUSED may take the place of any answer and
says why in words, so that the operators of both sides read the same sentence.

An *admin* connection (the command line) has no node id; it may only ask. It need not name the cluster.

Not here: encryption. The secret keeps strangers out; it does not hide what is replicated.
"""

import hmac
from typing import Any, NamedTuple

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError

from .framing import FrameKind

__all__ = ["ADMIN", "NONCE_BYTES", "PROTOCOL_VERSION", "Acceptor", "Dialler", "HandshakeRefusedError", "Identity"]

PROTOCOL_VERSION = 1
NONCE_BYTES = 16
ADMIN = -1
NODE_ID_MAX = (1 << 31) - 1
INCARNATION_MAX = (1 << 63) - 1
NAME_CHARACTERS_MAX = 255

Header = tuple[object, ...]


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


def _proof(secret: bytes | None, label: bytes, dialler: Identity, acceptor: Identity, nonces: bytes) -> bytes:
    if secret is None:
        return b""
    spoken = (
        f"{dialler.cluster_id}\0{dialler.node_id}\0{dialler.incarnation}\0{acceptor.node_id}\0{acceptor.incarnation}"
    )
    return hmac.digest(secret, label + nonces + spoken.encode(), "sha256")


def _mark(nonces: bytes) -> int:
    """Return the number by which both ends name their connection; never 0."""
    return int.from_bytes(nonces[:4], "big") ^ int.from_bytes(nonces[NONCE_BYTES : NONCE_BYTES + 4], "big") or 1


def _check_proof(expected: bytes, given: object) -> None:
    if type(given) is not bytes:
        raise MalformedMessageError("a proof is bytes")
    if not hmac.compare_digest(expected, given):
        raise HandshakeRefusedError(
            "the cluster secrets differ" if expected and given else "only one side has a secret"
        )


def _check_identity(cluster_id: object, node_id: object, incarnation: object, nonce: object) -> None:
    if type(cluster_id) is not str or len(cluster_id) > NAME_CHARACTERS_MAX:
        raise MalformedMessageError("a cluster id is a short string")
    if type(node_id) is not int or not ADMIN <= node_id <= NODE_ID_MAX:
        raise MalformedMessageError(f"node id {node_id!r}")
    if type(incarnation) is not int or not 0 <= incarnation <= INCARNATION_MAX:
        raise MalformedMessageError(f"incarnation {incarnation!r}")
    if type(nonce) is not bytes or len(nonce) != NONCE_BYTES:
        raise MalformedMessageError(f"a nonce is {NONCE_BYTES} bytes")


def _expect(header: tuple[Any, ...], kind: FrameKind, length: int) -> None:
    if header[0] == FrameKind.REFUSED:
        text = header[1] if len(header) > 1 and type(header[1]) is str else "no reason given"
        raise HandshakeRefusedError(text[:NAME_CHARACTERS_MAX], by_peer=True)
    if header[0] != kind or len(header) != length:
        raise MalformedMessageError(f"frame of kind {header[0]} instead of {kind.name}")


class Dialler:
    """The end that connects. `peer` is known once `done`; `target` ADMIN means that anybody will do."""

    def __init__(self, me: Identity, target: int, secret: bytes | None, nonce: bytes) -> None:
        self._me, self._secret, self._nonce = me, secret, nonce
        self.target = target
        self.peer: Identity | None = None
        self.done = False
        self.mark = 0

    def first(self) -> Header:
        """Return the HELLO that opens the conversation."""
        me = self._me
        return (FrameKind.HELLO, PROTOCOL_VERSION, me.cluster_id, me.node_id, me.incarnation, self.target, self._nonce)

    def receive(self, header: tuple[Any, ...]) -> Header | None:
        """Take the acceptor's frame, return ours.

        Raises:
            HandshakeRefusedError: one of the two ends does not want the other.
            MalformedMessageError: this was no frame of a handshake.
        """
        if self.peer is not None:
            _expect(header, FrameKind.ACCEPTED, 1)
            self.done = True
            return None
        _expect(header, FrameKind.WELCOME, 7)
        _, version, cluster_id, node_id, incarnation, nonce, proof = header
        if version != PROTOCOL_VERSION:
            raise HandshakeRefusedError(f"it speaks protocol version {version!r}, we speak {PROTOCOL_VERSION}")
        _check_identity(cluster_id, node_id, incarnation, nonce)
        peer = Identity(cluster_id, node_id, incarnation)
        if self._me.node_id != ADMIN:
            if cluster_id != self._me.cluster_id:
                raise HandshakeRefusedError(f"it belongs to cluster {cluster_id!r}, we to {self._me.cluster_id!r}")
            if node_id != self.target:
                raise HandshakeRefusedError(f"node {node_id} answers where node {self.target} was expected")
        nonces = self._nonce + nonce
        _check_proof(_proof(self._secret, b"acceptor", self._me, peer, nonces), proof)
        self.peer, self.mark = peer, _mark(nonces)
        return (FrameKind.PROOF, _proof(self._secret, b"dialler", self._me, peer, nonces))


class Acceptor:
    """The end that listens. `knows` are the node ids of this cluster other than our own."""

    def __init__(self, me: Identity, knows: frozenset[int], secret: bytes | None, nonce: bytes) -> None:
        self._me, self._knows, self._secret, self._nonce = me, knows, secret, nonce
        self._expected_proof = b""
        self.peer: Identity | None = None
        self.done = False
        self.mark = 0

    def receive(self, header: tuple[Any, ...]) -> Header:
        """Take the dialler's frame, return ours. Raises as `Dialler.receive` does."""
        if self.peer is not None:
            _expect(header, FrameKind.PROOF, 2)
            _check_proof(self._expected_proof, header[1])
            self.done = True
            return (FrameKind.ACCEPTED,)
        _expect(header, FrameKind.HELLO, 7)
        _, version, cluster_id, node_id, incarnation, target, nonce = header
        if version != PROTOCOL_VERSION:
            raise HandshakeRefusedError(f"it speaks protocol version {version!r}, we speak {PROTOCOL_VERSION}")
        _check_identity(cluster_id, node_id, incarnation, nonce)
        me, peer = self._me, Identity(cluster_id, node_id, incarnation)
        if node_id != ADMIN:
            if cluster_id != me.cluster_id:
                raise HandshakeRefusedError(
                    f"node {node_id} belongs to cluster {cluster_id!r}, node {me.node_id} to {me.cluster_id!r}"
                )
            if target != me.node_id:
                raise HandshakeRefusedError(f"node {node_id} wants node {target!r}, but this is node {me.node_id}")
            if node_id == me.node_id:
                raise HandshakeRefusedError(f"somebody else claims to be node {node_id}")
            if node_id not in self._knows:
                raise HandshakeRefusedError(
                    f"node {node_id} is not a member of the cluster that node {me.node_id} knows"
                )
        nonces = nonce + self._nonce
        self._expected_proof = _proof(self._secret, b"dialler", peer, me, nonces)
        self.peer, self.mark = peer, _mark(nonces)
        proof = _proof(self._secret, b"acceptor", peer, me, nonces)
        return (FrameKind.WELCOME, PROTOCOL_VERSION, me.cluster_id, me.node_id, me.incarnation, self._nonce, proof)
