"""A proof is good for one question, one asker's nonce, one broker and one challenge, and for nothing else."""

import hmac
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.access.client_proof import (
    NONCE_BYTES,
    PROOF_BYTES,
    Challenge,
    proof_of_asker,
    proof_of_broker,
    proves,
)

nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
words = st.text(st.characters(codec="utf-8"), max_size=20)
challenges = st.builds(Challenge, words, st.integers(0, 2**31 - 1), nonces)
spoken = st.tuples(st.binary(min_size=1, max_size=40), challenges, nonces, st.binary(max_size=40))


@given(spoken, spoken)
def test_two_proofs_are_equal_only_if_all_that_they_cover_is(
    one: tuple[bytes, Challenge, bytes, bytes], other: tuple[bytes, Challenge, bytes, bytes]
) -> None:
    assert proves(proof_of_asker(*one), proof_of_asker(*one))
    assert proves(proof_of_asker(*one), proof_of_asker(*other)) == (one == other)


def test_each_part_counts_and_a_brokers_proof_is_no_askers() -> None:
    asked = (b"secret", Challenge("c", 1, bytes(NONCE_BYTES)), bytes(NONCE_BYTES), b"")
    changed = [
        (b"secreT", *asked[1:]),
        (b"secret", asked[1]._replace(cluster_id="d"), *asked[2:]),
        (b"secret", asked[1]._replace(node_id=2), *asked[2:]),
        (b"secret", asked[1]._replace(nonce=b"n" * NONCE_BYTES), *asked[2:]),
        (b"secret", asked[1], b"n" * NONCE_BYTES, b""),
        (*asked[:3], b"q"),
    ]
    proofs = [proof_of_asker(*each) for each in (asked, *changed)]
    proofs.append(proof_of_broker(*asked[:3]))
    assert not any(proves(one, other) for one, other in combinations(proofs, 2))


def test_no_part_passes_for_the_end_of_one_and_the_beginning_of_the_next() -> None:
    nonce = bytes(NONCE_BYTES)
    posing = Challenge("c\0001\0question", 2, nonce)  # chosen by somebody who wants a proof for another question
    assert not proves(
        proof_of_asker(b"secret", posing, nonce, b"asked"),
        proof_of_asker(b"secret", Challenge("c", 1, nonce), nonce, b"question\0002\0asked"),
    )


def test_what_has_not_the_length_of_a_proof_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(len(other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    expected = bytes(PROOF_BYTES)
    for given_bytes in (0, PROOF_BYTES - 1, PROOF_BYTES + 1, 100_000):
        assert not proves(expected, bytes(given_bytes))
    assert proves(expected, bytes(PROOF_BYTES))
    assert compared == [PROOF_BYTES], "comparing takes as long as what is given, and a request may have 100 MiB"
