"""A proof is good for one question, one asker's nonce, one broker and one challenge, and for nothing else."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.access.client_proof import (
    NONCE_BYTES,
    Challenge,
    proof_of_asker,
    proof_of_broker,
    proves,
)

nonces = st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
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
