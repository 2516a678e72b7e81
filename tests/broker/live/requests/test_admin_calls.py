"""What the peer port of a broker answers to those who are no brokers: what an operator's commands ask, no more."""

import pytest

from barnabas_broker.access.join_tokens import ISSUE
from barnabas_broker.replicas.lost_voters import METHOD as LOST_VOTER
from barnabas_broker.testing import RunningCluster
from barnabas_raftlog.catch_up.messages import ENTRIES
from barnabas_raftlog.links import admin
from barnabas_raftlog.links.rpc import RemoteError

ASKED_BY_OPERATORS = {"status", LOST_VOTER, ISSUE}


def test_an_admin_is_answered_what_operators_ask_and_refused_all_else(one_broker: RunningCluster) -> None:
    links = one_broker.cluster.nodes[1].links
    methods = set(links._services._handlers)
    assert ASKED_BY_OPERATORS | {ENTRIES} <= methods
    assert admin.ask(*links.address, "status")
    for method in sorted(methods - ASKED_BY_OPERATORS):
        with pytest.raises(RemoteError, match="NotAllowed"):
            admin.ask(*links.address, method)
