"""The table of settings: what it reads, refuses and writes."""

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.config.broker import Address, BrokerConfig, ConfigError
from barnabas_broker.config.broker import settings as all_settings

MINIMAL = 'node.id = 1\ncluster.id = "c"\nlog.dir = "/d"\ncluster.nodes.1 = "h:1"\n'


def test_dotted_keys_and_tables_are_the_same() -> None:
    table = '[node]\nid = 1\n[cluster]\nid = "c"\n[cluster.nodes]\n1 = "h:1"\n[log]\ndir = "/d"\n'
    assert BrokerConfig.from_toml(table) == BrokerConfig.from_toml(MINIMAL)


def test_set_strings_are_read_as_the_settings_type() -> None:
    config = BrokerConfig.from_settings(
        {
            "node.id": "2",
            "cluster.id": "c",
            "log.dir": "/d",
            "cluster.nodes": "1@a:1, 2@b:2",
            "auto.create.topics.enable": "false",
            "flush.mode": "page-cache",
            "controller.quorum.voters": "2",
        }
    )
    assert config.node_id == 2
    assert not config.auto_create_topics_enable
    assert config.nodes == {1: Address("a", 1), 2: Address("b", 2)}
    assert config.voters == (2,)
    assert config.replication_factor == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (MINIMAL + "node.idd = 2\n", r"unknown setting: node.idd \(did you mean node.id\?\)"),
        (MINIMAL.replace("1\n", "-1\n", 1), "node.id is -1; it must be from 0"),
        (MINIMAL + "raft.election.timeout.ms = 100\n", "followers will revolt"),
        (MINIMAL + 'flush.mode = "never"\n', "must be one of fsync, page-cache"),
        (MINIMAL + "min.insync.replicas = 1.5\n", "min.insync.replicas is 1.5"),
        (MINIMAL + 'listeners = "SSL://h:1"\n', "PLAINTEXT"),
        (MINIMAL + 'listeners = "h"\n', "write host:port"),
        (MINIMAL + 'listeners = "h:70000"\n', "ports are from 0 to 65535"),
        (MINIMAL + 'listeners = "0.0.0.0:9092"\n', "listeners is '0.0.0.0:9092': clients are told this address"),
        (MINIMAL + 'listeners = "PLAINTEXT://[::]:9092"\n', "clients are told this address"),
        (MINIMAL + 'listeners = "[0:0:0:0:0:0:0:0]:0"\n', "name one that they can reach in advertised.listeners"),
        (MINIMAL + 'advertised.listeners = "0.0.0.0:9092"\n', "^advertised.listeners is '0.0.0.0:9092'"),
        (MINIMAL + 'controller.quorum.voters = "7"\n', "names 7"),
        (MINIMAL.replace("1 =", "2 ="), "does not name this node"),
        (
            MINIMAL + "test.link.delay.us = 10_000_001\n",
            "test.link.delay.us is 10000001; it must be from 0 to 10000000",
        ),
        (MINIMAL + "test.link.jitter.us = -1\n", "test.link.jitter.us is -1; it must be from 0"),
        ("", "missing settings: node.id, cluster.id, cluster.nodes, log.dir"),
        ("node.id 1", "not valid TOML"),
        (MINIMAL.replace("= 1", "= true"), "not an integer"),
    ],
)
def test_bad_config_names_the_setting(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        BrokerConfig.from_toml(text)


def test_every_address_may_be_listened_on_while_clients_are_told_another_one() -> None:
    config = BrokerConfig.from_toml(MINIMAL + 'listeners = "0.0.0.0:9092"\nadvertised.listeners = "h:9093"\n')
    assert (config.listener, config.advertised) == (Address("0.0.0.0", 9092), Address("h", 9093))  # noqa: S104


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_a_written_file_reads_back_equal(data: st.DataObject) -> None:
    values: dict[str, str | int | bool] = {
        "node.id": 1,
        "cluster.id": "c",
        "cluster.nodes.1": "h:1",
        "cluster.nodes.4": "g:2",
        "log.dir": data.draw(st.text(min_size=1)),
        "broker.rack": data.draw(st.text()),
    }
    config = BrokerConfig.from_settings(values)
    assert BrokerConfig.from_toml(config.to_toml()) == config


def test_a_name_that_has_another_for_a_prefix_is_written_in_quotes() -> None:
    """Else only one of the two could be written in TOML."""
    names = sorted(setting.name for setting in all_settings())
    below = [(a, b) for a in names for b in names if b.startswith(a + ".")]
    assert below == [("max.connections", "max.connections.per.ip")]
    config = BrokerConfig.from_toml(MINIMAL + 'max.connections = 9\n"max.connections.per.ip" = 3\n')
    assert (config.max_connections, config.max_connections_per_ip) == (9, 3)
    assert '"max.connections.per.ip" = 3' in config.to_toml()
    assert BrokerConfig.from_toml(config.to_toml()) == config
    assert BrokerConfig.from_toml(MINIMAL + "max.connections.per.ip = 3\n").max_connections_per_ip == 3


def test_every_setting_is_documented() -> None:
    fields = [field.name.replace("_", ".") for field in dataclasses.fields(BrokerConfig)]
    assert [setting.name for setting in all_settings()] == [name for name in fields if not name.startswith("test.")]
    assert all(setting.doc.endswith(".") for setting in all_settings())


@pytest.mark.parametrize(
    ("addresses", "secret", "exposed"),
    [
        (("127.0.0.1:1", "127.9.0.2:1", "localhost:1", "[::1]:1"), "", ""),
        (
            ("127.0.0.1:1", "10.77.0.1:2", "a.example:3", "[fd00::1]:4"),
            "",
            "10.77.0.1:2, a.example:3, [fd00::1]:4",
        ),
        (("0.0.0.0:1",), "", "0.0.0.0:1"),
        (("10.77.0.1:2", "a.example:3"), "s", ""),
    ],
)
def test_nodes_that_strangers_reach_need_a_secret(addresses: tuple[str, ...], secret: str, exposed: str) -> None:
    nodes: dict[str, str | int | bool] = {f"cluster.nodes.{number}": text for number, text in enumerate(addresses, 1)}
    settings: dict[str, str | int | bool] = {"node.id": 1, "cluster.id": "c", "log.dir": "/d", "cluster.secret": secret}
    config = BrokerConfig.from_settings(settings | nodes)
    if exposed:
        with pytest.raises(ConfigError, match=f"anybody who reaches {re.escape(exposed)} would be believed"):
            config.check_keyed()
    else:
        config.check_keyed()
