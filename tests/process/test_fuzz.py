"""A share of `scripts/fuzz`, with fixed seeds: real brokers, and a client beside."""

from pathlib import Path

import pytest
from fuzzing import client_run, peer_run
from fuzzing.client_run import Plan
from fuzzing.watch import SETTINGS
from machines import cluster_handle

pytestmark = [pytest.mark.process, pytest.mark.slow]

FRAMES = 15_000
REQUIRED = 12
PEERS = 200


def test_clients_that_send_anything_harm_nobody(tmp_path: Path) -> None:
    with cluster_handle.cluster(1, SETTINGS) as cluster:
        outcome = client_run.run(Plan(20, FRAMES, REQUIRED, tmp_path / "failures.jsonl"), cluster)
    assert not outcome.problems


def test_nodes_and_strangers_that_send_anything_harm_nobody() -> None:
    with cluster_handle.cluster(peer_run.BROKERS, peer_run.settings()) as cluster:
        outcome = peer_run.run(20, PEERS, cluster)
    assert not outcome.problems
