"""Members of KIP-848, and of both protocols in one group, are answered here as Apache Kafka answers them."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from bench import systems
from broker.coordinators.groups.consumer.live import test_both_protocols as here
from broker.coordinators.groups.consumer.live import test_consumers
from broker.wire_client import Wire
from interop import runtimes

pytestmark = [pytest.mark.interop, pytest.mark.slow]

one, old = here.one, here.old
test_a_member_is_let_in = here.test_a_classic_member_is_let_in_hears_its_part_and_commits
test_every_version_of_joining = here.test_every_version_of_joining
test_every_version_of_leaving = here.test_every_version_of_leaving
test_who_is_no_member = here.test_g14_who_is_no_classic_member_is_unknown_and_the_group_is_there
test_what_a_join_may_not_be = here.test_what_a_join_may_not_be
members = test_consumers.members
test_epochs_say_who_may_commit = test_consumers.test_g9_epochs_say_who_may_commit
test_a_group_goes_over_and_back = here.test_a_classic_group_becomes_one_of_the_others_and_a_classic_one_again


@pytest.fixture(scope="module")
def brokers() -> Iterator[SimpleNamespace]:
    runtimes.kafka_jars()
    with systems.kafka(synced=False, nodes=1) as peer:
        yield SimpleNamespace(bootstrap=peer.address)


@pytest.fixture
def topic(brokers: SimpleNamespace, own_name: str) -> str:
    host, port = brokers.bootstrap.rsplit(":", 1)
    wire = Wire(host, int(port))
    wire.create(own_name, 4, 1)
    wire.close()
    return own_name
