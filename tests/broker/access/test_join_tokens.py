"""One-time tokens: two parts make the secret, and one is given out only once."""

import asyncio
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.access.join_tokens import (
    SALT_BYTES,
    SECRET_BYTES_MAX,
    TOKENS_MAX,
    VALID_S_MAX,
    JoinToken,
    JoinTokens,
    TokenError,
    combine,
    key_of,
)
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.local_cluster.joining import _with_secret

SECRET = b"correct horse"
SALT = bytes(range(SALT_BYTES))
PAD = b"thirteen byte"
TOKEN = JoinToken(cluster_id="c", host="10.0.0.1", port=10092, number=-2, key=bytes(32), pad=PAD)


class Broker:
    def __init__(self, secret: bytes | None = SECRET) -> None:
        self.now_ms = 5_000
        self.events: list[tuple[str, str]] = []
        self.tokens = JoinTokens(secret, lambda: self.now_ms, lambda *event: self.events.append(event))

    def issue(self, body: object = (SALT, combine(SECRET, PAD), 60)) -> int:
        packed = body if isinstance(body, bytes) else msgpack.packb(body)
        number = msgpack.unpackb(asyncio.run(self.tokens.issue(-1, packed)))
        assert isinstance(number, int)
        return number

    def join(self, number: int) -> bytes:
        return asyncio.run(self.tokens.join(number, b""))


def test_the_share_of_a_token_is_given_out_once() -> None:
    broker = Broker()
    number = broker.issue()
    other = broker.issue()
    assert broker.tokens.key(number) == key_of(SECRET, SALT)
    assert combine(broker.join(number), PAD) == SECRET
    assert broker.tokens.key(number) is None
    with pytest.raises(TokenError, match="used already, or is too old"):
        broker.join(number)
    assert combine(broker.join(other), PAD) == SECRET
    assert [kind for kind, _ in broker.events] == ["token issued"] * 2 + ["token redeemed"] * 2


def test_a_token_is_worthless_when_its_time_is_over() -> None:
    broker = Broker()
    number = broker.issue()
    broker.now_ms += 59_999
    assert broker.tokens.key(number) is not None
    broker.now_ms += 1
    assert broker.tokens.key(number) is None
    with pytest.raises(TokenError, match="too old"):
        broker.join(number)


def test_no_number_comes_again_and_the_oldest_of_many_goes() -> None:
    broker = Broker()
    numbers = [broker.issue() for _ in range(TOKENS_MAX + 1)]
    assert len(set(numbers)) == len(numbers)
    assert broker.tokens.key(numbers[0]) is None
    assert all(broker.tokens.key(number) for number in numbers[1:])
    broker.join(numbers[-1])
    assert broker.issue() not in numbers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        (),
        (SALT, PAD),
        (SALT, PAD, 0),
        (SALT, PAD, VALID_S_MAX + 1),
        (SALT, PAD, "1"),
        (SALT[1:], PAD, 1),
        (SALT, b"", 1),
        (SALT, bytes(SECRET_BYTES_MAX + 1), 1),
        (1, 2, 3),
        7,
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(body: object) -> None:
    broker = Broker()
    with pytest.raises(TokenError, match="not a wish for a token"):
        broker.issue(body)
    assert not broker.events


def test_without_a_secret_there_is_nothing_to_hand_on() -> None:
    with pytest.raises(TokenError, match="this cluster has no secret"):
        Broker(None).issue()


@given(secret=st.binary(min_size=1, max_size=80), data=st.data())
def test_either_part_alone_can_belong_to_any_secret(secret: bytes, data: st.DataObject) -> None:
    pad = data.draw(st.binary(min_size=len(secret), max_size=len(secret)))
    other = data.draw(st.binary(min_size=len(secret), max_size=len(secret)))
    share = combine(secret, pad)
    assert combine(share, pad) == secret
    assert combine(share, combine(share, other)) == other


@given(
    cluster_id=st.text(max_size=40),
    host=st.text(min_size=1, max_size=40),
    port=st.integers(1, 65_535),
    number=st.integers(-(1 << 31), -2),
    key=st.binary(min_size=32, max_size=32),
    pad=st.binary(min_size=1, max_size=100),
)
def test_a_token_is_read_as_it_was_written(
    cluster_id: str, host: str, port: int, number: int, key: bytes, pad: bytes
) -> None:
    token = JoinToken(cluster_id=cluster_id, host=host, port=port, number=number, key=key, pad=pad)
    assert JoinToken.parse(f" {token}\n") == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "barnabas-join.",
        "barnabas-join.ä",
        str(TOKEN)[:-8],
        str(TOKEN._replace(port=0)),
        str(TOKEN._replace(number=-1)),
        str(TOKEN._replace(key=b"short")),
        str(TOKEN._replace(pad=b"")),
        str(TOKEN._replace(pad="text")),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(TokenError, match="--token is not a valid token, or is incomplete"):
        JoinToken.parse(text)


NODE = 'node.id = 1\nlog.dir = "/d"\ncluster.nodes.1 = "h:1"\n'


@pytest.mark.parametrize(
    "text",
    [
        'cluster.id = "c"\n' + NODE,
        '# mine\n[cluster]\nid = "c"\nnodes.1 = "h:1"\n[node]\nid = 1\n[log]\ndir = "/d"\n',
    ],
)
def test_the_secret_is_put_into_a_file_as_it_is(text: str) -> None:
    shared = 'a "b"\n\x7f'
    changed = _with_secret(text, shared, Path("broker.toml"))
    assert BrokerConfig.from_toml(changed).cluster_secret == shared
    assert set(text.splitlines()) <= set(changed.splitlines())


def test_a_file_that_takes_no_secret_is_named() -> None:
    with pytest.raises(TokenError, match=r"cannot write cluster\.secret into broker\.toml"):
        _with_secret('cluster.id = "c"\ncluster.secret = ""\n' + NODE, "s", Path("broker.toml"))
