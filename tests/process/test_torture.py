"""Plays short shares of `torture`, `exactly-once` and `power-cut`, each broker on a machine of its own.

The disk of such a machine forgets everything unsynced. They need root and loop devices. Without them the tests are
skipped by name, or fail if `CI` is set.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from machines import delayed_network, machines
from machines.modules import module_command, module_environment

pytestmark = [pytest.mark.process, pytest.mark.slow]

LIMIT_S = 600  # of a hang, which the harnesses themselves notice after 180 s; they take 10 to 25 s


def run(tmp_path: Path, module: str, *arguments: object) -> tuple[int, dict[str, Any], str]:
    """Run a harness; return its exit status, its result, and what it printed."""
    if lacks := machines.missing():
        reason = f"{module}: " + "; ".join(f"no {what}: {why}" for what, why in lacks.items())
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    result = tmp_path / "result.json"
    command = module_command(module, "--json", result, *arguments)
    environment = module_environment()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, json.loads(result.read_text()) if result.exists() else {}, done.stdout + done.stderr


def test_cut_links_a_full_disk_and_a_clock_that_jumps_cost_no_acknowledged_record(tmp_path: Path) -> None:
    faults = "cut-leader-both-ways,disk-full,clock-jump"
    # One deck: the cut has two cards in it.
    status, result, said = run(tmp_path, "trials.torture", "--rounds", 4, "--faults", faults)
    assert status == 0, said
    assert result["acknowledged"] > 0
    assert result["faults"] == 4
    assert {row["fault"] for row in result["by_fault"]} == set(faults.split(","))
    assert not result["violations"]
    assert not result["unread"]


def test_transactions_are_whole_through_kills_and_cut_links(tmp_path: Path) -> None:
    faults = "kill-leader,kill-all,cut-leader-both-ways"
    status, result, said = run(tmp_path, "trials.transactions.rounds", "--rounds", 3, "--faults", faults, "--seed", 3)
    assert status == 0, said
    assert result["faults"] == 3
    assert result["transactions"]["committed"] > 0
    assert result["seen"]["taken over"] > 0
    assert result["seen"]["client killed"] > 0
    assert result["commits"] > 0
    assert not result["violations"]
    assert not result["wrong"]


def test_each_record_comes_out_once_of_processes_that_are_killed(tmp_path: Path) -> None:
    size = ("--kills", 2, "--minutes", 0.1, "--records-per-s", 100)
    status, result, said = run(tmp_path, "trials.transactions.exactly_once.run", *size)
    assert status == 0, said
    assert result["fed"] == result["came_out"] > 0
    assert result["struck"] == {"worker killed": 1, "broker killed": 1}
    assert result["summary"]["transactions"]["committed"] > 0
    assert not result["wrong"]


def test_brokers_far_from_each_other_lose_nothing_and_stay_in_sync(tmp_path: Path) -> None:
    if lack := delayed_network.network_lacks():
        if "CI" in os.environ:
            pytest.fail(lack)
        pytest.skip(lack)
    status, result, said = run(tmp_path, "trials.torture", "--rounds", 1, "--faults", "kill-leader", "--wire-delay", 20)
    assert status == 0, said
    assert result["acknowledged"] > 0
    assert not result["violations"]
    assert not result["without_excuse"]


def test_power_cut_of_all_machines_costs_no_synced_record(tmp_path: Path) -> None:
    status, result, said = run(tmp_path, "trials.power_cut", "--rounds", 1, "--mode", "fsync")
    assert status == 0, said
    assert result["rounds"] == 1
    assert result["acknowledged"] > 0
    assert not result["violations"]


def test_power_cut_harness_sees_what_brokers_lose_whose_syncs_do_nothing(tmp_path: Path) -> None:
    """The control of the test above: a harness that is content with these brokers would be content with any."""
    status, result, said = run(tmp_path, "trials.power_cut", "--rounds", 1, "--no-sync")
    assert status == 0, said
    assert result["lost"] > 0 or result["refusing"], "a disk that has kept a part is one that a broker refuses"
