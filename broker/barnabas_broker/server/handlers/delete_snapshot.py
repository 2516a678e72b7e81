"""DeleteSnapshot: have the controller delete a named snapshot."""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_clients.protocol.delete_snapshot import DeleteSnapshotRequest, DeleteSnapshotResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import DeleteSnapshot, Refused
from barnabas_metadata_quorum.controller.named_snapshots import check_name

from .create_topics import code_of, limit_s

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: DeleteSnapshotRequest) -> DeleteSnapshotResponse:
    """Ask the controller."""
    command = DeleteSnapshot(request.name, request.snapshot_id)
    try:
        check_name(request.name)
        await broker.metadata.submit(command, limit_s(request.timeout_ms))
    except Refused as refused:
        return DeleteSnapshotResponse(error_code=code_of(refused.reason), error_message=in_words(refused.message))
    return DeleteSnapshotResponse()


def refuse(_: DeleteSnapshotRequest, code: ErrorCode) -> DeleteSnapshotResponse:
    """Answer with `code`."""
    return DeleteSnapshotResponse(error_code=code)
