"""The two ends of a handshake against each other, and against liars."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.links.framing import encode_frame, frame_of, read_header
from barnabas_raftlog.links.handshake import ADMIN, Acceptor, Dialler, HandshakeRefusedError, Identity

DIALLER = Identity("c", 1, 10)
ACCEPTOR = Identity("c", 2, 20)
NONCE_1 = b"1" * 16
NONCE_2 = b"2" * 16


def over_the_wire(header: object) -> tuple[object, ...]:
    assert isinstance(header, tuple)
    data = b"".join(encode_frame(header))
    return read_header(frame_of(memoryview(data)[4:], owned=True).header)


def converse(dialler: Dialler, acceptor: Acceptor) -> None:
    says: object = dialler.first()
    while not dialler.done:
        says = dialler.receive(over_the_wire(acceptor.receive(over_the_wire(says))))


def ends(
    secret_1: bytes | None = None, secret_2: bytes | None = None, me: Identity = DIALLER
) -> tuple[Dialler, Acceptor]:
    target = ADMIN if me.node_id == ADMIN else 2
    return Dialler(me, target, secret_1, NONCE_1), Acceptor(ACCEPTOR, frozenset({1, 3}), secret_2, NONCE_2)


@pytest.mark.parametrize("secret", [None, b"s"])
def test_both_learn_who_the_other_is(secret: bytes | None) -> None:
    dialler, acceptor = ends(secret, secret)
    converse(dialler, acceptor)
    assert (dialler.peer, acceptor.peer) == (ACCEPTOR, DIALLER)
    assert acceptor.done


@pytest.mark.parametrize("secret", [None, b"s"])
def test_an_admin_need_not_name_the_cluster(secret: bytes | None) -> None:
    dialler, acceptor = ends(secret, secret, Identity("", ADMIN, 0))
    converse(dialler, acceptor)
    assert acceptor.peer is not None
    assert acceptor.peer.node_id == ADMIN


def newcomer(key: bytes, number: int, keys: dict[int, bytes]) -> tuple[Dialler, Acceptor]:
    acceptor = Acceptor(ACCEPTOR, frozenset({1, 3}), b"s", NONCE_2, keys.get)
    return Dialler(Identity("", number, 0), ADMIN, key, NONCE_1), acceptor


def test_a_newcomer_and_the_acceptor_prove_that_they_know_the_tokens_key() -> None:
    dialler, acceptor = newcomer(b"key", -7, {-7: b"key"})
    converse(dialler, acceptor)
    assert acceptor.peer == Identity("", -7, 0)
    assert dialler.peer == ACCEPTOR


@pytest.mark.parametrize("keys", [{}, {-8: b"key"}, {-7: b"other"}])
@pytest.mark.parametrize("key", [b"key", b"s"])
def test_a_token_that_there_is_not_is_refused_as_a_wrong_proof_is(key: bytes, keys: dict[int, bytes]) -> None:
    dialler, acceptor = newcomer(key, -7, keys)
    welcome = acceptor.receive(over_the_wire(dialler.first()))
    assert welcome == (2, 2, NONCE_2), "nothing is said before the proof, not even whether there is such a token"
    proof = dialler.receive(over_the_wire(welcome))
    with pytest.raises(HandshakeRefusedError, match=r"^the cluster secrets differ$"):
        acceptor.receive(over_the_wire(proof))
    assert not acceptor.done


def test_a_tokens_key_makes_nobody_a_node_or_an_admin() -> None:
    for number in (1, ADMIN):
        dialler, acceptor = newcomer(b"key", -7, {-7: b"key", number: b"key"})
        dialler = Dialler(Identity("c", number, 0), 2, b"key", NONCE_1)
        with pytest.raises(HandshakeRefusedError, match="secrets differ"):
            converse(dialler, acceptor)


@pytest.mark.parametrize(("secret_1", "secret_2"), [(b"a", b"b"), (None, b"b"), (b"a", None)])
def test_secrets_must_be_equal(secret_1: bytes | None, secret_2: bytes | None) -> None:
    with pytest.raises(HandshakeRefusedError, match="secret"):
        converse(*ends(secret_1, secret_2))


def test_the_acceptor_checks_the_secret_first() -> None:
    dialler, acceptor = ends(b"guess", b"s")
    acceptor.receive(over_the_wire(dialler.first()))
    with pytest.raises(HandshakeRefusedError, match="secrets differ"):
        acceptor.receive((3, bytes(32)))
    assert not acceptor.done


def test_the_dialler_checks_the_secret_too() -> None:
    """A liar skips its own check; it still has to prove itself."""
    dialler, acceptor = ends(b"s", b"guess")
    dialler.receive(over_the_wire(acceptor.receive(over_the_wire(dialler.first()))))
    for identity, proof in ((ACCEPTOR, bytes(32)), (ACCEPTOR, b"")):
        with pytest.raises(HandshakeRefusedError, match="secrets differ"):
            dialler.receive((4, *identity, proof))
    assert not dialler.done
    assert dialler.peer is None


@pytest.mark.parametrize("me", [DIALLER, Identity("", ADMIN, 0), Identity("c", 9, 1), Identity("other", 1, 1)])
@pytest.mark.parametrize("secret", [b"guess", None])
def test_who_lacks_the_secret_learns_nothing_but_that_it_was_refused(me: Identity, secret: bytes | None) -> None:
    acceptor = Acceptor(Identity("a cluster", 7777, 8888), frozenset({1}), b"s", NONCE_2)
    dialler = Dialler(me, 7777, secret, NONCE_1)
    told = list[object]()
    refused = ""
    try:
        says: object = dialler.first()
        while not dialler.done:
            answer = acceptor.receive(over_the_wire(says))
            told += answer
            says = dialler.receive(over_the_wire(answer))
    except HandshakeRefusedError as error:
        refused = str(error)
    assert refused in {"the cluster secrets differ", "only one side has a secret (cluster.secret)"}
    assert told == ([2, 2, NONCE_2] if secret else [])


@pytest.mark.parametrize(
    ("me", "target", "complaint"),
    [
        (Identity("other", 1, 10), 2, "belongs to cluster 'other', node 2 to 'c'"),
        (Identity("c", 1, 10), 3, "node 1 wants node 3, but this is node 2"),
        (Identity("c", 2, 10), 2, "somebody else claims to be node 2"),
        (Identity("c", 9, 10), 2, "node 9 is not a member"),
    ],
)
def test_who_has_the_secret_is_told_in_words_why_it_is_not_wanted(me: Identity, target: int, complaint: str) -> None:
    acceptor = Acceptor(ACCEPTOR, frozenset({1, 3}), b"s", NONCE_2)
    with pytest.raises(HandshakeRefusedError, match=complaint):
        converse(Dialler(me, target, b"s", NONCE_1), acceptor)
    assert not acceptor.done


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [(Identity("other", 2, 1), "belongs to cluster 'other'"), (Identity("c", 3, 1), "node 3 answers where node 2")],
)
def test_the_dialler_does_not_want_every_node_that_has_the_secret(answers: Identity, complaint: str) -> None:
    dialler, _ = ends(b"s")
    acceptor = Acceptor(answers, frozenset({1}), b"s", NONCE_2)
    acceptor._judge = lambda peer, target: None  # type: ignore[method-assign]
    with pytest.raises(HandshakeRefusedError, match=complaint):
        converse(dialler, acceptor)
    assert not dialler.done


def test_a_proof_is_for_one_target_only() -> None:
    dialler = Dialler(DIALLER, 3, b"s", NONCE_1)
    hello = list(over_the_wire(dialler.first()))
    hello[5] = 2  # who is in between says that another node is wanted
    acceptor = Acceptor(ACCEPTOR, frozenset({1, 3}), b"s", NONCE_2)
    proof = dialler.receive(over_the_wire(acceptor.receive(tuple(hello))))
    with pytest.raises(HandshakeRefusedError, match="secrets differ"):
        acceptor.receive(over_the_wire(proof))


def test_another_version_is_named() -> None:
    for secret, ours in ((None, 1), (b"s", 2)):
        dialler, acceptor = ends(secret, secret)
        with pytest.raises(HandshakeRefusedError, match=f"version 9, we speak {ours}"):
            acceptor.receive((1, 9, *DIALLER, 2, NONCE_1))
        with pytest.raises(HandshakeRefusedError, match=f"version 9, we speak {ours}"):
            dialler.receive((2, 9, NONCE_2))


@pytest.mark.parametrize("odd", [{}, [], "1", None, 1.0, True], ids=repr)
@pytest.mark.parametrize("secret", [None, b"s"], ids=["open", "keyed"])
def test_a_version_or_a_target_that_is_no_number_is_malformed(secret: bytes | None, odd: object) -> None:
    ours = 1 if secret is None else 2
    for version, target in ((odd, 2), (ours, odd)):
        with pytest.raises(MalformedMessageError):
            ends(secret, secret)[1].receive((1, version, *DIALLER, target, NONCE_1))
    with pytest.raises(MalformedMessageError):
        ends(secret, secret)[0].receive((2, odd, NONCE_2))


def test_a_recorded_proof_is_worth_nothing_later() -> None:
    dialler, acceptor = ends(b"s", b"s")
    hello = over_the_wire(dialler.first())
    proof = dialler.receive(over_the_wire(acceptor.receive(hello)))
    again = Acceptor(ACCEPTOR, frozenset({1}), b"s", b"3" * 16)
    again.receive(hello)
    with pytest.raises(HandshakeRefusedError):
        again.receive(over_the_wire(proof))


@pytest.mark.parametrize(
    ("me", "complaint"),
    [
        (Identity("other", 1, 10), "belongs to cluster 'other', node 2 to 'c'"),
        (Identity("c", 2, 10), "somebody else claims to be node 2"),
        (Identity("c", 9, 10), "node 9 is not a member"),
    ],
)
def test_the_acceptor_says_whom_it_does_not_want(me: Identity, complaint: str) -> None:
    _, acceptor = ends()
    with pytest.raises(HandshakeRefusedError, match=complaint):
        acceptor.receive(over_the_wire(Dialler(me, 2, None, NONCE_1).first()))


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [(Identity("other", 2, 1), "belongs to cluster 'other'"), (Identity("c", 3, 1), "node 3 answers where node 2")],
)
def test_the_dialler_says_whom_it_does_not_want(answers: Identity, complaint: str) -> None:
    dialler, _ = ends()
    welcome = (2, 1, *answers, NONCE_2, b"")
    with pytest.raises(HandshakeRefusedError, match=complaint):
        dialler.receive(welcome)


def test_a_refusal_is_passed_on_in_its_own_words() -> None:
    dialler, acceptor = ends()
    for end in (dialler, acceptor):
        with pytest.raises(HandshakeRefusedError, match="go away") as caught:
            end.receive((5, "go away"))
        assert caught.value.by_peer


@settings(deadline=None, max_examples=100)
@given(
    kind=st.integers(0, 9),
    items=st.lists(st.one_of(st.integers(), st.text(max_size=5), st.binary(max_size=20), st.none()), max_size=7),
)
def test_anything_else_is_malformed(kind: int, items: list[object]) -> None:
    for end in (*ends(), *ends(b"s", b"s")):
        with pytest.raises((MalformedMessageError, HandshakeRefusedError)):
            end.receive((kind, *items))
        assert not end.done
