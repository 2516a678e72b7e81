"""Says which error code a client of a certain version can understand. Pure.

A version of a message promises which codes it may answer with; an older client takes one that it does not know for a
failure of the broker. The machine decides with the newest codes, and each is put for the client here.
"""

from typing import Final

from barnabas_clients.protocol.error_codes import ErrorCode

__all__ = ["code_for"]

PRODUCE = 0
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
TXN_OFFSET_COMMIT = 28

# Since which version of a message. Produce never says PRODUCER_FENCED: its clients take INVALID_PRODUCER_EPOCH for the
# same, and know what to do about it.
_FENCED_SINCE: Final = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}
_ABORTABLE_SINCE: Final = {
    PRODUCE: 11,
    INIT_PRODUCER_ID: 5,
    ADD_PARTITIONS_TO_TXN: 5,
    ADD_OFFSETS_TO_TXN: 4,
    END_TXN: 4,
    TXN_OFFSET_COMMIT: 4,
}


def code_for(api_key: int, version: int, code: ErrorCode) -> ErrorCode:
    """Return the code that says the same to a client that sent `version` of a message."""
    if code == ErrorCode.PRODUCER_FENCED:
        if api_key == PRODUCE or version < _FENCED_SINCE.get(api_key, 0):
            return ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE.get(api_key, 0):
        return ErrorCode.INVALID_TXN_STATE
    return code
