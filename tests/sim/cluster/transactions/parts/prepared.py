"""Two-phase commit (KIP-939): transactions that are prepared, and wait for whoever decides about them.

A *preparer* has one process after another. Each sends a few records in a transaction, prepares it and dies; now and
then it dies before. What becomes of the transaction is decided elsewhere, sometimes long after it would have timed out.
Then a successor comes (InitProducerId with `keep_prepared_txn`), must be given exactly that transaction, and ends it;
or it is ended by name, with the id and epoch that the process has reported. A second successor fences the first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas_broker.history import events as e
from barnabas_clients import ClientError, KafkaError
from barnabas_clients.producer.transaction import PreparedTransaction
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_raftlog.wire.schema import Message
from sim.cluster.clients.client import Trouble, WireClient
from sim.cluster.transactions.clients import RECORDS_A_TRANSACTION, Transacting
from sim.cluster.transactions.telling import Outcome, Telling
from sim.cluster.world import MS

from .side import Side, Surroundings

__all__ = ["Prepared", "coordinator_of"]

TRANSACTION = 1  # the kind of a key in FindCoordinator
DIES_EARLY = 0.35
COMMITS = 0.7
WAITS_LONG = 0.3
LIFE_MS_MAX = 20_000
PASSING = frozenset({*RETRIABLE, ErrorCode.CONCURRENT_TRANSACTIONS})
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class _Ongoing(NamedTuple):
    """A successor: who it is, and whose transaction it was given; -1 for none."""

    producer_id: int
    epoch: int
    ongoing_id: int
    ongoing_epoch: int


class _Process:
    """One process of a preparer, with a loop of its own. `prepared`: the name of its transaction, when it has one."""

    def __init__(self, preparer: "Preparer", client: WireClient, name: str) -> None:
        self.client = client
        self.prepared: PreparedTransaction | None = None
        self.has_begun = self.is_over = False
        self.transaction = preparer.ledger.new_name(name)
        self.telling: Telling | None = None
        self._preparer = preparer
        self._name = name

    async def run(self) -> None:
        self.has_begun = True
        preparer = self._preparer
        rng = self.client.rng
        producer = preparer.producer()
        producer.prepare_all()
        telling = self.telling = Telling(preparer.ledger, producer, self._name)
        try:
            await producer.start()
            transaction = producer.transaction()
            await transaction.begin()
            telling.tell_owner()
            for _ in range(rng.randrange(1, RECORDS_A_TRANSACTION)):
                await telling.send(self.transaction, rng.choice(preparer.partitions))
                await self.client.pause(1, 40)
            await telling.settle()
            self.prepared = await producer.prepare()
        except (ClientError, KafkaError) as error:
            self.client.world.note(self._name, f"is not prepared: {error!r}")
        self.is_over = True

    def die(self) -> None:
        """End without a word, whatever is under way."""
        loop = self.client.loop
        loop.kill()
        loop.network.close_process(loop, silently=False)
        if self.telling is not None:
            self.telling.settle_rest()


class Preparer(Transacting):
    """See the module."""

    def __init__(self, around: Surroundings, side: "Prepared") -> None:
        service = around.service
        super().__init__(around.new_client(), around.ledger, side.partitions, service.transaction_timeout_ms)
        self._new_client = around.new_client

    async def run(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            self._lives += 1
            await self._live(f"{self.client.name}.{self._lives}", goes_on)
        self.is_done = True

    async def _live(self, name: str, _: Callable[[], bool]) -> None:
        client = self.client
        world = client.world
        process = _Process(self, self._new_client(), name)
        self.ledger.tell(e.Begun(transaction=process.transaction))
        process.client.start(process.run())
        life_ms = client.rng.randrange(10, 400) if client.rng.random() < DIES_EARLY else LIFE_MS_MAX
        until_us = world.now_us + life_ms * MS
        while not process.is_over and (world.now_us < until_us or not process.has_begun):
            await client.pause(2, 20)
        process.die()
        prepared = process.prepared
        is_commit = prepared is not None and client.rng.random() < COMMITS
        if prepared is not None:
            world.counts["two-phase prepared"] += 1
            await self._let_it_wait()
        if is_commit:
            self.ledger.tell(e.Ending(transaction=process.transaction, commit=True))
        await self._finish(prepared, is_commit=is_commit)
        outcome: Outcome = "committed" if is_commit else "aborted"
        world.note(name, f"{process.transaction} is {outcome}")
        self.ledger.tell(e.Ended(transaction=process.transaction, outcome=outcome))
        self.ledger.on_outcome(outcome)

    async def _let_it_wait(self) -> None:
        """Nobody decides for a while, perhaps for longer than others' transactions may last."""
        client = self.client
        if client.rng.random() < WAITS_LONG:
            client.world.counts["two-phase waited long"] += 1
            await client.pause(self.timeout_ms + 1_200, self.timeout_ms + 2_500)
        else:
            await client.pause(1, 300)

    async def _finish(self, prepared: PreparedTransaction | None, *, is_commit: bool) -> None:
        """End what the process has left open."""
        way = self.client.rng.random()
        if prepared is not None and way < 0.3:
            await self._end(prepared.producer_id, prepared.epoch, is_commit=is_commit)
            self.client.world.counts["two-phase ended by name"] += 1
            return
        first = await self._succeed(prepared)
        if first.ongoing_id < 0:
            return
        last = first
        if way < 0.6:
            last = await self._succeed(prepared)
            await self._be_fenced(first, is_commit=not is_commit)
        self.client.world.counts["two-phase died unprepared"] += prepared is None
        await self._end(last.producer_id, last.epoch, is_commit=is_commit)
        self.client.world.counts["two-phase ended by a successor"] += prepared is not None

    async def _succeed(self, prepared: PreparedTransaction | None) -> _Ongoing:
        """Become the successor of whoever has the id, and look at what is given."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            enable_2pc=True,
            keep_prepared_txn=True,
        )
        answer = await self._ask_until_done(request)
        given = _Ongoing(
            answer.producer_id, answer.producer_epoch, answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        )
        if prepared is not None and given[2:] != (prepared.producer_id, prepared.epoch):
            self.client.world.violate(f"{prepared} was prepared, and its successor is given {given}")
        return given

    async def _be_fenced(self, first: _Ongoing, *, is_commit: bool) -> None:
        """Let a successor that has one itself try what the other one does not want."""
        try:
            answer = await self._ask_once(self._end_request(first.producer_id, first.epoch, is_commit=is_commit))
        except Trouble:
            return
        code = ErrorCode(answer.error_code)
        if code in FENCED:
            self.client.world.counts["two-phase successors fenced"] += 1
        elif code not in PASSING:
            self.client.world.violate(f"{first} has a successor, and its EndTxn is answered {code.name}")

    async def _end(self, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        await self._ask_until_done(self._end_request(producer_id, epoch, is_commit=is_commit))

    def _end_request(self, producer_id: int, epoch: int, *, is_commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )

    async def _ask_until_done(self, request: Message) -> Any:
        """Ask the coordinator until it has done it."""
        while True:
            try:
                answer = await self._ask_once(request)
            except Trouble as trouble:
                self.client.world.note(self.client.name, str(trouble))
            else:
                code = ErrorCode(answer.error_code)
                if code == ErrorCode.NONE:
                    return answer
                self.client.world.note(self.client.name, f"{type(request).__name__}: {code.name}")
                assert code in PASSING, f"{request}: {code.name}"
            await self.client.pause(20, 200)

    async def _ask_once(self, request: Message) -> Any:
        node_id = await coordinator_of(self.client, self.transactional_id)
        return await self.client.ask(node_id, request)


async def coordinator_of(client: WireClient, transactional_id: str) -> int:
    """Return the node that coordinates a transactional id, by any broker's word.

    Raises:
        Trouble: nobody says.
    """
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=(transactional_id,))
    (found,) = (await client.ask_anybody(request)).coordinators
    if found.error_code != ErrorCode.NONE:
        raise Trouble(ErrorCode(found.error_code).name)
    node_id: int = found.node_id
    return node_id


class Prepared(Side):
    """The part of a run that has two-phase commit."""

    topic = "prepared"

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around, 1 + around.world.seed // 3 % 2)

    def begin(self) -> None:
        for _ in range(self.around.service.parts.preparers):
            preparer = Preparer(self.around, self)
            preparer.client.start(preparer.run(self.around.goes_on))
            self.clients.append(preparer)
