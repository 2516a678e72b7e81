"""Clients hear codes that their version of a message knows."""

import pytest

from barnabas_broker.coordinators.transactions.state_machine.codes import code_for
from barnabas_clients.protocol.error_codes import ErrorCode

FENCED, ABORTABLE = ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTION_ABORTABLE
OLD_FENCED, OLD_ABORTABLE = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("api_key", "since"), [(22, 4), (24, 2), (25, 2), (26, 2)])
def test_t11_producer_fenced_is_invalid_producer_epoch_for_older_clients(api_key: int, since: int) -> None:
    assert code_for(api_key, since - 1, FENCED) == OLD_FENCED
    assert code_for(api_key, since, FENCED) == FENCED


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_t11_produce_always_says_invalid_producer_epoch(version: int) -> None:
    assert code_for(0, version, FENCED) == OLD_FENCED


@pytest.mark.parametrize(("api_key", "since"), [(0, 11), (22, 5), (24, 5), (25, 4), (26, 4), (28, 4)])
def test_t11_transaction_abortable_is_invalid_txn_state_for_older_clients(api_key: int, since: int) -> None:
    assert code_for(api_key, since - 1, ABORTABLE) == OLD_ABORTABLE
    assert code_for(api_key, since, ABORTABLE) == ABORTABLE


@pytest.mark.parametrize("code", [one for one in ErrorCode if one not in {FENCED, ABORTABLE}])
def test_other_codes_stay(code: ErrorCode) -> None:
    assert {code_for(api_key, 0, code) for api_key in (0, 22, 24, 25, 26, 28)} == {code}


def test_offsets_are_refused_as_fenced_from_the_first_version_on() -> None:
    assert code_for(28, 0, FENCED) == FENCED
