"""`barnabas txn` against three brokers: what is listed and described, what holds readers back, what hangs, its end.

Transactions are made by raw requests. One that hangs comes from a partition that was told a lie: that a coordinator has
it in a transaction.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from broker.cli.conftest import Run
from broker.coordinators.groups.group_client import GroupClient
from broker.live.test_three_brokers import Wires, leader_of
from broker.live.transactions.consuming import stable_position, stage_surely
from broker.live.transactions.producing import Transactional, read, transactional_request
from broker.wire_client import batch, produce_request

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli.commands.txn import hanging, standing
from barnabas_broker.partition.replica_state import ReplicaState
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_raftlog.records.header import TRANSACTIONAL

pytestmark = pytest.mark.slow
NONE = "the brokers have no transactions; those of Barnabas do with unstable.api.versions.enable=true"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings={"unstable.api.versions.enable": True}) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(brokers: RunningCluster) -> str:
    return brokers.bootstrap


@pytest.fixture
def wires(brokers: RunningCluster) -> Iterator[Wires]:
    wires = Wires(brokers)
    yield wires
    wires.close()


@pytest.fixture
def txn(barnabas: Run) -> Run:
    def run(*words: object, **how: Any) -> str:
        return barnabas("txn", *words, **how)

    return run


def rows_of(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()[1:]]


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def now_ms() -> int:
    return int(time.time() * 1000)


async def _yes(_: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Answer as the coordinator of whatever is asked about would."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(partition_index=index) for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def hang(
    brokers: RunningCluster, wires: Wires, name: str, topic: str, producer_id: int, *, timestamp: int = 1_000
) -> None:
    """Write a batch of a transaction that no coordinator has open."""
    leader = leader_of(wires[1], topic)
    questions: Any = brokers.cluster.nodes[leader].broker.questions
    asked = questions._ask
    questions._ask = _yes
    try:
        fields = {"producer_id": producer_id, "epoch": 0, "sequence": 0, "attributes": TRANSACTIONAL}
        request = transactional_request(name, topic, batch(2, timestamp=timestamp, **fields))
        answer = wires[leader].ask(request, 11).responses[0].partition_responses[0]
    finally:
        questions._ask = asked
    assert answer.error_code == 0


def new_producer_id(wires: Wires) -> int:
    answer: int = wires[1].ask(InitProducerIdRequest(transactional_id=None), 5).producer_id
    return answer


def test_ids_are_listed_and_described(txn: Run, wires: Wires) -> None:
    wires[1].create("listed")
    one, other = Transactional(wires, "listed-1"), Transactional(wires, "listed-2")
    assert one.send("listed").error_code == 0
    every = {row[0]: row[1:] for row in rows_of(txn("list", "--regex", "listed-.*"))}
    assert every["listed-1"] == [str(one.producer_id), "Ongoing", str(one.coordinator_id)]
    assert every["listed-2"][1] == "Empty"
    assert [row[0] for row in rows_of(txn("list", "--state", "ongoing", "--regex", "listed-.*"))] == ["listed-1"]
    assert [row[0] for row in rows_of(txn("list", "--producer", other.producer_id))] == ["listed-2"]
    assert [row[0] for row in rows_of(txn("list", "--longer-than", "0s", "--regex", "listed-.*"))] == ["listed-1"]
    assert rows_of(txn("list", "--longer-than", "1h")) == []
    assert lines(txn("list", "--json", "--producer", one.producer_id)) == [
        {
            "transactional_id": "listed-1",
            "producer_id": one.producer_id,
            "state": "Ongoing",
            "coordinator_id": one.coordinator_id,
        }
    ]
    first, columns, row, _, last = txn("describe", "listed-1", "listed-2").splitlines()
    assert first.startswith(f"listed-1  Ongoing  coordinator {one.coordinator_id}  producer {one.producer_id}  epoch ")
    assert "  timeout 1m  open for " in first
    assert first.endswith(" at the latest")
    assert (columns.split(), row.split()) == (["topic", "partition"], ["listed", "0"])
    assert last.startswith("listed-2  Empty  ")
    assert last.endswith("  timeout 1m")
    (told,) = lines(txn("describe", "listed-1", "--json"))
    assert told["partitions"] == [{"topic": "listed", "partition": 0}]
    assert told["times_out_at_ms"] == told["started_at_ms"] + 60_000
    assert one.end(is_commit=False) == 0


def test_what_is_mistyped_is_told_the_near_name(txn: Run, wires: Wires) -> None:
    Transactional(wires, "mistyped")
    wires[1].create("typed")
    said = txn("describe", "mistypd", status=1)
    assert said == (
        "barnabas: there is no transactional id 'mistypd' (did you mean 'mistyped'?) [TRANSACTIONAL_ID_NOT_FOUND]\n"
    )
    assert "(did you mean 'Ongoing'?)" in txn("list", "--state", "ongoin", status=2)
    for command in (["producers"], ["why"], ["abort", "--start-offset", 0]):
        said = txn(command[0], "typd", 0, *command[1:], status=1)
        assert "there is no topic 'typd' (did you mean 'typed'?)" in said
        assert "typed has partition 0 only" in txn(command[0], "typed", 7, *command[1:], status=1)
    assert "there is no topic 'typd'" in txn("find-hanging", "typd", status=1)
    assert "typed has partition 0 only" in txn("find-hanging", "typed:0,1", status=1)
    assert "there is no broker 9; there are 1, 2, 3" in txn("find-hanging", "--broker", 9, status=1)
    assert "--longer-than: 'soon' is not a valid duration" in txn("find-hanging", "--longer-than", "soon", status=2)
    assert "say which transaction" in txn("abort", "typed", 0, status=2)


def test_what_holds_readers_back_is_told_with_its_id_and_its_end(txn: Run, wires: Wires) -> None:
    wires[1].create("held")
    assert wires[leader_of(wires[1], "held")].ask(produce_request("held", batch(3)), 9)
    assert "nothing holds readers of committed records back; they read up to its end, 3" in txn("why", "held", 0)
    one, behind = Transactional(wires, "held-1"), Transactional(wires, "held-2")
    assert one.send("held", 2).error_code == 0
    assert behind.send("held").error_code == 0
    first, second, third, fourth = txn("why", "held", 0).splitlines()
    assert first == "held-0: readers of committed records stop at offset 3, 3 records before its end"
    assert second.startswith(f"producer {one.producer_id}, epoch {one.epoch}, has a transaction open since offset 3; ")
    assert third.startswith(f"transactional id 'held-1' of coordinator {one.coordinator_id} is Ongoing, since 20")
    assert "; unless it ends before, the coordinator aborts it at 20" in third
    assert fourth == "behind it 1 more transaction is open"
    told = json.loads(txn("why", "held", 0, "--json"))
    assert (told["last_stable_offset"], told["end_offset"], len(told["open"])) == (3, 6, 2)
    held_by = told["held_by"]
    assert (held_by["transactional_id"], held_by["state"], held_by["hangs"]) == ("held-1", "Ongoing", False)
    assert held_by["times_out_at_ms"] == held_by["started_at_ms"] + 60_000
    found = {row[0]: row[-1] for row in rows_of(txn("producers", "held", 0))}
    assert found == {str(one.producer_id): "3", str(behind.producer_id): "5"}
    assert one.end(is_commit=True) == 0
    assert read(wires[leader_of(wires[1], "held")], "held", 5, is_committed=True)[-2:] == [3, 4]
    assert json.loads(txn("why", "held", 0, "--json"))["held_by"]["transactional_id"] == "held-2"
    assert behind.end(is_commit=True) == 0


def test_what_a_coordinator_knows_is_aborted_by_force_only(txn: Run, wires: Wires) -> None:
    wires[1].create("forced")
    one = Transactional(wires, "forced-1")
    assert one.send("forced").error_code == 0
    said = txn("abort", "forced", 0, "--start-offset", 0, status=1)
    assert "the transaction does not hang: transactional id 'forced-1' is Ongoing, and it ends by 20" in said
    assert rows_of(txn("find-hanging", "forced", "--longer-than", "0s")) == []
    said = txn("abort", "forced", 0, "--producer", one.producer_id, "--start-offset", 5, status=1)
    assert f"no open transaction of producer {one.producer_id} from offset 5 on; there are those from 0 (" in said
    said = txn("abort", "forced", 0, "--producer", one.producer_id, "--force")
    assert said == f"aborted in forced-0: the transaction of producer {one.producer_id} from offset 0 on\n"
    assert "nothing holds readers" in txn("why", "forced", 0)
    assert "none is open [INVALID_TXN_STATE]" in txn("abort", "forced", 0, "--start-offset", 0, status=1)


def test_a_transaction_that_hangs_is_found_and_aborted(
    brokers: RunningCluster, txn: Run, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[1].create("hanging")
    known = Transactional(wires, "hanging-known")
    unknown_id = new_producer_id(wires)
    hang(brokers, wires, "hanging-unknown", "hanging", unknown_id)
    hang(brokers, wires, known.name, "hanging", known.producer_id)
    assert rows_of(txn("find-hanging", "hanging")) == [], "it is not old yet"
    monkeypatch.setattr(hanging, "now_ms", lambda: now_ms() + HOUR_MS)
    found = {row[2]: (row[3], *row[6:]) for row in rows_of(txn("find-hanging"))}
    assert found == {
        "0": (str(unknown_id), "-", "-"),
        "2": (str(known.producer_id), known.name, "Empty"),
    }
    assert rows_of(txn("find-hanging", "hanging", "--longer-than", "2h")) == []
    leader = leader_of(wires[1], "hanging")
    assert len(rows_of(txn("find-hanging", "hanging:0", "--broker", leader))) == 2
    assert rows_of(txn("find-hanging", "hanging:0", "--broker", leader % 3 + 1)) == []
    first, _, third, _ = txn("why", "hanging", 0).splitlines()
    assert first == "hanging-0: readers of committed records stop at offset 0, 4 records before its end"
    assert third == (
        "no coordinator knows that producer: the transaction hangs, and ends by hand: "
        "barnabas txn abort hanging 0 --start-offset 0"
    )
    told = json.loads(txn("abort", "hanging", 0, "--start-offset", 0, "--json"))
    assert (told["producer_id"], told["hangs"], told["aborted"]) == (unknown_id, True, True)
    third = txn("why", "hanging", 0).splitlines()[2]
    assert third.startswith(f"transactional id '{known.name}' of coordinator {known.coordinator_id} is Empty, without ")
    txn("abort", "hanging", 0, "--producer", known.producer_id)
    assert rows_of(txn("find-hanging")) == []
    assert wires[leader].ask(produce_request("hanging", batch(1)), 9)
    assert read(wires[leader], "hanging", 7, is_committed=True) == [6]


def test_what_hangs_is_found_by_the_age_that_it_has_in_the_log_after_a_restart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a broker that is killed had in memory only.
    monkeypatch.setattr(ReplicaState, "save", lambda *_: None)
    with RunningCluster(1, settings={"unstable.api.versions.enable": True}) as running:
        wires = Wires(running)
        wires[1].create("old")
        Transactional(wires, "other")  # there are coordinators from now on
        producer_id = new_producer_id(wires)
        hang(running, wires, "old-1", "old", producer_id, timestamp=now_ms() - HOUR_MS)
        wires.close()

        def found(longer_than: str) -> list[list[str]]:
            assert cli.main(["txn", "find-hanging", "old", "-b", running.bootstrap, "--longer-than", longer_than]) == 0
            return rows_of(capsys.readouterr().out)

        assert found("15m") == [], "its leader saw it just now"

        async def restart(cluster: Cluster) -> None:
            await cluster.stop(1)
            await cluster.start(1)
            await cluster.wait_ready()

        running.run(restart)
        assert [row[3] for row in found("15m")] == [str(producer_id)]
        assert found("2h") == []


def test_positions_of_a_group_in_a_transaction_are_seen_and_aborted_too(
    brokers: RunningCluster, txn: Run, wires: Wires
) -> None:
    wires[1].create("staged")
    one = Transactional(wires, "staged-1")
    group = GroupClient(brokers.bootstrap, "staged-group")
    group.commit_surely("staged", {0: 1})
    assert stage_surely(group, one, "staged", {0: 5}) == [0]
    ((topic, number),) = rows_of("\n".join(txn("describe", "staged-1").splitlines()[1:]))
    assert topic == "__consumer_offsets"
    assert "transactional id 'staged-1' of coordinator" in txn("why", topic, number)
    assert rows_of(txn("find-hanging", "--longer-than", "0s")) == []
    txn("abort", topic, number, "--producer", one.producer_id, "--force")
    assert stable_position(group, "staged", 0) == 1
    group.lose()


def test_without_every_coordinator_nothing_is_said_to_hang(
    brokers: RunningCluster, txn: Run, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[1].create("doubtful")
    hang(brokers, wires, "doubtful-1", "doubtful", new_producer_id(wires))

    async def unheard(*_: object) -> str:
        return "broker 3 did not answer: x"

    monkeypatch.setattr(standing, "_unheard", unheard)
    said = txn("abort", "doubtful", 0, "--start-offset", 0, status=1)
    assert "whether a coordinator knows the transaction is unknown: broker 3 did not answer: x; --force" in said
    assert "whether a coordinator knows it is unknown: broker 3" in txn("why", "doubtful", 0)
    assert json.loads(txn("why", "doubtful", 0, "--json"))["held_by"]["hangs"] is None
    monkeypatch.undo()
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", brokers.bootstrap)
    txn("abort", "doubtful", 0, "--start-offset", 0)


def test_brokers_without_transactions_are_said_to_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    with RunningCluster(1) as running:
        assert cli.main(["topic", "create", "t", "-b", running.bootstrap]) == 0
        capsys.readouterr()
        for words in (["list"], ["describe", "x"], ["producers", "t", "0"], ["why", "t", "0"], ["find-hanging"]):
            assert cli.main(["txn", *words, "-b", running.bootstrap, "--timeout", "5"]) == 1
            assert capsys.readouterr().err == f"barnabas: {NONE}\n", words
