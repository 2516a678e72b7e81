"""Asks coordinators about the transactional ids of a sink: ends transactions, looks at them, draws numbers.

In the second protocol every end is by the producer id and epoch of the one that is meant, so what comes late ends
nothing else.
"""

from typing import Final

from barnabas_clients.admin.transactions import describe_transactions
from barnabas_clients.admin.values import TransactionDescription
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.groups.coordinator import GROUP_LANE, Coordinator
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest

from .decisions import Prepared, Ticket, Vacant
from .vacancies import Owner

__all__ = [
    "ASKING_S",
    "GONE",
    "abort_transaction",
    "described",
    "end_transaction",
    "initialise",
    "is_second",
    "is_vacant",
]

# Of ids without transactions, and of those whose transaction is one small record.
ASKING_S: Final = 60.0
PREPARED_SINCE: Final = 6
"""The version of InitProducerId with which transactions are prepared, and offered where they can be (KIP-939)."""
NEVER_MS: Final = 2**31 - 1
"""Stands for the timeout of such a transaction."""
GONE: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


async def end_transaction(cluster: Cluster, one: Prepared, timeout_s: float, *, is_commit: bool) -> Owner | None:
    """End a transaction; return the owner of the id's next one, None in the first protocol."""
    coordinator = Coordinator.of_transactions(cluster, one.transactional_id)
    request = EndTxnRequest(
        transactional_id=one.transactional_id,
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        committed=is_commit,
    )
    versions = range(5, 6) if is_second(cluster) else range(5)

    async def attempt(deadline: float) -> Owner | None:
        response = await coordinator.ask(request, deadline, versions=versions)
        coordinator.judge(response.error_code)
        return Owner(response.producer_id, response.producer_epoch) if response.producer_id >= 0 else None

    return await coordinator.retry("the commit" if is_commit else "the abort", timeout_s, attempt)


def is_second(cluster: Cluster) -> bool:
    """Say whether the cluster speaks the second protocol of transactions."""
    return cluster.features.level("transaction.version") >= 2


async def abort_transaction(cluster: Cluster, one: TransactionDescription, timeout_s: float) -> None:
    """Abort a transaction, and nothing that has come behind it."""
    if not is_second(cluster):
        # The end would not raise the epoch. No id is used twice here.
        await initialise(cluster, one.transactional_id, timeout_s, "the abort")
        return
    try:
        prepared = Prepared(one.transactional_id, one.producer_id, one.producer_epoch)
        await end_transaction(cluster, prepared, timeout_s, is_commit=False)
    except KafkaError as error:
        # It has ended, by its age or because its attempt has failed.
        if error.code not in GONE:
            raise


async def is_vacant(cluster: Cluster, vacant: Vacant, given_ms: int, timeout_s: float) -> bool:
    """Say whether an id has ended as its record says, and has the timeout that it would be given today."""
    known = await described(cluster, vacant.transactional_id, timeout_s)
    if known is None:
        return False
    # While the markers of its last transaction are being written it may have the epoch of that.
    if known.state != "PrepareCommit" and (
        known.state not in {"Empty", "CompleteCommit", "CompleteAbort"}
        or (known.producer_id, known.producer_epoch) != (vacant.producer_id, vacant.epoch)
    ):
        return False
    connection = await cluster.connect(known.coordinator_id, timeout_s, GROUP_LANE)
    is_prepared = connection.version_of(InitProducerIdRequest) >= PREPARED_SINCE
    timeout_ms = NEVER_MS if is_prepared else given_ms
    return round(known.timeout_s * 1000) == timeout_ms


async def described(cluster: Cluster, transactional_id: str, timeout_s: float) -> TransactionDescription | None:
    """Return what is known of an id; None if it has expired."""
    try:
        return (await describe_transactions(cluster, [transactional_id], timeout_s))[transactional_id]
    except KafkaError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise


async def initialise(cluster: Cluster, transactional_id: str, timeout_s: float, what: str) -> Ticket:
    """Raise the epoch of an id, whoever has it, and return it: nobody else is told this one. Aborts what is open."""
    coordinator = Coordinator.of_transactions(cluster, transactional_id)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=int(ASKING_S * 1000))

    async def attempt(deadline: float) -> Ticket:
        response = await coordinator.ask(request, deadline)
        if response.error_code:
            coordinator.judge(response.error_code)
            raise error_for(response.error_code, transactional_id)
        return Ticket(response.producer_id, response.producer_epoch)

    return await coordinator.retry(what, timeout_s, attempt)
