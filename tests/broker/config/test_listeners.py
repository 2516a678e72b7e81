"""Listeners: what is read, what is refused and how, and that a written list reads back."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.config.addresses import Address, ConfigError
from barnabas_broker.config.listeners import DEFAULT_NAME, NamedListener, parse_listeners, shown_listeners

EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is listened on in settings, not here


def test_one_address_without_a_name_is_the_default_listener() -> None:
    here = Address("127.0.0.1", 9092)
    assert parse_listeners("127.0.0.1:9092") == (NamedListener(DEFAULT_NAME, here, here),)
    assert parse_listeners("plaintext://127.0.0.1:9092") == parse_listeners("PLAINTEXT://127.0.0.1:9092")
    assert parse_listeners("PLAINTEXT://127.0.0.1:9092") == parse_listeners("127.0.0.1:9092")


def test_names_join_where_to_listen_and_what_clients_are_told() -> None:
    found = parse_listeners(
        "inside://0.0.0.0:9092, outside://0.0.0.0:19092", "OUTSIDE://localhost:19092,Inside://broker-1:9092"
    )
    assert found == (
        NamedListener("INSIDE", Address(EVERYWHERE, 9092), Address("broker-1", 9092)),
        NamedListener("OUTSIDE", Address(EVERYWHERE, 19092), Address("localhost", 19092)),
    )


def test_a_listener_that_is_not_advertised_is_told_as_it_listens() -> None:
    found = parse_listeners("a://127.0.0.1:1,b://0.0.0.0:2", "b://h:3")
    assert [one.advertised for one in found] == [Address("127.0.0.1", 1), Address("h", 3)]


def test_one_listener_may_be_advertised_without_its_name() -> None:
    (found,) = parse_listeners("inside://0.0.0.0:1", "h:3")
    assert found == NamedListener("INSIDE", Address(EVERYWHERE, 1), Address("h", 3))


def test_kafkas_configuration_without_a_host_listens_everywhere() -> None:
    (found,) = parse_listeners("PLAINTEXT://:9092", "PLAINTEXT://h:9092")
    assert found.bind == Address(EVERYWHERE, 9092)


@pytest.mark.parametrize(
    ("listeners", "advertised", "complaint"),
    [
        ("a://h:1,A://h:2", "", "listeners has the name a twice"),
        ("a://h:1,b://h:1", "", "listeners has port 1 twice, for a and b"),
        ("a://0.0.0.0:1,b://h:1", "a://h:1", "listeners has port 1 twice, for a and b"),
        ("h:1,g:2", "", "with more than one listener write name://host:port for each"),
        ("inside://h:1", "insid://h:1", r"names insid, which is not one of the listeners \(did you mean inside\?\)"),
        ("inside://h:1", "x://h:1", r"names x, which is not one of the listeners \(there is inside\)"),
        ("a://h:1,b://h:2", "h:3", "names plaintext, which is not one of the listeners"),
        ("a://h:1", "a://h:1,a://h:2", "advertised.listeners has the name a twice"),
        ("a://0.0.0.0:1", "", "^listeners is 'a://0.0.0.0:1': clients are told this address"),
        ("a://h:1,b://[::]:2", "a://h:1", r"^listeners is 'b://\[::\]:2': clients are told this address"),
        ("a://h:1", "a://0.0.0.0:1", "^advertised.listeners is 'a://0.0.0.0:1': clients are told"),
        ("a://h:1", "a://:1", "advertised.listeners is ':1'; write host:port"),
        ("SSL://h:1", "", "brokers speak PLAINTEXT only; choose a name that does not promise more"),
        ("sasl_ssl://h:1", "", "brokers speak PLAINTEXT only"),
        ("a b://h:1", "", "a name has letters, digits"),
        ("://h:1", "", "a name has letters, digits"),
        ("", "", "listeners is ''; write host:port"),
        ("a://h:1,", "", "with more than one listener"),
        ("a://h:x", "", r"listeners is 'h:x': the port is not a number \(in 'a://h:x'\)"),
        ("a://h:65536", "", "ports are from 0 to 65535"),
        (",".join(f"a{i}://h:{i}" for i in range(1, 18)), "", "17 listeners; 16 is the maximum"),
    ],
)
def test_what_cannot_work_is_refused_in_words(listeners: str, advertised: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_listeners(listeners, advertised)


@pytest.mark.parametrize("host", ["x" * 256, "a b", "a\nb", "a\x1b[2J", "\u202ea"])
def test_a_host_that_no_client_can_be_told_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"255 is the maximum|must not have spaces or control characters"):
        parse_listeners("127.0.0.1:1", f"{host}:9")
    parse_listeners("127.0.0.1:1", f"{'x' * 255}:9")


def test_one_port_may_be_had_on_two_addresses_and_any_port_more_than_once() -> None:
    assert len(parse_listeners("a://127.0.0.1:1,b://127.0.0.2:1")) == 2
    assert len(parse_listeners("a://127.0.0.1:0,b://127.0.0.1:0")) == 2


names = st.from_regex(r"[A-Z0-9][A-Z0-9_.\-]{0,9}", fullmatch=True).filter(
    lambda name: name not in {"SSL", "TLS", "SASL_SSL", "SASL_PLAINTEXT"}
)
hosts = st.sampled_from(["h", "broker-1.example", "10.0.0.7", "fd00::1", "::1"])


@st.composite
def several(draw: st.DrawFn) -> tuple[NamedListener, ...]:
    chosen = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    ports = draw(st.lists(st.integers(0, 65_535), min_size=len(chosen), max_size=len(chosen), unique=True))
    places = st.builds(Address, hosts, st.integers(0, 65_535))
    return tuple(
        NamedListener(name, Address(draw(hosts), port), draw(places)) for name, port in zip(chosen, ports, strict=True)
    )


@given(several())
@settings(max_examples=50)
def test_what_is_shown_reads_back(listeners: tuple[NamedListener, ...]) -> None:
    shown = shown_listeners(listeners)
    assert parse_listeners(*shown) == listeners
    assert parse_listeners(*map(str.lower, shown)) == listeners


@given(st.text(alphabet="ab:/,[]0.*\x00 é", max_size=20), st.text(alphabet="ab:/,[]0. ", max_size=20))
@settings(max_examples=100)
def test_any_text_is_read_or_refused(listeners: str, advertised: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_listeners(listeners, advertised)
