"""The files for containers and systemd fit the project: no container is started, every step is checked that can be."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.wheels import build

from barnabas_broker.cli import entry
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.sources import gather
from barnabas_broker.testing import RunningCluster

from .conftest import WITHOUT_A_COMPILER, Files
from .sources import ROOT
from .test_contents import contents

DEPLOY = ROOT / "scripts" / "deploy"
BROKER_RUN = ["broker", "run", "--config", "/etc/barnabas/broker.toml"]
DATA = "/var/lib/barnabas"
STRICT_MAX = 20  # of 100, as systemd rates what a service may still do; 96 with nothing set


def instructions() -> list[tuple[str, str]]:
    """Return each instruction of the Containerfile with its arguments."""
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def arguments(name: str) -> list[str]:
    return [rest for word, rest in instructions() if word == name]


def copies() -> list[tuple[list[str], str]]:
    """Return what is copied from the repository, and where to."""
    words = [rest.split() for rest in arguments("COPY") if not rest.startswith("--from")]
    return [(sources, target) for *sources, target in words]


def the_config() -> BrokerConfig:
    return BrokerConfig.from_bytes((DEPLOY / "broker.toml").read_bytes())


def unit(tmp_path: Path) -> tuple[configparser.ConfigParser, Path]:
    """Return the unit as read, and a copy for systemd whose program is there."""
    text = (DEPLOY / "barnabas.service").read_text()
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(text)
    copy = tmp_path / "barnabas.service"
    copy.write_text(text.replace("/opt/barnabas/bin/barnabas", sys.executable))
    return parser, copy


def compose() -> dict[str, Any]:
    described: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return described


def config_of(service: str) -> BrokerConfig:
    """Return the configuration of a service: the image's file, and above it what its environment says."""
    environment = compose()["services"][service]["environment"] | {"BARNABAS_CLUSTER_SECRET": "0" * 64}
    return gather((DEPLOY / "broker.toml").read_bytes(), environment, [])


def test_the_first_configuration_is_a_broker_alone_that_needs_no_secret() -> None:
    config = the_config()
    config.check_keyed()
    assert list(config.nodes) == [config.node_id]
    assert config.log_dir == DATA


@pytest.mark.slow
def test_the_image_is_made_of_files_that_are_there_and_are_enough(pure_wheels: Files, tmp_path: Path) -> None:
    allowed = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    assert {source for sources, _ in copies() for source in sources} == allowed
    for sources, target in copies():
        for source in (ROOT / name for name in sources):
            if source.is_dir():
                shutil.copytree(source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            elif not target.startswith("/"):
                shutil.copy(source, tmp_path / target / source.name)
    for name, project in {"barnabas-clients": tmp_path / "clients", "barnabas": tmp_path}.items():
        built = build(project, tmp_path / f"built-{name}", variables=WITHOUT_A_COMPILER)
        assert contents(built) == contents(pure_wheels[name])
    (install,) = (rest for rest in arguments("RUN") if "pip install --no-cache-dir ./clients ." in rest)
    assert "BARNABAS_WALKER=$WALKER" in install
    assert "WALKER=compiled" in arguments("ARG")


def test_the_image_runs_a_broker_on_its_file_and_volume() -> None:
    assert json.loads(arguments("ENTRYPOINT")[0]) == ["barnabas"]
    assert json.loads(arguments("CMD")[0]) == BROKER_RUN
    assert (["scripts/deploy/broker.toml"], BROKER_RUN[-1]) in copies()
    assert arguments("VOLUME") == [DATA]
    assert arguments("USER") == ["barnabas"]
    config = the_config()
    peer_port = config.nodes[config.node_id].port
    assert arguments("EXPOSE")[0].split() == [f"{config.listener.port}/tcp", f"{peer_port}/tcp", f"{peer_port}/udp"]


@pytest.mark.parametrize("service", ["broker-1", "broker-2", "broker-3"])
def test_each_service_is_a_broker_of_one_cluster(service: str) -> None:
    config = config_of(service)
    config.check_keyed()
    assert {f"broker-{node_id}": str(address) for node_id, address in config.nodes.items()} == {
        name: f"{name}:10092" for name in compose()["services"]
    }
    assert service == f"broker-{config.node_id}"


@pytest.mark.parametrize("service", ["broker-1", "broker-2", "broker-3"])
def test_clients_inside_and_outside_are_told_addresses_that_they_reach(service: str) -> None:
    inside, outside = config_of(service).named_listeners
    assert (inside.name.lower(), outside.name.lower()) == ("inside", "outside")
    assert str(inside.advertised) == f"{service}:{inside.bind.port}"
    assert str(outside.advertised) == f"localhost:{outside.bind.port}"
    assert compose()["services"][service]["ports"] == [f"127.0.0.1:{outside.bind.port}:{outside.bind.port}"]


def test_no_two_services_share_a_port_a_volume_or_the_secret_of_a_file() -> None:
    described = compose()
    services = described["services"].values()
    assert len({port for one in services for port in one["ports"]}) == len(services)
    assert {volume for one in services for volume in one["volumes"]} == {
        f"{name}:{DATA}" for name in described["volumes"]
    }
    assert {one["environment"]["BARNABAS_CLUSTER_SECRET"][:27] for one in services} == {"${BARNABAS_CLUSTER_SECRET:?"}
    assert {(DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).resolve() for one in services} == {
        DEPLOY / "Containerfile"
    }


@pytest.mark.slow
def test_the_health_check_is_a_command_that_a_broker_passes(capsys: pytest.CaptureFixture[str]) -> None:
    (words,) = {tuple(one["healthcheck"]["test"]) for one in compose()["services"].values()}
    assert words[:2] == ("CMD", "barnabas")
    with RunningCluster(1) as cluster:
        asked = [cluster.bootstrap if word == "localhost:9092" else word for word in words[2:]]
        assert entry.main(asked) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("seconds_of", ["container", "systemd"])
def test_a_stop_takes_no_longer_than_it_may(seconds_of: str, tmp_path: Path) -> None:
    graces = [one["stop_grace_period"] for one in compose()["services"].values()]
    if seconds_of == "systemd":
        graces = [unit(tmp_path)[0]["Service"]["TimeoutStopSec"]]
    assert min(int(grace.removesuffix("s")) for grace in graces) * 1000 > the_config().controlled_shutdown_timeout_ms


def test_the_unit_runs_a_broker_that_may_write_only_its_data(tmp_path: Path) -> None:
    service = unit(tmp_path)[0]["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert Path(program).name == "barnabas"
    assert words == BROKER_RUN
    assert f"/var/lib/{service['StateDirectory']}" == DATA
    assert service["ProtectSystem"] == "strict"
    assert service["User"] == "barnabas"
    assert service["CapabilityBoundingSet"] == ""


def test_systemd_finds_no_mistake_in_the_unit_and_little_that_it_may_do(tmp_path: Path) -> None:
    """Where there is no systemd, no line may at least be anything but a comment, a section or a setting."""
    _, copy = unit(tmp_path)
    if shutil.which("systemd-analyze") is None:
        lines = [line for line in copy.read_text().splitlines() if line and not line.startswith("#")]
        assert [line for line in lines if not re.fullmatch(r"\[(Unit|Service|Install)\]|[A-Z]\w+=.*", line)] == []
        return
    told = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=True)
    assert told.stdout + told.stderr == ""
    rating = ["systemd-analyze", "security", "--offline=yes", f"--threshold={STRICT_MAX}", str(copy)]
    subprocess.run(rating, capture_output=True, check=True)
