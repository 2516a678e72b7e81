"""Proves on the port of clients that one knows the cluster's secret. Pure.

The broker draws a nonce for the connection, the asker another one. The proof is an HMAC with the secret over both, over
who the broker is, and over all that is asked for. So it is good for this question, to this broker, on this connection,
once: a listener who repeats it anywhere is refused, and so is one who changes the question on its way. The broker
proves the same in its answer. The labels differ from those of `barnabas_raftlog.links.handshake`, so that neither port
can be made to compute a proof for the other.

Not here: encryption. Anybody in the path can read the answer and change it, as between brokers.
"""

import hmac
from typing import NamedTuple

__all__ = ["NONCE_BYTES", "PROOF_BYTES", "Challenge", "proof_of_asker", "proof_of_broker", "proves"]

NONCE_BYTES = 16
PROOF_BYTES = 32
ASKER = b"client port, asker\0"
BROKER = b"client port, broker\0"


class Challenge(NamedTuple):
    """The nonce that a broker has drawn for a connection, and that broker's identity."""

    cluster_id: str
    node_id: int
    nonce: bytes


def proof_of_asker(secret: bytes, challenge: Challenge, nonce: bytes, question: bytes) -> bytes:
    """Return what proves that whoever asks `question` knows the secret. `question`: its bytes, with an empty proof."""
    return _proof(secret, ASKER, challenge, nonce, question)


def proof_of_broker(secret: bytes, challenge: Challenge, nonce: bytes) -> bytes:
    """Return what proves that the broker of `challenge` knows the secret, to the asker who drew `nonce`."""
    return _proof(secret, BROKER, challenge, nonce, b"")


def proves(expected: bytes, given: bytes) -> bool:
    """Tell whether two proofs are equal, in the same time however much of them is.

    Bytes of another length are not a proof, and are not looked at: that would take as long as their sender likes.
    """
    return len(given) == PROOF_BYTES and hmac.compare_digest(expected, given)


def _proof(secret: bytes, label: bytes, challenge: Challenge, nonce: bytes, question: bytes) -> bytes:
    assert secret
    assert len(nonce) == len(challenge.nonce) == NONCE_BYTES
    who = f"{challenge.cluster_id}\0{challenge.node_id}".encode()
    # Whoever poses as a broker chooses its name: no part may pass for the end of one and the beginning of the next.
    parts = len(who).to_bytes(4, "big") + who + question
    return hmac.digest(secret, label + nonce + challenge.nonce + parts, "sha256")
