"""What an installation lacks is told in the log of a process once."""

import logging

import pytest

from barnabas_clients.cluster import walker_log
from barnabas_clients.cluster.cluster_log import ClusterLog
from barnabas_clients.cluster.view import ClusterView


@pytest.mark.parametrize("lack", ["the walker is missing", ""])
def test_the_first_client_that_connects_tells_what_is_missing(
    lack: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(walker_log, "LACK", lack)
    walker_log.tell_lack_once.cache_clear()
    caplog.set_level(logging.INFO, "barnabas_clients")
    for _ in range(2):
        ClusterLog("client").learned(ClusterView(), ClusterView())
    told = [row.getMessage() for row in caplog.records if row.name == "barnabas_clients.walker"]
    assert told == ([lack] if lack else [])
