"""Keeps how the transactions of a producer have ended, for partitions that may lose their markers. Pure.

A partition in page-cache mode may lose a marker with a loss of power, and keep the data before it. Its leader asks then
how that transaction has ended, and the producer's next one may have begun long ago. So of an id whose transactions have
such partitions each end is kept, by the epoch of the transaction's data, for as long as the id has that producer id or
has it as its last but one.

*Runs.* Most transactions commit, so what is kept are runs of epochs that have ended alike: two bytes for each, and one
run however many thousand commits. `RUNS_MAX` of them are kept for a producer id; the oldest go beyond that. An epoch of
which nothing is kept has ended all the same, and counts as aborted: what was aborted must never be read, and what was
committed and has lost its marker is a row that page-cache mode has cost.

*Version 1* ends many transactions in one epoch. If they have not all ended alike, nobody can tell which of them a
partition asks about: that is kept as mixed, and counts as aborted, too.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from .producers import Producer

__all__ = ["RUNS_MAX", "RUN_BYTES", "KeptOutcomes", "Outcome", "begun", "ended", "outcome_in"]

RUNS_MAX = 500
"""A kilobyte in each record of an id that often changes between commits and aborts, and some thousand transactions."""
PRODUCERS_MAX = 2
RUN_BYTES = 2
_RUN = struct.Struct(">H")
_KIND_BITS = 2
_LENGTH_MAX = (1 << 16 - _KIND_BITS) - 1


class Outcome(IntEnum):
    """How a transaction stands. The value is that of the question between brokers (`outcome_messages`)."""

    OPEN = 0
    """It is under way, or its marker is: there will be one."""

    COMMIT = 1
    ABORT = 2


class _Kind(IntEnum):
    """How the transactions of an epoch have ended, as it is saved."""

    COMMIT = 1
    ABORT = 2
    MIXED = 3


class KeptOutcomes(NamedTuple):
    """What is kept of one producer id. The last of `runs`, each length and kind, ends before `end_epoch`."""

    producer_id: int
    end_epoch: int
    runs: bytes = b""


def begun(kept: tuple[KeptOutcomes, ...], producer: Producer) -> tuple[KeptOutcomes, ...]:
    """Keep outcomes from the present transaction of `producer` on, if it is not done yet."""
    if kept and kept[-1].producer_id == producer.producer_id:
        return kept
    return (*kept, KeptOutcomes(producer.producer_id, producer.epoch))[-PRODUCERS_MAX:]


def ended(kept: tuple[KeptOutcomes, ...], producer: Producer, *, is_commit: bool) -> tuple[KeptOutcomes, ...]:
    """Note the end of the transaction whose data has this producer, if that is to be kept."""
    if not kept or kept[-1].producer_id != producer.producer_id:
        return kept
    producer_id, end_epoch, runs = kept[-1]
    kind = _Kind.COMMIT if is_commit else _Kind.ABORT
    if producer.epoch >= end_epoch:
        # An epoch in which nothing has ended has no data; if it has, nobody has committed that.
        runs = _longer(runs, producer.epoch - end_epoch, _Kind.ABORT)
        runs = _longer(runs, 1, kind)
        end_epoch = producer.epoch + 1
    elif producer.epoch == end_epoch - 1 and runs:
        _, last = _run_before(runs, len(runs))
        if last != kind:
            runs = _longer(_shorter(runs), 1, _Kind.MIXED)
    return (*kept[:-1], KeptOutcomes(producer_id, end_epoch, runs[-_RUN.size * RUNS_MAX :]))


def outcome_in(kept: tuple[KeptOutcomes, ...], producer: Producer) -> Outcome | None:
    """Return how the transaction whose data has this producer has ended; None: that is not kept."""
    for producer_id, end_epoch, runs in kept:
        if producer_id != producer.producer_id or producer.epoch >= end_epoch:
            continue
        first_epoch = end_epoch
        end = len(runs)
        while end:
            length, kind = _run_before(runs, end)
            end -= _RUN.size
            first_epoch -= length
            if producer.epoch >= first_epoch:
                return Outcome.COMMIT if kind == _Kind.COMMIT else Outcome.ABORT
    return None


def _run_before(runs: bytes, end: int) -> tuple[int, int]:
    (run,) = _RUN.unpack_from(runs, end - _RUN.size)
    return run >> _KIND_BITS, run & (1 << _KIND_BITS) - 1


def _longer(runs: bytes, count: int, kind: int) -> bytes:
    """Return runs with so many epochs more at their end."""
    if runs:
        length, last = _run_before(runs, len(runs))
        if last == kind:
            count += length
            runs = runs[: -_RUN.size]
    while count:
        length = min(count, _LENGTH_MAX)
        runs += _RUN.pack(length << _KIND_BITS | kind)
        count -= length
    return runs


def _shorter(runs: bytes) -> bytes:
    """Return runs with one epoch less at their end."""
    length, kind = _run_before(runs, len(runs))
    rest = runs[: -_RUN.size]
    return rest if length == 1 else rest + _RUN.pack(length - 1 << _KIND_BITS | kind)
