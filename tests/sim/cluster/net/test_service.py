"""The net catches planted mistakes that keep a cluster or a client from its duties.

Each is planted in a run that is clean without the mistake, which the first test shows, or has a control of its own.
"""

import asyncio
from array import array
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.leadership.preferred_leaders import PreferredLeaders
from barnabas_broker.partition.partition import Partition as BrokerPartition
from barnabas_broker.partition.waiters import CommitWaiters
from barnabas_broker.replicas.reassignment import Moves
from barnabas_broker.server.handlers.fetch import _Fetch, _Look
from barnabas_broker.timing.timers import Timers
from barnabas_clients import ClientError, Consumer
from barnabas_clients.consumer.reader import Reader
from barnabas_clients.producer import exchange as produce_exchange
from barnabas_clients.producer import sender
from barnabas_clients.producer.sequences import Outcome
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.leaders import announcer
from barnabas_raftlog.links.links import Links
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.raft.log_ends import LogEnds
from sim.cluster.clients import mixed_reader
from sim.cluster.judges.availability import CHECKS
from sim.cluster.machines.loop import VirtualLoop
from sim.cluster.scenario import Run, SimulationError, run_choice
from sim.cluster.service import LAG_MS, Load, Service
from sim.cluster.shrink import shrink
from sim.cluster.swarm import Choice, Fault, at_ease
from sim.cluster.world import MS, SECOND

SEEDS = 3  # within which a mistake is noticed by any chance
Plant = Callable[[pytest.MonkeyPatch], None]


def at_work(**service: Any) -> Choice:
    """Return four brokers, two partitions on three of them, and a service that is judged."""
    calm = at_ease()
    far = service.get("distance_us", (0, 0))
    return calm._replace(
        nodes=4,
        replication_factor=3,
        partitions=2,
        members=0,
        moves=False,
        observers=False,
        racks=1,
        deletes=False,
        compacts=False,
        topics_come_and_go=False,
        flush_mode="fsync",
        drift=(1.0,) * 4,
        sync_us_max=5 * MS,
        conditions=calm.conditions._replace(distance_us_min=far[0], distance_us_max=far[1], loss_rate=0.0),
        safety_us=4 * SECOND,
        service=Service(min_insync=2, lag_ms=LAG_MS, lasting_us=4 * SECOND, **service),
    )


FAR_LOAD = at_work(distance_us=(20 * MS, 40 * MS), loads=(Load(1, 40),))
MIXED = at_work(distance_us=(20 * MS, 40 * MS), loads=(Load(1, 40),) * 3, tail_bytes=60_000, mixed_readers=4)._replace(
    record_bytes=3_000, nodes=3, partitions=6, drift=(1.0,) * 3
)
MOVES = at_work()._replace(moves=True, safety_us=13 * SECOND)
MEMBERS = at_work(dies_us=2_600 * MS)._replace(members=2)
CRASH = Fault(3 * SECOND, "crash", (0, 1), SECOND // 2)
AFTER_A_CRASH = at_work()._replace(faults=(CRASH,))
COMES_HOME = AFTER_A_CRASH._replace(service=AFTER_A_CRASH.service._replace(lasting_us=14 * SECOND))
OWN = at_work(producers=2, consumers=2, admins=1)


def forget_older_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the newest sample of where the log ended replace all: no follower that is a round trip behind reaches it."""

    def note(ends: LogEnds, last_index: int, now_ms: int) -> None:
        if last_index > ends.last_index:
            ends._ends = array("q", [ends.last_index])
            ends._moments_ms = array("q", [now_ms])
            ends.last_index = last_index

    monkeypatch.setattr(LogEnds, "note", note)


def read_memory_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches in memory take the room of those named before them, if batches are larger than the room."""
    monkeypatch.setattr(mixed_reader, "PARTITION_BYTES", (1_000,))
    monkeypatch.setattr(mixed_reader, "AGAIN", 0.2)
    read = _Look._read_from_memory

    def read_anyway(look: _Look, *asked: Any) -> None:
        before = look.unread
        look.unread = []
        read(look, *asked)
        look.unread = before + look.unread

    monkeypatch.setattr(_Look, "_read_from_memory", read_anyway)


def lose_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one of many who wait for a commit be forgotten."""
    take = CommitWaiters.take_committed
    counter = [0]

    def forgetful(waiters: Any, commit_index: int) -> list[Any]:
        taken = take(waiters, commit_index)
        counter[0] += len(taken)
        return taken[1:] if taken and not counter[0] % 50 else taken

    monkeypatch.setattr(CommitWaiters, "take_committed", forgetful)


def is_later_than(us: int) -> bool:
    loop = asyncio.get_running_loop()
    return isinstance(loop, VirtualLoop) and loop.world.now_us > us


def drop_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only voters hear who leads from the crash on."""
    post = Links.post

    def drop(links: Links, node_id: int, method: str, body: bytes) -> None:
        if method != announcer.METHOD or not is_later_than(CRASH.at_us):
            post(links, node_id, method, body)

    monkeypatch.setattr(Links, "post", drop)


def never_arm_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the timer of a broker's deadlines ring for some time, and then never more."""
    fire = Timers._fire

    def ring(timers: Timers) -> None:
        if not is_later_than(2_500 * MS):
            fire(timers)

    monkeypatch.setattr(Timers, "_fire", ring)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [FAR_LOAD, MIXED, MEMBERS, OWN, MOVES, COMES_HOME],
    ids=["far", "mixed", "members", "own clients", "moves", "after a crash"],
)
def test_a_run_without_mistakes_owes_and_gives_everything(choice: Choice) -> None:
    counts = run_choice(choice).world.counts
    assert counts["looks when all was owed"] >= 40


def keep_leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no leadership go home."""

    def stay(_: PreferredLeaders) -> Generator[None, None, bool]:
        yield from ()
        return False

    monkeypatch.setattr(PreferredLeaders, "move", stay)


def never_end_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody carry out moves."""
    monkeypatch.setattr(Moves, "review", lambda *_: False)


def lose_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few fetches be neither parked nor answered."""
    answer = _Fetch._answer
    counter = [0]

    def lose(fetch: _Fetch, look: _Look) -> Generator[None, None, None]:
        counter[0] += 1
        if counter[0] % 70:
            yield from answer(fetch, look)

    monkeypatch.setattr(_Fetch, "_answer", lose)


def run_seeds(choice: Choice) -> None:
    for seed in range(SEEDS):
        run_choice(choice._replace(seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "plant", "check"),
    [
        (FAR_LOAD, forget_older_ends, "in-sync replicas whole"),
        (MIXED, read_memory_first, "every partition advances"),
        (FAR_LOAD._replace(service=FAR_LOAD.service._replace(loads=(Load(-1, 40),))), lose_waiters, "no refusal"),
        (AFTER_A_CRASH, drop_announcements, "leaders known"),
        (COMES_HOME, keep_leaders, "leaders home"),
        (MOVES, never_end_moves, "moves end"),
        (FAR_LOAD, lose_answers, "fetch answered"),
        (MEMBERS, never_arm_again, "the dead leave"),
    ],
    ids=[
        "the in-sync rule",
        "request order",
        "a waiter",
        "an announcement",
        "a way home",
        "a move",
        "an answer",
        "a timer",
    ],
)
def test_what_is_owed_is_missed_when_it_is_not_given(
    choice: Choice, plant: Plant, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert check in CHECKS
    with pytest.raises(SimulationError, match=f"InvariantError: {check}: "):
        run_seeds(choice)


# Outcomes of our producer. Either mistake needs something to happen, with which a producer as it is comes to terms.

ALONE = at_work(producers=1)._replace(idempotent_producers=0, plain_producers=0, safety_us=18 * SECOND)
SILENCE_US = 3 * SECOND, 17 * SECOND


def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no answer reach our producer for longer than its deliveries may take; requests reach the brokers."""
    begin_work = Run._begin_work

    def begin(run: Run) -> None:
        begin_work(run)
        for machine in run.machines.values():
            run.world.at(SILENCE_US[0], partial(run.network.cut, machine.name, run.own[0].client.name))
        run.world.at(SILENCE_US[1], run.network.mend)

    monkeypatch.setattr(Run, "_begin_work", begin)


def be_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one batch of ten find the disk too far behind: it is answered REQUEST_TIMED_OUT, and is not appended."""
    append = BrokerPartition.append
    counter = [0]

    def refuse(partition: BrokerPartition, *batch: Any, **more: Any) -> tuple[int, int]:
        counter[0] += 1
        if not counter[0] % 10:
            raise StorageBusyError("the disk is behind")
        return append(partition, *batch, **more)

    monkeypatch.setattr(BrokerPartition, "append", refuse)


def take_silence_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = sender.Sender._settle

    def settle_wrongly(sender: Any, under_way: Any, outcome: Outcome, error: Any, **more: Any) -> None:
        is_lost = outcome is Outcome.UNKNOWN and isinstance(error, ClientError)
        settle(sender, under_way, Outcome.NOT_NOW if is_lost else outcome, error, **more)

    monkeypatch.setattr(sender.Sender, "_settle", settle_wrongly)


def take_a_timeout_for_a_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome_of = produce_exchange.outcome_of

    def guess(code: int) -> Outcome:
        return Outcome.APPENDED if code == ErrorCode.REQUEST_TIMED_OUT else outcome_of(code)

    monkeypatch.setattr(sender, "outcome_of", guess)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happens", "mistake", "claim"),
    [
        (silence, take_silence_for_a_refusal, "is refused|was refused"),
        (be_busy, take_a_timeout_for_a_delivery, "is nowhere"),
    ],
    ids=["silence", "a busy disk"],
)
def test_our_producer_says_what_became_of_each_record_and_a_wrong_word_is_noticed(
    happens: Plant, mistake: Plant, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    happens(monkeypatch)
    counts = run_choice(ALONE._replace(service=Service(producers=1))).world.counts
    assert counts["own delivered"] >= 20
    mistake(monkeypatch)
    with pytest.raises(SimulationError, match=claim):
        run_choice(ALONE._replace(service=Service(producers=1)))


def commit_more_than_was_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    handed_offsets = Reader.handed_offsets

    def more(reader: Reader) -> Any:
        offsets = handed_offsets(reader)
        return {key: stored._replace(offset=stored.offset + 50) for key, stored in offsets.items()}

    monkeypatch.setattr(Reader, "handed_offsets", more)


def pass_over_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    get_many = Consumer.get_many
    counter = [0]

    async def get_fewer(consumer: Consumer, *args: Any) -> Any:
        found = await get_many(consumer, *args)
        counter[0] += len(found)
        if found and counter[0] > 20:
            next(iter(found.values())).pop(0)
        return found

    monkeypatch.setattr(Consumer, "get_many", get_fewer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "claim"),
    [(commit_more_than_was_handed_out, "is stored for"), (pass_over_a_record, "goes on at|is stored for")],
)
def test_what_our_consumer_passes_over_or_commits_too_soon_is_noticed(
    mistake: Plant, claim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(SimulationError, match=claim):
        run_seeds(OWN)


def test_a_smaller_service_that_fails_too_is_found() -> None:
    large = at_work(producers=2, consumers=2, listers=1, distance_us=(10, 20))
    small = shrink(large, lambda choice: choice.service.consumers == 2)
    assert small.service == Service(consumers=2)


def test_the_readme_names_every_check_and_its_claim() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    assert {name for name, claim in CHECKS.items() if f"| {name} | {claim} |" in text.replace("`", "")} == set(CHECKS)
