"""Messages for tests: every value has its name, and what a test does not care for need not be said."""

from collections.abc import Sequence

from barnabas_raftlog.raft.membership import NOBODY, UNKNOWN_DIRECTORY, Configuration
from barnabas_raftlog.raft.messages import (
    AppendEntries,
    AppendResponse,
    Buffer,
    Entry,
    InstallSnapshot,
    PeerDigest,
    Place,
    VoteRequest,
    VoteResponse,
)

__all__ = [
    "acknowledgement",
    "append_entries",
    "install_snapshot",
    "peer_digest",
    "refusal",
    "vote_request",
    "vote_response",
]


def vote_request(
    *,
    term: int,
    source: int,
    target: int,
    last_index: int = 0,
    last_term: int = 0,
    pre: bool = False,
    transfer: bool = False,
    is_learner: bool = False,
) -> VoteRequest:
    return VoteRequest(
        term=term,
        source=source,
        target=target,
        last_index=last_index,
        last_term=last_term,
        pre=pre,
        transfer=transfer,
        is_learner=is_learner,
    )


def vote_response(
    *,
    term: int,
    source: int,
    target: int,
    granted: bool = True,
    pre: bool = False,
    directory_id: bytes = UNKNOWN_DIRECTORY,
    commit_index: int = 0,
    commit_term: int = 0,
) -> VoteResponse:
    return VoteResponse(
        term=term,
        source=source,
        target=target,
        granted=granted,
        pre=pre,
        directory_id=directory_id,
        commit_index=commit_index,
        commit_term=commit_term,
    )


def append_entries(
    *,
    term: int,
    source: int,
    target: int,
    prev_index: int = 0,
    prev_term: int = 0,
    commit_index: int = 0,
    round: int = 0,  # noqa: A002 - as the message calls it
    quiesce: bool = False,
    entries: Sequence[Entry] = (),
    certain: int = 0,
    released_index: int = 0,
) -> AppendEntries:
    """Return an append; without entries it is a heartbeat."""
    return AppendEntries(
        term=term,
        source=source,
        target=target,
        prev_index=prev_index,
        prev_term=prev_term,
        commit_index=commit_index,
        round=round,
        quiesce=quiesce,
        entries=entries,
        certain=certain,
        released_index=released_index,
    )


def acknowledgement(
    *,
    term: int,
    source: int,
    target: int,
    match_index: int,
    round: int = 0,  # noqa: A002 - as the message calls it
    directory_id: bytes = UNKNOWN_DIRECTORY,
    uncertain: int = 0,
) -> AppendResponse:
    return AppendResponse(
        term=term,
        source=source,
        target=target,
        match_index=match_index,
        round=round,
        rejected=False,
        hint_index=0,
        hint_term=0,
        directory_id=directory_id,
        uncertain=uncertain,
    )


def refusal(
    *,
    term: int,
    source: int,
    target: int,
    refused_index: int = 0,
    round: int = 0,  # noqa: A002 - as the message calls it
    hint_index: int = 0,
    hint_term: int = 0,
) -> AppendResponse:
    return AppendResponse(
        term=term,
        source=source,
        target=target,
        match_index=refused_index,
        round=round,
        rejected=True,
        hint_index=hint_index,
        hint_term=hint_term,
    )


def install_snapshot(
    *,
    term: int,
    source: int,
    target: int,
    snapshot_index: int,
    snapshot_term: int,
    data: Buffer = b"",
    configuration: Configuration = NOBODY,
    witness_since: Place | None = None,
) -> InstallSnapshot:
    return InstallSnapshot(
        term=term,
        source=source,
        target=target,
        snapshot_index=snapshot_index,
        snapshot_term=snapshot_term,
        data=data,
        configuration=configuration,
        witness_since=witness_since,
    )


def peer_digest(
    *,
    peer: int,
    term: int,
    leader_id: int | None,
    last_index: int = 0,
    last_term: int = 0,
    round: int = 0,  # noqa: A002 - as the message calls it
    at_rest: bool = True,
    wants_answer: bool = False,
) -> PeerDigest:
    return PeerDigest(
        peer=peer,
        term=term,
        leader_id=leader_id,
        last_index=last_index,
        last_term=last_term,
        round=round,
        at_rest=at_rest,
        wants_answer=wants_answer,
    )
